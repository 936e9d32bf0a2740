package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"example.org/daisy/internal/testenv"
)

func TestTheStreamWorkerOfTheDocumentationWorks(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("python3"); err != nil {
		testenv.Unavailable(t, "it runs a program in Python: "+err.Error())
	}
	page := readFile(t, filepath.Join("..", "docs", "programs.md"))
	_, program, found := strings.Cut(page, "```python\n")
	program, _, closed := strings.Cut(program, "```")
	if !found || !closed {
		t.Fatal("docs/programs.md shows no Python program")
	}
	dir, path := writeJob(t, job("resources = { cpu = 1 }", blocks("work", 3)+"run = { stream = [\"python3\", \"worker.py\"] }\nmax_retries = 0\n"))
	work := "def work(read, write):\n    if write['offset'][0] == 1: raise ValueError('no good')\n\n"
	if err := os.WriteFile(filepath.Join(dir, "worker.py"), []byte(work+program), 0o600); err != nil {
		t.Fatal(err)
	}
	r := start(t, dir, "run", path, "--run-dir", "out").wait()
	wantText(t, r.stdout, "no good")
	wantCounts(t, statsOf(t, dir+"/out"), map[string]counts{"work": {State: "done", Blocks: 3, Success: 2, Failed: 1, Processed: 3}})
}
