package coordinator

import (
	"os"
	"strings"
)

// launchedFor is the variable by which a resume finds the workers of its run, and all that they had started. Nothing else has it.
const launchedFor = "DAISY_LAUNCHED_FOR"

// workerEnvironment is what a local worker inherits: the user's environment without the variables of a batch job that the
// coordinator itself may run in. Tools read those as options; a CPU binding among them slows every block down in silence.
func workerEnvironment() []string { return withoutJobVariables(os.Environ()) }

// kept are variables that tell client tools where the cluster is; they are no properties of a job.
var kept = map[string]bool{"SLURM_CONF": true, "SLURM_CLUSTERS": true}

var jobPrefixes = []string{"SLURM_", "SLURMD_", "SBATCH_", "SRUN_", "SALLOC_", "PMI_", "PMIX_", "PMI2_",
	// Our own of a run further up: a worker would take itself for another.
	launchedFor + "=", "DAISY_TAG=", "DAISY_ELEMENT=", "DAISY_ARRAY=", "DAISY_RESTART=", "DAISY_NODE=", "DAISY_KILL_WAIT=", "DAISY_SLURM_ENV=", "DAISY_GPUS=", "DAISY_RUN_ID=", "DAISY_WORKER_ID=", "DAISY_SLOT=", "DAISY_LEASE="}

func withoutJobVariables(env []string) []string {
	out := make([]string, 0, len(env))
next:
	for _, kv := range env {
		name, _, _ := strings.Cut(kv, "=")
		if !kept[name] {
			for _, p := range jobPrefixes {
				if strings.HasPrefix(kv, p) {
					continue next
				}
			}
		}
		out = append(out, kv)
	}
	return out
}

// environment is what launched workers inherit.
func (c *Coordinator) environment() []string {
	if c.cfg.Environment != nil {
		return c.cfg.Environment
	}
	return workerEnvironment()
}
