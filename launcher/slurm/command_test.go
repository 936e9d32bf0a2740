package slurm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.org/daisy/launcher"
	"example.org/daisy/launcher/launchertest"
)

// faked is a launcher over fake commands; the others are missing.
func faked(t *testing.T, limit time.Duration, names ...string) (*Launcher, *launchertest.Fake) {
	t.Helper()
	fake := launchertest.NewFake(t, names...)
	l, err := New(Config{Run: aRun, Dir: t.TempDir(), Env: Environment([]string{"PATH=" + fake.Dir + ":/usr/bin:/bin", "HOME=/h", "SLURM_JOB_ID=9", "SBATCH_PARTITION=nope", "SLURM_CONF=/c"}), Limit: limit})
	if err != nil {
		t.Fatal(err)
	}
	return l, fake
}

// Without the real ones on PATH, as they may be on this machine.
func withoutSlurm(l *Launcher, fake *launchertest.Fake) *Launcher {
	l.cfg.Env[0] = "PATH=" + fake.Dir
	return l
}

var all = []string{"sbatch", "squeue", "scancel", "scontrol", "sacct"}

func TestCommandsSeeNothingOfASurroundingJobAndWriteAsWeReadThem(t *testing.T) {
	l, fake := faked(t, 0, all...)
	if _, err := l.List(t.Context()); err != nil {
		t.Fatal(err)
	}
	call := fake.Calls("squeue")[0]
	var slurms []string
	for _, kv := range call.Env {
		if strings.Contains(kv, "SLURM") || strings.Contains(kv, "SBATCH") || strings.HasPrefix(kv, "LC_") || strings.HasPrefix(kv, "HOME") {
			slurms = append(slurms, kv)
		}
	}
	slices.Sort(slurms)
	if d := cmp.Diff([]string{"HOME=/h", "LC_ALL=C", "SLURM_BITSTR_LEN=0", "SLURM_CONF=/c", "SLURM_TIME_FORMAT=%s"}, slurms); d != "" {
		t.Errorf("environment (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]string{"-h", "-u", fmt.Sprint(os.Getuid()), "-t", "all", "-o", "daisy|%F|%K|%A|%T|%e|%S|%C|%N|%j|%r|$"}, call.Args); d != "" {
		t.Errorf("arguments (-want +got):\n%s", d)
	}
}

// TestEveryCallNamesTheClusterOfTheRunAndNoneWhereThereIsNone: two clusters may use the same number, and a site with one has no such option.
func TestEveryCallNamesTheClusterOfTheRunAndNoneWhereThereIsNone(t *testing.T) {
	for _, cluster := range []string{"", "west"} {
		l, fake := faked(t, 0, all...)
		l.cfg.Cluster = cluster
		row := rowBegin + "4711|0|4711|RUNNING|N/A|N/A|1|n1|dz-" + aRun + "-3|None" + rowEnd + "\n"
		fake.Say("squeue", launchertest.Answer{Stdout: "CLUSTER: west\n" + row})
		fake.Say("sbatch", launchertest.Answer{Stdout: "4711;west\n"})
		if id, err := l.Submit(t.Context(), placed(t, 1)); err != nil || id != "4711" {
			t.Fatalf("%q, %v", id, err)
		}
		l.Bind("3", "4711")
		_, listed := l.List(t.Context())
		_, known := l.Known(t.Context(), "4711")
		_, account := l.Account(t.Context(), "4711")
		err := errors.Join(listed, known, account, l.Throttle(t.Context(), "4711", 2), l.Exclude(t.Context(), "4711", []string{"n1"}),
			l.Cancel(t.Context(), launcher.Worker{Tag: "3"}), l.CancelArray(t.Context(), "3", "4711"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range all {
			calls := fake.Calls(name)
			if len(calls) == 0 {
				t.Errorf("%s was not called", name)
			}
			for _, c := range calls {
				words := strings.Join(c.Args, " ")
				if named := strings.Contains(words, "-M west") || strings.Contains(words, "--clusters=west"); named != (cluster != "") || cluster == "" && strings.Contains(words, "cluster") {
					t.Errorf("cluster %q: %s %s", cluster, name, words)
				}
			}
		}
	}
}

// TestAnErrorIsNoAnswerWhateverItsStatus: a queue that cannot be asked is not empty.
func TestAnErrorIsNoAnswerWhateverItsStatus(t *testing.T) {
	l, fake := faked(t, 0, all...)
	for _, a := range []launchertest.Answer{
		{Status: 1, Stderr: "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n"},
		{Stderr: "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n"},
		{Stdout: " \n", Stderr: "squeue: error: Socket timed out on send/recv operation\n"},
		{Then: "kill -9 $$"},
	} {
		fake.Say("squeue", a)
		if got, err := l.List(t.Context()); err == nil {
			t.Errorf("%+v is the answer %+v", a, got)
		}
	}
	fake.Say("squeue", launchertest.Answer{Stderr: "squeue: be patient, maintenance on Friday\n"})
	if _, err := l.List(t.Context()); err != nil {
		t.Errorf("an empty queue: %v", err)
	}
}

// TestNothingThatIsBoundToAMachineGoesAlong: not to the commands, and so not into a job.
func TestNothingThatIsBoundToAMachineGoesAlong(t *testing.T) {
	got := Environment([]string{
		"PATH=/bin", "HOME=/h", "USER=u", "LOGNAME=u", "SHELL=/bin/sh", "LANG=tr_TR.UTF-8", "SLURM_CONF=/c", "SLURM_CLUSTERS=west",
		"TMPDIR=/run/user/1000/x", "LD_LIBRARY_PATH=/login/only", "DISPLAY=:5", "XDG_RUNTIME_DIR=/run/user/1000", "SSH_AUTH_SOCK=/s", "KRB5CCNAME=/k", "TMUX=1", "LC_ALL=tr_TR.UTF-8",
		"http_proxy=http://proxy:3128", "HTTPS_PROXY=http://proxy:3128", "SLURM_JOB_ID=1", "SLURM_MEM_PER_CPU=4000", "SLURM_MEM_PER_NODE=16000", "SLURM_CPU_BIND=quiet",
		"SBATCH_TIMELIMIT=60", "SBATCH_REQUEUE=1", "SBATCH_MAIL_TYPE=ALL", "SRUN_DEBUG=3", "PMI_RANK=0", "MY_SLURM_NOTES=x",
	})
	want := []string{"PATH=/bin", "HOME=/h", "USER=u", "LOGNAME=u", "SHELL=/bin/sh", "LANG=tr_TR.UTF-8", "SLURM_CONF=/c", "SLURM_CLUSTERS=west"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

func TestASlowSiteHasItsTime(t *testing.T) {
	l, fake := faked(t, 0, all...)
	usual := l.limit("squeue")
	fake.Say("scontrol", launchertest.Answer{Stdout: "MessageTimeout          = 100 sec\n"})
	if err := l.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := l.Properties().MessageTimeout; got != 100*time.Second {
		t.Errorf("messages may take %v", got)
	}
	if usual != 30*time.Second || l.limit("squeue") != 2*time.Minute || l.limit("sbatch") != 2*time.Minute {
		t.Errorf("squeue gets %v, and there %v; sbatch %v", usual, l.limit("squeue"), l.limit("sbatch"))
	}
}

func TestACommandThatHangsIsEndedWithWhatItStarted(t *testing.T) {
	l, fake := faked(t, 300*time.Millisecond, all...)
	mark := filepath.Join(t.TempDir(), "pid")
	fake.Say("squeue", launchertest.Answer{Stdout: "rubbish\n", Then: "sleep 600 & echo $! >" + mark + "; wait"})
	begun := time.Now()
	_, err := l.List(t.Context())
	if err == nil || !strings.Contains(err.Error(), "squeue: no answer within 300ms") || time.Since(begun) > 20*time.Second {
		t.Errorf("after %v: %v", time.Since(begun), err)
	}
	pid, _ := os.ReadFile(mark)
	if out, _ := exec.Command("ps", "-o", "stat=", "-p", strings.TrimSpace(string(pid))).Output(); len(out) > 0 && !strings.HasPrefix(string(out), "Z") {
		t.Errorf("what it started lives on: %s", out)
	}
	fake.Say("sbatch", launchertest.Answer{Stderr: "sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying\n", Then: "sleep 600"})
	fake.Say("scontrol", launchertest.Answer{})
	if _, err := l.Submit(t.Context(), placed(t, 1)); !errors.Is(err, launcher.ErrUnsure) {
		t.Errorf("a submission that was cut short: %v", err)
	}
	fake.Say("sbatch", launchertest.Answer{Then: "sleep 600"})
	second := placed(t, 1)
	second.Tag = "4"
	if _, err := l.Submit(t.Context(), second); !errors.Is(err, launcher.ErrUnsure) {
		t.Errorf("a submission without an answer: %v", err)
	}
}

// TestACommandThatNothingEndsIsNotWaitedFor: one whose disk is away does not even die of SIGKILL, and the run would never end.
func TestACommandThatNothingEndsIsNotWaitedFor(t *testing.T) {
	for name, want := range map[string]time.Duration{"its time is over": 30*time.Second + stuckAfter, "the run ends": time.Second + stuckAfter} {
		synctest.Test(t, func(t *testing.T) {
			l := testLauncher(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if name == "the run ends" {
				time.AfterFunc(time.Second, cancel)
			}
			answers, begun := make(chan struct{}), time.Now()
			_, err := l.finish(ctx, "squeue", exec.Command("/bin/true"), func() error { <-answers; return errors.New("at last") })
			if took := time.Since(begun); !errors.Is(err, errStuck) || took != want {
				t.Errorf("%s: after %v: %v", name, took, err)
			}
			close(answers)
		})
	}
}

// TestACallThatChangesSomethingWaitsForAnotherOnlyAsLongAsItMay: a program that is told to end at once would wait for an sbatch that hangs.
func TestACallThatChangesSomethingWaitsForAnotherOnlyAsLongAsItMay(t *testing.T) {
	l, fake := faked(t, 0, all...)
	l.Bind("3", "7")
	fake.Say("squeue", launchertest.Answer{Stdout: rowBegin + "7|0|8|RUNNING|N/A|N/A|1|n1|dz-" + aRun + "-3|None" + rowEnd + "\n"})
	done, err := l.change(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for name, call := range map[string]func(context.Context) error{
		"submit": func(ctx context.Context) error { _, err := l.Submit(ctx, placed(t, 1)); return err },
		"cancel": func(ctx context.Context) error { return l.Cancel(ctx, launcher.Worker{Tag: "3"}) }, "cancel an array": func(ctx context.Context) error { return l.CancelArray(ctx, "3", "7") },
		"exclude": func(ctx context.Context) error { return l.Exclude(ctx, "7", []string{"n1"}) }, "requeue": func(ctx context.Context) error { return l.Requeue(ctx, "7") },
		"close": l.Close,
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		if err := call(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
	}
	done()
	if err := l.CancelArray(t.Context(), "3", "7"); err != nil {
		t.Error(err)
	}
}

// placed is a request whose folders exist.
func placed(t *testing.T, count int) launcher.Request {
	t.Helper()
	dir := t.TempDir()
	r := request(count)
	r.Dir = dir
	r.LogPath = func(w launcher.Worker) string { return filepath.Join(dir, w.String()+".log") }
	return r
}

func isRefusal(err error, kind launcher.RefusalKind) bool {
	var r *launcher.Refusal
	return errors.As(err, &r) && r.Kind == kind
}

func TestWhatCanNeverBeSubmittedIsNotTriedAgain(t *testing.T) {
	l, fake := faked(t, 0, all...)
	r := placed(t, 1)
	r.LogPath = func(w launcher.Worker) string { return filepath.Join(r.Dir, `back\slash.`+w.String()) }
	if _, err := l.Submit(t.Context(), r); !isRefusal(err, launcher.RefusedForGood) || !strings.Contains(err.Error(), "put the run directory elsewhere") {
		t.Errorf("a folder that sbatch cannot be told: %v", err)
	}
	if n := len(fake.Calls("sbatch")); n != 0 {
		t.Errorf("sbatch was called %d times", n)
	}
}

func TestASubmissionThatSlurmHasNotHeardOfIsMadeAgainLater(t *testing.T) {
	l, fake := faked(t, 0, all...)
	fake.Say("sbatch", launchertest.Answer{Stdout: "7\n"})
	r := placed(t, 1)
	again := func(why, says string) {
		t.Helper()
		if _, err := l.Submit(t.Context(), r); !isRefusal(err, launcher.RefusedForNow) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", why, err)
		}
	}
	scripts := l.scripts
	l.scripts = filepath.Join(scripts, "gone")
	again("no folder for scripts", "the batch script cannot be written")
	l.scripts = scripts
	path := l.cfg.Env[0]
	l.cfg.Env[0] = "PATH=/nowhere"
	again("no sbatch", `"sbatch"`)
	l.cfg.Env[0] = path
	if array, err := l.Submit(t.Context(), r); array != "7" || err != nil {
		t.Errorf("when all is there again: %q, %v", array, err)
	}
}

func TestAMissingCommandIsLoud(t *testing.T) {
	l, fake := faked(t, 0, "squeue", "scancel")
	err := withoutSlurm(l, fake).Check(t.Context())
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{`"sbatch"`, `"scontrol"`, fake.Dir, "login node", "apt install slurm-client"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nlacks %s", err, want)
		}
	}
	if strings.Count(err.Error(), "login node") != 1 || strings.Count(err.Error(), fake.Dir) != 1 {
		t.Errorf("%v\nsays the same for each command", err)
	}
	if strings.Contains(err.Error(), "squeue") {
		t.Errorf("%v names what is there", err)
	}
	if _, err := l.Account(t.Context(), "1"); !errors.Is(err, launcher.ErrNoAccounting) {
		t.Errorf("without sacct: %v", err)
	}
	l, fake = faked(t, 0, all...)
	fake.Say("scontrol", launchertest.Answer{Stderr: "slurm_load_ctl_conf error: Unable to contact slurm controller (connect failure)\n", Status: 1})
	if err := l.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "Unable to contact slurm controller") {
		t.Errorf("without a controller: %v", err)
	}
	l, fake = faked(t, 0, all...)
	fake.Say("scontrol", launchertest.Answer{Stderr: "scontrol: error: resolve_ctls_from_dns_srv: res_nsearch error: Unknown host\nscontrol: error: fetch_config: DNS SRV lookup failed\nscontrol: error: _establish_config_source: failed to fetch config\nscontrol: fatal: Could not establish a configuration source\n", Status: 1})
	if err := l.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "login node") || strings.Contains(err.Error(), "scontrol ping") {
		t.Errorf("without a slurm.conf: %v", err)
	}
}

func TestASubmissionWithoutAUsableAnswerIsUnsure(t *testing.T) {
	for _, c := range []struct {
		answer launchertest.Answer
		want   string
	}{
		{launchertest.Answer{Stdout: "Welcome\n42;west\n"}, "42"},
		{launchertest.Answer{Stdout: "Welcome to Cluster 2\n--> Checking allocation 12345 ... OK\n--> limit: 50 jobs\n\n4711\n\n", Stderr: "sbatch: You will be charged for 16 CPUs.\n"}, "4711"},
		{launchertest.Answer{Stdout: "thank you\n", Stderr: "4712\n"}, "unsure"},
		{launchertest.Answer{Stdout: "job 12 of max 50 accepted: 4711\n"}, "unsure"},
		{launchertest.Answer{Stdout: "4711\n4712\n"}, "unsure"},
		{launchertest.Answer{Stdout: "0\n"}, "unsure"},
		{launchertest.Answer{Stdout: "42\n", Status: 1, Stderr: "sbatch: error: wrapper: cannot write its log\n"}, "42"},
		{launchertest.Answer{}, "unsure"},
		{launchertest.Answer{Stdout: "thank you\n"}, "unsure"},
		{launchertest.Answer{Status: 1, Stderr: "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation\n"}, "unsure"},
		{launchertest.Answer{Stdout: "42\n17\n"}, "unsure"},
		{launchertest.Answer{Then: "kill -KILL $$"}, "unsure"},
		{launchertest.Answer{Stderr: "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation\n"}, "unsure"},
		// A banner is no id of what was refused.
		{launchertest.Answer{Stdout: "4711\n", Status: 1, Stderr: "sbatch: error: Batch job submission failed: Invalid qos specification\n"}, "refused"},
		{launchertest.Answer{Stdout: "4711\n", Status: 1, Stderr: "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation\n"}, "unsure"},
		{launchertest.Answer{Stdout: "4711\n", Stderr: "sbatch: error: Batch job submission failed: Invalid qos specification\n"}, "refused"},
		// A wrapper that loses the status.
		{launchertest.Answer{Stderr: "sbatch: error: Batch job submission failed: Invalid qos specification\n"}, "refused"},
		{launchertest.Answer{Status: 1, Stderr: "sbatch: error: Batch job submission failed: Invalid qos specification\n"}, "refused"},
	} {
		l, fake := faked(t, 0, all...)
		fake.Say("sbatch", c.answer)
		id, err := l.Submit(t.Context(), placed(t, 2))
		got := id
		switch {
		case errors.Is(err, launcher.ErrUnsure):
			got = "unsure"
		case err != nil:
			got = "refused"
		}
		if got != c.want {
			t.Errorf("%+v: %s (%v), want %s", c.answer, got, err, c.want)
		}
		// The tag of a refusal is free again; that of an unsure submission is not.
		_, err = l.Submit(t.Context(), placed(t, 2))
		if taken := err != nil && strings.Contains(err.Error(), "is taken"); taken != (c.want != "refused") {
			t.Errorf("%+v: the tag is taken: %v (%v)", c.answer, taken, err)
		}
	}
}

func TestWhereThereAreNoArraysWorkersAreSubmittedOneByOne(t *testing.T) {
	l, fake := faked(t, 0, all...)
	fake.Say("sbatch", launchertest.Answer{Status: 1, Stderr: "sbatch: error: Batch job submission failed: Invalid job array specification\n"})
	if _, err := l.Submit(t.Context(), placed(t, 8)); !isRefusal(err, launcher.RefusedForLimits) {
		t.Errorf("8 workers: %v", err)
	}
	fake.Say("sbatch", launchertest.Answer{Then: `for a; do case $a in --array*) echo "sbatch: error: Batch job submission failed: Invalid job array specification" >&2; exit 1;; esac; done; echo 42; exit 0`})
	if id, err := l.Submit(t.Context(), placed(t, 1)); id != "42" {
		t.Errorf("1 worker: %q, %v", id, err)
	}
	n := len(fake.Calls("sbatch"))
	r := placed(t, 2)
	r.Tag = "4"
	if _, err := l.Submit(t.Context(), r); !isRefusal(err, launcher.RefusedForLimits) || len(fake.Calls("sbatch")) != n {
		t.Errorf("2 workers, now that it is known: %v, %d calls", err, len(fake.Calls("sbatch"))-n)
	}
	fake.Say("squeue", launchertest.Answer{Stdout: rowBegin + "42|N/A|42|RUNNING|N/A|N/A|1|n1|dz-" + aRun + "-3|None" + rowEnd + "\n"})
	got, err := l.List(t.Context())
	if err != nil || len(got.Elements) != 1 || got.Elements[0].Tag != "3" || got.Elements[0].Last != 0 {
		t.Errorf("%+v, %v", got, err)
	}
	l.Bind("3", "42")
	if err := l.Cancel(t.Context(), launcher.Worker{Tag: "3"}); err != nil {
		t.Error(err)
	}
	if calls := fake.Calls("scancel"); len(calls) != 1 || !slices.Equal(calls[0].Args, []string{"42"}) {
		t.Errorf("scancel %+v", calls)
	}
}

func TestAnArrayAboveTheSitesSizeIsNotTried(t *testing.T) {
	l, fake := faked(t, 0, all...)
	fake.Say("scontrol", launchertest.Answer{Stdout: "MaxArraySize            = 5\nKillWait                = 40 sec\nSlurmUser               = slurm(64030)\nMinJobAge               = 2 sec\nSLURM_VERSION           = 23.11.4\nClusterName = west\nMessageTimeout = 20 sec\n"})
	if _, err := l.Submit(t.Context(), placed(t, 6)); !isRefusal(err, launcher.RefusedForLimits) || len(fake.Calls("sbatch")) != 0 {
		t.Errorf("%v", err)
	}
	site, err := l.Site(t.Context())
	want := Site{Version: "23.11.4", Cluster: "west", KillWait: 40 * time.Second, MessageTimeout: 20 * time.Second, MinJobAge: 2 * time.Second, MaxArraySize: 5, SlurmUID: 64030}
	if err != nil || site != want {
		t.Errorf("site %+v, %v", site, err)
	}
	if n := len(fake.Calls("scontrol")); n != 1 {
		t.Errorf("the site was asked %d times", n)
	}
}

func TestElementsAreCancelledByAPlainListOfThoseThatAreThere(t *testing.T) {
	l, fake := faked(t, 0, all...)
	name := "|dz-" + aRun + "-3|None" + rowEnd + "\n"
	fake.Say("squeue", launchertest.Answer{Stdout: rowBegin + "7|4-9|7|PENDING|N/A|N/A|1|" + name +
		rowBegin + "7|0|8|RUNNING|N/A|N/A|1|n1" + name + rowBegin + "7|1|9|COMPLETED|N/A|N/A|1|n1" + name +
		rowBegin + "11|2|11|RUNNING|N/A|N/A|1|n1" + name}) // a twin, of which nothing may be touched
	l.Bind("3", "7")
	var workers []launcher.Worker
	for i := range 7 {
		workers = append(workers, launcher.Worker{Tag: "3", Element: i})
	}
	if err := l.Cancel(t.Context(), append(workers, launcher.Worker{Tag: "5"})...); err != nil {
		t.Fatal(err)
	}
	if calls := fake.Calls("scancel"); len(calls) != 1 || !slices.Equal(calls[0].Args, []string{"7_[0,4-6]"}) {
		t.Errorf("scancel %+v", calls)
	}
	fake.Say("squeue", launchertest.Answer{Status: 1, Stderr: "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n"})
	if err := l.Cancel(t.Context(), workers...); err == nil || len(fake.Calls("scancel")) != 1 {
		t.Errorf("without a listing: %v", err)
	}
	if err := l.CancelArray(t.Context(), "3", "7"); err != nil {
		t.Fatal(err)
	}
	if got, want := fake.Calls("scancel")[1].Args, []string{"-u", l.user, "-n", "dz-" + aRun + "-3", "7"}; !slices.Equal(got, want) {
		t.Errorf("scancel %q, want %q", got, want)
	}
}

func TestCloseCancelsWhatIsLeftAndDoesNotWaitForAFailedNode(t *testing.T) {
	name := "|dz-" + aRun + "-3|None" + rowEnd + "\n"
	rows := map[string]string{
		"pending":    rowBegin + "7|4-9|7|PENDING|N/A|N/A|1|" + name,
		"running":    rowBegin + "7|0|8|RUNNING|N/A|N/A|1|n1" + name,
		"suspended":  rowBegin + "7|0|8|SUSPENDED|N/A|N/A|1|n1" + name,
		"completing": rowBegin + "7|1|9|COMPLETING|N/A|N/A|1|n1" + name,
		"failed":     rowBegin + "7|2|10|NODE_FAIL|N/A|N/A|1|n2" + name,
		"ended":      rowBegin + "7|3|11|COMPLETED|N/A|N/A|1|n1" + name,
	}
	for _, c := range []struct {
		rows          []string
		cancel, fails bool
	}{
		{[]string{"failed", "ended"}, false, false},
		{[]string{"completing", "ended"}, false, false},
		{[]string{"pending", "completing"}, true, true},
		{[]string{"running"}, true, true},
		{[]string{"suspended"}, true, true},
	} {
		l, fake := faked(t, 0, all...)
		l.Bind("3", "7")
		said := ""
		for _, r := range c.rows {
			said += rows[r]
		}
		fake.Say("squeue", launchertest.Answer{Stdout: said})
		ctx, cancel := context.WithTimeout(t.Context(), 600*time.Millisecond)
		err := l.Close(ctx)
		cancel()
		if n := len(fake.Calls("scancel")); (err != nil) != c.fails || (n > 0) != c.cancel {
			t.Errorf("%v: %v, %d calls of scancel", c.rows, err, n)
		}
	}
}

func TestWorkersOfManySubmissionsAreCancelledInOneCallOfWhatIsThere(t *testing.T) {
	l, fake := faked(t, 0, all...)
	row := func(job, element, tag, state string) string {
		return rowBegin + job + "|" + element + "|" + job + "|" + state + "|N/A|N/A|1||dz-" + aRun + "-" + tag + "|None" + rowEnd + "\n"
	}
	fake.Say("squeue", launchertest.Answer{Stdout: row("41", "0", "3", "PENDING") + row("42", "0", "4", "PENDING") + row("43", "0", "5", "COMPLETED") + row("44", "0-1", "6", "PENDING")})
	var workers []launcher.Worker
	for tag, array := range map[string]string{"3": "41", "4": "99", "5": "43", "6": "44"} { // 42 is a twin
		l.Bind(tag, array)
		workers = append(workers, launcher.Worker{Tag: tag}, launcher.Worker{Tag: tag, Element: 1})
	}
	if err := l.Cancel(t.Context(), workers...); err != nil {
		t.Fatal(err)
	}
	if calls := fake.Calls("scancel"); len(calls) != 1 || !slices.Equal(calls[0].Args, []string{"41_[0]", "44_[0-1]"}) {
		t.Errorf("scancel %+v", calls)
	}
}

// TestCloseAsksSlurmLittle: of arrays that do not end, and of those that do.
func TestCloseAsksSlurmLittle(t *testing.T) {
	for name, c := range map[string]struct {
		arrays           int
		ends             time.Duration
		questions, calls int
	}{
		"they end at once":        {3, 500 * time.Millisecond, 2, 3},
		"they end in time":        {3, 8 * time.Second, 6, 6},
		"they do not end":         {3, time.Hour, 14, 9},
		"there are no arrays":     {500, 3 * time.Second, 3, 3}, // each worker is a job, and the time is far too short for a call for each
		"hundreds that never end": {500, time.Hour, 14, 9},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				var last time.Time
				questions, calls := 0, 0
				live := func(context.Context) (map[string]string, bool, error) {
					questions++
					if time.Since(began) >= c.ends {
						return nil, false, nil
					}
					left := map[string]string{}
					for i := range c.arrays {
						left[fmt.Sprint(1000+i)] = fmt.Sprint(i)
					}
					return left, false, nil
				}
				cancelled := map[string]bool{}
				cancel := func(_ context.Context, left map[string]string, arrays []string) error {
					for _, a := range arrays {
						cancelled[a] = true
						if _, is := left[a]; !is {
							t.Errorf("%s is cancelled, and is not left", a)
						}
					}
					if !last.IsZero() && time.Since(last) < time.Second {
						t.Errorf("%v between two calls", time.Since(last))
					}
					last = time.Now()
					calls++
					return nil
				}
				ctx, done := context.WithTimeout(t.Context(), time.Minute)
				defer done()
				if err := endAll(ctx, live, cancel); (err != nil) != (c.ends > time.Minute) {
					t.Error(err)
				}
				if questions > c.questions || calls > c.calls {
					t.Errorf("%d questions and %d calls to end something, want %d and %d at most", questions, calls, c.questions, c.calls)
				}
				if len(cancelled) != c.arrays {
					t.Errorf("%d of %d are cancelled", len(cancelled), c.arrays)
				}
			})
		})
	}
}

