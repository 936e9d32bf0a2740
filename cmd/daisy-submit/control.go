package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"os/user"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"example.org/daisy/internal/api"
	"example.org/daisy/internal/rundir"
)

// The commands that speak with the coordinator of a run.

// runDirUsage stands in the help of all of them.
const runDirUsage = `RUN_DIR is the path of a run directory, or the name of one in runs/; left out, it is "latest", the newest of runs/.`

// A coordinated run is one whose coordinator is asked.
type coordinated struct {
	dir    *rundir.Dir
	client api.Client
}

// coordinatorOf finds the coordinator of a run; whether it answers shows when it is asked.
func coordinatorOf(dir *rundir.Dir) (*coordinated, error) {
	secret, err := dir.Secret()
	if err != nil {
		return nil, infrastructure(err)
	}
	where, err := rundir.ReadDiscovery(dir.Path())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, silent(dir, nil)
	case err != nil:
		return nil, infrastructure(err)
	}
	return &coordinated{dir, api.Client{Key: api.Key{Run: dir.RunID(), Secret: secret}, Addresses: where.Addresses, Fingerprint: where.Fingerprint}}, nil
}

// get asks for something.
func (c *coordinated) get(ctx context.Context, path string, query url.Values, into any) error {
	return c.explain(c.client.Get(ctx, path, query, into))
}

// explain gives an error the exit status and the words of a command.
func (c *coordinated) explain(err error) error {
	var refused *api.RefusedError
	var noAnswer *api.NoAnswerError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refused):
		return &statusError{exitUsage, err}
	case errors.As(err, &noAnswer):
		return silent(c.dir, noAnswer.Err)
	default:
		return infrastructure(err)
	}
}

// silent says why no coordinator answers. why is nil if there is no address to ask at.
func silent(dir *rundir.Dir, why error) error {
	state, _ := stateOf(dir)
	switch state {
	case runRunning:
		return infrastructure(errors.New(unanswered(dir, why)))
	case runKilled:
		if q := coordinatorJobOf(context.Background(), dir); q != nil {
			return withoutCoordinator(dir, q)
		}
		return infrastructure(fmt.Errorf("the run in %s has no coordinator any more, and has not ended: it was killed. %s goes on with it", dir.Path(), said("run", "--resume", dir.Path())))
	default:
		return usage("the run in %s has ended (%s); %s shows how", dir.Path(), state, said("stats", dir.Path()))
	}
}

// jobThatCoordinates is the job that is the coordinator of a run, "" if none is.
func jobThatCoordinates(dir *rundir.Dir) string {
	if j, err := dir.CoordinatorJob(); err == nil && j != nil {
		return j.Job
	}
	return ""
}

// unanswered says that there is a coordinator, and that it does not answer.
func unanswered(dir *rundir.Dir, why error) string {
	owner, _ := dir.Coordinated()
	who := fmt.Sprintf("the coordinator of the run in %s, process %d on %s since %s,", dir.Path(), owner.PID, owner.Host, owner.Since.Local().Format("2006-01-02 15:04:05"))
	here, err := os.Hostname()
	switch {
	case why == nil:
		return who + " takes no commands: one that starts or ends has no port, nor has a run with launcher = \"serial\"; Ctrl-C in its terminal ends that"
	case err == nil && owner.Host != "" && owner.Host != here && jobThatCoordinates(dir) != "":
		return fmt.Sprintf("%s does not answer: %s. It is job %s of Slurm: give the command on a machine that has a way to that node; \"scancel %[3]s\" ends the run from here", who, api.OneLine(why.Error()), jobThatCoordinates(dir))
	case err == nil && owner.Host != "" && owner.Host != here:
		return fmt.Sprintf("%s does not answer: %s. It listens on that machine only: give the command there", who, api.OneLine(why.Error()))
	case errors.Is(why, syscall.ECONNREFUSED):
		return fmt.Sprintf("%s does not answer: %s. It begins or ends just now; try again", who, api.OneLine(why.Error()))
	default:
		return fmt.Sprintf("%s does not answer: %s. It may be stopped (\"ps -o stat= -p %d\" says T), or the machine be overloaded", who, api.OneLine(why.Error()), owner.PID)
	}
}

// orderOf is who gives an order.
func orderOf() string {
	name := fmt.Sprint("uid ", os.Getuid())
	if u, err := user.Current(); err == nil && u.Username != "" {
		name = u.Username
	}
	if host, err := os.Hostname(); err == nil {
		name += " on " + host
	}
	return name
}

// give has something done in a run, and prints what the coordinator says.
func give(c *cli.Context, dir *rundir.Dir, path string, order any) error {
	done, err := have(c, dir, path, order)
	if err != nil {
		return err
	}
	return sayDone(c, done)
}

// have has something done in a run.
func have(c *cli.Context, dir *rundir.Dir, path string, order any) (api.Done, error) {
	run, err := coordinatorOf(dir)
	if err != nil {
		return api.Done{}, err
	}
	done, err := run.client.Post(c.Context, path, order)
	return done, run.explain(err)
}

// sayDone prints what was done.
func sayDone(c *cli.Context, done api.Done) error {
	if c.Bool("json") {
		return written(json.NewEncoder(c.App.Writer).Encode(done))
	}
	for _, change := range done.Changes {
		if _, err := fmt.Fprintf(c.App.Writer, "%s: %s, was %s\n", api.OneLine(change.Key), api.OneLine(change.Now), api.OneLine(change.Was)); err != nil {
			return infrastructure(err)
		}
	}
	_, err := fmt.Fprintln(c.App.Writer, api.OneLine(done.Message))
	return written(err)
}

// written is the end of a command whose output may have failed.
func written(err error) error {
	if err != nil {
		return infrastructure(err)
	}
	return nil
}

func jsonFlag(of string) cli.Flag {
	return &cli.BoolFlag{Name: "json", Usage: "as JSON, in the shape of docs/cli.md: " + of}
}

// ofSeconds is a time for people.
func ofSeconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// or is what a pointer points to, or "-".
func or[T any](p *T) string {
	if p == nil {
		return "-"
	}
	return api.OneLine(fmt.Sprint(*p))
}
