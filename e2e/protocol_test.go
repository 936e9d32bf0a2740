package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.org/daisy/internal/testenv"
)

// testdata/worker.py was written after docs/protocol.md, which is wrong if this fails.
func TestAWorkerInAnotherLanguageGetsTheBlocksThatOursGets(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		testenv.Unavailable(t, "it runs a worker in Python: "+err.Error())
	}
	var tasks []string
	for _, fit := range []string{"valid", "overhang", "shrink"} {
		task := fmt.Sprintf("id = %q\ntotal_write = { offset = [-3, 10], shape = [11, 5] }\nblock = { shape = [4, 2], context = { low = 1, high = [2, 0] } }\nfit = %q\nmax_retries = 1\nread_write_conflict = false\n", fit, fit) +
			shell("echo {task_id} {attempt} {index} {read_offset} {read_end} {write_offset} {write_end} >> ran; test {index} != 1,1")
		tasks = append(tasks, task)
	}
	for name, keys := range map[string]string{"plain": "", "TLS": "listen = \"0.0.0.0\"\naddresses = [\"127.0.0.1\"]\n"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, path := writeJob(t, job(keys+"resources = { cpu = 1 }", tasks...))
			wantStatus(t, 1, dir, "run", path, "--run-dir", "ours")
			want := slices.Sorted(strings.Lines(readFile(t, dir+"/ran")))
			if err := os.Remove(dir + "/ran"); err != nil {
				t.Fatal(err)
			}

			programs := t.TempDir()
			// Copied by another process: one that is forked here meanwhile would keep the program open for writing, and it could not be started.
			if out, err := exec.Command("cp", filepath.Join(bin, "daisy-submit"), programs).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			worker := "#!" + python + "\n" + readFile(t, filepath.Join("testdata", "worker.py"))
			if err := os.WriteFile(filepath.Join(programs, "daisy-worker"), []byte(worker), 0o700); err != nil {
				t.Fatal(err)
			}
			s := prepare(t, dir, "run", path, "--run-dir", "theirs")
			s.cmd.Path = filepath.Join(programs, "daisy-submit")
			s.begin()
			if r := s.wait(); r.status != 1 {
				t.Errorf("exit status %d, want 1", r.status)
			}
			if diff := cmp.Diff(want, slices.Sorted(strings.Lines(readFile(t, dir+"/ran")))); diff != "" {
				t.Errorf("-daisy-worker +testdata/worker.py:\n%s", diff)
			}
			ours, theirs := statsOf(t, dir+"/ours"), statsOf(t, dir+"/theirs")
			for i := range ours.Tasks {
				if a, b := ours.Tasks[i], theirs.Tasks[i]; a.Success != b.Success || a.Failed != b.Failed || a.Processed != b.Processed || a.Lost != b.Lost {
					t.Errorf("task %s: ours %+v, theirs %+v", a.ID, a, b)
				}
			}
			for _, w := range theirs.Workers {
				if w.End == nil || *w.End != "left" {
					t.Errorf("worker %s did not leave in order: %s", w.ID, readFile(t, dir+"/theirs/logs/"+w.ID+".log"))
				}
			}
		})
	}
}
