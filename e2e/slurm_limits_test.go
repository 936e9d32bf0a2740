//go:build linux

package e2e

import (
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"

	tables "example.org/daisy/internal/report"
	"example.org/daisy/internal/slurmlab"
)

// watch gives the most lines that a command of an administrator wrote while a run went on.
func (j *slurmJob) watch(s *submit, args ...string) (most int) {
	j.t.Helper()
	j.await("its end", func() bool {
		most = max(most, len(strings.Fields(j.root(args...))))
		select {
		case <-s.over:
			return true
		default:
			return false
		}
	})
	return most
}

// inLab is a job of alice's in a lab of its own, whose workers have ten minutes, and what keys of [slurm] say.
func inLab(t *testing.T, options slurmlab.Options, name, keys string, tasks ...string) *slurmJob {
	t.Helper()
	return newSlurmJob(t, slurmlab.Start(t, options), "alice", name, job("[slurm]\ntime = \"10m\"\n"+keys, tasks...))
}

func TestOnSlurmAQOSThatAllowsTwoJobsInTheQueue(t *testing.T) {
	t.Parallel()
	j := inLab(t, slurmlab.Options{}, "tiny", "qos = \"tiny\"",
		lineOf("work", 30, slow(0.5)+writes)+"max_workers = 8")
	s := j.start("slurm")
	if n := j.watch(s, "squeue", "-h", "-r", "-o", "%i"); n != 2 {
		t.Errorf("at most %d jobs were in the queue, want 2", n)
	}
	r := j.wantComplete(s)
	j.wantNoLoss()
	wantText(t, r.stderr, "QOSMaxSubmitJobPerUserLimit", "no more jobs of yours may be in the queue")
}

func TestOnSlurmAQOSThatRunsOneJob(t *testing.T) {
	t.Parallel()
	j := inLab(t, slurmlab.Options{}, "one", "qos = \"one\"",
		lineOf("work", 45, slow(0.3)+writes)+"max_workers = 4")
	s := j.start("slurm")
	if n := j.watch(s, "squeue", "-h", "-r", "-t", "R,CG", "-o", "%i"); n != 1 {
		t.Errorf("%d jobs ran at once, want 1", n)
	}
	j.wantComplete(s)
	wantText(t, s.stderr.String(), "QOSMaxJobsPerUserLimit (the QOS has as much of running jobs as it may at once)")
	j.wantNoLoss()
}

func TestOnSlurmWorkersWaitForLicences(t *testing.T) {
	t.Parallel()
	j := inLab(t, slurmlab.Options{NoAccounting: true, Conf: "Licenses=matlab:2"}, "licences", "licenses = \"matlab:1\"",
		lineOf("work", 60, slow(0.5)+writes)+"max_workers = 4")
	s := j.start("slurm")
	if n := j.watch(s, "squeue", "-h", "-r", "-t", "R,CG", "-o", "%i"); n != 2 {
		t.Errorf("%d jobs ran at once, want one for each of 2 licences", n)
	}
	j.wantComplete(s)
	wantText(t, s.stderr.String(), "2 pending workers: Licenses (it waits for licences)")
	j.wantNoLoss()
}

func TestOnSlurmAPartitionThatIsDownIsWaitedFor(t *testing.T) {
	t.Parallel()
	j := inLab(t, slurmlab.Options{NoAccounting: true}, "down", "partition = \"high\"",
		lineOf("work", 10, writes)+"max_workers = 2")
	j.root("scontrol", "update", "PartitionName=high", "State=DOWN")
	s := j.start("slurm")
	j.await("the wait is explained", func() bool {
		return strings.Contains(j.waitsFor(), "waiting for 2 pending workers: PartitionDown (its partition is down)")
	})
	j.root("scontrol", "update", "PartitionName=high", "State=UP")
	j.wantComplete(s)
	j.wantNoLoss()
}

func TestOnSlurmWorkersThatRunAndDoNotConnectAreSaidWithTheirLog(t *testing.T) {
	t.Parallel()
	j := inLab(t, slurmlab.Options{NoAccounting: true}, "slow", "setup = \"echo this takes its time; sleep 8\"",
		lineOf("work", 2, writes)+"max_workers = 1")
	s := j.start("slurm")
	log := filepath.Join(j.run("slurm"), "logs", "1.0.log")
	j.await("the word that nobody has connected", func() bool {
		waits := j.waitsFor()
		return strings.Contains(waits, "1 job running, none connected for ") && strings.Contains(waits, "; see "+log)
	})
	wantText(t, readFile(t, log), "this takes its time")
	wantSecretKept(t, j.run("slurm")) // nor in the script of the job and its environment
	j.ends(s, 0)
	j.wantNothingLeft()
}

