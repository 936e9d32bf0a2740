package hello

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestHelloDoesWhatItsReadmeShows runs the job in a folder of its own.
func TestHelloDoesWhatItsReadmeShows(t *testing.T) {
	dir := t.TempDir()
	bin := filepath.Join(dir, "bin")
	build := exec.Command("go", "build", "-o", bin+string(filepath.Separator), "example.org/daisy/cmd/daisy-submit", "example.org/daisy/cmd/daisy-worker")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the programs: %v\n%s", err, out)
	}
	job := read(t, "hello.toml")
	path := filepath.Join(dir, "hello.toml")
	if err := os.WriteFile(path, []byte(job), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"run-block", path, "hello", "0,0"}, {"run", path, "--run-dir", filepath.Join(dir, "elsewhere")}, {"run", path}} {
		if err := os.RemoveAll(filepath.Join(dir, "out")); err != nil { // none of them needs what another has made
			t.Fatal(err)
		}
		run := exec.CommandContext(t.Context(), filepath.Join(bin, "daisy-submit"), args...)
		if out, err := run.CombinedOutput(); err != nil {
			t.Fatalf("daisy-submit %s: %v\n%s", args, err, out)
		}
	}

	results, err := filepath.Glob(filepath.Join(dir, "out", "*.txt"))
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(results)
	var got []string
	for _, name := range results {
		got = append(got, strings.TrimSpace(read(t, name)))
	}
	var want []string
	for line := range strings.Lines(read(t, "README.md")) {
		if text := strings.TrimSpace(line); strings.HasPrefix(text, "block ") && strings.Contains(text, " covers ") {
			want = append(want, text)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what the blocks wrote (-README.md +run):\n%s", diff)
	}
}

// TestTheReadmeOfTheProjectShowsThisJob keeps the copy of the job file in the README of the project the same.
func TestTheReadmeOfTheProjectShowsThisJob(t *testing.T) {
	readme := read(t, filepath.Join("..", "..", "README.md"))
	if job := read(t, "hello.toml"); !strings.Contains(readme, "```toml\n"+job+"```\n") {
		t.Errorf("README.md does not show examples/hello/hello.toml as it is:\n%s", job)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
