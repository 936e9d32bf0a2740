package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"example.org/daisy/internal/coordinator"
	"example.org/daisy/internal/engine"
	"example.org/daisy/internal/job"
	"example.org/daisy/internal/jobfile"
	"example.org/daisy/internal/process"
	"example.org/daisy/internal/report"
	"example.org/daisy/internal/rundir"
	"example.org/daisy/internal/tracking"
	"example.org/daisy/internal/units"
	"example.org/daisy/internal/version"
	"example.org/daisy/internal/worker"
	"example.org/daisy/launcher"
	"example.org/daisy/launcher/inprocess"
	"example.org/daisy/launcher/local"
	"example.org/daisy/launcher/slurm"
)

// jobFlags are those of every command that reads a job file.
func jobFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "launcher", Usage: "start workers with `L` instead of the job's: local, serial or slurm"},
		&cli.Int64Flag{Name: "max-workers", DefaultText: "as the job says", Usage: "at most `N` blocks of each task at once"},
		&cli.StringSliceFlag{Name: "set", Usage: "change a key: `KEY=VALUE`, as task.predict.timeout=20m or run.resources.cpu=4; may be repeated"},
	}
}

func runCommand() *cli.Command {
	return &cli.Command{
		Name: "run", Usage: "run a job to its end",
		UsageText: "daisy-submit run JOB [OPTIONS]\n   daisy-submit run [JOB] --resume DIR|latest [OPTIONS]",
		Description: `Starts workers, gives them the blocks of the job file JOB, and ends with a table of what happened. Everything of the
run is kept in its run directory. Ctrl-C, SIGTERM and SIGQUIT end it in order, a second one at once. It goes on when its
terminal goes away (SIGHUP).

With --resume it goes on with a run that was killed, interrupted, stopped, or could not write: blocks that succeeded are not run
again, failures and retries so far count, and workers that still live go on with their blocks. The job is the one that the run
directory keeps; JOB and --set may change limits (max_workers, resources, timeouts, retries), nothing else.
Resuming a run that has ended prints its report.

With --detach the run needs no terminal: all is checked here, then the coordinator goes on by itself, and the command returns once it
is up. It outlives a logout where the site lets it, and if not that is said. With --coordinator job Slurm runs the coordinator, as a job of
its own; the command returns once that is in the queue. Either way "attach", "status" and "cancel" work from any machine that sees
the run directory. Both go with --resume, too.

EXAMPLE
   daisy-submit run segment.toml --max-workers 4 --set task.predict.timeout=20m
   daisy-submit run segment.toml --detach
   daisy-submit run segment.toml --coordinator job --after 4711:afterok
   daisy-submit run --resume latest --set task.predict.max_retries=5

EXIT STATUS
   0    every block succeeded or was skipped; with --detach and --coordinator job, the coordinator is up, or in the queue
   1    some did not
   2    the job file or the command line is wrong, or Slurm refuses it; nothing was started
   3    the infrastructure failed: cannot start workers, listen, or write
   130  interrupted (143: by SIGTERM, 131: by SIGQUIT)
`,
		Flags: append(append(append(jobFlags(), selectionFlags()...), elsewhereFlags()...),
			&cli.StringFlag{Name: "run-dir", Usage: "the run directory itself is `DIR`, which must be new or empty"},
			&cli.StringFlag{Name: "resume", Usage: "go on with the run in `DIR`; \"latest\" is the last one of the job, or of ./runs"},
			&cli.BoolFlag{Name: "take-over", Usage: "with --resume: do not wait until the lock of a coordinator that does not answer has stood still for 30 s"},
			&cli.BoolFlag{Name: "json", Usage: "JSON lines instead of progress and tables"},
			&cli.BoolFlag{Name: "with-stdin", Usage: "end as by SIGTERM when standard input ends: for a program that starts a run and may be killed itself"},
		),
		Action: func(c *cli.Context) error {
			if c.IsSet("max-workers") && c.Int64("max-workers") < 1 {
				return usage("--max-workers must be at least 1")
			}
			r := jobRun{runDir: c.String("run-dir"), json: c.Bool("json"), stdout: c.App.Writer, stderr: c.App.ErrWriter}
			var err error
			if r.where, err = elsewhereOf(c); err != nil {
				return err
			}
			switch takeStartedBy() {
			case asDetached:
				r.ready = readyPipe()
			case asJob:
				if r.life, err = newJobLife(); err != nil {
					return err
				}
			}
			if c.Bool("with-stdin") {
				r.stdin = os.Stdin
			}
			if c.IsSet("resume") {
				return r.resume(c)
			}
			if c.Bool("take-over") {
				return usage("--take-over goes with --resume")
			}
			path, err := oneArgument(c, "a job file")
			if err != nil {
				return err
			}
			if r.job, err = loadJob(c, path); err != nil {
				return err
			}
			return r.run(c.Context)
		},
	}
}

