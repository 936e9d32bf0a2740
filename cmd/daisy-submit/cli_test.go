package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/urfave/cli/v2"
)

var updateCLI = flag.Bool("update-cli", false, "write the part of docs/cli.md that is made from the program")

const cliPage = "../../docs/cli.md"

// What stands between these two lines of the page is made from the program.
const (
	cliBegin = "<!-- Made from the program: go test ./cmd/daisy-submit -run TestThePageOfCommands -update-cli -->\n"
	cliEnd   = "<!-- End of what is made from the program. -->\n"
)

func TestThePageOfCommandsIsWhatTheProgramSays(t *testing.T) {
	page, err := os.ReadFile(cliPage)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, begins := strings.Cut(string(page), cliBegin)
	was, tail, ends := strings.Cut(rest, cliEnd)
	if !begins || !ends {
		t.Fatalf("%s lacks the lines between which the commands stand:\n%s%s", cliPage, cliBegin, cliEnd)
	}
	now := commandsPage()
	if *updateCLI {
		if err := os.WriteFile(cliPage, []byte(head+cliBegin+now+cliEnd+tail), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(now, was); diff != "" {
		t.Errorf("%s is to be made anew with -update-cli: -program +page\n%s", cliPage, diff)
	}
}

// commandsPage describes every command with its options.
func commandsPage() string {
	var b bytes.Buffer
	for _, c := range newApp(io.Discard, io.Discard).Commands {
		if c.Hidden {
			continue
		}
		about, rest, _ := strings.Cut(c.Description, "\nEXAMPLE\n")
		example, statuses, _ := strings.Cut(rest, "\nEXIT STATUS\n")
		fmt.Fprintf(&b, "\n## %s\n\n```text\n%s\n```\n\n%s\n\nExample:\n\n```sh\n%s```\n", c.Name, unindented(c.UsageText), htmlSafe(strings.TrimSpace(about)), unindented(example))
		if len(c.Flags) > 0 {
			b.WriteString("\n| option | meaning |\n|---|---|\n")
		}
		for _, f := range c.Flags {
			option, meaning, _ := strings.Cut(f.String(), "\t")
			option, _, _ = strings.Cut(option, " [") // that it may be repeated is said
			fmt.Fprintf(&b, "| `%s` | %s |\n", strings.TrimSpace(option), cell(strings.TrimSuffix(meaning, " (default: false)")))
		}
		b.WriteString("\n| exit status | meaning |\n|---|---|\n")
		for line := range strings.Lines(statuses) {
			if status, meaning, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
				fmt.Fprintf(&b, "| %s | %s |\n", status, cell(strings.TrimSpace(meaning)))
			}
		}
	}
	b.WriteString("\n")
	return b.String()
}

func cell(s string) string { return htmlSafe(strings.ReplaceAll(s, "|", `\|`)) }

func htmlSafe(s string) string {
	return strings.NewReplacer("<", "&lt;", "_", `\_`, "*", `\*`).Replace(s)
}

func unindented(s string) string {
	var b strings.Builder
	for line := range strings.Lines(s) {
		b.WriteString(strings.TrimPrefix(line, "   "))
	}
	return b.String()
}

func TestEveryCommandHasAnExampleItsOwnExitStatusesAndNoFlagWithoutMeaning(t *testing.T) {
	for _, c := range newApp(io.Discard, io.Discard).Commands {
		about, rest, found := strings.Cut(c.Description, "\nEXAMPLE\n   daisy-submit "+c.Name)
		if _, statuses, ok := strings.Cut(rest, "\nEXIT STATUS\n   0 "); !found || !ok || !strings.Contains(statuses, "\n   2 ") || strings.TrimSpace(about) == "" {
			t.Errorf("%s lacks an example, exit statuses or a description:\n%s", c.Name, c.Description)
		}
		if c.Usage == "" || !strings.HasPrefix(c.UsageText, "daisy-submit "+c.Name) {
			t.Errorf("%s: usage %q, %q", c.Name, c.Usage, c.UsageText)
		}
		for _, f := range c.Flags {
			if d, ok := f.(cli.DocGenerationFlag); !ok || d.GetUsage() == "" {
				t.Errorf("%s: --%s has no meaning", c.Name, f.Names()[0])
			}
		}
	}
}
