package slurm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.org/daisy/launcher"
)

// List asks squeue once, and keeps what is of the run.
func (l *Launcher) List(ctx context.Context) (launcher.Listing, error) {
	answer, err := l.jobs(ctx, squeueFormat)
	if err != nil {
		return launcher.Listing{}, err
	}
	return parseSqueue(answer, l.cfg.Run, time.Now(), func(tag string) bool { return l.noteOf(tag).Plain })
}

// jobs asks squeue once for all jobs of this user, ended ones too. One user is the one filter that does not make the controller send the jobs
// of everybody. An error is no empty queue, whatever the status.
func (l *Launcher) jobs(ctx context.Context, format string) (string, error) {
	got, err := l.run(ctx, "squeue", l.on("-h", "-u", strconv.Itoa(l.uid), "-t", "all", "-o", format)...)
	if err == nil && strings.TrimSpace(got.stdout) == "" && strings.Contains(got.stderr, "error:") {
		err = fmt.Errorf("squeue: it gives status 0 and no answer: %s", wordsOf(got.stderr))
	}
	return got.stdout, err
}

// Known asks squeue for one array. Jobs of other names under its id are not it: a controller that has lost its state gives ids out again.
func (l *Launcher) Known(ctx context.Context, array string) (bool, error) {
	if jobID(array) == "" {
		return false, fmt.Errorf("%q is no job id", array)
	}
	got, err := l.run(ctx, "squeue", l.on("-h", "-j", array, "-o", rowBegin+"%j"+rowEnd)...)
	switch {
	case err == nil:
		names, err := rows(got.stdout)
		if err != nil {
			return false, err
		}
		ours := func(name string) bool { _, is := tagOf(name, l.cfg.Run); return is }
		return len(names) == 0 || slices.ContainsFunc(names, ours), nil // ended ones are not shown
	case errors.Is(err, errStatus) && strings.Contains(got.stderr, "Invalid job id specified"):
		return false, nil
	}
	return false, err
}

// Account asks sacct, which gives each run of an element a row, in the order in which they began. Without arrays it asks for all jobs of
// the user since the run began.
func (l *Launcher) Account(ctx context.Context, arrays ...string) (launcher.Listing, error) {
	for _, a := range arrays {
		if jobID(a) == "" {
			return launcher.Listing{}, fmt.Errorf("%q is no job id", a)
		}
	}
	if _, err := l.find("sacct"); err != nil {
		return launcher.Listing{}, launcher.ErrNoAccounting
	}
	site, _ := l.Site(ctx) // without it, cancellers are less well known
	since := "now-30days"
	if !l.cfg.Begun.IsZero() {
		since = l.cfg.Begun.Add(-24 * time.Hour).Format("2006-01-02T15:04:05") // clocks and time zones may differ
	}
	args := []string{"-X", "-D", "-P", "-n", "-u", strconv.Itoa(l.uid), "--starttime=" + since, "-o", sacctFields}
	if len(arrays) > 0 {
		args = append(args, "-j", strings.Join(arrays, ","))
	}
	got, err := l.run(ctx, "sacct", l.on(args...)...)
	for _, words := range []string{"accounting storage is disabled", "supported accounting_storage plugin", "accounting_storage/slurmdbd"} {
		if strings.Contains(got.stderr+got.stdout, words) {
			return launcher.Listing{}, launcher.ErrNoAccounting
		}
	}
	if err != nil {
		return launcher.Listing{}, err
	}
	return parseSacct(got.stdout, l.cfg.Run, l.uid, site.SlurmUID)
}

// Throttle changes how many elements of an array run at once, which a user may.
func (l *Launcher) Throttle(ctx context.Context, array string, n int) error {
	if n < 1 || jobID(array) == "" {
		return fmt.Errorf("array %q cannot be throttled to %d: 0 would be no limit", array, n)
	}
	return l.update(ctx, array, "ArrayTaskThrottle="+strconv.Itoa(n))
}

// Exclude keeps pending elements off nodes, in addition to those that the job file excludes.
func (l *Launcher) Exclude(ctx context.Context, array string, nodes []string) error {
	if jobID(array) == "" {
		return fmt.Errorf("%q is no job id", array)
	}
	all := nodes
	if tag := l.tagOfArray(array); tag != "" {
		all = slices.Concat(l.noteOf(tag).Exclude, nodes)
	}
	for _, n := range nodes {
		if n == "" || strings.ContainsAny(n, " ,\t\n=") {
			return fmt.Errorf("%q is not the name of a node", n)
		}
	}
	return l.update(ctx, array, "ExcNodeList="+strings.Join(all, ","))
}

func (l *Launcher) tagOfArray(array string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	for tag, a := range l.arrays {
		if a == array {
			return tag
		}
	}
	return ""
}