// loadJob reads and checks a job file with the flags of jobFlags and selectionFlags.
func loadJob(c *cli.Context, path string) (*job.Job, error) {
	part, err := selection(c)
	if err != nil {
		return nil, err
	}
	return loadPart(c, path, part)
}

// loadPart is loadJob of a part of the blocks.
func loadPart(c *cli.Context, path string, part job.Selection) (*job.Job, error) {
	return loadSet(c, path, c.StringSlice("set"), jobfile.Options{Selection: part, CheckPython: importable(c.Context), CheckSlurm: checkSlurm, CheckCoordinator: checkCoordinator})
}

// loadSet is loadPart with other sets; the options are completed.
func loadSet(c *cli.Context, path string, sets []string, opts jobfile.Options) (*job.Job, error) {
	var err error
	if opts.Below, err = jobfile.ReadBelow(); err != nil {
		return nil, &statusError{exitUsage, err}
	}
	opts.Launcher, opts.MaxWorkers, opts.Machine = c.String("launcher"), c.Int64("max-workers"), machine()
	j, err := jobfile.Load(path, sets, opts)
	if err != nil {
		return nil, &statusError{exitUsage, err}
	}
	return j, nil
}

func machine() job.Machine {
	m := process.ThisMachine()
	return job.Machine{Cores: m.Cores, MemoryBytes: m.MemoryBytes, GPUs: len(m.GPUs)}
}

// jobRun is one run of a checked job.
type jobRun struct {
	job            *job.Job
	runDir         string
	lock           *rundir.Lock // of the run directory that is resumed; nil for a new run
	set            []string     // keys of limits that the command line of a resume gives
	retry          []string     // tasks whose failed blocks are tried again with the resume
	json           bool
	where          *elsewhere // nil: the coordinator runs here
	ready          *os.File   // tells who has started this coordinator that it is up; nil if nobody waits
	life           *jobLife   // nil: this coordinator is no job
	stdin          io.Reader  // whose end ends the run; nil: nothing is read
	stdout, stderr io.Writer

	launcher launcher.Launcher // once it is there
	signals  chan os.Signal    // that end the run
}

func (r *jobRun) run(ctx context.Context) error {
	j := r.job
	for _, w := range j.Warnings {
		fmt.Fprintln(r.stderr, "daisy-submit: warning: "+w)
	}
	if id := os.Getenv("SLURM_JOB_ID"); id != "" && j.Launcher == "slurm" {
		fmt.Fprintf(r.stderr, "daisy-submit: this runs inside of job %s of Slurm; its variables (SLURM_*) are not passed on to workers\n", id)
	}
	if !j.Selection.IsAll() {
		fmt.Fprintln(r.stderr, "daisy-submit: "+sayLeft(j))
	}
	for i := range j.Tasks {
		if rest := unwritten(j.Tasks[i].Grid); rest != nil {
			fmt.Fprintln(r.stderr, "daisy-submit: warning: "+sayUnwritten(j.Tasks[i].ID, rest))
		}
	}
	if left := rundir.Unfinished(j.Directory, j.Name); len(left) > 0 && j.Tracking != "" {
		fmt.Fprintf(r.stderr, "daisy-submit: an earlier run of this job did not end: %s; what it had marked as done is skipped\n", left[len(left)-1])
	}
	binary, err := findWorker(j.Launcher)
	if err != nil {
		return infrastructure(err)
	}
	if err := r.checkFiles(); err != nil {
		return err
	}
	if err := r.holdMemory(); err != nil {
		return err
	}
	if r.where != nil {
		if err := r.examine(ctx, binary); err != nil {
			return err
		}
	}
	used := isUsed(r.runDir)
	dir, err := rundir.Create(j.Directory, j.Name, r.runDir)
	switch {
	case err != nil && used:
		return &statusError{exitUsage, err} // another --run-dir mends it
	case err != nil:
		return infrastructure(err)
	}
	for _, w := range dir.Warnings() {
		fmt.Fprintln(r.stderr, "daisy-submit: warning: "+w)
	}
	if r.where != nil {
		return r.leave(ctx, dir, binary)
	}
	begun, err := r.begin(ctx, dir, binary)
	if !begun {
		_ = dir.Discard() // nothing was started
	}
	return err
}

