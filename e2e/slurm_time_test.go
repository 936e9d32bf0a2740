//go:build linux

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"example.org/daisy/internal/slurmlab"
)

// standIn puts a shell script in the place of a command of Slurm; REAL in it is the command itself.
func (j *slurmJob) standIn(name, script string) {
	j.t.Helper()
	if j.path == "" {
		j.path = filepath.Join(j.home, "commands")
		j.must(os.MkdirAll(j.path, 0o755))
	}
	text := "#!/bin/sh\n" + strings.ReplaceAll(script, "REAL", "/usr/bin/"+name) + "\n"
	j.must(os.WriteFile(filepath.Join(j.path, name), []byte(text), 0o755))
}

// shortLives is a squeue that says of every worker that runs that it ends so many seconds after its start.
func (j *slurmJob) shortLives(seconds int) {
	j.standIn("squeue", fmt.Sprintf(`REAL "$@" | awk -F'|' -v OFS='|' '$1 == "daisy" && $5 == "RUNNING" { $6 = $7 + %d } { print }'`, seconds))
}

// wantNoLoss wants of a run that no attempt was lost, and none repeated.
func (j *slurmJob) wantNoLoss() {
	j.t.Helper()
	for _, t := range j.stats().Tasks {
		if t.Retries != 0 || t.Lost != 0 || t.Failed != 0 || t.TimedOut != 0 {
			j.t.Errorf("task %q: %d retries, %d lost, %d failed, %d timed out", t.ID, t.Retries, t.Lost, t.Failed, t.TimedOut)
		}
	}
}

// endsOfWorkers counts the ends of workers by their words.
func (j *slurmJob) endsOfWorkers() map[string]int {
	words := map[string]int{}
	for _, w := range j.stats().Workers {
		if w.End != nil {
			words[*w.End]++
		}
	}
	return words
}

func TestOnSlurmWorkersOfShortLifeTakeTurns(t *testing.T) {
	t.Parallel()
	j := newSlurmJob(t, slurmlab.Start(t, slurmlab.Options{NoAccounting: true}), "alice", "turns", job("resources = { cpu = 2, memory = \"1GiB\" }\n[slurm]\ntime = \"10m\"",
		lineOf("work", 60, slow(0.5)+writes)))
	j.shortLives(36)
	j.completes()
	j.wantNoLoss()
	if n := len(j.stats().Workers); n < 4 {
		t.Errorf("%d workers: the run was to take longer than two generations of two", n)
	}
}

func TestOnSlurmABlockThatNeverFitsFailsAfterTwoWorkersWholeLives(t *testing.T) {
	t.Parallel()
	j := newSlurmJob(t, slurmlab.Start(t, slurmlab.Options{NoAccounting: true}), "alice", "never", job("resources = { cpu = 2, memory = \"1GiB\" }\n[slurm]\ntime = \"1m\"",
		lineOf("work", 4, `case $I in 0) sleep 600;; *) echo $I >out/$I;; esac`)+"timeout = \"20m\""))
	r := j.ends(j.start("slurm"), 1)
	j.wantNothingLeft()
	wantText(t, r.all(), "does not fit the time limit", "ask for a longer time, or make blocks smaller")
	s := j.stats().Tasks[0]
	if s.Success != 3 || s.Failed != 1 || s.Retries != 0 {
		t.Errorf("%d blocks succeeded, %d failed, with %d retries; want 3, 1 and none", s.Success, s.Failed, s.Retries)
	}
	if n := len(j.stats().Workers); n != 3 {
		t.Errorf("%d workers, want the two of the begin and one more for the block alone: they ended as %v", n, j.endsOfWorkers())
	}
	if a := j.root("squeue", "-h", "-r", "-t", "all", "-o", "%T"); strings.Count(a, "TIMEOUT") < 2 {
		t.Errorf("Slurm says of the workers:\n%s", a)
	}
}

// changedLimit runs a job of some 45 s with one worker, and has an administrator change the time limit once it runs.
func changedLimit(t *testing.T, before, after string) *slurmJob {
	t.Helper()
	j := newSlurmJob(t, slurmlab.Start(t, slurmlab.Options{NoAccounting: true}), "alice", "limit", job("resources = { cpu = 1, memory = \"1GiB\" }\n[slurm]\ntime = \""+before+"\"",
		lineOf("work", 45, slow(1)+writes)))
	s := j.start("slurm")
	j.awaitResults(2)
	j.root("scontrol", "update", "JobId="+j.root("squeue", "-h", "-r", "-t", "R", "-o", "%A"), "TimeLimit="+after)
	j.wantComplete(s)
	j.wantNoLoss()
	return j
}

func TestOnSlurmALimitThatIsExtendedIsUsed(t *testing.T) {
	t.Parallel()
	j := changedLimit(t, "1m", "10")
	if n := len(j.stats().Workers); n != 1 {
		t.Errorf("%d workers, want the one that was given more time", n)
	}
}

func TestOnSlurmALimitThatIsShortenedIsKept(t *testing.T) {
	t.Parallel()
	j := changedLimit(t, "10m", "1")
	if e := j.endsOfWorkers(); len(j.stats().Workers) < 2 || e["time_limit"] > 0 {
		t.Errorf("workers ended as %v, want two or more, none of them at its limit", e)
	}
}

func TestOnSlurmAMaintenanceReservationIsWaitedForInPlainWords(t *testing.T) {
	t.Parallel()
	j := newSlurmJob(t, slurmlab.Start(t, slurmlab.Options{NoAccounting: true}), "alice", "maintenance", job("resources = { cpu = 2, memory = \"1GiB\" }\n[slurm]\ntime = \"10m\"",
		lineOf("work", 8, writes)))
	j.root("scontrol", "create", "reservation", "ReservationName=repair", "StartTime=now+120", "Duration=60", "Nodes=ALL", "Users=root", "Flags=MAINT,IGNORE_JOBS")
	s := j.start("slurm")
	j.await("the wait is explained", func() bool { return strings.Contains(j.waitsFor(), "maint") })
	wantText(t, j.waitsFor(), "waiting for 2 pending workers: ReqNodeNotAvail", "nodes that it needs are down, reserved, or about to be maintained")
	j.root("scontrol", "delete", "ReservationName=repair")
	j.wantComplete(s)
	j.wantNoLoss()
}
