// Package templates renders batch scripts. Values reach a script only as words that Quote wrote, so that no value, whatever its
// bytes, is ever read as shell; the one exception is what the job file calls setup, which is shell. What has been rendered is
// parsed before anything is submitted.
package templates

import (
	"bytes"
	_ "embed" // the script
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/template"

	"mvdan.cc/sh/v3/syntax"
)

//go:embed worker.sbatch.tmpl
var workerText string

// Worker is the template that is used where the job names none.
var Worker = &Template{name: "worker.sbatch.tmpl", text: workerText}

//go:embed coordinator.sbatch.tmpl
var coordinatorText string

// Coordinator is the template of the job that is a run's coordinator. Of the values it has Argv, Dir, Setup and Login.
var Coordinator = &Template{name: "coordinator.sbatch.tmpl", text: coordinatorText}

// Values are what a script is made of.
type Values struct {
	// Argv is the program with its arguments.
	Argv []string
	// Launch is what starts it, such as srun with its options; empty = the script itself.
	Launch []string
	// Env are variables ("K=V") that the worker gets although no shell can hold them: their names are none of a shell.
	Env []string
	// GPUs: DAISY_GPUS is to hold the devices that the batch system gave.
	GPUs bool
	// Tag names the submission.
	Tag string
	// Dir is where the worker runs, Folders are made before it starts.
	Dir     string
	Folders []string
	// Setup is shell, which runs in the script before the worker.
	Setup string
	// Login makes it a script of a login shell, which reads the user's profile.
	Login bool
}

// fields are the names that a template can use, each with what it stands for.
var fields = [][2]string{
	{"Worker", "the command line of the worker"},
	{"Dir", "the folder in which the worker runs"},
	{"Folders", "folders that have to be there, a list"},
	{"Setup", "the shell lines of the key setup"},
	{"Login", "whether login_env is set"},
	{"Tag", "the number of the submission"},
}

// A word is a value, quoted. It has no other form: whatever a template does with it, it gets the quoted text.
type word struct{ quoted string }

func (w word) String() string { return w.quoted }

// data is what templates see.
type data struct {
	Worker  word
	Command word // the same, under the name for what is no worker
	Dir     word
	Folders []word
	Setup   string
	Login   bool
	Tag     word
}

// quoted makes the words of the values; errors are zero bytes.
func (v *Values) quoted() (*data, error) {
	var errs []error
	quote := func(what, s string) word {
		q, err := Quote(s)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", what, err))
		}
		return word{q}
	}
	d := &data{Login: v.Login, Dir: quote("the folder", v.Dir), Tag: quote("the tag", v.Tag)}
	for _, f := range v.Folders {
		d.Folders = append(d.Folders, quote("a folder", f))
	}
	if strings.IndexByte(v.Setup, 0) >= 0 {
		errs = append(errs, errors.New("setup has a zero byte, which no script can hold"))
	}
	// sbatch refuses scripts with the line ends of DOS.
	d.Setup = strings.TrimRight(strings.ReplaceAll(v.Setup, "\r\n", "\n"), "\n")
	words := slices.Clone(v.Launch)
	if v.GPUs { // inside of what launches, as some sites show a job its devices only there
		words = append(words, "/bin/bash", "-c", gpuScript, "daisy")
	}
	if len(v.Env) > 0 { // innermost, as a shell drops them; nice, so that a program with "=" in its path is not taken for one more
		words = slices.Concat(words, []string{"/usr/bin/env"}, v.Env, []string{"nice", "-n", "0"})
	}
	words = append(words, v.Argv...)
	var line []string
	for _, a := range words {
		line = append(line, quote("an argument of the program", a).quoted)
	}
	d.Worker = word{strings.Join(line, " ")}
	d.Command = d.Worker
	return d, errors.Join(errs...)
}

// gpuScript tells the worker its devices, under the one name that it reads, and becomes the worker.
const gpuScript = `export DAISY_GPUS="${CUDA_VISIBLE_DEVICES:-${ROCR_VISIBLE_DEVICES:-${ZE_AFFINITY_MASK:-}}}"; exec "$@"`

// A Template makes scripts.
type Template struct{ name, text string }

