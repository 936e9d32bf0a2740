//go:build linux

package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.org/daisy/internal/slurmlab"
)

// A slurmCall is one command of Slurm that a run started.
type slurmCall struct {
	name, args string
	at         time.Time
}

// count has all commands of Slurm that the run starts written down.
func (j *slurmJob) count() {
	for _, name := range []string{"sbatch", "squeue", "scontrol", "scancel", "sacct", "sinfo", "sacctmgr"} {
		j.standIn(name, `echo "$(date +%s%N) `+name+` $*" >>"`+filepath.Join(j.folder("slurm"), "calls")+`"
exec REAL "$@"`)
	}
}

// calls are those that were counted, in order.
func (j *slurmJob) calls() (list []slurmCall) {
	j.t.Helper()
	text, _ := os.ReadFile(filepath.Join(j.folder("slurm"), "calls"))
	for line := range strings.Lines(string(text)) {
		f := strings.SplitN(strings.TrimSpace(line), " ", 3)
		n, err := strconv.ParseInt(f[0], 10, 64)
		j.must(err)
		list = append(list, slurmCall{f[1], f[2], time.Unix(0, n)})
	}
	return list
}

// timesOf are the calls of some commands.
func timesOf(calls []slurmCall, names ...string) (list []slurmCall) {
	return slices.DeleteFunc(slices.Clone(calls), func(c slurmCall) bool { return !slices.Contains(names, c.name) })
}

// It takes longest by far, and begins first where tests run in the order of their files' names.
func TestOnSlurmThreeMinutesAskSlurmLittle(t *testing.T) {
	t.Parallel()
	j := newSlurmJob(t, slurmlab.Start(t, slurmlab.Options{}), "alice", "calls", job("[slurm]\ntime = \"20m\"",
		lineOf("work", 2000, slow(4)+writes)+"requires = { cpu = 1, memory = \"50MiB\" }\nmax_workers = 24"))
	j.count()
	s := j.start("slurm")
	const span = 3 * time.Minute
	began := time.Now()
	j.await("the three minutes", func() bool {
		j.status() // of people, who cause no calls
		return time.Since(began) > span
	})
	calls := j.calls()
	for name, most := range map[string]int{
		"squeue": 15, // every 5 s for half a minute after the last submission, then every 30 s as long as something is pending
		"sbatch": 4, "scontrol": 2, "scancel": 0, "sacct": 1, "sinfo": 0, "sacctmgr": 0,
	} {
		if n := len(timesOf(calls, name)); n > most {
			t.Errorf("%d calls of %s in three minutes, want %d at most: %v", n, name, most, timesOf(calls, name))
		}
	}
	for _, c := range timesOf(calls, "squeue") {
		if !strings.Contains(c.args, "-u "+strconv.Itoa(j.lab.UID("alice"))+" -t all") || strings.Contains(" "+c.args, " -r") {
			t.Errorf("squeue was asked for %s", c.args)
		}
	}
	j.ends(j.command("slurm", nil, j.program, "cancel", "run", "--now"), 0)
	j.ends(s, 1)
	j.wantNothingLeft()
	end := j.calls()[len(calls):]
	if a, b := len(timesOf(end, "squeue")), len(timesOf(end, "scancel")); a > 8 || b > 4 {
		t.Errorf("the end took %d squeue and %d scancel: %v", a, b, end)
	}
	changes := timesOf(j.calls(), "sbatch", "scancel")
	for i := 1; i < len(changes); i++ {
		if gap := changes[i].at.Sub(changes[i-1].at); gap < 900*time.Millisecond {
			t.Errorf("%v between %v and %v", gap, changes[i-1], changes[i])
		}
	}
}

