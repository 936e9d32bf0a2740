package nuclei

import (
	"testing"

	"example.org/daisy/internal/slurmlab"
	"example.org/daisy/internal/testenv"
)

// As root, since nobody else may be able to read the python3 of the tests.
func TestOnSlurmThePipelineGivesTheReferenceAndTheSameCounts(t *testing.T) {
	t.Parallel()
	lab := slurmlab.Start(t, slurmlab.Options{Nodes: 2, NoAccounting: true})
	root := t.TempDir()
	dir := folder(t, root)
	python := testenv.Python(t, testenv.Daisy, "zarr==3.1.6", "numpy")
	run := func(args ...string) string {
		t.Helper()
		cmd := lab.Command("root", python, args...)
		cmd.Dir, cmd.Env = dir, append(cmd.Env, variables(root)...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	run("pipeline.py", "prepare")
	counts := run("pipeline.py", "submit", "slurm")
	wantSaid(t, counts+run("pipeline.py", "verify"))
}
