package nuclei

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"example.org/daisy/internal/slurmlab"
	"example.org/daisy/internal/testenv"
)

// As alice, who has the virtual environment in her home.
func TestOnSlurmThePipelineGivesTheReferenceAndTheSameCounts(t *testing.T) {
	t.Parallel()
	lab := slurmlab.Start(t, slurmlab.Options{Nodes: 2, NoAccounting: true})
	root := filepath.Join(lab.Home("alice"), "examples")
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatal(err)
	}
	dir := folder(t, root)
	python := testenv.Daisy(t)
	venv := filepath.Join(root, "venv")
	for _, command := range [][]string{{"cp", "-a", filepath.Dir(filepath.Dir(python)), venv}, {"chown", "-R", "alice", root}} {
		if out, err := exec.CommandContext(t.Context(), command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", command, err, out)
		}
	}
	run := func(args ...string) string {
		t.Helper()
		cmd := lab.Command("alice", filepath.Join(venv, "bin", "python"), args...)
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