func TestCloseEndsManyJobsOfTheRunWithOneCall(t *testing.T) {
	l, fake := faked(t, 0, all...)
	l.Bind("3", "7")
	said, want := rowBegin+"99|N/A|99|RUNNING|N/A|N/A|1|n1|dz-zzzz2345-1|None"+rowEnd+"\n", []string{"-u", l.user}
	for i := 10; i < 40; i++ {
		said += rowBegin + fmt.Sprintf("%d|0|%d|PENDING|N/A|N/A|1||dz-%s-%d|None", i, i, aRun, i) + rowEnd + "\n"
		want = append(want, fmt.Sprint(i))
	}
	fake.Say("squeue", launchertest.Answer{Stdout: said})
	ctx, cancel := context.WithTimeout(t.Context(), 800*time.Millisecond)
	defer cancel()
	if err := l.Close(ctx); err == nil || !strings.Contains(err.Error(), "jobs 10, 11, ") {
		t.Error(err)
	}
	if calls := fake.Calls("scancel"); len(calls) != 1 || !slices.Equal(calls[0].Args, want) {
		t.Errorf("scancel %+v, want %q", calls, want)
	}
}

// TestCloseLooksForASubmissionThatHasJustHadNoAnswer: the run may end because of it, by the hand of somebody who does not want to wait.
func TestCloseLooksForASubmissionThatHasJustHadNoAnswer(t *testing.T) {
	l, fake := faked(t, 0, all...)
	fake.Say("sbatch", launchertest.Answer{Status: 1, Stderr: "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation\n"})
	fake.Say("squeue", launchertest.Answer{Then: `[ -e "$own/late" ] && echo '` + rowBegin + "7|0|7|PENDING|N/A|N/A|1||dz-" + aRun + "-3|None" + rowEnd + `'; >"$own/late"; exit 0`})
	if _, err := l.Submit(t.Context(), placed(t, 1)); !errors.Is(err, launcher.ErrUnsure) {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 1800*time.Millisecond)
	defer cancel()
	if err := l.Close(ctx); err == nil || len(fake.Calls("scancel")) != 1 {
		t.Errorf("%v; scancel %+v", err, fake.Calls("scancel"))
	}
}

