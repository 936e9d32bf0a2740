// Command daisy-worker is a worker process: it joins the coordinator of a run directory and runs blocks until it is told to
// leave. Launchers start it; anybody may start more of them by hand.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"example.org/daisy/internal/process"
	"example.org/daisy/internal/version"
	"example.org/daisy/internal/worker"
)

func main() {
	process.RunLimited()
	os.Exit(run(os.Args, os.Getenv, os.Stdout, os.Stderr))
}

const description = `Joins the coordinator of a run, acquires blocks, runs the user code of its task on them, and
releases them. Launchers start it with the environment variables DAISY_TAG and DAISY_ELEMENT
(who it is) and DAISY_GPUS (a comma list of its devices). Started by hand it needs none of them.

When its coordinator is gone it goes on with its blocks and looks for the next one, which
resumes the run. When none has come for nearly as long as abandon_after, it kills its blocks
and ends.

On SIGTERM or SIGINT it takes no new blocks, gives those that run the job's grace time, gives
back what has not ended, and leaves. A second one ends it at once. In a job of Slurm it is gone
within 20 s, and 5 s before Slurm kills it where KillWait allows that. On SIGUSR1, with which a
batch system says that the end is near, it goes on and begins only what fits in the time that
is left.

EXAMPLE:
   Help a run with four more blocks at once:

   daisy-worker --run-dir runs/segment-2026-11-30T15-04-05 --slots 4

   They count against the run's resources, which its own workers have taken, so that it stays
   idle until there are more of them, here four cores more than the two that there were:

   daisy-submit set runs/segment-2026-11-30T15-04-05 run.resources.cpu=6

EXIT STATUS:
   0  told to leave
   1  user code could not be started
   2  wrong usage
   3  no address of the coordinator answered, or not with the right secret (the output says which were tried)
   4  refused by the coordinator (version, epoch, twin)
   5  the coordinator is gone; results that could not be delivered are in the run directory's outbox
   6  no GPU where one was asked for`

// usageError is a wrong command line.
type usageError struct{ error }

func run(args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	app := &cli.App{
		Name:            "daisy-worker",
		Usage:           "run blocks for the coordinator of a run",
		UsageText:       "daisy-worker --run-dir DIR [--slots N] [--name NAME] [--task TASK]\ndaisy-worker conformance -- PROGRAM [ARGUMENTS]",
		Description:     description,
		Version:         version.String(),
		Writer:          stdout,
		ErrWriter:       stderr,
		HideHelpCommand: true,
		Commands:        []*cli.Command{conformanceCommand()},
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "run-dir", Usage: "the run directory `DIR`"},
			&cli.StringFlag{Name: "slots", Value: "1", Usage: "run `N` blocks at once; fill: as many as what a batch system gave it holds (for launchers)"},
			&cli.StringFlag{Name: "name", Usage: "the worker's `NAME` in the reports, where no launcher gave it one (default: host and process id)"},
			&cli.StringFlag{Name: "task", Usage: "serve this `TASK`, where no launcher started it (default: any)"},
		},
		ExitErrHandler: func(*cli.Context, error) {},
		OnUsageError:   func(_ *cli.Context, err error, _ bool) error { return usageError{err} },
		Action: func(c *cli.Context) error {
			cfg, err := configure(c, getenv, stdout)
			if err != nil {
				return usageError{err}
			}
			return work(c.Context, cfg)
		},
	}
	err := app.Run(args)
	if err == nil {
		return 0
	}
	fmt.Fprintf(stderr, "daisy-worker: %v\n", err)
	var exit *worker.ExitError
	switch {
	case errors.As(err, &exit):
		return exit.Status
	case errors.As(err, new(usageError)):
		return worker.StatusUsage
	default:
		return worker.StatusCannotStart
	}
}

// configure reads the command line and the environment of a launcher, or of the job of a batch system.
func configure(c *cli.Context, getenv func(string) string, log io.Writer) (worker.Config, error) {
	cfg := worker.Config{
		RunDir: c.String("run-dir"), Slots: 1, Fill: c.String("slots") == "fill", Task: c.String("task"), Version: version.String(), Log: log,
		Identity: worker.Identity{Name: c.String("name")},
	}
	if c.Args().Present() {
		return cfg, fmt.Errorf("%q is not expected; all that there is are flags, see --help", c.Args().First())
	}
	if cfg.RunDir == "" {
		return cfg, errors.New("--run-dir is needed: the directory that daisy-submit printed when the run began")
	}
	if info, err := os.Stat(cfg.RunDir); err == nil && !info.IsDir() {
		return cfg, fmt.Errorf("--run-dir %s is not a directory", cfg.RunDir)
	}
	var err error
	if text := c.String("slots"); !cfg.Fill {
		if cfg.Slots, err = strconv.Atoi(text); err != nil || cfg.Slots < 1 {
			return cfg, fmt.Errorf("--slots is %q, wanted a number from 1, or fill", text)
		}
	}
	if cfg.Job, err = worker.SlurmJob(getenv); err != nil {
		return cfg, err
	}
	if cfg.Job.ID != "" && cfg.Job.MemoryBytes == 0 {
		cfg.Job.MemoryBytes = process.ThisMachine().MemoryBytes // a site that says nothing of memory gives all that there is
	}
	cfg.Node, cfg.GPUs = getenv("DAISY_NODE"), cfg.Job.GPUs
	if cfg.Node == "" {
		cfg.Node = cfg.Job.Node
	}
	if list := getenv("DAISY_GPUS"); list != "" {
		cfg.GPUs = worker.Devices(list)
	}
	return cfg, identify(&cfg, getenv)
}

