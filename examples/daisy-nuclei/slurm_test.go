package nuclei

import (
	"path/filepath"
	"testing"

	"example.org/daisy/internal/slurmlab"
	"example.org/daisy/internal/testenv"
)

// As root, since nobody else may be able to read the python3 of the tests.
func TestOnSlurmThePipelineGivesTheReferenceAndTheSameCounts(t *testing.T) {
	t.Parallel()
	lab := slurmlab.Start(t, slurmlab.Options{Nodes: 2, NoAccounting: true})
	root := t.TempDir()
	python := testenv.Python(t, testenv.Daisy, "zarr==3.1.6", "numpy")
	dir := folder(t, root, programs(t), python)
	run := func(args ...string) string {
		t.Helper()
		cmd := lab.Command("root", args[0], args[1:]...)
		cmd.Dir, cmd.Env = dir, append(cmd.Env, variables(root)...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	run(python, "pipeline.py", "prepare")
	counts := run(python, "pipeline.py", "submit", "slurm")
	wantSaid(t, counts+run(python, "pipeline.py", "verify"))

	run(python, "pipeline.py", "prepare")
	run(filepath.Join(root, "bin", "daisy-submit"), "run", "nuclei.toml", "--launcher", "slurm", "--run-dir", "out/run")
	wantSaid(t, counted(t, filepath.Join(dir, "out", "run"))+run(python, "pipeline.py", "verify"))
	if left := lab.Run("root", "squeue", "-h"); left != "" {
		t.Errorf("jobs are left:\n%s", left)
	}
}
