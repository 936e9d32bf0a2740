package worker

import "strings"

// showJob is the variable by which a launcher says that user code is to see the variables of the batch job.
const showJob = "DAISY_SLURM_ENV"

// jobPrefixes begin the variables that a batch system gives a job. Libraries take them for an order to start as one of many, and wait for
// the others.
var jobPrefixes = []string{"SLURM_", "SLURMD_", "SBATCH_", "SRUN_", "PMI"}

// shown of them say where the cluster is, which job and how much of the node this is, and where its temporary files may be.
var shown = map[string]bool{"SLURM_CONF": true, "SLURM_CLUSTERS": true, "SLURM_JOB_ID": true, "SLURM_CPUS_ON_NODE": true, "SLURM_TMPDIR": true}

// withoutJob is an environment without the variables of a batch job, unless it says that they are to be seen.
func withoutJob(env []string) []string {
	var out []string
	for _, entry := range env {
		name, _, _ := strings.Cut(entry, "=")
		if name == showJob {
			return env
		}
		hidden := false
		for _, p := range jobPrefixes {
			hidden = hidden || strings.HasPrefix(name, p) && !shown[name]
		}
		if !hidden {
			out = append(out, entry)
		}
	}
	return out
}
