package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"example.org/daisy/internal/worker"
)

// longestPatience of a conformance test, so that a wrong unit is noticed.
const longestPatience = time.Hour

func conformanceCommand() *cli.Command {
	return &cli.Command{
		Name: "conformance", Usage: "test a stream program against the protocol",
		UsageText: "daisy-worker conformance [OPTIONS] -- PROGRAM [ARGUMENTS]",
		Description: `Starts the stream program PROGRAM several times in this folder, sends it blocks as a worker does, and prints which rules of
docs/programs.md it keeps. Its outputs are those of a run: the blocks that are sent are small, but real to the program.
--block gives it one that it can do.

EXAMPLE:
   daisy-worker conformance -- python3 label.py

EXIT STATUS:
   0  it keeps all rules
   1  it does not, or cannot be started
   2  wrong usage`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "block", Usage: "send this `BLOCK`, one line of JSON, in place of one of 1 x 1 x 1 voxels at the origin"},
			&cli.DurationFlag{Name: "timeout", Value: 10 * time.Second, Usage: "give it `T` for an answer and for its end"},
		},
		OnUsageError: func(_ *cli.Context, err error, _ bool) error { return usageError{err} },
		Action: func(c *cli.Context) error {
			test := worker.Conformance{Argv: c.Args().Slice(), Patience: c.Duration("timeout"), Out: c.App.Writer}
			if len(test.Argv) == 0 || test.Argv[0] == "" {
				return usageError{errors.New("no program; write: daisy-worker conformance -- PROGRAM ARGUMENTS")}
			}
			if test.Patience <= 0 || test.Patience > longestPatience {
				return usageError{fmt.Errorf("--timeout is %v; allowed is up to %v", test.Patience, longestPatience)}
			}
			if block := c.String("block"); block != "" {
				if !json.Valid([]byte(block)) {
					return usageError{fmt.Errorf("--block is not JSON: %.100q", block)}
				}
				test.Block = json.RawMessage(block)
			}
			ctx, stop := signal.NotifyContext(c.Context, os.Interrupt, syscall.SIGTERM)
			defer stop()
			passed, failed, err := test.Run(ctx)
			if err != nil {
				return err
			}
			fmt.Fprintf(c.App.Writer, "%d passed, %d failed\n", passed, failed)
			if failed > 0 {
				return fmt.Errorf("%s breaks %d of %d rules", test.Argv[0], failed, passed+failed)
			}
			return nil
		},
	}
}
