package e2e

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/daisy/internal/slurmlab"
)

// What people and administrators do to jobs, and what sites do to nodes, while a run goes on.

func TestOnSlurmARequeuedWorkerGetsBlocksAgain(t *testing.T) {
	r := newSlurmRun(t, slurmlab.Options{NoAccounting: true}, 12, `hint_after = "4s"`, "requeue = true", "max_workers = 4\nmax_retries = 0")
	s := r.begin()
	r.untilBegun(5)
	r.lab.Run("root", "scontrol", "requeue", r.jobOf("running"))
	r.until("it waits to start again", func() bool { return r.inState("PENDING") == 1 })
	r.untilQueued(4, 0)
	r.open()
	r.ends(s, 0)
	r.wantOneArrayEach()
	r.wantAsHere()
}

func TestOnSlurmWhatIsHeldIsNotMissed(t *testing.T) {
	r := newSlurmRun(t, slurmlab.Options{NoAccounting: true}, 24, "", "", "max_workers = 20")
	s := r.begin()
	r.untilBegun(17)
	r.untilQueued(16, 4)
	r.lab.Run("alice", "scontrol", "hold", r.jobOf("pending"))
	submitted := r.submissions()
	r.open()
	r.ends(s, 0)
	r.wantSubmitted(len(submitted))
	r.wantRunsOnce()
	r.wantAsHere()
}

func TestOnSlurmAWorkerCancelledByHandIsNotReplaced(t *testing.T) {
	r := newSlurmRun(t, slurmlab.Options{}, 12, `hint_after = "4s"`, "", "max_workers = 4\nmax_retries = 0")
	s := r.begin()
	r.untilBegun(5)
	submitted := r.submissions()
	r.lab.Run("alice", "scancel", r.jobOf("running"))
	s.stderr.await(t, "was cancelled by hand, and is not replaced")
	time.Sleep(3 * time.Second)
	r.wantSubmitted(len(submitted))
	r.open()
	r.ends(s, 0)
	r.wantAsHere()
}

func TestOnSlurmTheLastWorkerCancelledByHandEndsTheRunHonestly(t *testing.T) {
	r := newSlurmRun(t, slurmlab.Options{}, 12, `hint_after = "4s"`, "", "max_workers = 1")
	s := r.begin()
	r.untilBegun(2)
	r.lab.Run("alice", "scancel", r.jobOf("running"))
	got := r.ends(s, 1)
	wantText(t, got.all(), "cancelled by hand")
	r.wantSubmitted(1)
	r.wantNothingLeft()
}

func TestOnSlurmAWorkerCancelledByAnAdministratorIsReplaced(t *testing.T) {
	r := newSlurmRun(t, slurmlab.Options{MinJobAge: 2}, 12, `hint_after = "4s"`, "", "max_workers = 4\nmax_retries = 0")
	s := r.begin()
	r.untilBegun(5)
	r.lab.Run("root", "scancel", r.jobOf("running"))
	r.until("another is there", func() bool { return r.inState("RUNNING") == 3 })
	r.untilQueued(4, 0)
	r.open()
	r.ends(s, 0)
	r.wantAsHere()
}

func TestOnSlurmTheBlockOfASuspendedWorkerRunsAgain(t *testing.T) {
	r := newSlurmRun(t, slurmlab.Options{NoAccounting: true}, 12, `hint_after = "4s"`, "", "max_workers = 4\nmax_retries = 0")
	s := r.begin()
	r.untilBegun(5)
	job := r.jobOf("running")
	r.lab.Run("root", "scontrol", "suspend", job)
	s.stderr.await(t, "its blocks go out again")
	r.lab.Run("root", "scontrol", "resume", job)
	r.until("its block has begun again", func() bool {
		return slices.ContainsFunc(slices.Collect(maps.Values(r.begun())), func(by string) bool { return strings.Count(by, "\n") == 2 })
	})
	r.open()
	r.ends(s, 0)
	r.wantOneArrayEach()
	r.wantAsHere()
}

func TestOnSlurmADrainedNodeKeepsWhatRuns(t *testing.T) {
	r := newSlurmRun(t, slurmlab.Options{NoAccounting: true}, 12, `hint_after = "4s"`, "", "max_workers = 4")
	s := r.begin()
	r.untilBegun(5)
	r.lab.Run("root", "scontrol", "update", "nodename="+r.nodeOf(), "state=drain", "reason=test")
	time.Sleep(6 * time.Second)
	r.open()
	r.ends(s, 0)
	r.wantRunsOnce()
	r.wantAsHere()
}

// prolog fails on one node, which Slurm then drains.
const prolog = "#!/bin/sh\n[ \"$SLURMD_NODENAME\" != n1 ]\n"

func failingProlog(t *testing.T, slurm string) {
	r := newSlurmRun(t, slurmlab.Options{Prolog: prolog}, 12, `hint_after = "4s"`, slurm, "max_workers = 4\nmax_retries = 0")
	s := r.begin()
	r.open()
	r.ends(s, 0)
	if nodes := r.lab.Run("root", "sinfo", "-h", "-N", "-n", "n1", "-p", "cpu", "-o", "%T"); !strings.HasPrefix(nodes, "drain") {
		t.Errorf("n1 is %s: its prolog has not failed", nodes)
	}
	r.wantAsHere()
}

func TestOnSlurmANodeWhosePrologFailsIsLeftAlone(t *testing.T) { failingProlog(t, "") }

func TestOnSlurmANodeWhosePrologFailsIsLeftAloneWhereJobsAreRequeued(t *testing.T) {
	failingProlog(t, "requeue = true")
}

func TestOnSlurmWorkersOfOneBlockFollowOneAnotherWhereSlurmForgetsAtOnce(t *testing.T) {
	r := newSlurmRun(t, slurmlab.Options{NoAccounting: true, MinJobAge: 2}, 16, "", "", "max_workers = 4\nmax_blocks_per_worker = 1")
	r.open()
	s := r.begin()
	r.ends(s, 0)
	r.wantRunsOnce()
	r.wantOneArrayEach()
	r.wantAsHere()
}
