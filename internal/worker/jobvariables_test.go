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
		"PATH=/bin", "SLURM_CONF=/c", "SLURM_JOB_ID=7", "SLURM_CPUS_ON_NODE=4", "SLURM_CLUSTERS=west", "SLURM_TMPDIR=/scratch/7", "SLURM_PROCID=0", "SLURM_NTASKS=1", "SLURMD_NODENAME=n1",
		"PMI_RANK=0", "PMIX_RANK=0", "SBATCH_X=1", "SRUN_DEBUG=3", "MY_SLURM_NOTES=x", "TMPDIR=/scratch/7",
	}
	strange := func(env []string) []string {
		return slices.DeleteFunc(slices.Clone(env), func(e string) bool { return strings.HasPrefix(e, "DAISY_") || strings.Contains(e, "_THREADS=") })
	}
	got := strange(slotEnvironment(inherited, task, place{}))
	if want := append(slices.Clone(inherited[:6]), "MY_SLURM_NOTES=x", "TMPDIR=/scratch/7"); !slices.Equal(got, want) {
		t.Errorf("environment %q, want %q", got, want)
	}
	with := slotEnvironment(append(slices.Clone(inherited), showJob+"=1"), task, place{})
	if !slices.Equal(strange(with), inherited) || slices.ContainsFunc(with, func(e string) bool { return strings.HasPrefix(e, showJob) }) {
		t.Errorf("with slurm_env: %q", with)
	}
}

func TestASlotSeesItsPartOfEveryListOfDevices(t *testing.T) {
	for name, c := range map[string]struct {
		inherited []string
		slot      int
		want      []string
	}{
		"numbers":                     {[]string{"CUDA_VISIBLE_DEVICES=0,1,2,3"}, 1, []string{"CUDA_VISIBLE_DEVICES=2,3"}},
		"UUIDs":                       {[]string{"CUDA_VISIBLE_DEVICES=GPU-a,GPU-b,GPU-c,GPU-d"}, 0, []string{"CUDA_VISIBLE_DEVICES=GPU-a,GPU-b"}},
		"parts of devices":            {[]string{"CUDA_VISIBLE_DEVICES=MIG-1/0/0,MIG-1/1/0,MIG-2/0/0,MIG-2/1/0"}, 1, []string{"CUDA_VISIBLE_DEVICES=MIG-2/0/0,MIG-2/1/0"}},
		"of AMD, and nothing besides": {[]string{"ROCR_VISIBLE_DEVICES=4,5,6,7"}, 1, []string{"ROCR_VISIBLE_DEVICES=6,7"}},
		"of Intel":                    {[]string{"ZE_AFFINITY_MASK=0.0,0.1,1.0,1.1"}, 1, []string{"ZE_AFFINITY_MASK=1.0,1.1"}},
		"named otherwise in each": {
			[]string{"CUDA_VISIBLE_DEVICES=GPU-a,GPU-b,GPU-c,GPU-d", "GPU_DEVICE_ORDINAL=0,1,2,3"}, 1, []string{"CUDA_VISIBLE_DEVICES=GPU-c,GPU-d", "GPU_DEVICE_ORDINAL=2,3"},
		},
		"a list of others":  {[]string{"CUDA_VISIBLE_DEVICES=7"}, 1, []string{"CUDA_VISIBLE_DEVICES=c,d"}},
		"none, by a search": {nil, 1, []string{"CUDA_VISIBLE_DEVICES=c,d", "HIP_VISIBLE_DEVICES=c,d", "ROCR_VISIBLE_DEVICES=c,d"}},
	} {
		task := &Task{Spec: api.TaskSpec{ID: "a", GPUs: 2, Env: []string{"CUDA_VISIBLE_DEVICES=user"}}}
		devices := []string{"a", "b", "c", "d"}
		at := place{slot: c.slot, gpus: devices[2*c.slot : 2*c.slot+2], gpusBefore: 2 * c.slot, workerGPUs: 4}
		got := slices.DeleteFunc(slotEnvironment(c.inherited, task, at), func(e string) bool {
			return strings.HasPrefix(e, "DAISY_") || strings.Contains(e, "_THREADS=") || e == "CUDA_VISIBLE_DEVICES=user"
		})
		slices.Sort(got)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