// update changes what is pending of an array. Its elements are told one by one ("42_0-1: Job is no longer pending execution", "42_2-30: No
// error"), with a status of failure although all that could be changed was; a job that is no array as "… for job 42". What has started since it
// was last seen cannot be changed any more, and need not.
func (l *Launcher) update(ctx context.Context, array, change string) error {
	done, err := l.change(ctx)
	if err != nil {
		return err
	}
	defer done()
	got, err := l.run(ctx, "scontrol", l.on("update", "JobId="+array, change)...)
	if err == nil || !errors.Is(err, errStatus) {
		return err
	}
	told := false
	for line := range strings.Lines(got.stdout + "\n" + got.stderr) {
		line = strings.TrimSpace(line)
		elements, says, ok := strings.Cut(line, ": ")
		if plain, isPlain := strings.CutSuffix(line, " for job "+array); isPlain {
			says = plain
		} else if !ok || !strings.HasPrefix(elements, array+"_") {
			continue
		}
		switch says {
		case "No error", "Job is no longer pending execution", "Job has already finished", "Job/step already completing or completed":
			told = true
		default:
			return err
		}
	}
	if told {
		return nil
	}
	return err
}

// Cancel ends workers: pending ones never start, running ones get SIGTERM, and SIGKILL after the site's KillWait. What is cancelled is
// first looked up: ids are given out again after a crash of Slurm.
func (l *Launcher) Cancel(ctx context.Context, workers ...launcher.Worker) error {
	wanted := map[string]map[int]bool{} // by tag
	l.mu.Lock()
	for _, w := range workers {
		if l.arrays[w.Tag] == "" {
			continue
		}
		if wanted[w.Tag] == nil {
			wanted[w.Tag] = map[int]bool{}
		}
		wanted[w.Tag][w.Element] = true
	}
	l.mu.Unlock()
	if len(wanted) == 0 {
		return nil
	}
	list, err := l.List(ctx)
	if err != nil {
		return err
	}
	var targets []string
	for _, tag := range slices.Sorted(maps.Keys(wanted)) {
		l.mu.Lock()
		array := l.arrays[tag]
		l.mu.Unlock()
		live := liveOf(list, tag, array, wanted[tag])
		if len(live) == 0 {
			continue
		}
		target := array + "_[" + writeElements(live) + "]"
		if l.noteOf(tag).Plain {
			target = array
		}
		targets = append(targets, target)
	}
	if targets == nil {
		return nil
	}
	// Never with filters: those make scancel end the whole pending rest of the array.
	return l.scancel(ctx, targets...)
}

// liveOf are those of the wanted elements of an array that a listing has and that have not ended, in order.
func liveOf(list launcher.Listing, tag, array string, wanted map[int]bool) (live []int) {
	for _, e := range list.Elements {
		if e.Tag != tag || e.Array != array || e.State == launcher.Ended {
			continue
		}
		if e.Last-e.First > len(wanted) {
			for i := range wanted {
				if e.First <= i && i <= e.Last {
					live = append(live, i)
				}
			}
			continue
		}
		for i := e.First; i <= e.Last; i++ {
			if wanted[i] {
				live = append(live, i)
			}
		}
	}
	slices.Sort(live)
	return slices.Compact(live)
}

// Kill is Cancel: Slurm sends SIGTERM first, whatever it is told.
func (l *Launcher) Kill(ctx context.Context, workers ...launcher.Worker) error {
	return l.Cancel(ctx, workers...)
}

// CancelArray ends an array whole. The filters make sure that it is this user's and carries the tag.
func (l *Launcher) CancelArray(ctx context.Context, tag, array string) error {
	if jobID(array) == "" || checkTag(tag) != nil {
		return fmt.Errorf("tag %q, array %q: no tag or no job id", tag, array)
	}
	return l.scancel(ctx, "-u", l.user, "-n", l.nameOfTag(tag), array)
}

// nameOfTag is the job name of a submission as it was made: the prefix may have changed since.
func (l *Launcher) nameOfTag(tag string) string {
	for _, a := range l.noteOf(tag).Argv {
		if name, ok := strings.CutPrefix(a, "--job-name="); ok {
			return name
		}
	}
	return nameOf("", l.cfg.Run, tag)
}

// scancel runs it. Its status says nothing about jobs that have ended, so that is no error.
func (l *Launcher) scancel(ctx context.Context, args ...string) error {
	done, err := l.change(ctx)
	if err != nil {
		return err
	}
	defer done()
	got, err := l.run(ctx, "scancel", l.on(args...)...)
	for _, words := range []string{"Invalid job id", "already completing or completed", "Job/step already"} {
		if err != nil && strings.Contains(got.stderr, words) {
			return nil
		}
	}
	return err
}
