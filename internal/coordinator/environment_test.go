package coordinator

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestWorkersDoNotInheritTheBatchJobThatTheCoordinatorRunsIn(t *testing.T) {
	got := withoutJobVariables([]string{
		"PATH=/bin", "SLURM_JOB_ID=1", "SLURM_CPU_BIND=quiet,mask_cpu:0x00F", "SLURM_CONF=/opt/slurm.conf", "SLURM_CLUSTERS=west",
		"SBATCH_PARTITION=batch", "SRUN_DEBUG=3", "PMIX_RANK=0", "MY_SLURM_NOTES=x", "DAISY_TAG=3", "DAISY_LEASE=1.1", "DAISY_HOME=/d",
	})
	want := []string{"PATH=/bin", "SLURM_CONF=/opt/slurm.conf", "SLURM_CLUSTERS=west", "MY_SLURM_NOTES=x", "DAISY_HOME=/d"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