// identify says who a launched worker is: by the variables of its launcher, or, of those that are not there, by those of the job that it
// runs in.
func identify(cfg *worker.Config, getenv func(string) string) error {
	byHand := cfg.Identity.Name != "" || cfg.Task != ""
	tag := getenv("DAISY_TAG")
	if tag == "" && !byHand {
		tag = cfg.Job.Tag
	}
	if tag == "" {
		return nil
	}
	if byHand {
		return errors.New("--name and --task are for a worker that no launcher started, and DAISY_TAG says that one did")
	}
	cfg.Identity = worker.Identity{Tag: tag, Array: getenv("DAISY_ARRAY"), Element: cfg.Job.Element, Restart: cfg.Job.Restart}
	if cfg.Identity.Array == "" {
		cfg.Identity.Array = cfg.Job.Array
	}
	element := getenv("DAISY_ELEMENT")
	if element == "" && cfg.Job.ID == "" {
		return fmt.Errorf("DAISY_TAG is %q, but DAISY_ELEMENT is %q: it must be a number from 0", tag, element)
	}
	for name, into := range map[string]*int{"DAISY_ELEMENT": &cfg.Identity.Element, "DAISY_RESTART": &cfg.Identity.Restart} {
		text := getenv(name)
		if text == "" {
			continue
		}
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			return fmt.Errorf("DAISY_TAG is %q, but %s is %q: it must be a number from 0", tag, name, text)
		}
		*into = n
	}
	return nil
}

// obey stops the worker at the first signal and aborts it at the second, or when it has not finished within late of the first (0: however
// long it takes). It returns when the worker has finished, or was aborted.
func obey(signals <-chan os.Signal, finished <-chan struct{}, late time.Duration, stop, abort func()) {
	select {
	case <-finished:
		return
	case <-signals:
		stop()
	}
	var tooLate <-chan time.Time
	if late > 0 {
		timer := time.NewTimer(late)
		defer timer.Stop()
		tooLate = timer.C
	}
	select {
	case <-finished:
	case <-signals:
		abort()
	case <-tooLate:
		abort()
	}
}

// warned says when the end is, whenever a batch system says that it is near, until the worker has finished.
func warned(signals <-chan os.Signal, finished <-chan struct{}, lead time.Duration) <-chan time.Time {
	ends := make(chan time.Time)
	go func() {
		for {
			select {
			case <-finished:
				return
			case <-signals:
			}
			select {
			case <-finished:
				return
			case ends <- time.Now().Add(lead):
			}
		}
	}()
	return ends
}

// work runs the worker until it ends or signals end it.
func work(ctx context.Context, cfg worker.Config) error {
	// Orphans of user code become this process's children, so that none is overlooked.
	if err := process.Adopt(); err != nil {
		fmt.Fprintf(cfg.Log, "[worker] %v; what user code leaves behind is searched for instead\n", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	abort := make(chan struct{})
	cfg.Abort = abort
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	// A terminal or a log that goes away is no reason to stop. They are caught, not ignored, since user code would inherit that.
	harmless := make(chan os.Signal, 1)
	signal.Notify(harmless, syscall.SIGHUP, syscall.SIGPIPE)
	defer signal.Stop(harmless)
	defer signal.Stop(signals)
	near := make(chan os.Signal, 1)
	signal.Notify(near, syscall.SIGUSR1)
	defer signal.Stop(near)
	finished := make(chan struct{})
	watched := make(chan struct{})
	cfg.StopWithin = cfg.Job.StopWithin()
	cfg.Soon = warned(near, finished, cfg.Job.Lead())
	go func() {
		defer close(watched)
		obey(signals, finished, cfg.StopWithin, cancel, func() { close(abort) })
	}()
	err := worker.Run(ctx, cfg)
	close(finished)
	<-watched
	ending, done := context.WithTimeout(context.Background(), 5*time.Second)
	defer done()
	if left, strayErr := process.EndOrphans(ending); strayErr != nil {
		fmt.Fprintf(cfg.Log, "[worker] %v\n", strayErr)
	} else if len(left) > 0 {
		fmt.Fprintf(cfg.Log, "[worker] ended %d processes that were left behind: %v\n", len(left), left)
	}
	return err
}