func TestOnSlurmWhatCanNeverRunEndsWithStatus2(t *testing.T) {
	t.Parallel()
	lab := slurmlab.Start(t, slurmlab.Options{})
	for _, c := range []struct{ name, slurm, task, slurmSays, says string }{
		{"time", "partition = \"short\"\ntime = \"10m\"", "", "PartitionTimeLimit", "it asks for more time than its partition gives: lower time, or take another partition"},
		{"partition", "partition = \"nope\"", "", "Invalid partition name specified", "there is no such partition: sinfo lists them"},
		{"account", "account = \"nope\"", "", "Invalid account or account/partition combination specified", "change account or partition"},
		{"qos", "qos = \"nope\"", "", "Invalid qos specification", "change qos"},
		{"wall", "qos = \"shortwall\"\ntime = \"10m\"", "", "QOSMaxWallDurationPerJobLimit", "it asks for more time than the QOS gives: lower time"},
		{"memory", "", "requires = { cpu = 1, memory = \"5GiB\" }", "Requested node configuration is not available", "no node that may be used has so many cores, so much memory or so many GPUs"},
		{"cores", "", "requires = { cpu = 9 }", "Requested node configuration is not available", "no node that may be used has so many cores, so much memory or so many GPUs"},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := newSlurmJob(t, lab, "alice", c.name, job("[slurm]\n"+c.slurm, lineOf("work", 10, writes)+"max_workers = 3\n"+c.task))
			r := j.ends(j.start("slurm"), 2)
			j.wantNothingLeft()
			wantText(t, r.stderr, "task \"work\": ", c.slurmSays, c.says, "plan job.toml --test-only")
			if strings.Contains(r.all(), "--resume") {
				t.Errorf("nothing was run, and it is said how to go on with it:\n%s", r.all())
			}
			if n := len(j.results("slurm")); n > 0 {
				t.Errorf("%d blocks ran", n)
			}
		})
	}
}

func TestOnSlurmASiteWithSmallArraysGetsSeveral(t *testing.T) {
	t.Parallel()
	j := inLab(t, slurmlab.Options{NoAccounting: true, MaxArraySize: 5}, "arrays", "",
		lineOf("work", 40, slow(1)+writes)+"requires = { cpu = 1, memory = \"50MiB\" }\nmax_workers = 12")
	r := j.completes()
	j.wantNoLoss()
	a := j.arrays()
	total := 0
	for array, n := range a {
		if total += n; n > 5 {
			t.Errorf("array %s had %d elements", array, n)
		}
	}
	if total != 12 || len(a) < 3 {
		t.Errorf("the arrays were %v, want 12 workers in three or four", a)
	}
	if strings.Contains(r.stderr, "refused") {
		t.Errorf("what has to be several submissions is told as a refusal:\n%s", r.stderr)
	}
}

func TestOnSlurmASiteWithoutArrays(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, keys string
		options    slurmlab.Options
	}{
		{"that the job file tells of", "arrays = false\n", slurmlab.Options{NoAccounting: true}},
		{"that is found out", "", slurmlab.Options{NoAccounting: true, MaxArraySize: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			j := inLab(t, c.options, "plain", c.keys,
				lineOf("work", 30, slow(0.6)+writes)+"max_workers = 3")
			r := j.completes()
			j.wantNoLoss()
			a := j.root("squeue", "-h", "-t", "all", "-o", "%K %N")
			if n := len(strings.Split(a, "\n")); n != 3 || strings.Count(a, "N/A n") != 3 {
				t.Errorf("the jobs were\n%s, want 3 without an array", a)
			}
			if strings.Contains(r.stderr, "refused") {
				t.Errorf("what has to be several submissions is told as a refusal:\n%s", r.stderr)
			}
		})
	}
}

