package worker

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func from(env ...string) func(string) string {
	values := map[string]string{}
	for _, e := range env {
		name, value, _ := strings.Cut(e, "=")
		values[name] = value
	}
	return func(name string) string { return values[name] }
}

func TestWhatSlurmSaysOfAJob(t *testing.T) {
	for name, c := range map[string]struct {
		env  []string
		want Job
	}{
		"no job": {[]string{"SLURM_ARRAY_TASK_ID=7", "SLURM_CONF=/etc/slurm.conf"}, Job{}},
		"an element of an array": {
			[]string{"SLURM_JOB_ID=4806", "SLURM_ARRAY_JOB_ID=4711", "SLURM_ARRAY_TASK_ID=49", "SLURM_CLUSTER_NAME=west", "SLURMD_NODENAME=n7", "SLURM_JOB_NAME=lab-dz-k3v9x2qa-12",
				"SLURM_CPUS_ON_NODE=4", "SLURM_MEM_PER_NODE=8192", "CUDA_VISIBLE_DEVICES=GPU-1b5f,MIG-77/1/0"},
			Job{ID: "4806", Cluster: "west", Array: "4711", Element: 49, Tag: "12", Node: "n7", CPUMilli: 4000, MemoryBytes: 8 << 30, GPUs: []string{"GPU-1b5f", "MIG-77/1/0"}},
		},
		"the last element, whose id is that of the array": {[]string{"SLURM_JOB_ID=4711", "SLURM_ARRAY_JOB_ID=4711", "SLURM_ARRAY_TASK_ID=49"}, Job{ID: "4711", Array: "4711", Element: 49}},
		"no array":                         {[]string{"SLURM_JOB_ID=4711", "SLURM_JOB_NAME=dz-k3v9x2qa-1"}, Job{ID: "4711", Array: "4711", Tag: "1"}},
		"a job of somebody else":           {[]string{"SLURM_JOB_ID=9", "SLURM_JOB_NAME=adz-k3v9x2qa-1"}, Job{ID: "9", Array: "9"}},
		"started again, the second of two": {[]string{"SLURM_JOB_ID=9", "SLURM_RESTART_COUNT=2", "SLURM_PROCID=1"}, Job{ID: "9", Array: "9", Restart: 2, Process: 1}},
		"memory by the CPU":                {[]string{"SLURM_JOB_ID=9", "SLURM_CPUS_ON_NODE=4", "SLURM_MEM_PER_CPU=2000"}, Job{ID: "9", Array: "9", CPUMilli: 4000, MemoryBytes: 8000 << 20}},
		"its end":                          {[]string{"SLURM_JOB_ID=9", "SLURM_JOB_END_TIME=1796040000", "DAISY_KILL_WAIT=30"}, Job{ID: "9", Array: "9", End: time.Unix(1796040000, 0), KillWait: 30 * time.Second}},
		"nothing that can be read": {[]string{"SLURM_JOB_ID=9", "SLURM_JOB_END_TIME=soon", "SLURM_CPUS_ON_NODE=-1", "SLURM_MEM_PER_NODE=9999999999999999", "DAISY_KILL_WAIT=x"},
			Job{ID: "9", Array: "9"}},
		"no device":          {[]string{"SLURM_JOB_ID=9", "CUDA_VISIBLE_DEVICES=NoDevFiles"}, Job{ID: "9", Array: "9"}},
		"devices of AMD":     {[]string{"SLURM_JOB_ID=9", "ROCR_VISIBLE_DEVICES=0, 3"}, Job{ID: "9", Array: "9", GPUs: []string{"0", "3"}}},
		"devices of Intel":   {[]string{"SLURM_JOB_ID=9", "ZE_AFFINITY_MASK=0.0,0.1"}, Job{ID: "9", Array: "9", GPUs: []string{"0.0", "0.1"}}},
		"one that is hidden": {[]string{"SLURM_JOB_ID=9", "CUDA_VISIBLE_DEVICES=2,-1,3"}, Job{ID: "9", Array: "9", GPUs: []string{"2"}}},
	} {
		got, err := SlurmJob(from(c.env...))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
	}
}

func TestAWorkerDoesNotTakeItselfForAnother(t *testing.T) {
	for _, variable := range []string{"SLURM_ARRAY_TASK_ID=x", "SLURM_RESTART_COUNT=-1", "SLURM_PROCID=99999999999"} {
		_, err := SlurmJob(from("SLURM_JOB_ID=1", variable))
		if name, _, _ := strings.Cut(variable, "="); err == nil || !strings.HasPrefix(err.Error(), name+" is ") {
			t.Errorf("%s: %v", variable, err)
		}
	}
}