// The texts are Slurm 22.05's.
func TestCloseSaysWhereItCannotKnowWhetherJobsAreLeft(t *testing.T) {
	l, fake := faked(t, 0, all...)
	l.Bind("3", "7")
	fake.Say("squeue", launchertest.Answer{Stdout: rowBegin + "7|0|8|COMPL"})
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	err := l.Close(ctx)
	if err == nil || !strings.Contains(err.Error(), "it is not known whether jobs of this run are left") || !strings.Contains(err.Error(), "dz-"+aRun) || !strings.Contains(err.Error(), "cut off") {
		t.Errorf("%v", err)
	}
}

func TestAnUpdateOfAnArrayIsDoneWhereItsPendingPartIs(t *testing.T) {
	l, fake := faked(t, 0, all...)
	for _, c := range []struct {
		answer launchertest.Answer
		ok     bool
	}{
		{launchertest.Answer{}, true},
		{launchertest.Answer{Status: 1, Stderr: "2_0-1: Job is no longer pending execution\n2_2-30: No error\n"}, true},
		{launchertest.Answer{Status: 1, Stderr: "2_79-99: No error\n"}, true},
		{launchertest.Answer{Status: 1, Stderr: "2_0-3,12-22: Job has already finished\n2_4-11,23-26: Job is no longer pending execution\n2_27-99: No error\n"}, true},
		// All of it has started since it was seen, so that nothing is pending that could be kept off.
		{launchertest.Answer{Status: 1, Stderr: "2_0-1: Job is no longer pending execution\n"}, true},
		{launchertest.Answer{Status: 1, Stderr: "Job is no longer pending execution for job 2\n"}, true},
		{launchertest.Answer{Status: 1, Stderr: "Job has already finished for job 2\n"}, true},
		{launchertest.Answer{Status: 1, Stderr: "Access/permission denied for job 2\n"}, false},
		{launchertest.Answer{Status: 1, Stderr: "2_0: Job is no longer pending execution\n2_1-5: Invalid node name specified\n"}, false},
		{launchertest.Answer{Status: 1, Stderr: "2_0,2-3: No error\n2_1: Access/permission denied\n"}, false},
		{launchertest.Answer{Status: 1, Stderr: "Invalid job id specified for job 2\n"}, false},
		{launchertest.Answer{Status: 1}, false},
	} {
		fake.Say("scontrol", c.answer)
		if err := l.Exclude(t.Context(), "2", []string{"n1", "n2"}); (err == nil) != c.ok {
			t.Errorf("%+v: %v", c.answer, err)
		}
	}
	if got := fake.Calls("scontrol")[0].Args; !slices.Equal(got, []string{"update", "JobId=2", "ExcNodeList=n1,n2"}) {
		t.Errorf("scontrol %q", got)
	}
	n := len(fake.Calls("scontrol"))
	for _, err := range []error{l.Throttle(t.Context(), "2", 0), l.Throttle(t.Context(), "x", 1), l.Exclude(t.Context(), "2", []string{"a b"}), l.Exclude(t.Context(), "2", []string{""})} {
		if err == nil {
			t.Error("nonsense is carried out")
		}
	}
	if len(fake.Calls("scontrol")) != n {
		t.Error("nonsense reached Slurm")
	}
}