func TestOnSlurmMoreThanWasAskedForIsShown(t *testing.T) {
	t.Parallel()
	// The first gives whole nodes, the second a core for each 500 MB.
	conf := "PartitionName=whole Nodes=n[1-4] OverSubscribe=EXCLUSIVE\nPartitionName=thin Nodes=n[1-4] MaxMemPerCPU=500"
	for _, c := range []struct{ partition, requires, asked, given string }{
		{"whole", `cpu = 1, memory = "100MiB", gpu = 1`, "1 core, 100MiB, 1 GPU", "4 cores, 100MiB, 2 GPUs"},
		{"thin", `cpu = 1, memory = "1900MiB"`, "1 core, 1.9GiB", "4 cores, 1.9GiB"},
	} {
		t.Run(c.partition, func(t *testing.T) {
			t.Parallel()
			j := inLab(t, slurmlab.Options{NoAccounting: true, Conf: conf}, "more", "partition = \""+c.partition+"\"",
				lineOf("work", 20, slow(0.6)+writes)+"max_workers = 2\nrequires = { "+c.requires+" }")
			r := j.completes()
			j.wantNoLoss()
			wantText(t, r.stderr, "was given 4 CPUs of its node and had asked for 1")
			s := j.stats()
			for _, w := range s.Workers {
				if asked, given := tables.Amounts(w.Asked), tables.Amounts(w.Granted); asked != c.asked || given != c.given {
					t.Errorf("worker %s asked for %s and was given %s, want %s and %s", w.ID, asked, given, c.asked, c.given)
				}
			}
			sum := 0.0
			for _, n := range s.Nodes {
				h := n.CoreHours
				if h.Granted == nil || *h.Used <= 0 || *h.Granted < 3.9**h.Used {
					t.Fatalf("node %s has core-hours %+v: want four times as many given as used", n.Node, h)
				}
				sum += *h.Granted
			}
			if all := s.Run.CoreHours.Granted; all == nil || math.Abs(*all-sum) > 1e-9 {
				t.Errorf("the core-hours of the run are %+v, and its nodes were given %v", s.Run.CoreHours, sum)
			}
			cmd := j.lab.Command(j.user, j.program, "workers", "run")
			cmd.Dir = j.folder("slurm")
			text, err := cmd.Output()
			if err != nil {
				t.Fatal(err)
			}
			wantText(t, string(text), c.given)
		})
	}
}

// TestOnSlurmWorkersFillTheirNodes: a worker runs as many blocks at once as what it was given holds, by cores, by memory, by GPUs.
func TestOnSlurmWorkersFillTheirNodes(t *testing.T) {
	t.Parallel()
	task := func(id, requires, slurm string, n, maxWorkers int) string {
		return lineOf(id, n, "mkdir out/$DAISY_TASK_ID.$I.$DAISY_GPUS.gpu; "+slow(0.5)+"rmdir out/$DAISY_TASK_ID.$I.$DAISY_GPUS.gpu; "+writes) +
			fmt.Sprintf("slots = \"fill\"\nmax_workers = %d\nrequires = { %s }\n%s\n", maxWorkers, requires, slurm)
	}
	j := inLab(t, slurmlab.Options{NoAccounting: true, Conf: "PartitionName=whole Nodes=n[1-4] OverSubscribe=EXCLUSIVE"}, "fill", "partition = \"whole\"",
		task("cores", `cpu = 1, memory = "900MiB"`, "", 80, 16), // the first node has some time alone
		task("memory", `cpu = 1, memory = "900MiB"`, `slurm.memory_option = "mem"`, 2, 2),
		task("gpus", `cpu = 1, memory = "100MiB", gpu = 1`, "", 4, 8))
	r := j.completes()
	j.wantNoLoss()
	want := map[string]int64{"cores": 4, "memory": 1, "gpus": 2}
	s := j.stats()
	for _, w := range s.Workers {
		if w.Slots != want[w.Task] || tables.Amounts(w.Asked)[:6] != "1 core" || tables.Amounts(w.Granted)[:7] != "4 cores" {
			t.Errorf("worker %s of %s has %d slots, asked for %s and was given %s; want %d slots of 4 cores",
				w.ID, w.Task, w.Slots, tables.Amounts(w.Asked), tables.Amounts(w.Granted), want[w.Task])
		}
	}
	for _, task := range s.Tasks {
		if task.ID == "cores" && (task.MaxConcurrency != 16 || task.Workers > 4) {
			t.Errorf("%d blocks of %s ran at once, on %d workers", task.MaxConcurrency, task.ID, task.Workers)
		}
	}
	wantText(t, r.stderr, `task "memory": worker `, "has 1 slot, which need 1: ")
}

func TestOnSlurmOneArrayWaitsForAllBehindItsThrottle(t *testing.T) {
	t.Parallel()
	j := inLab(t, slurmlab.Options{NoAccounting: true}, "throttle", "array_limit = 20",
		lineOf("work", 40, slow(0.5)+writes)+"max_workers = 2\nmax_blocks_per_worker = 5")
	s := j.start("slurm")
	if n := j.watch(s, "squeue", "-h", "-r", "-t", "R", "-o", "%i"); n != 2 {
		t.Errorf("%d jobs ran at once, want 2", n)
	}
	j.wantComplete(s)
	j.wantNoLoss()
	if a := j.arrays(); len(a) > 2 {
		t.Errorf("the arrays were %v: what takes the place of workers that left was to be queued already", a)
	}
}