// wantAsRendered compares the first submission of a run that was counted with what render shows, in which only the run is not known.
func (j *slurmJob) wantAsRendered() {
	j.t.Helper()
	cmd := j.lab.Command(j.user, j.program, "render", "job.toml", "--launcher", "slurm", "--json")
	cmd.Dir = j.folder("slurm")
	text, err := cmd.Output()
	j.must(err)
	var shown struct {
		Submissions []struct {
			Argv   []string
			Script string
		}
	}
	j.must(json.Unmarshal(text, &shown))
	first := shown.Submissions[0]
	name := regexp.MustCompile(`dz-[a-z0-9]{8}-`)
	there := func(s string) string {
		return strings.ReplaceAll(name.ReplaceAllString(s, "dz-RUN-"), j.run("slurm"), "DIR")
	}
	here := func(s string) string {
		return strings.ReplaceAll(name.ReplaceAllString(s, "dz-RUN-"), filepath.Join(j.folder("slurm"), "runs", "job-YYYY-MM-DDThh-mm-ss"), "DIR")
	}
	if d := cmp.Diff(here(strings.Join(first.Argv[1:], " ")), there(timesOf(j.calls(), "sbatch")[0].args)); d != "" {
		j.t.Errorf("arguments of sbatch (-render +run):\n%s", d)
	}
	scripts := first2(filepath.Glob(filepath.Join(j.run("slurm"), "scripts", "*-1.sbatch")))
	if len(scripts) != 1 {
		j.t.Fatalf("the scripts are %q", scripts)
	}
	if d := cmp.Diff(here(first.Script), there(readFile(j.t, scripts[0]))); d != "" {
		j.t.Errorf("script (-render +run):\n%s", d)
	}
}

func TestOnSlurmWorkersStartAtOnceAndAreAskedForAtOnce(t *testing.T) {
	t.Parallel()
	j := newSlurmJob(t, slurmlab.Start(t, slurmlab.Options{NoAccounting: true}), "alice", "quick", job("[slurm]\ntime = \"20m\"\nsetup = 'date +%s%N >started.$SLURM_JOB_ID'",
		lineOf("work", 6, "date +%s%N >began.$SLURM_JOB_ID; "+writes)+"max_workers = 1\nmax_blocks_per_worker = 1"))
	j.count()
	s := j.start("slurm")
	j.ends(s, 0)
	j.wantNothingLeft()
	j.wantAsRendered()
	read := func(name string) (list []time.Time) {
		files, _ := filepath.Glob(filepath.Join(j.folder("slurm"), name+".*"))
		for _, file := range files {
			text, err := os.ReadFile(file)
			j.must(err)
			n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
			j.must(err)
			list = append(list, time.Unix(0, n))
		}
		slices.SortFunc(list, time.Time.Compare)
		return list
	}
	started, began, calls := read("started"), read("began"), timesOf(j.calls(), "squeue", "sbatch")
	if len(started) != 6 || len(began) != 6 || len(timesOf(calls, "sbatch")) != 6 {
		t.Fatalf("%d workers, %d blocks, and the calls %v", len(started), len(began), calls)
	}
	// Medians, as other programs run on this machine.
	var starts, asks, gaps []time.Duration
	for i := range started {
		starts = append(starts, began[i].Sub(started[i]))
	}
	for i, c := range calls {
		if i > 0 && c.name == "sbatch" { // the budget is free once squeue says that the worker before is gone
			asks = append(asks, c.at.Sub(calls[i-1].at))
		}
	}
	for i, c := range timesOf(calls, "sbatch")[1:] { // each worker runs one block, which takes no time
		gaps = append(gaps, c.at.Sub(began[i]))
	}
	slices.Sort(starts)
	slices.Sort(asks)
	slices.Sort(gaps)
	t.Logf("from the start of a worker to its first block: %v; from the squeue that shows its end to sbatch: %v", starts, asks)
	t.Logf("from the last block of a worker to the sbatch of the next: %v", gaps)
	if m := gaps[len(gaps)/2]; m > 2500*time.Millisecond {
		t.Errorf("the median from a last block to sbatch is %v", m)
	}
	if m := starts[len(starts)/2]; m > 300*time.Millisecond {
		t.Errorf("the median of the starts is %v", m)
	}
	if m := asks[len(asks)/2]; m > time.Second {
		t.Errorf("the median from a free budget to sbatch is %v", m)
	}
}