// checkFiles refuses a job whose workers need more open files than this process may have.
func (r *jobRun) checkFiles() error { return checkFiles(r.job) }

func checkFiles(j *job.Job) error {
	files, err := process.FileLimit()
	if err != nil {
		return infrastructure(err)
	}
	if err := checkFileLimit(j, j.Budget(machine()), files); err != nil {
		return &statusError{exitUsage, err} // fewer workers mend it
	}
	return nil
}

// begin runs the job in a run directory. It reports whether anything was begun there.
func (r *jobRun) begin(ctx context.Context, dir *rundir.Dir, binary string) (begun bool, err error) {
	out := r.stderr
	if r.json {
		out = r.stdout
	}
	mode := report.ModeFor(out, r.json)
	progress := report.NewProgress(out, mode)
	r.signals = make(chan os.Signal, 4)
	signal.Notify(r.signals, os.Interrupt, syscall.SIGTERM, syscall.SIGQUIT)
	if r.life != nil {
		signal.Notify(r.signals, syscall.SIGUSR1) // until now the batch script has it ignored
	}
	defer signal.Stop(r.signals)
	if r.stdin != nil {
		go r.endWithStdin()
	}
	c, err := r.prepare(ctx, dir, binary, progress.Notice)
	if err != nil {
		_ = progress.Close()
		return false, err
	}
	progress.Notice("run directory: " + dir.Path())
	r.sayReady()
	// Orphans of killed workers, and of user code in a serial run, become this process's children, so that none is overlooked.
	if err := process.Adopt(); err != nil {
		progress.Notice(err.Error() + "; what user code leaves behind is searched for instead")
	}
	return true, r.watch(ctx, c, progress, showEvery[mode])
}

// endWithStdin ends the run when who holds the other end of standard input is gone, however it went. It lives as long as the program:
// nothing interrupts a read of standard input.
func (r *jobRun) endWithStdin() {
	_, _ = io.Copy(io.Discard, r.stdin) // an error is an end, too
	r.signals <- syscall.SIGTERM
}

// isUsed tells whether a path is taken: by a file, or by a directory that has something in it.
func isUsed(path string) bool {
	if path == "" {
		return false
	}
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		return err == nil
	}
	entries, _ := os.ReadDir(path)
	return len(entries) > 0
}

// findWorker finds the worker's program: beside this one, else on PATH.
func findWorker(launcherName string) (string, error) {
	if launcherName == "serial" {
		return "", nil
	}
	const name = "daisy-worker"
	self, err := os.Executable()
	if err == nil {
		if resolved, err := filepath.EvalSymlinks(self); err == nil {
			self = resolved
		}
		beside := filepath.Join(filepath.Dir(self), name)
		if info, err := os.Stat(beside); err == nil && info.Mode().IsRegular() {
			return beside, nil
		}
	}
	if found, err := exec.LookPath(name); err == nil {
		return filepath.Abs(found)
	}
	return "", fmt.Errorf("%s is missing: it was looked for beside %s and on PATH; put it there (make build makes both programs in bin/)", name, self)
}

// freeze keeps the job in its run directory, with its masks.
func freeze(dir *rundir.Dir, j *job.Job) error {
	for i := range j.Tasks {
		if t := &j.Tasks[i]; t.SkipMask != "" {
			if err := dir.CopyMask(t.ID, t.SkipMask); err != nil {
				return err
			}
		}
	}
	return dir.WriteJob(j.Frozen)
}

