package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.org/daisy/internal/slurmlab"
	"example.org/daisy/internal/testenv"
)

// A script of sdk/python, which starts its run on this machine and on Slurm.
const slurmScript = `import os, sys
from daisy_submit import Roi, Task, run_blockwise

def work(block):
    with open(f"{os.environ['OUT']}/{block.task_id}.{block.block_id[1]}", "w") as f:
        f.write(f"{block.read_roi} {block.write_roi}")

def line(name, size, context):
    return Task(name, Roi((0,), (40,)), Roi((-context,), (size + 2 * context,)), Roi((0,), (size,)), work, fit="shrink", read_write_conflict=False, max_workers=3,
                settings={"env": {"OUT": os.path.abspath(sys.argv[1])}})

if __name__ == "__main__":
    os.mkdir(sys.argv[1])
    result = run_blockwise(line("first", 4, 0) + line("second", 8, 2), sys.argv[2], slurm={"time": "10m"}, progress=lambda p: None, directory=f"runs-{sys.argv[2]}")
    os.symlink(result.directory, f"run-{sys.argv[2]}")
`

func TestOnSlurmAScriptInPythonGivesWhatItGivesHere(t *testing.T) {
	const python = "/usr/bin/python3" // that of a version manager is mostly its owner's only
	if _, err := exec.LookPath(python); err != nil {
		testenv.Unavailable(t, err.Error())
	}
	lab := slurmlab.Start(t, slurmlab.Options{NoAccounting: true})
	dir, program := aliceHome(t, lab, "")
	if err := os.CopyFS(filepath.Join(dir, "lib"), os.DirFS(filepath.Join("..", "sdk", "python"))); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "script.py"), []byte(slurmScript), 0o644); err != nil {
		t.Fatal(err)
	}
	run := func(launcher string) ([]string, map[string]string) {
		t.Helper()
		cmd := lab.Command("alice", python, "-B", "script.py", "out-"+launcher, launcher)
		cmd.Dir = dir
		cmd.Env = append(cmd.Env, "PYTHONPATH="+filepath.Join(dir, "lib"), "DAISY_SUBMIT="+program)
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", launcher, err, text)
		}
		return counted(t, filepath.Join(dir, "run-"+launcher)), filesIn(t, filepath.Join(dir, "out-"+launcher))
	}
	here, hereFiles := run("local")
	there, thereFiles := run("slurm")
	if d := cmp.Diff(here, there); d != "" {
		t.Errorf("counts (-local +slurm):\n%s", d)
	}
	if d := cmp.Diff(hereFiles, thereFiles); d != "" || len(hereFiles) != 15 {
		t.Errorf("%d results (-local +slurm):\n%s", len(hereFiles), d)
	}
	if left := lab.Run("root", "squeue", "-h"); left != "" {
		t.Errorf("jobs are left:\n%s", left)
	}
}
