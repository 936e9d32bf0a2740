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
	"strings"
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
back what has not ended, and leaves. A second one ends it at once.

EXAMPLE:
   Help a run with four more blocks at once:

   daisy-worker --run-dir runs/segment-2026-11-30T15-04-05 --slots 4

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
			&cli.IntFlag{Name: "slots", Value: 1, Usage: "run `N` blocks at once"},
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

// configure reads the command line and the environment of a launcher.
func configure(c *cli.Context, getenv func(string) string, log io.Writer) (worker.Config, error) {
	cfg := worker.Config{
		RunDir: c.String("run-dir"), Node: getenv("DAISY_NODE"), Slots: c.Int("slots"), Task: c.String("task"), Version: version.String(), Log: log,
		Identity: worker.Identity{Tag: getenv("DAISY_TAG"), Array: getenv("DAISY_ARRAY"), Name: c.String("name")},
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
	if cfg.Slots < 1 {
		return cfg, fmt.Errorf("--slots is %d, at least 1 is needed", cfg.Slots)
	}
	if element := getenv("DAISY_ELEMENT"); cfg.Identity.Tag != "" {
		n, err := strconv.Atoi(element)
		if err != nil || n < 0 {
			return cfg, fmt.Errorf("DAISY_TAG is %q, but DAISY_ELEMENT is %q: it must be a number from 0", cfg.Identity.Tag, element)
		}
		if cfg.Identity.Name != "" || cfg.Task != "" {
			return cfg, errors.New("--name and --task are for a worker that no launcher started, and DAISY_TAG says that one did")
		}
		cfg.Identity.Element = n
		if restart := getenv("DAISY_RESTART"); restart != "" {
			if cfg.Identity.Restart, err = strconv.Atoi(restart); err != nil || cfg.Identity.Restart < 0 {
				return cfg, fmt.Errorf("DAISY_RESTART is %q: it must be a number from 0", restart)
			}
		}
	}
	for _, gpu := range strings.Split(getenv("DAISY_GPUS"), ",") {
		if gpu = strings.TrimSpace(gpu); gpu != "" {
			cfg.GPUs = append(cfg.GPUs, gpu)
		}
	}
	return cfg, nil
}

// obey stops the worker at the first signal and aborts it at the second. It returns when the worker has finished, or was aborted.
func obey(signals <-chan os.Signal, finished <-chan struct{}, stop, abort func()) {
	for _, act := range []func(){stop, abort} {
		select {
		case <-finished:
			return
		case <-signals:
			act()
		}
	}
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
	finished := make(chan struct{})
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		obey(signals, finished, cancel, func() { close(abort) })
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
