package worker

import (
	"slices"
	"strings"
	"testing"

	"example.org/daisy/internal/api"
)

func TestUserCodeSeesOfTheBatchJobOnlyWhereItIs(t *testing.T) {
	task := &Task{Spec: api.TaskSpec{ID: "a"}}
	inherited := []string{
		"PATH=/bin", "SLURM_CONF=/c", "SLURM_JOB_ID=7", "SLURM_CPUS_ON_NODE=4", "SLURM_CLUSTERS=west", "SLURM_PROCID=0", "SLURM_NTASKS=1", "SLURMD_NODENAME=n1",
		"PMI_RANK=0", "PMIX_RANK=0", "SBATCH_X=1", "SRUN_DEBUG=3", "MY_SLURM_NOTES=x", "TMPDIR=/scratch/7",
	}
	strange := func(env []string) []string {
		return slices.DeleteFunc(slices.Clone(env), func(e string) bool { return strings.HasPrefix(e, "DAISY_") || strings.Contains(e, "_THREADS=") })
	}
	got := strange(slotEnvironment(inherited, task, place{}))
	if want := append(slices.Clone(inherited[:5]), "MY_SLURM_NOTES=x", "TMPDIR=/scratch/7"); !slices.Equal(got, want) {
		t.Errorf("environment %q, want %q", got, want)
	}
	with := slotEnvironment(append(slices.Clone(inherited), showJob+"=1"), task, place{})
	if !slices.Equal(strange(with), inherited) || slices.ContainsFunc(with, func(e string) bool { return strings.HasPrefix(e, showJob) }) {
		t.Errorf("with slurm_env: %q", with)
	}
}
