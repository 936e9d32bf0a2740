package e2e

import (
	"bufio"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.org/daisy/internal/testenv"
)

// A newcomer follows the README of the project in a fresh copy of it, with what everybody has: make, a shell, and Go, which make
// finds or brings. The commands are those of the README's own blocks, line by line, so that the page cannot say what does not work.
type newcomer struct {
	t   *testing.T
	in  io.Writer
	out *bufio.Reader
}

// arrive gives a newcomer a copy of the project and a shell in it.
func arrive(t *testing.T) *newcomer {
	t.Helper()
	for _, need := range []string{"make", "sh"} {
		if _, err := exec.LookPath(need); err != nil {
			testenv.Unavailable(t, err.Error())
		}
	}
	dir := filepath.Join(t.TempDir(), "daisy")
	copyProject(t, dir)
	shell := exec.CommandContext(t.Context(), "sh")
	shell.Dir, shell.WaitDelay = dir, 10*time.Second
	shell.Env = append(os.Environ(), "GOFLAGS=", "MAKEFLAGS=")
	in, err := shell.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := shell.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = shell.Wait()
	})
	return &newcomer{t, in, bufio.NewReader(out)}
}

// copyProject copies the project as a clone has it, without what was built or made. A Go that was brought is brought once.
func copyProject(t *testing.T, to string) {
	t.Helper()
	left := regexp.MustCompile(`^(\.git|\.tools|bin)$|^examples/[^/]*/(out|runs|tracking|\.venv|__pycache__)$`)
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel("..", path)
		switch target := filepath.Join(to, name); {
		case err != nil:
			return err
		case left.MatchString(filepath.ToSlash(name)):
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		case d.IsDir():
			return os.MkdirAll(target, 0o755)
		case !d.Type().IsRegular():
			return nil
		default:
			info, err := d.Info()
			if err != nil {
				return err
			}
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			return os.WriteFile(target, data, info.Mode().Perm())
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if tools, err := filepath.Abs("../.tools"); err == nil {
		if _, err := os.Stat(tools); err == nil {
			if err := os.Symlink(tools, filepath.Join(to, ".tools")); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// types gives the shell one line, and returns what it says and the exit status.
func (n *newcomer) types(line string) (said string, status int) {
	n.t.Helper()
	const end = "=== the line has ended: "
	// In the shell itself, so that cd and export hold; a line break ends a comment.
	fmt.Fprintf(n.in, "{\n%s\n} </dev/null 2>&1\nprintf '\\n%s%%d\\n' $?\n", line, end)
	var b strings.Builder
	for {
		text, err := n.out.ReadString('\n')
		if code, ok := strings.CutPrefix(strings.TrimSpace(text), end); ok {
			status, _ = strconv.Atoi(code)
			return b.String(), status
		}
		if b.WriteString(text); err != nil {
			n.t.Fatalf("the shell has ended at\n%s\n%s", line, &b)
		}
	}
}

// wants is types with the exit status that the line has to have.
func (n *newcomer) wants(status int, line string) (said string) {
	n.t.Helper()
	said, got := n.types(line)
	if got != status {
		n.t.Fatalf("exit status %d, want %d:\n$ %s\n%s", got, status, line, said)
	}
	return said
}

var (
	// A fence in the README, with its language.
	fence = regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```\n")
	// What a comment of a line of the README says of its end.
	failing = regexp.MustCompile(`# .*exit status (\d+)`)
	// The commands to go on with that a message gives.
	hints = regexp.MustCompile(`(?m)^\s*next: (.*)$|"(\S*daisy-submit [^"]+)"`)
)

func hintsIn(said string) (commands []string) {
	for _, m := range hints.FindAllStringSubmatch(said, -1) {
		commands = append(commands, m[1]+m[2])
	}
	return commands
}

// follows types the lines of all blocks of a page that are for a shell, and gives what each said, by the line without its comment.
// Lines end well, but where their comment names another exit status. Other blocks are passed to other, if that is not nil.
func (n *newcomer) follows(page string, other func(language, text string)) (said map[string]string) {
	n.t.Helper()
	said = map[string]string{}
	for _, block := range fence.FindAllStringSubmatch(page, -1) {
		if block[1] != "sh" {
			if other != nil {
				other(block[1], block[2])
			}
			continue
		}
		for line := range strings.Lines(block[2]) {
			line = strings.TrimSpace(line)
			command := strings.TrimSpace(strings.Split(line, "  #")[0])
			if command == "make test" { // which runs this test
				n.wants(0, "make -n test")
				continue
			}
			status := 0
			if m := failing.FindStringSubmatch(line); m != nil {
				status, _ = strconv.Atoi(m[1])
			}
			said[command] = n.wants(status, line)
			n.t.Logf("$ %s\n%s", line, said[command])
		}
	}
	return said
}

func TestANewcomerFollowsTheReadme(t *testing.T) {
	t.Parallel()
	n := arrive(t)
	readme := readFile(t, "../README.md")
	said := n.follows(readme, func(language, text string) {
		if language == "toml" && strings.HasPrefix(text, "run = ") { // the one line that is to be edited
			edit(t, n, strings.TrimSpace(text))
		}
	})
	wantPictured(t, readme, said["make demo"])
	wantText(t, n.wants(0, "cd ../daisy && make demo; cd ../my-job"), "all 385 blocks were done before: nothing to run.")
	wantText(t, said["daisy-submit plan job.toml"], "8 blocks in 1 task", "Nothing was started.")
	wantText(t, said["daisy-submit status"], "ended at", "8 blocks: 8 succeeded.")
	wantText(t, said["daisy-submit stats"], "8 blocks: 8 succeeded. The run took")
	wantText(t, said["daisy-submit logs --failed"], "block 14 at (1, 1, 1): failed after 3 attempts", "exit status 3", "  | a mistake\n")
	wantText(t, said["daisy-submit retry"], "8 blocks: 8 succeeded. The run took")
	if got := n.wants(0, "cat result-*.txt"); strings.Count(got, "block ") != 8 {
		t.Errorf("the result is not whole: %s", got)
	}
}

func TestTheCommandsOfTheExamplesWork(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("python3"); err != nil {
		testenv.Unavailable(t, "one is in Python: "+err.Error())
	}
	n := arrive(t)
	n.wants(0, "make build")
	for _, example := range []string{"hello", "nuclei", "python"} {
		page := readFile(t, "../examples/"+example+"/README.md")
		if said := n.follows(page, nil); len(said) < 2 {
			t.Errorf("%s: the page has only %d commands", example, len(said))
		}
	}
}

// edit puts the line of the README in place of that of the job file.
func edit(t *testing.T, n *newcomer, line string) {
	t.Helper()
	path := strings.TrimSpace(n.wants(0, "pwd")) + "/job.toml"
	text := readFile(t, path)
	edited := regexp.MustCompile(`(?m)^run = .*$`).ReplaceAllLiteralString(text, line)
	if edited == text {
		t.Fatalf("there is no line to put %q in place of:\n%s", line, text)
	}
	writeFile(t, path, edited)
}

// wantPictured checks the picture of the demo in the README against what it says today: numbers of time and memory, and the name
// of the machine, may differ.
func wantPictured(t *testing.T, readme, said string) {
	t.Helper()
	numbers := regexp.MustCompile(`[0-9.]+(ns|us|ms|s|[KMG]iB)\b`)
	plain := func(line string) string {
		line = numbers.ReplaceAllString(line, "#")
		fields := strings.Fields(strings.ReplaceAll(line, "---", ""))
		if len(fields) == 10 && regexp.MustCompile(`^\d+\.\d+$`).MatchString(fields[0]) { // a worker: which it is, its node, its share of the blocks
			fields[0], fields[2], fields[4] = "#", "#", "#"
		}
		return strings.Trim(strings.Join(fields, " "), "- ")
	}
	var today []string
	for line := range strings.Lines(said) {
		today = append(today, plain(line))
	}
	_, picture, _ := strings.Cut(readme, "and at the end what became of it")
	picture = fence.FindStringSubmatch(picture)[2]
	if strings.Count(picture, "\n") < 25 {
		t.Errorf("this is no picture of the demo:\n%s", picture)
	}
	for line := range strings.Lines(picture) {
		if !slices.Contains(today, plain(line)) {
			t.Errorf("the README has a line that make demo does not say:\n%s%s", line, said)
		}
	}
}

func TestEveryCommandThatAMessageGivesWorks(t *testing.T) {
	t.Parallel()
	n := arrive(t)
	n.wants(0, "make build")
	n.wants(0, `mkdir "../a folder" && cd "../a folder"`) // the commands are for a shell, which would take it for two
	daisy := "../daisy/bin/daisy-submit"                  // not on PATH
	follow := func(said string, want ...int) (all string) {
		t.Helper()
		commands := hintsIn(said)
		if len(commands) != len(want) {
			t.Fatalf("there are %d commands in it, want %d: %q\n%s", len(commands), len(want), commands, said)
		}
		for i, c := range commands {
			if !strings.HasPrefix(c, daisy+" ") {
				t.Errorf("%q does not name the program as it was called, %s", c, daisy)
			}
			all += n.wants(want[i], c)
		}
		return all
	}

	// Of an array, and the file's own head.
	n.wants(0, "cp -r ../daisy/examples/nuclei/data/nuclei.v2.zarr cells.zarr")
	follow(n.wants(0, daisy+" init cells.zarr -o 'my cells.toml'"), 0)
	head := regexp.MustCompile(`(?m)^#   (\S*daisy-submit .*)$`).FindAllStringSubmatch(n.wants(0, "cat 'my cells.toml'"), -1)
	if len(head) != 3 {
		t.Errorf("the file names %d commands: %q", len(head), head)
	}
	for _, m := range head {
		n.wants(0, m[1])
	}

	// A run that goes on, and one that was killed.
	n.wants(0, `printf '%s\n' '[[task]]' 'id = "w"' 'total_write = { offset = [0], shape = [6] }' 'block = { shape = [2] }' 'run = { command = ["sh", "w.sh"] }' 'max_retries = 0' > w.toml`)
	n.wants(0, "echo 'echo $$ >> started; while ! test -e go; do sleep 0.05; done; exit 0' > w.sh")
	n.wants(0, daisy+" run w.toml > run.log 2>&1 & coordinator=$!")
	n.wants(0, "while ! test -s started; do sleep 0.05; done")
	wantText(t, n.wants(0, daisy+" status"), "running, coordinated for", "running")
	wantText(t, follow(n.wants(2, daisy+" stats"), 0), "running, coordinated for")
	n.wants(0, "kill -9 $coordinator; wait $coordinator || touch go")
	killed := n.wants(3, daisy+" status")
	wantText(t, killed, "it was killed")
	wantText(t, follow(killed, 0), "3 blocks: 3 succeeded.")
	wantText(t, n.wants(0, daisy+" run --resume latest"), "3 blocks: 3 succeeded.")
	wantText(t, follow(n.wants(0, daisy+" status"), 0), "3 blocks: 3 succeeded.")
	wantText(t, follow(n.wants(2, daisy+" drain"), 0), "3 blocks: 3 succeeded.")

	// Blocks that fail, and the fix.
	n.wants(0, "echo 'echo \"no such voxel\" >&2; exit 5' > w.sh")
	failed := n.wants(1, daisy+" run w.toml")
	wantText(t, follow(n.wants(0, daisy+" status"), 0, 1, 0), "no such voxel")
	n.wants(0, "echo true > w.sh")
	wantText(t, follow(failed, 0, 0), "no such voxel", "3 blocks: 3 succeeded.")

	// Where runs are looked for.
	wantText(t, follow(n.wants(2, daisy+" status runs"), 0), " done ", " 3 of 3 ")
	wantText(t, n.wants(2, "cd .. && daisy/bin/daisy-submit status; s=$?; cd 'a folder'; (exit $s)"), "there is no run in ", "/runs: give a run directory.")
	wantText(t, n.wants(2, "mkdir empty && cd empty && ../"+daisy+" run --resume latest; s=$?; cd ..; (exit $s)"), "there is no run in ", "/empty/runs: give a run directory.")
	wantText(t, follow(n.wants(2, daisy+" run --resume w.toml"), 0), "3 blocks: 3 succeeded.")
}
