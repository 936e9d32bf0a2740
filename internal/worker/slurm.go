package worker

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// A Job is what a batch system tells a worker of the job that it runs in. What is not known is 0 or "".
type Job struct {
	// ID is that of this job alone; of an element of an array it is not the array's.
	ID string
	// Cluster is the batch system that has given the id.
	Cluster string
	// Array and Element are those of Identity; of a job that is no array, its id and 0.
	Array   string
	Element int
	// Tag is that in the name of the job, if this is a name that a launcher gives.
	Tag string
	// Restart is how often the job was started again before.
	Restart int
	// Process counts the processes that one step has started, from 0.
	Process int
	// Node is what the batch system calls this machine, which need not be its host name.
	Node string
	// CPUMilli (thousandths of a core) and MemoryBytes are what the job was given of this node; GPUs are its devices, by whatever names the
	// libraries take: numbers, UUIDs, parts of one.
	CPUMilli    int64
	MemoryBytes int64
	GPUs        []string
	// End is when the batch system ends the job. It was set at the start, and can have been changed since.
	End time.Time
	// KillWait is the time between SIGTERM and SIGKILL.
	KillWait time.Duration
}

// launchedName is a job name that a launcher gives: the run and the tag are its last parts.
var launchedName = regexp.MustCompile(`(?:^|-)dz-[a-z0-9]{8}-([0-9]{1,12})$`)

// visible are the variables in which Slurm shows a job its GPUs, by vendor.
var visible = []string{"CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK"}

// SlurmJob reads the variables that Slurm gives a job; all that it says is "" and 0 outside of one. A number that is none is an error where a
// wrong one would make the worker take itself for another.
func SlurmJob(getenv func(string) string) (Job, error) {
	j := Job{ID: getenv("SLURM_JOB_ID")}
	if j.ID == "" {
		return j, nil
	}
	j.Cluster, j.Node = getenv("SLURM_CLUSTER_NAME"), getenv("SLURMD_NODENAME")
	if j.Array = getenv("SLURM_ARRAY_JOB_ID"); j.Array == "" {
		j.Array = j.ID
	}
	if m := launchedName.FindStringSubmatch(getenv("SLURM_JOB_NAME")); m != nil {
		j.Tag = m[1]
	}
	for name, into := range map[string]*int{"SLURM_ARRAY_TASK_ID": &j.Element, "SLURM_RESTART_COUNT": &j.Restart, "SLURM_PROCID": &j.Process} {
		text := getenv(name)
		if text == "" {
			continue
		}
		n, err := strconv.ParseUint(text, 10, 31)
		if err != nil {
			return j, fmt.Errorf("%s is %q: it must be a number from 0", name, text)
		}
		*into = int(n)
	}
	number := func(name string, most int64) int64 {
		n, err := strconv.ParseInt(getenv(name), 10, 64)
		if err != nil || n < 0 || n > most {
			return 0 // what cannot be read is not known
		}
		return n
	}
	const mib = 1 << 20
	cpus := number("SLURM_CPUS_ON_NODE", 1<<20)
	j.CPUMilli = cpus * 1000
	if j.MemoryBytes = number("SLURM_MEM_PER_NODE", math.MaxInt64/mib) * mib; j.MemoryBytes == 0 {
		j.MemoryBytes = number("SLURM_MEM_PER_CPU", 1<<30) * cpus * mib
	}
	for _, name := range visible {
		if j.GPUs = Devices(getenv(name)); len(j.GPUs) > 0 {
			break
		}
	}
	if s := number("SLURM_JOB_END_TIME", math.MaxInt64/2); s > 0 {
		j.End = time.Unix(s, 0)
	}
	j.KillWait = time.Duration(number("DAISY_KILL_WAIT", 1<<20)) * time.Second
	return j, nil
}

const (
	usualKillWait = 30 * time.Second
	// leadBeforeKill is how long before the end and the wait for SIGKILL the script has Slurm send SIGUSR1.
	leadBeforeKill = time.Minute
	longestStop    = 20 * time.Second
	// killMargin is kept between the last word of a worker and SIGKILL.
	killMargin = 5 * time.Second
)

// Lead is how long after SIGUSR1 the batch system ends the job, at the earliest.
func (j *Job) Lead() time.Duration { return j.killWait() + leadBeforeKill }

// StopWithin is how soon after SIGTERM all that the worker holds is to be given back, so that it is gone before SIGKILL; 0 outside of a job.
func (j *Job) StopWithin() time.Duration {
	if j.ID == "" {
		return 0
	}
	out := min(longestStop, j.killWait()-killMargin)
	return max(out-2*time.Second, out/2, time.Second) // what is left is for the end of processes
}

func (j *Job) killWait() time.Duration {
	if j.KillWait > 0 {
		return j.KillWait
	}
	return usualKillWait
}

// left is for how long the job may still run, 0 if that is not known.
func (j *Job) left(now time.Time) time.Duration {
	if j.End.IsZero() {
		return 0
	}
	return max(j.End.Sub(now), 0)
}

// Devices are those of a list with commas. What follows one that is none is not visible, as for CUDA.
func Devices(list string) []string {
	var names []string
	for name := range strings.SplitSeq(list, ",") {
		name = strings.TrimSpace(name)
		if name == "" || strings.HasPrefix(name, "-") || name == "NoDevFiles" {
			break
		}
		names = append(names, name)
	}
	return names
}
