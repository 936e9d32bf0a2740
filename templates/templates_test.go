package templates

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// hostile are values that would do harm, or come out as something else, where quoting has a hole.
var hostile = []string{
	"", " ", "a b", "it's", `"quoted"`, "$HOME", "$(touch /tmp/harm)", "`touch /tmp/harm`", "a\nb", "\n", "\r\n", "\ttab", `back\slash`, `\`, `\'`,
	"!", "!!", "a!b", "%", "%a%%", "-rf", "--", "~", "~root", "#", "a#b", "*", "?", "[a-z]", "{a,b}", "{1..3}", "a=b", "A=b", "if", "then", "}", "{",
	"&", "&&", ";", ";;", "|", "<", ">", ">>x", "(", ")", "größe 体積", "\u200b", "\u00a0x", "\ufeff", "\ufffd", "\xff\xfe", "a\xc3", "\x1b[31m", "\x01\x7f",
	"\u200bf", "\x01f", "é\u0301", "\U0001f600", "\U000e0001a", strings.Repeat("x'\n$", 2500),
}

// said runs bash on a script, in a locale, and gives its output.
func said(t testing.TB, script []byte, locale string, env ...string) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(path, script, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("bash", path)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "LC_ALL=" + locale}, env...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("bash: %v\n%s", err, script)
	}
	return out
}

// printer is a worker that prints its arguments, each ended by a zero byte.
func printer(args ...string) Values {
	return Values{Argv: append([]string{"/usr/bin/printf", `%s\0`}, args...), Dir: "/", Tag: "1"}
}

func TestHostileValuesArriveAsTheBytesThatTheyAre(t *testing.T) {
	for _, locale := range []string{"C", "C.UTF-8"} {
		script, err := Worker.Render(printer(hostile...))
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Split(strings.TrimSuffix(string(said(t, script, locale)), "\x00"), "\x00")
		if len(got) != len(hostile) {
			t.Fatalf("%s: %d arguments came out of %d", locale, len(got), len(hostile))
		}
		for i := range hostile {
			if got[i] != hostile[i] {
				t.Errorf("%s: %q came out as %q", locale, hostile[i], got[i])
			}
		}
	}
}

func TestHostileValuesArriveInTheScriptOfACoordinator(t *testing.T) {
	v := printer(hostile...)
	v.Setup = "cd /"
	script, err := Coordinator.Render(v)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Split(strings.TrimSuffix(string(said(t, script, "C")), "\x00"), "\x00"); !slices.Equal(got, hostile) {
		t.Errorf("%q came out as %q", hostile, got)
	}
	v.Dir = "/nowhere $(echo x)"
	if script, err = Coordinator.Render(v); err != nil {
		t.Fatal(err)
	}
	if _, err := exec.Command("bash", "-c", string(script)).Output(); err == nil {
		t.Error("without its folder the coordinator runs elsewhere")
	}
	v.Dir = "/a\x00b"
	if _, err := Coordinator.Render(v); err == nil {
		t.Error("a zero byte was accepted")
	}
}

