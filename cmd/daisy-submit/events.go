package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/urfave/cli/v2"

	"example.org/daisy/internal/api"
	"example.org/daisy/internal/rundir"
)

const (
	// lookAgain is the pause before a connection that has broken is opened anew; giveUpAfter is for how long that is tried.
	lookAgain   = time.Second
	giveUpAfter = time.Minute
)

func eventsCommand() *cli.Command {
	return &cli.Command{
		Name: "events", Usage: "show what happens in a run",
		UsageText: "daisy-submit events [RUN_DIR|latest] [-f] [--all] [--json]",
		Description: `Prints the latest events of a run, in their order: workers that joined or ended, attempts that did not end well, tasks that
ended, nodes that were excluded, limits that were set, and what else the coordinator had to say. With --follow it goes on until the
run has ended, also with the next coordinator when the run is resumed within a minute. Where something was missed, a line says so.
` + runDirUsage + `

The coordinator keeps 16,384 events. Blocks that ended well are among them only as long as somebody asks for them with --all, and a
minute longer.

EXAMPLE
   daisy-submit events runs/latest -f

EXIT STATUS
   0    the events were printed; with --follow, the run has ended, in whatever way
   2    the command line is wrong, or there is no such run, or it has ended already, or too many look on
   3    no coordinator answers, or none has for a minute; or the events could not be written
`,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "follow", Aliases: []string{"f"}, Usage: "go on until the run has ended"},
			&cli.BoolFlag{Name: "all", Usage: "blocks that ended well, too"},
			&cli.BoolFlag{Name: "json", Usage: "JSON lines, in the shape of docs/cli.md"},
		},
		Action: func(c *cli.Context) error {
			dir, err := runArgument(c)
			if err != nil {
				return err
			}
			return (&eventPrinter{c: c, dir: dir, follow: c.Bool("follow")}).run()
		},
	}
}

// An eventPrinter prints the events of a run.
type eventPrinter struct {
	c   *cli.Context
	dir *rundir.Dir
	// follow: until the run has ended. show takes the place of printing an event, if it is not nil.
	follow bool
	show   func(*api.Event) error
	// waits takes what a coordinator waits for that is a job in the queue; if it is nil, that is not waited for.
	waits func(string)
	// last is the id of the last event, heard when a coordinator was there last; zero: none has been yet.
	last  string
	heard time.Time
	ended bool
}

// A lostOutput is that what was printed cannot be written.
type lostOutput struct{ error }

// firstAnswer is how long a coordinator that lives may give no answer at all: it may be about to end.
const firstAnswer = 2 * time.Second

func (p *eventPrinter) run() error {
	for began := time.Now(); ; {
		err := p.read()
		var lost lostOutput
		var refused *api.RefusedError
		var broken *api.BrokenStreamError
		switch {
		case errors.As(err, &lost):
			return infrastructure(lost.error)
		case p.ended:
			return nil
		case !p.follow, errors.As(err, &refused):
			return err
		case err == nil, errors.As(err, &broken):
			p.heard = time.Now()
		}
		switch state, _ := stateOf(p.dir); {
		case p.heard.IsZero() && (state != runRunning || time.Since(began) > firstAnswer):
			return err
		case state != runRunning && state != runKilled:
			return p.say(fmt.Sprintf("the run has ended: %s", state))
		case state == runKilled && p.waits != nil && jobThatCoordinates(p.dir) != "":
			if err := awaitCoordinator(p.c.Context, p.dir, p.waits); err != nil {
				return err
			}
			p.heard = time.Now()
		case time.Since(p.heard) > giveUpAfter:
			return silent(p.dir, err)
		}
		select {
		case <-time.After(lookAgain):
		case <-p.c.Context.Done():
			return infrastructure(p.c.Context.Err())
		}
	}
}

// read prints events until the stream ends.
func (p *eventPrinter) read() error {
	run, err := coordinatorOf(p.dir)
	if err != nil {
		return err
	}
	query := url.Values{}
	if p.c.Bool("all") {
		query.Set("all", "1")
	}
	if !p.follow {
		query.Set("follow", "0")
	}
	ctx, cancel := context.WithCancel(p.c.Context)
	defer cancel()
	var lost lostOutput
	err = run.client.Events(ctx, query, p.last, func(e *api.Event) error {
		p.last = e.ID
		p.ended = e.Event == api.EventRunEnded
		if err := p.print(e); err != nil {
			return lostOutput{err}
		}
		if p.ended {
			cancel() // the stream goes on for as long as the coordinator has to clear up
		}
		return nil
	})
	if errors.As(err, &lost) {
		return lost
	}
	return run.explainStream(err)
}

// explainStream is explain, and keeps what tells whether to try again.
func (c *coordinated) explainStream(err error) error {
	var refused *api.RefusedError
	var broken *api.BrokenStreamError
	switch {
	case errors.As(err, &refused):
		return &statusError{exitUsage, err}
	case errors.As(err, &broken):
		return infrastructure(err)
	default:
		return c.explain(err)
	}
}

// print prints one event.
func (p *eventPrinter) print(e *api.Event) error {
	if p.show != nil {
		return p.show(e)
	}
	if p.c.Bool("json") {
		return json.NewEncoder(p.c.App.Writer).Encode(e)
	}
	_, err := fmt.Fprintf(p.c.App.Writer, "%s  %s\n", e.Time.Local().Format("2006-01-02 15:04:05"), e.Line())
	return err
}

// say says something of the run that no event has said; nothing with --json.
func (p *eventPrinter) say(text string) error {
	if p.c.Bool("json") || p.show != nil {
		return nil
	}
	_, err := fmt.Fprintln(p.c.App.Writer, text)
	return written(err)
}
