package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"example.org/daisy/internal/testenv"
)

// completer is the completion script of a shell, with what makes it answer for a command line.
func completer(t *testing.T, shell string, ask func(script string, words []string) []string) func(words ...string) []string {
	t.Helper()
	program, err := exec.LookPath(shell)
	if err != nil {
		testenv.Unavailable(t, "there is no "+shell+" here: install it with apt-get install "+shell)
	}
	status, text, said := call("completion", shell)
	if status != exitOK {
		t.Fatal(said)
	}
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return func(words ...string) []string {
		t.Helper()
		cmd := exec.Command(program, ask(script, append([]string{"daisy-submit"}, words...))...)
		cmd.Dir = t.TempDir()
		cmd.Env = append(os.Environ(), "HOME="+cmd.Dir)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return strings.Split(strings.TrimSpace(string(out)), "\n")
	}
}

// wantCompletions checks what every shell offers.
func wantCompletions(t *testing.T, complete func(words ...string) []string) {
	t.Helper()
	for _, c := range []struct {
		line       string
		want, none string
	}{
		{"", "run", "--json"},
		{"ru", "run-block", "local"},
		{"run --", "--max-workers", "--prune"},
		{"run --", "--help", "--older-than"},
		{"runs --", "--older-than", "--max-workers"},
		{"run --launcher ", "serial", "bash"},
		{"stats --format ", "markdown", "serial"},
		{"completion ", "fish", "markdown"},
	} {
		got := map[string]bool{}
		for _, line := range complete(strings.Split(c.line, " ")...) {
			word, _, _ := strings.Cut(line, "\t")
			got[word] = true
		}
		if !got[c.want] || got[c.none] {
			t.Errorf("%q offers %v, want %s and not %s", c.line, got, c.want, c.none)
		}
	}
}

func TestBashCompletesCommandsAndOptions(t *testing.T) {
	wantCompletions(t, completer(t, "bash", func(script string, words []string) []string {
		return append([]string{"--norc", "-c", fmt.Sprintf(`source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=%d; _daisy_submit; printf '%%s\n' "${COMPREPLY[@]}"; complete -p daisy-submit >/dev/null`, len(words)-1), "bash", script}, words...)
	}))
}

func TestZshCompletesCommandsAndOptions(t *testing.T) {
	// What zsh's completion system would do with the answers is left out: they are printed.
	const stubs = `compdef() { true }; _files() { true }; compadd() { print -l -- ${(P)2} }; _describe() { local e; for e in ${(P)2}; do print -- ${e%%:*}; done }; `
	wantCompletions(t, completer(t, "zsh", func(script string, words []string) []string {
		return append([]string{"-f", "-c", fmt.Sprintf(`%ssource "$1"; shift; words=("$@"); CURRENT=%d; _daisy_submit`, stubs, len(words)), "zsh", script}, words...)
	}))
}

func TestFishCompletesCommandsAndOptions(t *testing.T) {
	wantCompletions(t, completer(t, "fish", func(script string, words []string) []string {
		return []string{"--no-config", "-c", fmt.Sprintf(`source '%s'; complete -C '%s'`, script, strings.Join(words, " "))}
	}))
}

func TestEveryCommandIsCompleted(t *testing.T) {
	wantHelp(t, "completion", "0", "2", "3")
	app := newApp(nil, nil)
	list := completions(app)
	if len(list) != len(app.Commands) {
		t.Errorf("%d commands are completed of %d", len(list), len(app.Commands))
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		_, script, _ := call("completion", shell)
		for _, c := range app.Commands {
			if !strings.Contains(script, c.Name) {
				t.Errorf("%s knows no %s", shell, c.Name)
			}
		}
	}
	if status, _, said := call("completion", "csh"); status != exitUsage || !strings.Contains(said, "bash, zsh and fish") {
		t.Errorf("status %d: %s", status, said)
	}
}