// Read reads a template of the user.
func Read(path string) (*Template, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, fmt.Errorf("there is no file %s", path)
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a regular file", path)
	case info.Size() > 1<<20:
		return nil, fmt.Errorf("%s is larger than 1 MiB; that is no template", path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return &Template{name: filepath.Base(path), text: string(text)}, nil
}

// Check finds what is wrong with a template, by rendering it with values that show it; warnings are about what is allowed but
// perhaps not meant.
func (t *Template) Check() (warnings []string, err error) {
	const probe = "/daisy probe/daisy-worker"
	v := Values{Argv: []string{probe, "it's", "$HOME"}, Tag: "daisy probe", Dir: "/daisy probe", Folders: []string{"/daisy probe/a"}, Setup: "# setup"}
	script, err := t.Render(v)
	if err != nil {
		return nil, err
	}
	file, err := parse(t.name, script)
	if err != nil {
		return nil, err
	}
	if line := insideQuotes(file, "daisy probe"); line > 0 {
		return nil, fmt.Errorf("%s: a value stands inside of quotes or a here-document in line %d of the rendered script; values bring their quotes with them, so write {{.Dir}} bare", t.name, line)
	}
	found, exec := findWorker(file, v.Argv)
	switch {
	case !found:
		return nil, fmt.Errorf("%s: the script never starts the worker; write a line with exec {{.Worker}}", t.name)
	case !exec:
		warnings = append(warnings, fmt.Sprintf("%s starts the worker without exec: signals of Slurm reach it only if the script hands them on; write exec {{.Worker}}", t.name))
	}
	if !strings.Contains(t.text, ".Setup") {
		warnings = append(warnings, fmt.Sprintf("%s has no {{.Setup}}: the key setup does nothing", t.name))
	}
	return warnings, nil
}

// findWorker looks for the command that has the whole worker line, and whether it replaces the shell.
func findWorker(file *syntax.File, argv []string) (found, exec bool) {
	syntax.Walk(file, func(n syntax.Node) bool {
		call, ok := n.(*syntax.CallExpr)
		if !ok {
			return true
		}
		var words []string
		for _, w := range call.Args {
			words = append(words, literal(w))
		}
		if at := slices.Index(words, argv[0]); at >= 0 && slices.Equal(words[at:], argv) {
			found = true
			exec = exec || words[0] == "exec"
		}
		return true
	})
	return found, exec
}

// insideQuotes is the line of a value that is more or less than a quoted word of its own, 0 if there is none: there its quotes do not
// quote. mark is in every value.
func insideQuotes(file *syntax.File, mark string) (line uint) {
	syntax.Walk(file, func(n syntax.Node) bool {
		if lit, ok := n.(*syntax.Lit); ok && line == 0 && strings.Contains(lit.Value, mark) {
			line = lit.Pos().Line()
		}
		return true
	})
	return line
}

// literal is what a word of literals stands for, "" for any other.
func literal(w *syntax.Word) string {
	var b strings.Builder
	for _, part := range w.Parts {
		switch p := part.(type) {
		case *syntax.Lit:
			b.WriteString(p.Value)
		case *syntax.SglQuoted:
			b.WriteString(p.Value)
		case *syntax.DblQuoted:
			b.WriteString(literal(&syntax.Word{Parts: p.Parts}))
		default:
			return ""
		}
	}
	return strings.ReplaceAll(b.String(), `\'`, `'`)
}

// Render makes the script. An error says which field or value is wrong; a script that is returned parses as shell.
func (t *Template) Render(v Values) ([]byte, error) {
	tmpl, err := template.New(t.name).Parse(t.text)
	if err != nil {
		return nil, errors.New(strings.TrimPrefix(err.Error(), "template: "))
	}
	d, err := v.quoted()
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := tmpl.Execute(&b, d); err != nil {
		return nil, explain(err)
	}
	script := b.Bytes()
	switch first, _, _ := bytes.Cut(script, []byte("\n")); {
	case !bytes.HasPrefix(first, []byte("#!")) || !bytes.Contains(first, []byte("bash")):
		return nil, fmt.Errorf("%s: the first line is %s; it has to name bash, as in #!/bin/bash, for which values are quoted", t.name, clip(string(first)))
	case bytes.Contains(script, []byte("\r\n")):
		return nil, fmt.Errorf("%s: it has the line ends of DOS, which sbatch refuses; convert it (sed -i 's/\\r$//')", t.name)
	}
	if _, err := parse(t.name, script); err != nil {
		return nil, err
	}
	return script, nil
}

func parse(name string, script []byte) (*syntax.File, error) {
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(bytes.NewReader(script), name)
	if err != nil {
		return nil, fmt.Errorf("the rendered script is not valid shell: %w", err)
	}
	return file, nil
}

// explain says of an unknown field which ones there are.
func explain(err error) error {
	text := strings.TrimPrefix(err.Error(), "template: ")
	if !strings.Contains(text, "can't evaluate field") {
		return errors.New(text)
	}
	var known []string
	for _, f := range fields {
		known = append(known, fmt.Sprintf("{{.%s}} (%s)", f[0], f[1]))
	}
	before, rest, _ := strings.Cut(text, "can't evaluate field ")
	name, _, _ := strings.Cut(rest, " ")
	return fmt.Errorf("%sthere is no field %s; there are %s", before, name, strings.Join(known, ", "))
}

// noCommand are lines of a template of which nothing is left in the script.
var noCommand = regexp.MustCompile(`^\{\{-?\s*(if|else|end|with|range|/\*)[^}]*\}\}$`)

// Ignored is the first #SBATCH line of a template, from 1, that sbatch does not read, as a command stands before it; 0 if there is none.
func (t *Template) Ignored() int {
	n, over := 0, false
	for line := range strings.Lines(t.text) {
		n++
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "#SBATCH"):
			if over {
				return n
			}
		case line != "" && !strings.HasPrefix(line, "#") && !noCommand.MatchString(line):
			over = true
		}
	}
	return 0
}

// Directives are the options in the #SBATCH lines of a template, with their lines from 1.
func (t *Template) Directives() (options []string, lines []int) {
	n := 0
	for line := range strings.Lines(t.text) {
		n++
		rest, ok := strings.CutPrefix(strings.TrimRight(line, "\r\n"), "#SBATCH")
		if !ok || !strings.HasPrefix(rest, " ") && !strings.HasPrefix(rest, "\t") {
			continue
		}
		for _, o := range directiveWords(rest) {
			options, lines = append(options, o), append(lines, n)
		}
	}
	return options, lines
}

// directiveWords are the words of a line behind #SBATCH, as sbatch reads them: with quotes and backslashes, up to a word that begins with "#".
func directiveWords(line string) (words []string) {
	var b strings.Builder
	inside, escaped, quote := false, false, rune(0)
	for _, c := range line + " " {
		switch {
		case escaped:
			b.WriteRune(c)
			escaped = false
		case c == '\\':
			inside, escaped = true, true
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '"' || c == '\''):
			inside, quote = true, c
		case quote == 0 && (c == ' ' || c == '\t'):
			if inside {
				words = append(words, b.String())
			}
			inside = false
			b.Reset()
		case !inside && c == '#':
			return words
		default:
			inside = true
			b.WriteRune(c)
		}
	}
	if inside { // a quote that is not closed
		words = append(words, b.String())
	}
	return words
}
