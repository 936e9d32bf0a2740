package slurm

import (
	"strings"

	"example.org/daisy/launcher"
)

// A cause is what one of Slurm's reasons means.
type cause struct {
	plain string
	// never: it will not start with this reason, however long one waits.
	never bool
}

// launchFailed is what becomes of a job that may be requeued when a node cannot begin it, as when a prolog fails.
const launchFailed = "launch failed requeued held"

// reasons are those that pending jobs have, and the common ones of ends, of Slurm 18 to 25. Limits have names made of parts and
// are read by limitOf.
var reasons = map[string]cause{
	"Priority":                 {"other jobs go first", false},
	"Resources":                {"it waits for free nodes", false},
	"Dependency":               {"it waits for another job", false},
	"DependencyNeverSatisfied": {"it waits for a job that did not end as it had to", true},
	"BeginTime":                {"it may not start before a time that is still to come", false},
	"JobHeldUser":              {"you hold it (scontrol release lets it go)", false},
	"JobHeldAdmin":             {"an administrator holds it", false},
	"JobArrayTaskLimit":        {"as many of its array run as may run at once", false},
	"Licenses":                 {"it waits for licences", false},
	"Reservation":              {"it waits for its reservation to begin", false},
	"ReservationDeleted":       {"its reservation was deleted", true},
	"InvalidReservation":       {"its reservation has ended or does not exist", true},
	"Cleaning":                 {"an earlier run of it is still being cleaned up", false},
	"Prolog":                   {"its node is being prepared", false},
	"None":                     {"Slurm has not looked at it yet", false},
	"SchedDefer":               {"Slurm looks at it later", false},
	"SystemFailure":            {"Slurm itself failed", false},
	"FrontEndDown":             {"no front end of the cluster is up", false},
	"BurstBufferResources":     {"it waits for space in the burst buffer", false},
	"BurstBufferStageIn":       {"its files are being moved into the burst buffer", false},
	"BurstBufferOperation":     {"an operation of its burst buffer failed", false},
	"PowerNotAvail":            {"there is not enough electric power", false},
	"PowerReserved":            {"its electric power is reserved for others", false},
	"MaxPowerLimit":            {"it would exceed the power of the cluster", false},
	"NodeDown":                 {"a node that it needs is down", false},
	"ReqNodeNotAvail":          {"nodes that it needs are down, reserved, or about to be maintained", false},
	"Reserved for maintenance": {"its nodes are reserved for maintenance", false},
	"DeadLine":                 {"it cannot end before its deadline", true},
	"OutOfMemory":              {"it ran out of memory", false},

	"PartitionDown":            {"its partition is down", false},
	"PartitionInactive":        {"its partition is not active", false},
	"PartitionTimeLimit":       {"it asks for more time than its partition gives: lower time, or take another partition", true},
	"PartitionNodeLimit":       {"it asks for more nodes, cores or memory than its partition gives to one job: require less, or take another partition", true},
	"PartitionConfig":          {"its partition does not take such jobs: ask for less time, cores or memory, or take another partition", true},
	"AccountNotAllowed":        {"its account may not use the partition: change account or partition", true},
	"QOSNotAllowed":            {"its QOS may not be used in the partition: change qos or partition", true},
	"InvalidAccount":           {"its account is not valid: change account", true},
	"InvalidQOS":               {"its QOS is not valid: change qos", true},
	"BadConstraints":           {"no node has what it asks for: change constraint, gres or requires", true},
	"Constraints":              {"no free node has the features that it asks for", false},
	"FedJobLock":               {"another cluster of the federation decides about it", false},
	"QOSJobLimit":              {"its QOS runs as many jobs as it may", false},
	"QOSResourceLimit":         {"its QOS uses as much as it may", false},
	"QOSTimeLimit":             {"it asks for more time than its QOS gives: lower time", true},
	"QOSUsageThreshold":        {"its QOS has been used too much of late", false},
	"QOSMinCpuNotSatisfied":    {"its QOS wants jobs to ask for more cores", true},
	"AssociationJobLimit":      {"your account runs as many jobs as it may", false},
	"AssociationResourceLimit": {"your account uses as much as it may", false},
	"AssociationTimeLimit":     {"it asks for more time than your account may use: lower time", true},
	"MPIPortsBusy":             {"it waits for network ports", false},

	"JobHoldMaxRequeue":          {"it was started too often and is held", true},
	"JobLaunchFailure":           {"it could not be started on its node, or a signal ended it", false},
	"NonZeroExitCode":            {"its exit status was not 0", false},
	"RaisedSignal":               {"a signal ended it", false},
	"TimeLimit":                  {"its time limit was over", false},
	"InactiveLimit":              {"it was inactive for too long", false},
	"job requeued in held state": {"it was put back into the queue and is held", false},
	launchFailed:                 {"it could not be started on its node, was put back into the queue and is held", false},
	"Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions": {"the nodes that it needs are down, drained, or reserved for other jobs", false},
}