// prepare makes the launcher and the coordinator; nothing runs yet.
func (r *jobRun) prepare(ctx context.Context, dir *rundir.Dir, binary string, notice func(string)) (*coordinator.Coordinator, error) {
	if r.lock == nil {
		if err := freeze(dir, r.job); err != nil {
			return nil, infrastructure(err)
		}
	}
	cfg := coordinator.Config{
		Job: r.job, RunDir: dir, Version: version.String(), Listen: true,
		Budget: r.job.Budget(machine()), Serial: r.job.Launcher == "serial", Notice: notice,
		Resume: r.lock != nil, Lock: r.lock, Set: r.set, Retry: r.retry,
	}
	var c *coordinator.Coordinator
	if cfg.Serial {
		cfg.Listen = false
		cfg.Launcher = inprocess.New("serial", func(ctx context.Context, req launcher.Request, w launcher.Worker) error {
			return worker.Run(ctx, worker.Config{
				Dial: c.Dial, RunID: c.RunID(), Secret: c.Secret(), RunDir: dir.Path(),
				Identity: worker.Identity{Tag: w.Tag, Element: w.Element}, Slots: 1,
				Log: r.stderr, Version: version.String(),
			})
		})
	} else {
		if binary != "" {
			if _, err := dir.CopyWorker(binary); err != nil {
				return nil, infrastructure(err)
			}
		}
		cfg.WorkerArgv = []string{dir.WorkerPath()}
		cfg.Launcher = local.New(local.Config{})
	}
	var err error
	if r.job.Launcher == "slurm" {
		if cfg.Launcher, err = slurmLauncher(r.job, dir); err != nil {
			return nil, infrastructure(err)
		}
		cfg.Unlimited, cfg.Environment = r.job.Unlimited(), slurm.Environment(os.Environ())
	}
	r.launcher = cfg.Launcher
	if l, isSlurm := cfg.Launcher.(*slurm.Launcher); isSlurm && r.life != nil {
		o, err := coordinatorOptions(r.job)
		if err != nil {
			return nil, &statusError{exitUsage, err}
		}
		r.life.slurm, r.life.away = l, o.Away
	}
	begun := r.endAtSignal(os.Exit)
	if err = cfg.Launcher.Check(ctx); err != nil {
		err = infrastructure(err)
	} else if c, err = coordinator.New(cfg); err != nil {
		err = refused(err)
	}
	begun()
	if err != nil {
		return nil, err
	}
	if r.lock != nil { // with the new limits, now that nothing is refused any more
		if err := dir.WriteJob(r.job.Frozen); err != nil {
			notice(fmt.Sprintf("the next resume will have the limits of before: %v", err))
		}
	}
	return c, nil
}

// refused is the error of a run that cannot begin.
func refused(err error) error {
	var other *tracking.LayoutError
	if errors.As(err, &other) {
		return &statusError{exitUsage, err} // the job was changed: nothing is wrong with the machine
	}
	return infrastructure(err)
}

// orphanBound limits the wait for processes that were left behind; they have got SIGKILL, and only the system can keep them.
const orphanBound = 5 * time.Second

// showEvery is how often progress looks at the run. Lines come every 10 s at most, so that a glance a second is plenty.
var showEvery = map[report.Mode]time.Duration{
	report.Bars: 200 * time.Millisecond, report.Lines: time.Second, report.JSONLines: time.Second,
}

// forceAfter is how long a run may take that was told to end at once. What hangs then is a disk that does not answer, or Slurm, for which
// nobody who asks twice wants to wait.
const forceAfter = 10 * time.Second

// endAtSignal ends the program at a signal as long as the run has not begun, with the workers of the coordinator before that it may have
// taken over already.
func (r *jobRun) endAtSignal(exit func(int)) (begun func()) {
	over, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		select {
		case s := <-r.signals:
			sig, _ := s.(syscall.Signal)
			if r.life != nil && r.life.slurm != nil && (sig == syscall.SIGUSR1 || sig == syscall.SIGTERM && r.life.returns() != "") {
				_ = r.life.goesBack(r.signals, func(text string) { fmt.Fprintln(r.stderr, "daisy-submit: "+text) })
				exit(exitInfrastructure)
			}
			r.endWorkers()
			exit(128 + int(sig))
		case <-over:
		}
	}()
	return func() {
		close(over)
		<-done
	}
}

// endWorkers ends the workers at once, before the program is ended, and says which may be left.
func (r *jobRun) endWorkers() {
	if r.launcher == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), orphanBound)
	defer cancel()
	if err := r.launcher.Close(ctx); err != nil {
		fmt.Fprintln(r.stderr, "daisy-submit: "+err.Error())
	}
}

// force ends the program, and its workers, if the run has not ended by itself within forceAfter. The workers of a run that was taken over are
// another's; whether it was, a disk that hangs does not say.
func (r *jobRun) force(sig syscall.Signal, takenOver func() bool, exit func(int)) (stop func() bool) {
	hangs := "the disk below its run directory does not answer, or that of the tracking"
	if r.job.Launcher == "slurm" {
		hangs = "Slurm does not answer, or the disk below its run directory, or that of the tracking"
	}
	return time.AfterFunc(forceAfter, func() {
		fmt.Fprintf(r.stderr, "the run was told to end at once and has not in %s: %s; this program ends now\n", units.Duration(forceAfter), hangs)
		taken := make(chan bool, 1)
		go func() { taken <- takenOver() }()
		select {
		case is := <-taken:
			if !is {
				r.endWorkers()
			}
		case <-time.After(time.Second):
			r.endWorkers()
		}
		exit(128 + int(sig))
	}).Stop
}

