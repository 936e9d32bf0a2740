package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"example.org/daisy/internal/coordinator"
	"example.org/daisy/internal/job"
	"example.org/daisy/internal/rundir"
	"example.org/daisy/internal/units"
	"example.org/daisy/launcher"
	"example.org/daisy/launcher/slurm"
	"example.org/daisy/templates"
)

// What stands for the id and the folder of a run that does not exist.
const (
	someRun  = "xxxxxxxx"
	someTime = "YYYY-MM-DDThh-mm-ss"
)

// firstWave is how many workers of a kind are asked for before one of them has proved to work.
const firstWave = 4

func renderCommand() *cli.Command {
	return &cli.Command{
		Name: "render", Usage: "show what would be submitted to Slurm, and submit nothing",
		UsageText: "daisy-submit render JOB [--task TASK] [OPTIONS]",
		Description: `Prints, for each task of the job file JOB, the command line of sbatch for its first workers, with its environment, and the batch
script; before them those of the coordinator, if that is to be a job. Where Slurm is there it is asked for the site's time between SIGTERM and SIGKILL; nothing else is run, and nothing is written.
In place of the run's id and date, which a run gets when it begins, stand ` + someRun + ` and ` + someTime + `.

EXAMPLE
   daisy-submit render segment.toml --task predict

EXIT STATUS
   0    it was printed
   2    the job file or the command line is wrong, or the launcher is not slurm
   3    the answer could not be written
`,
		Flags: append(jobFlags(),
			&cli.StringFlag{Name: "task", Usage: "only that of `TASK`"},
			&cli.StringFlag{Name: "coordinator", Usage: "\"job\": also the job that is the coordinator, as with daisy-submit run; `WHERE` is job or here", DefaultText: "here, unless there is [slurm.coordinator]"},
			&cli.BoolFlag{Name: "json", Usage: "as JSON, in the shape of docs/slurm.md"},
		),
		Action: func(c *cli.Context) error {
			path, err := oneArgument(c, "a job file")
			if err != nil {
				return err
			}
			j, err := loadJob(c, path)
			if err != nil {
				return err
			}
			if j.Launcher != "slurm" {
				return usage("the launcher of %s is %q, which submits nothing; write --launcher slurm to see what that would", path, j.Launcher)
			}
			if id := c.String("task"); id != "" && j.Task(id) == nil {
				return usage("there is no task %q%s", id, job.Nearest(id, j.TaskIDs()))
			}
			list, warnings, err := rendered(c.Context, j, c.String("task"))
			if err != nil {
				return err
			}
			if where := c.String("coordinator"); where == "job" || where == "" && j.Coordinator != nil && c.String("task") == "" {
				s, err := renderedCoordinator(j)
				if err != nil {
					return err
				}
				list = append([]renderedTask{*s}, list...)
			}
			for _, w := range append(j.Warnings, warnings...) {
				fmt.Fprintln(c.App.ErrWriter, "daisy-submit: warning: "+w)
			}
			if c.Bool("json") {
				err = json.NewEncoder(c.App.Writer).Encode(map[string]any{"version": 1, "submissions": list})
			} else {
				err = writeRendered(c.App.Writer, list)
			}
			if err != nil {
				return infrastructure(err)
			}
			return nil
		},
	}
}

// renderedTask is what would be submitted for the first workers of a task.
type renderedTask struct {
	Task        string   `json:"task"`
	Workers     int      `json:"workers"`
	Name        string   `json:"name"`
	Argv        []string `json:"argv"`
	Environment []string `json:"environment"`
	Script      string   `json:"script"`
}

// rendered is that of one task, or of all.
func rendered(ctx context.Context, j *job.Job, only string) (list []renderedTask, warnings []string, err error) {
	dir := filepath.Join(j.Directory, rundir.SafeName(j.Name)+"-"+someTime)
	cluster, err := clusterOf(j)
	if err != nil {
		return nil, nil, err
	}
	l, err := slurm.New(slurm.Config{
		Run: someRun, Dir: filepath.Join(dir, "scripts"), Base: j.Dir, Cluster: cluster, Env: slurm.Environment(os.Environ()), Limit: 10 * time.Second,
	})
	if err != nil {
		return nil, nil, infrastructure(err)
	}
	site, err := l.Site(ctx)
	if err != nil {
		warnings = append(warnings, fmt.Sprintf("what Slurm is set to by default is taken for the site's: %v", err))
	}
	for i := range j.Tasks {
		t := &j.Tasks[i]
		if only != "" && t.ID != only {
			continue
		}
		r := coordinator.RequestFor(j, t, strconv.Itoa(i+1), firstWorkers(t), []string{filepath.Join(dir, "bin", "daisy-worker")}, dir)
		r.Env = coordinator.LaunchEnvironment(slurm.Environment(os.Environ()), someRun)
		r.LogPath = func(w launcher.Worker) string { return filepath.Join(dir, "logs", w.String()+".log") }
		s, err := l.Plan(r, site)
		if err != nil {
			return nil, nil, &statusError{exitUsage, fmt.Errorf("task %q: %w", t.ID, err)}
		}
		list = append(list, renderedTask{t.ID, r.Count, s.Name, s.Argv, s.Env, string(s.Script)})
	}
	return list, warnings, nil
}

// renderedCoordinator is what would be submitted for the coordinator. It is of no task, and has no workers.
func renderedCoordinator(j *job.Job) (*renderedTask, error) {
	dir := filepath.Join(j.Directory, rundir.SafeName(j.Name)+"-"+someTime)
	cluster, err := clusterOf(j)
	if err != nil {
		return nil, err
	}
	l, err := slurm.New(slurm.Config{Run: someRun, Dir: filepath.Join(dir, "scripts"), Base: j.Dir, Cluster: cluster, Env: slurm.Environment(os.Environ())})
	if err != nil {
		return nil, infrastructure(err)
	}
	s, err := planCoordinator(l, j, dir, filepath.Join(dir, "bin", "daisy-submit"), filepath.Join(dir, "coordinator.log"), nil)
	if err != nil {
		return nil, err
	}
	return &renderedTask{Name: s.Name, Argv: s.Argv, Environment: s.Env, Script: string(s.Script)}, nil
}

// firstWorkers is how many workers of a task are asked for first.
func firstWorkers(t *job.Task) int {
	if v := t.Options["arrays"]; len(v) == 1 && v[0] == "false" {
		return 1
	}
	slots := int64(max(t.Slots, 1))
	n := (t.Grid.Len() + slots - 1) / slots
	if t.MaxWorkers > 0 {
		n = min(n, t.MaxWorkers/slots)
	}
	return int(max(min(n, firstWave), 1))
}

func writeRendered(w io.Writer, list []renderedTask) error {
	var b strings.Builder
	for i, t := range list {
		if i > 0 {
			b.WriteString("\n\n")
		}
		line := []string{"env", "-i"}
		for _, word := range append(append([]string{}, t.Environment...), t.Argv...) {
			q, err := templates.Quote(word)
			if err != nil {
				return err
			}
			line = append(line, q)
		}
		if t.Task == "" {
			fmt.Fprintf(&b, "#### the coordinator, as the job %s\n%s\n\n#### its script\n%s", t.Name, strings.Join(line, " "), t.Script)
			continue
		}
		fmt.Fprintf(&b, "#### task %s: %s, as the job %s\n%s\n\n#### its script\n%s", t.Task, units.Plural(int64(t.Workers), "first worker"), t.Name, strings.Join(line, " "), t.Script)
	}
	_, err := io.WriteString(w, strings.TrimRight(b.String(), "\n")+"\n")
	return err
}