// reasonOf reads a reason of squeue.
func reasonOf(word string) launcher.Reason {
	word = strings.TrimSpace(word)
	if strings.HasPrefix(word, "(") && strings.HasSuffix(word, ")") && !strings.EqualFold(word, "(null)") {
		word = word[1 : len(word)-1]
	}
	switch word {
	case "", "None", "(null)", "N/A":
		return launcher.Reason{}
	}
	name := word
	if head, _, cut := strings.Cut(word, ","); cut { // "ReqNodeNotAvail, UnavailableNodes:n4"
		if _, known := reasons[word]; !known {
			name = head
		}
	}
	c, known := reasons[name]
	if !known {
		c, known = limitOf(name)
	}
	if !known {
		return launcher.Reason{Word: word, Plain: "Slurm says: " + word}
	}
	if _, nodes, ok := strings.Cut(word, "UnavailableNodes:"); ok && nodes != "" {
		c.plain += " (" + nodes + ")"
	}
	return launcher.Reason{Word: word, Plain: c.plain, Never: c.never, Failed: name == launchFailed}
}

// limitOf reads the names of limits, which are made of parts: whose limit it is (QOS, Assoc), of whom (Grp, Max), of what (Cpu, Mem,
// Jobs, Wall …) and for what (PerJob, PerUser, PerNode …).
//
// A limit on one job is never met by waiting. All others are of what runs together, or was used of late, and pass.
func limitOf(name string) (cause, bool) {
	rest, whose := name, ""
	for _, w := range [][2]string{{"QOS", "the QOS"}, {"Assoc", "your account"}} {
		if r, ok := strings.CutPrefix(name, w[0]); ok {
			rest, whose = r, w[1]
		}
	}
	if whose == "" {
		return cause{}, false
	}
	of := ""
	for _, w := range [][2]string{
		{"SubmitJobs", "jobs in the queue"}, {"SubmitJob", "jobs in the queue"}, {"JobsRunMins", "minutes of running jobs"}, {"Jobs", "running jobs"},
		{"CPURunMinutes", "minutes of running cores"}, {"CpuRunMinutes", "minutes of running cores"}, {"CPUMinutes", "minutes of cores"}, {"CpuMinutes", "minutes of cores"},
		{"Cpu", "cores"}, {"CPU", "cores"}, {"Memory", "memory"}, {"Mem", "memory"}, {"Node", "nodes"}, {"GRES", "GPUs or the like"}, {"Gres", "GPUs or the like"}, {"License", "licences"},
		{"Wall", "time"}, {"Energy", "energy"}, {"BB", "burst buffer"}, {"Billing", "what it is charged for"}, {"Unknown", "a resource"}, {"Prio", "priority"},
	} {
		if strings.Contains(rest, w[0]) {
			of = w[1]
			break
		}
	}
	if of == "" {
		return cause{}, false
	}
	switch {
	case strings.HasPrefix(rest, "Min"):
		return cause{"it asks for less " + of + " than " + whose + " wants of a job", true}, true
	case strings.Contains(rest, "PerJob"), strings.Contains(rest, "MaxWall"), strings.HasPrefix(rest, "Max") && strings.Contains(rest, "PerNode"):
		return cause{"it asks for more " + of + " than " + whose + " gives to one job: ask for less", true}, true
	case strings.Contains(rest, "Minutes") || strings.Contains(rest, "RunMins") || strings.HasPrefix(rest, "GrpWall"):
		return cause{whose + " has used up its " + of + " for now", false}, true
	default:
		return cause{whose + " has as much of " + of + " as it may at once", false}, true
	}
}