// watch runs the coordinator, shows progress, minds signals, and reports.
func (r *jobRun) watch(ctx context.Context, c *coordinator.Coordinator, progress *report.Progress, every time.Duration) error {
	// The terminal, or who reads the output, may go; the run goes on. They are caught, not ignored, since user code of a serial
	// run would inherit that.
	harmless := make(chan os.Signal, 1)
	signal.Notify(harmless, syscall.SIGHUP, syscall.SIGPIPE)
	defer signal.Stop(harmless)

	unselected := map[string]int64{}
	for i := range r.job.Tasks {
		unselected[r.job.Tasks[i].ID] = r.job.Tasks[i].Unselected.Count()
	}
	shown := make(chan struct{})
	over := make(chan struct{})
	go func() {
		defer close(shown)
		var calm func() bool
		defer func() {
			if calm != nil {
				calm()
			}
		}()
		show := time.NewTicker(every)
		defer show.Stop()
		started := time.Now()
		for {
			select {
			case s := <-r.signals:
				sig, _ := s.(syscall.Signal)
				if r.life != nil && r.life.minds(sig, c, progress.Notice) {
					continue
				}
				if !c.Interrupt(sig) {
					if calm == nil {
						calm = r.force(sig, c.TakenOver, os.Exit)
					}
				} else {
					progress.Notice(fmt.Sprintf("%v: no new blocks; running ones have %s to end. Once more ends them at once.", s, units.Duration(r.job.Grace)))
				}
			case <-show.C:
				var snap engine.Snapshot
				if c.Snapshot(ctx, &snap) == nil {
					progress.Update(time.Now(), progressOf(&snap, unselected, time.Since(started)))
				}
			case <-over:
				return
			}
		}
	}()
	result, err := c.Run(ctx)
	close(over)
	<-shown
	if result.State == engine.RunAside && err == nil {
		progress.Notice("this coordinator has ended, and the run has not")
		_ = progress.Close()
		return r.life.goesBack(r.signals, func(text string) { fmt.Fprintln(r.stderr, "daisy-submit: "+text) })
	}
	// What is left is to say how it went, to somebody who may not listen: signals end that as they end any program.
	signal.Stop(r.signals)
	var taken *rundir.TakenOverError
	if errors.As(err, &taken) { // the run has not ended, and its workers are no orphans
		_ = progress.Close()
		return ended(result, err)
	}
	ending, done := context.WithTimeout(context.Background(), orphanBound)
	if left, orphanErr := process.EndOrphans(ending); orphanErr != nil {
		progress.Notice(orphanErr.Error())
	} else if len(left) > 0 {
		progress.Notice(fmt.Sprintf("ended %d processes that user code had left behind", len(left)))
	}
	done()
	progress.End(result.Stats)
	_ = progress.Close() // a lost progress line is no failure of the run

	if !r.json {
		err = errors.Join(err, report.Tables(r.stdout, result.Stats, report.Table))
	}
	for _, line := range nextOf(&result.Stats) {
		fmt.Fprintln(r.stderr, line)
	}
	r.onEnd(ctx, result)
	return ended(result, err)
}

// ended makes the exit status of a run that was started.
func ended(result coordinator.Result, err error) error {
	status := result.ExitStatus
	if err != nil {
		return &statusError{max(status, exitInfrastructure), err}
	}
	if status == exitOK {
		return nil
	}
	if m := result.Stats.Run.Message; status == exitUsage && m != nil {
		return &statusError{status, errors.New(*m)} // the cause is not for the report alone: nothing was run that it could be about
	}
	return &statusError{status: status}
}

func progressOf(s *engine.Snapshot, unselected map[string]int64, elapsed time.Duration) report.Snapshot {
	out := report.Snapshot{State: s.State.String(), Elapsed: elapsed, Tasks: make([]report.TaskProgress, len(s.Tasks))}
	for i, t := range s.Tasks {
		out.Tasks[i] = report.TaskProgress{
			ID: t.ID, State: t.State.String(), Blocks: t.Tally.Total,
			Waiting: t.Tally.Waiting, Ready: t.Tally.Ready, Leased: t.Tally.Leased, Running: t.SlotsBusy,
			Success: t.Tally.Success, Skipped: t.Tally.Skipped, Failed: t.Tally.Failed, Orphaned: t.Tally.Orphaned, Abandoned: t.Tally.Abandoned,
			Unselected: unselected[t.ID], Retries: t.Tally.Retries, Slots: t.SlotsBusy + t.SlotsIdle + t.SlotsStarting, Waits: t.Waits,
		}
	}
	return out
}