func FuzzAValueComesOutAsItIs(f *testing.F) {
	for _, s := range hostile {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		dir := t.TempDir()
		v := printer("<", s, ">")
		v.Launch, v.Tag = []string{"/usr/bin/env", "X=" + s}, "7"
		if strings.ContainsRune(s, 0) {
			if _, err := Worker.Render(v); err == nil {
				t.Error("a zero byte was accepted")
			}
			return
		}
		v.Dir = dir
		if name := strings.ReplaceAll(s, "/", "_"); name != "" && len(name) < 200 {
			v.Folders = []string{filepath.Join(dir, "in "+name+".d")}
		}
		script, err := Worker.Render(v)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := said(t, script, "C"), "<\x00"+s+"\x00>\x00"; string(got) != want {
			t.Errorf("%q came out as %q", want, got)
		}
		for _, folder := range v.Folders {
			if _, err := os.Stat(folder); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestWhateverATemplateDoesWithAValueItStaysQuoted(t *testing.T) {
	const value = "a b'$(id)"
	want, err := Quote(value)
	if err != nil {
		t.Fatal(err)
	}
	v := printer()
	v.Dir, v.Folders = value, []string{value}
	for _, use := range []string{
		"{{.Dir}}", "{{print .Dir}}", `{{printf "%s" .Dir}}`, `{{printf "%v" .Dir}}`, "{{range .Folders}}{{.}}{{end}}", "{{index .Folders 0}}", "{{with .Dir}}{{.}}{{end}}",
	} {
		own := &Template{"own", "#!/bin/bash\nprintf %s " + use + "\nexec {{.Worker}}\n"}
		script, err := own.Render(v)
		if err != nil {
			t.Errorf("%s: %v", use, err)
			continue
		}
		if !bytes.Contains(script, []byte("printf %s "+want+"\n")) {
			t.Errorf("%s gave %s, want the word %s", use, script, want)
		}
	}
	for _, use := range []string{"{{slice .Dir 2}}", "{{.Dir.quoted}}", "{{index .Dir 1}}", "{{html .Dir}}"} {
		own := &Template{"own", "#!/bin/bash\nprintf %s " + use + "\nexec {{.Worker}}\n"}
		if script, err := own.Render(v); err == nil && bytes.Contains(script, []byte(value)) {
			t.Errorf("%s lets the bare value out: %s", use, script)
		}
	}
}

func TestTheScriptSetsUpAndBecomesTheWorker(t *testing.T) {
	dir := t.TempDir()
	v := Values{
		Argv: []string{"/bin/sh", "-c", `echo "$$ $DAISY_TAG.$DAISY_ELEMENT.$DAISY_ARRAY.$DAISY_RESTART.$DAISY_NODE $FROM_SETUP $PWD ${DAISY_GPUS-none}"; kill -USR1 $$; echo alive`},
		Dir:  dir, Folders: []string{dir + "/logs/deep"}, Tag: "12", Setup: "export FROM_SETUP=yes\r\necho $$\r\n",
	}
	for _, c := range []struct {
		gpus bool
		env  []string
		want string
	}{
		{false, []string{"SLURM_ARRAY_TASK_ID=3", "SLURM_ARRAY_JOB_ID=7", "SLURM_JOB_ID=8", "CUDA_VISIBLE_DEVICES=1"}, "12.3.7.0. yes " + dir + " none"},
		{true, []string{"SLURM_ARRAY_TASK_ID=3", "SLURM_ARRAY_JOB_ID=7", "SLURM_RESTART_COUNT=2", "SLURMD_NODENAME=n1", "CUDA_VISIBLE_DEVICES=1,2"}, "12.3.7.2.n1 yes " + dir + " 1,2"},
		{true, []string{"SLURM_JOB_ID=8", "ROCR_VISIBLE_DEVICES=5"}, "12.0.8.0. yes " + dir + " 5"},
	} {
		v.GPUs = c.gpus
		script, err := Worker.Render(v)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSpace(string(said(t, script, "C", c.env...))), "\n")
		if len(lines) != 3 || lines[1] != lines[0]+" "+c.want || lines[2] != "alive" {
			t.Errorf("the worker said %q, want the shell's own process number, %q, and that USR1 did not end it", lines, c.want)
		}
	}
	if _, err := os.Stat(dir + "/logs/deep"); err != nil {
		t.Error(err)
	}
	v.Login = true
	if script, _ := Worker.Render(v); !bytes.HasPrefix(script, []byte("#!/bin/bash -l\n")) {
		t.Errorf("with login_env the script begins %.20q", script)
	}
}

// TestASetupThatFailsEndsTheJobIfItSaysSo: where it does not, its words are in the log, and the worker starts.
func TestASetupThatFailsEndsTheJobIfItSaysSo(t *testing.T) {
	for setup, want := range map[string]struct {
		status int
		says   string
	}{
		"module load cuda":                                     {0, "the worker runs"},
		"module load cuda || exit 3":                           {3, ""},
		"set -u\necho $NOT_THERE":                              {1, ""},
		"set +u\nset -o pipefail\nfalse | true":                {0, "the worker runs"},
		"head -c 10000 /dev/zero | tr '\\0' x; echo; exit 0\n": {0, "xxx"},
	} {
		script, err := Worker.Render(Values{Argv: []string{"/bin/echo", "the worker runs"}, Dir: "/", Tag: "1", Setup: setup})
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("bash")
		cmd.Env, cmd.Stdin = []string{"PATH=/usr/bin:/bin"}, bytes.NewReader(script)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, _ := cmd.Output()
		if got := cmd.ProcessState.ExitCode(); got != want.status || !strings.Contains(string(out), want.says) {
			t.Errorf("%q: status %d, %.50q, want %+v", setup, got, out, want)
		}
		if strings.HasPrefix(setup, "module") && !strings.Contains(stderr.String(), "module: command not found") {
			t.Errorf("%q: nothing says why: %q", setup, stderr.String())
		}
	}
}

func TestAVariableThatNoShellCanHoldReachesTheWorker(t *testing.T) {
	v := Values{Argv: []string{"/usr/bin/env"}, Dir: "/", Tag: "1", GPUs: true, Env: []string{"lower.case=a b", "1=$(id)"}}
	script, err := Worker.Render(v)
	if err != nil {
		t.Fatal(err)
	}
	out := "\n" + string(said(t, script, "C", "CUDA_VISIBLE_DEVICES=4"))
	for _, want := range append(v.Env, "DAISY_GPUS=4") {
		if !strings.Contains(out, "\n"+want+"\n") {
			t.Errorf("the worker's environment lacks %q:\n%s", want, out)
		}
	}
}

func TestAnOwnTemplateIsCheckedBeforeAnythingIsSubmitted(t *testing.T) {
	good := "#!/bin/bash\n{{.Setup}}\nexec {{.Worker}}\n"
	for _, c := range []struct{ text, says, warns string }{
		{good, "", ""},
		{"#!/usr/bin/env bash\n{{.Setup}}\nif true; then exec nice {{.Worker}}; fi\n", "", ""},
		{"#!/bin/bash\n{{.Setup}}\n{{.Worker}}\n", "", "without exec"},
		{"#!/bin/bash\nexec {{.Worker}}\n", "", "no {{.Setup}}"},
		{"#!/bin/bash\n{{.Setup}}\n", "never starts the worker", ""},
		{"#!/bin/bash\n{{.Setup}}\n# {{.Worker}}\n", "never starts the worker", ""},
		{"#!/bin/bash\n{{.Setup}}\necho \"{{.Worker}}\"\n", "not valid shell", ""},
		{"#!/bin/bash\n{{.Setup}}\ncd \"{{.Dir}}\"\nexec {{.Worker}}\n", "inside of quotes", ""},
		{"#!/bin/bash\n{{.Setup}}\ncat <<END\n{{.Dir}}\nEND\nexec {{.Worker}}\n", "inside of quotes", ""},
		{"#!/bin/bash\n{{.Setup}}\ncd x{{.Dir}}\nexec {{.Worker}} # {{.Dir}}\n", "", ""},
		{"#!/bin/bash\n{{.Setup}}\nexec {{.Workers}}\n", "there is no field Workers; there are {{.Worker}}", ""},
		{"#!/bin/bash\n{{.Setup}}\nexec {{.Worker}\n", "own:3", ""},
		{"#!/bin/bash\nif true; then\n{{.Setup}}\nexec {{.Worker}}\n", "not valid shell", ""},
		{"#!/bin/sh\n{{.Setup}}\nexec {{.Worker}}\n", "name bash", ""},
		{"{{.Setup}}\nexec {{.Worker}}\n", "name bash", ""},
		{strings.ReplaceAll(good, "\n", "\r\n"), "DOS", ""},
	} {
		warnings, err := (&Template{"own", c.text}).Check()
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q: error %v, want one about %q", c.text, err, c.says)
		}
		if w := strings.Join(warnings, "; "); (w == "") != (c.warns == "") || !strings.Contains(w, c.warns) {
			t.Errorf("%q: warnings %q, want one about %q", c.text, w, c.warns)
		}
	}
	if w, err := Worker.Check(); w != nil || err != nil {
		t.Errorf("the template that comes with the program: %v, %v", w, err)
	}
}

func TestATemplateThatCannotBeReadSaysWhy(t *testing.T) {
	dir := t.TempDir()
	for path, says := range map[string]string{dir + "/none": "no file", dir: "not a regular file"} {
		if _, err := Read(path); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", path, err, says)
		}
	}
	own := filepath.Join(dir, "own.tmpl")
	if err := os.WriteFile(own, []byte("#!/bin/bash\n#SBATCH --mem=4G -n 2 # note\n #SBATCH -x\n#SBATCHED\n#SBATCH\t-N1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	read, err := Read(own)
	if err != nil {
		t.Fatal(err)
	}
	options, lines := read.Directives()
	if got := strings.Join(options, " "); got != "--mem=4G -n 2 -N1" || lines[3] != 5 {
		t.Errorf("directives %q at %v", got, lines)
	}
}

func TestAZeroByteIsRefusedWhereverItStands(t *testing.T) {
	for _, change := range []func(*Values){
		func(v *Values) { v.Argv[1] = "a\x00" }, func(v *Values) { v.Dir = "\x00" }, func(v *Values) { v.Tag = "\x00" },
		func(v *Values) { v.Folders = []string{"\x00"} }, func(v *Values) { v.Setup = "\x00" }, func(v *Values) { v.Launch = []string{"\x00"} },
	} {
		v := printer("x")
		change(&v)
		if _, err := Worker.Render(v); err == nil || !strings.Contains(err.Error(), "zero byte") {
			t.Errorf("%+v: %v", v, err)
		}
	}
}

func TestTheDocumentationHasEveryFieldAndAnExampleThatWorks(t *testing.T) {
	page, err := os.ReadFile("../docs/slurm.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range fields {
		if !bytes.Contains(page, []byte("| `{{."+f[0]+"}}` |")) {
			t.Errorf("docs/slurm.md has no row for {{.%s}}", f[0])
		}
	}
	_, rest, _ := strings.Cut(string(page), "```\n#!/bin/bash")
	example, _, found := strings.Cut("#!/bin/bash"+rest, "```")
	if !found {
		t.Fatal("docs/slurm.md has no example")
	}
	if w, err := (&Template{"example", example}).Check(); err != nil || w != nil {
		t.Errorf("the example: %v, %v", w, err)
	}
}

func TestDirectivesAreReadWithTheirQuotes(t *testing.T) {
	for line, want := range map[string][]string{
		``: nil, `  `: nil, `# note`: nil, `-p gpu`: {"-p", "gpu"}, `-J "a b" # c`: {"-J", "a b"}, `--comment="it's" -x n1`: {"--comment=it's", "-x", "n1"},
		`--comment=a\ b\"c`: {`--comment=a b"c`}, `--comment='' -q`: {"--comment=", "-q"}, `"" x`: {"", "x"}, `a#b`: {"a#b"}, `"# a"`: {"# a"}, "\t-N1\t": {"-N1"}, `--comment="open end`: {"--comment=open end "},
	} {
		if got := directiveWords(line); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}