func TestNodesThatTheJobExcludesStayExcluded(t *testing.T) {
	l, fake := faked(t, 0, all...)
	fake.Say("sbatch", launchertest.Answer{Stdout: "2\n"})
	r := placed(t, 2)
	r.Options = map[string][]string{"exclude": {"n[7-8]"}}
	array, err := l.Submit(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	// Another coordinator, which has only what is on the disk.
	later, err := New(l.cfg)
	if err != nil {
		t.Fatal(err)
	}
	later.Bind("3", array)
	if err := later.Exclude(t.Context(), array, []string{"n1"}); err != nil {
		t.Fatal(err)
	}
	calls := fake.Calls("scontrol")
	if got := calls[len(calls)-1].Args[2]; got != "ExcNodeList=n[7-8],n1" {
		t.Errorf("%s", got)
	}
}

func TestAnArrayIsUnknownOnlyWhereSlurmSaysSo(t *testing.T) {
	l, fake := faked(t, 0, all...)
	for _, c := range []struct {
		answer launchertest.Answer
		known  bool
		fails  bool
	}{
		{launchertest.Answer{Stdout: "daisy|dz-" + aRun + "-3|$\n"}, true, false},
		{launchertest.Answer{}, true, false},
		// The id was given to somebody else: to ours it is unknown.
		{launchertest.Answer{Stdout: "Welcome\ndaisy|dz-zzzz2345-3|$\ndaisy|other|$\n"}, false, false},
		{launchertest.Answer{Stdout: "daisy|other|$\ndaisy|oth"}, false, true},
		{launchertest.Answer{Status: 1, Stderr: "slurm_load_jobs error: Invalid job id specified\n"}, false, false},
		{launchertest.Answer{Status: 1, Stderr: "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n"}, false, true},
		{launchertest.Answer{Status: 1}, false, true},
	} {
		fake.Say("squeue", c.answer)
		if known, err := l.Known(t.Context(), "7"); known != c.known || (err != nil) != c.fails {
			t.Errorf("%+v: %v, %v", c.answer, known, err)
		}
	}
}

// TestTheAccountingIsAskedSinceADayBeforeTheRun: clocks and time zones of the cluster may be others.
func TestTheAccountingIsAskedSinceADayBeforeTheRun(t *testing.T) {
	l, fake := faked(t, 0, all...)
	for begun, want := range map[time.Time]string{
		{}: "--starttime=now-30days",
		time.Date(2026, 11, 10, 1, 30, 0, 0, time.Local): "--starttime=2026-11-09T01:30:00",
	} {
		l.cfg.Begun = begun
		if _, err := l.Account(t.Context()); err != nil {
			t.Fatal(err)
		}
		calls := fake.Calls("sacct")
		if args := calls[len(calls)-1].Args; !slices.Contains(args, want) {
			t.Errorf("begun %v: sacct %v", begun, args)
		}
	}
}

func TestWithoutAccountingThereIsNone(t *testing.T) {
	l, fake := faked(t, 0, all...)
	fake.Say("sacct", launchertest.Answer{Status: 1, Stderr: "Slurm accounting storage is disabled\n"})
	if _, err := l.Account(t.Context(), "1", "2"); !errors.Is(err, launcher.ErrNoAccounting) {
		t.Error(err)
	}
	if args := strings.Join(fake.Calls("sacct")[0].Args, " "); !strings.Contains(args, "-X -D -P -n ") || !strings.HasSuffix(args, "-j 1,2") {
		t.Errorf("sacct %s", args)
	}
	fake.Say("sacct", launchertest.Answer{Stdout: "You are not running a supported accounting_storage plugin\n"})
	if _, err := l.Account(t.Context(), "1", "2"); !errors.Is(err, launcher.ErrNoAccounting) {
		t.Errorf("said with status 0: %v", err)
	}
	fake.Say("sacct", launchertest.Answer{Status: 1, Stderr: "sacct: error: Problem talking to the database: Connection refused\n"})
	if _, err := l.Account(t.Context(), "1"); err == nil || errors.Is(err, launcher.ErrNoAccounting) {
		t.Errorf("a database that is away: %v", err)
	}
}

// An sbatch whose coordinator was killed may still submit: the next one waits for it, and ends it if it hangs.
func TestAnSbatchOfAnEarlierCoordinatorIsWaitedForAndThenEnded(t *testing.T) {
	l, fake := faked(t, 2*time.Second, all...)
	fake.Say("sbatch", launchertest.Answer{Stdout: "2\n"})
	lock, err := l.lockSubmissions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// It has the lock by inheritance, and nobody else holds it.
	orphan := exec.Command("sleep", "600")
	orphan.ExtraFiles = []*os.File{lock.file}
	if err := orphan.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- orphan.Wait() }()
	host, _ := os.Hostname()
	if _, err := lock.file.WriteAt(fmt.Appendf(nil, "%s %d %s\n", host, orphan.Process.Pid, startOf(orphan.Process.Pid)), 0); err != nil {
		t.Fatal(err)
	}
	lock.file.Close()
	if array, err := l.Submit(t.Context(), placed(t, 1)); array != "2" || err != nil {
		t.Fatalf("%q, %v", array, err)
	}
	if err := <-ended; err == nil {
		t.Error("the old sbatch ended by itself")
	}
}

