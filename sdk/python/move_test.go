package python

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// fenced are the blocks of a page in one language, in their order.
func fenced(page, language string) []string {
	var blocks []string
	for _, part := range strings.Split(page, "\n```"+language+"\n")[1:] {
		block, _, _ := strings.Cut(part, "\n```\n")
		blocks = append(blocks, block+"\n")
	}
	return blocks
}

// changed is a text after a diff: runs of lines with "-" are found, and the lines with "+" behind them take their place.
func changed(t *testing.T, text, diff string) string {
	t.Helper()
	var old, now string
	swap := func() {
		if strings.Count(text, old) != 1 {
			t.Fatalf("the page changes what is not there once: %q", old)
		}
		text, old, now = strings.Replace(text, old, now, 1), "", ""
	}
	for line := range strings.Lines(diff) {
		if now != "" && line[0] == '-' {
			swap()
		}
		switch line[0] {
		case '-':
			old += line[1:]
		case '+':
			now += line[1:]
		default:
			t.Fatalf("not a line of a diff: %q", line)
		}
	}
	swap()
	return text
}

// namesOfDaisy prints the keywords of its Task and run_blockwise, and what it has for whoever uses it.
const namesOfDaisy = `import daisy, inspect
native = next(c for c in daisy.Task.__mro__ if c.__module__ == "daisy._daisy")
for keywords in inspect.signature(native), inspect.signature(daisy.Task), inspect.signature(daisy.run_blockwise):
    print(*(p for p in keywords.parameters if p not in ("args", "kwargs")))
internal = ("block", "v1_compat", "v2", "get_done_marker_basedir", "get_tracking_basedir", "get_worker_log_basename")
print(*(name for name in dir(daisy) if not name.startswith("_") and name not in internal))
`

// theDocumentedMove makes the steps of docs/from-daisy.md with an environment that has daisy. Each gives the same bytes as daisy itself.
func theDocumentedMove(t *testing.T, s shell, python string) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "from-daisy.md"))
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	for name := range strings.FieldsSeq(s.must(t, python, "-c", namesOfDaisy)) {
		if !regexp.MustCompile(`\b` + name + `\b`).MatchString(page) {
			t.Errorf("the page says nothing of daisy's %s", name)
		}
	}
	script, diffs, commands := fenced(page, "python")[0], fenced(page, "diff"), fenced(page, "sh")[0]
	bin := filepath.Dir(python)
	s.dir = filepath.Join(s.dir, "move")
	if err := os.Mkdir(s.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	results := func() string {
		sum := ""
		for _, name := range []string{"smooth.npy", "mask.npy"} {
			data, err := os.ReadFile(filepath.Join(s.dir, name))
			if err != nil {
				t.Fatal(err)
			}
			sum += fmt.Sprintf("%x ", sha256.Sum256(data))
		}
		return sum
	}
	counts := func(step string) {
		t.Helper()
		data, err := os.ReadFile(filepath.Join(s.dir, "runs", "latest", "stats.json"))
		if err != nil {
			t.Fatalf("%s: %v", step, err)
		}
		var stats struct {
			Tasks []struct{ Blocks, Success int }
		}
		if err := json.Unmarshal(data, &stats); err != nil {
			t.Fatal(err)
		}
		for _, task := range stats.Tasks {
			if task.Blocks != 25 || task.Success != 25 {
				t.Errorf("%s: got %v, want 25 blocks and 25 successes", step, task)
			}
		}
	}
	run := func(step string) string {
		t.Helper()
		if err := os.WriteFile(filepath.Join(s.dir, "segment.py"), []byte(script), 0o600); err != nil {
			t.Fatal(err)
		}
		if out := s.must(t, python, "segment.py"); !strings.HasSuffix(strings.TrimSpace(out), "122402 voxels") {
			t.Errorf("%s: it ends with %q", step, out[max(0, len(out)-200):])
		}
		return results()
	}
	want := run("with daisy")
	for i, diff := range diffs {
		step := fmt.Sprintf("step %d", i+1)
		script = changed(t, script, diff)
		if got := run(step); got != want {
			t.Errorf("%s: the results are other bytes than those of daisy", step)
		}
		counts(step)
	}
	s.must(t, python, "-c", `import numpy as np; np.load("smooth.npy", mmap_mode="r+")[:] = 0; np.load("mask.npy", mmap_mode="r+")[:] = 0`)
	if results() == want {
		t.Error("the results of before are still there")
	}
	s.must(t, "sh", "-ec", `PATH="`+bin+`:$PATH"`+"\n"+commands)
	if results() != want {
		t.Error("the job file: the results are other bytes than those of daisy")
	}
	counts("the job file")
}