func TestASubmissionWithAForeignHolderOfTheLockIsRefusedForNow(t *testing.T) {
	l, fake := faked(t, 300*time.Millisecond, all...)
	file, err := os.OpenFile(filepath.Join(l.scripts, lockName), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteString("elsewhere 12 34\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Submit(t.Context(), placed(t, 1)); !isRefusal(err, launcher.RefusedForNow) || len(fake.Calls("sbatch")) != 0 {
		t.Errorf("%v", err)
	}
}

// A helper process submits, and is killed.
func TestCommandsDieWithTheirCoordinator(t *testing.T) {
	if dir := os.Getenv("DAISY_TEST_HANG"); dir != "" {
		l, err := New(Config{Run: aRun, Dir: dir, Env: []string{"PATH=" + os.Getenv("DAISY_TEST_PATH")}})
		if err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = l.List(context.Background()) }()
		_, _ = l.Submit(context.Background(), placed(t, 1))
		return
	}
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("only Linux has such a signal")
	}
	fake := launchertest.NewFake(t, all...)
	dir := t.TempDir()
	pid := func(name string) string { return filepath.Join(dir, name+".pid") }
	hang := []string{"sbatch", "squeue"}
	for _, name := range hang {
		fake.Say(name, launchertest.Answer{Then: "echo $$ >" + pid(name) + ".new; mv " + pid(name) + ".new " + pid(name) + "; exec sleep 600"})
	}
	helper := exec.Command(os.Args[0], "-test.run=^TestCommandsDieWithTheirCoordinator$")
	helper.Env = append(os.Environ(), "DAISY_TEST_HANG="+dir, "DAISY_TEST_PATH="+fake.Dir+":/usr/bin:/bin")
	if err := helper.Start(); err != nil {
		t.Fatal(err)
	}
	pids := map[string]string{}
	for _, name := range hang {
		await(t, name+" starts", func() bool {
			text, _ := os.ReadFile(pid(name))
			pids[name] = strings.TrimSpace(string(text))
			return len(text) > 0
		})
	}
	if err := helper.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = helper.Wait()
	for _, name := range hang {
		await(t, name+" ends", func() bool {
			stat, err := os.ReadFile("/proc/" + pids[name] + "/stat")
			return err != nil || strings.Contains(string(stat), ") Z ")
		})
	}
}

// await waits for what must happen soon.
func await(t testing.TB, what string, happened func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !happened(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: it has not within 30 s", what)
		}
	}
}

// TestAnAnswerWithoutEndIsNotKept: what would fill the memory is no answer, and what was kept of it is bounded.
func TestAnAnswerWithoutEndIsNotKept(t *testing.T) {
	l, fake := faked(t, 0, all...)
	fake.Say("squeue", launchertest.Answer{Then: fmt.Sprintf("head -c %d /dev/zero", mostOutput+1<<20)})
	if got, err := l.List(t.Context()); err == nil || !strings.Contains(err.Error(), "more than 64 MiB of output") {
		t.Errorf("it is the answer %+v, %v", got, err)
	}
	got, err := l.run(t.Context(), "squeue")
	if len(got.stdout) > mostOutput {
		t.Errorf("%d bytes of it are kept: %v", len(got.stdout), err)
	}
}
