package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"example.org/daisy/internal/api"
	"example.org/daisy/internal/report"
	"example.org/daisy/internal/rundir"
	"example.org/daisy/internal/units"
)

func statusCommand() *cli.Command {
	return &cli.Command{
		Name: "status", Usage: "show where a run stands, and why nothing runs",
		UsageText: "daisy-submit status [RUN_DIR|latest] [--json]",
		Description: `Asks the coordinator of a run where it stands: its tasks, workers and resources, nodes that are not used, and what each task
waits for. Of a run that has ended it shows what became of it.
` + runDirUsage + `

EXAMPLE
   daisy-submit status runs/latest

EXIT STATUS
   0    the run goes on, waits in the queue for its coordinator, or has ended, and its status was printed
   2    the command line is wrong, or there is no such run
   3    the run has not ended, and no coordinator answers; or the status could not be written
`,
		Flags: []cli.Flag{jsonFlag("where the run stands")},
		Action: func(c *cli.Context) error {
			dir, err := runArgument(c)
			if err != nil {
				return err
			}
			s, failure := statusOf(c, dir)
			if c.Bool("json") {
				err = json.NewEncoder(c.App.Writer).Encode(s)
			} else {
				err = s.write(c)
			}
			if err != nil {
				return infrastructure(err)
			}
			return failure
		},
	}
}

// runStatus is what status says, as docs/cli.md describes it.
type runStatus struct {
	Version   int    `json:"version"`
	Directory string `json:"directory"`
	RunID     string `json:"run_id"`
	Name      string `json:"name"`
	// Situation is running | silent (a coordinator is there and does not answer) | queued (it is a job that waits or is about to begin) |
	// killed (none is) | ended.
	Situation string `json:"situation"`
	// Message is for people: why nothing runs, or what to do; null if there is nothing to say.
	Message *string `json:"message"`
	// Coordinator is who coordinates the run now, null if nobody does.
	Coordinator *runOwner `json:"coordinator"`
	// Job is the job of Slurm that is the coordinator, null if it is none.
	Job *runCoordinatorJob `json:"job"`
	// Live is the answer of the coordinator, null without one.
	Live *api.State `json:"live"`
	// Stats is stats.json, null if the run has not ended yet.
	Stats *api.Stats `json:"stats"`
}

type runOwner struct {
	Host  string    `json:"host"`
	PID   int       `json:"pid"`
	Since time.Time `json:"since"`
	Epoch uint64    `json:"epoch"`
}

// runCoordinatorJob is the job that is the coordinator, as Slurm has it. All but ID is null if Slurm does not know it or was not asked: as
// long as the coordinator itself answers, nobody asks.
type runCoordinatorJob struct {
	ID     string     `json:"id"`
	State  *string    `json:"state"`
	Reason *string    `json:"reason"`
	Words  *string    `json:"words"`
	Node   *string    `json:"node"`
	Start  *time.Time `json:"start"`
}

// jobOfStatus is the coordinator's job, of which Slurm is asked if it is to be.
func jobOfStatus(c *cli.Context, dir *rundir.Dir, ask bool) (*runCoordinatorJob, *queuedCoordinator) {
	if !ask {
		if id := jobThatCoordinates(dir); id != "" {
			return &runCoordinatorJob{ID: id}, nil
		}
		return nil, nil
	}
	q := coordinatorJobOf(c.Context, dir)
	if q == nil {
		return nil, nil
	}
	words := q.words()
	j := &runCoordinatorJob{ID: q.Job, Words: &words}
	if q.now != nil {
		j.ID, j.State, j.Reason, j.Node = q.now.ID, pointer(q.now.Word), pointer(q.now.Reason.Word), pointer(q.now.Node)
		if !q.now.Start.IsZero() {
			j.Start = &q.now.Start
		}
	}
	return j, q
}

// statusOf finds out where a run stands. The error is what the command ends with.
func statusOf(c *cli.Context, dir *rundir.Dir) (*runStatus, error) {
	s := &runStatus{Version: api.ControlVersion, Directory: dir.Path(), RunID: dir.RunID(), Name: dir.Name(), Situation: "running"}
	live := new(api.State)
	run, err := coordinatorOf(dir)
	if err == nil {
		err = run.get(c.Context, api.PathState, nil, live)
	}
	state, stats := stateOf(dir)
	var q *queuedCoordinator
	s.Job, q = jobOfStatus(c, dir, err != nil && state == runKilled)
	if owner, alive := dir.Coordinated(); alive {
		s.Coordinator = &runOwner{owner.Host, owner.PID, owner.Since, owner.Epoch}
	}
	if err == nil {
		s.Live = live
		if s.Coordinator != nil {
			s.Coordinator.Epoch = live.Run.Epoch // the lock says it some seconds later
		}
		if why := whyNothingRuns(live); why != "" {
			s.Message = &why
		}
		return s, nil
	}
	switch state {
	case runRunning:
		s.Situation = "silent"
	case runKilled:
		s.Situation = "killed"
		if q.alive() {
			s.Situation, err = "queued", nil
			message := "the coordinator is " + q.words()
			s.Message = &message
		}
	default:
		s.Situation, s.Stats, err = "ended", stats, nil
	}
	if err == nil {
		return s, nil
	}
	message := err.Error()
	s.Message = &message
	return s, err
}

// whyNothingRuns is "" if something does.
func whyNothingRuns(s *api.State) string {
	var reasons []string
	for _, t := range s.Tasks {
		if t.Running > 0 {
			return ""
		}
		if t.Waits != nil {
			reasons = append(reasons, t.ID+": "+*t.Waits)
		}
	}
	switch {
	case s.Run.Message != nil:
		return "nothing runs: the run is ending: " + *s.Run.Message
	case reasons == nil:
		return "nothing runs: every block has ended"
	default:
		return "nothing runs: " + strings.Join(reasons, "; ")
	}
}

// write writes it for people.
func (s *runStatus) write(c *cli.Context) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "run %s (%s) in %s\n", api.OneLine(s.Name), s.RunID, s.Directory)
	var err error
	switch {
	case s.Live != nil:
		err = s.writeLive(&b)
	case s.Stats != nil:
		ended := ""
		if at := s.Stats.Run.Ended; at != nil {
			ended = " at " + at.Local().Format("2006-01-02 15:04:05")
		}
		fmt.Fprintf(&b, "ended%s: %s", ended, api.OneLine(s.Stats.Run.State))
		if m := s.Stats.Run.Message; m != nil {
			b.WriteString(", " + api.OneLine(*m))
		}
		fmt.Fprintf(&b, "\n%s\n", api.OneLine(report.Headline(*s.Stats)))
		for _, line := range append(nextOf(s.Stats), next("its tables", "stats", s.Directory)) {
			fmt.Fprintln(&b, line)
		}
	case s.Situation == "queued":
		fmt.Fprintf(&b, "%s\n", api.OneLine(*s.Message))
		for _, line := range []string{next("it waits for the coordinator", "attach", s.Directory), next("ends the run", "cancel", s.Directory)} {
			fmt.Fprintln(&b, line)
		}
	default: // the error says it
		fmt.Fprintf(&b, "%s\n", s.Situation)
	}
	if err == nil {
		_, err = c.App.Writer.Write(b.Bytes())
	}
	return err
}

func (s *runStatus) writeLive(b *bytes.Buffer) error {
	live := s.Live
	r := live.Run
	job := ""
	if s.Job != nil {
		job = ", job " + api.OneLine(s.Job.ID)
	}
	fmt.Fprintf(b, "%s, coordinated for %s by process %d on %s%s (epoch %d, launcher %s)\n", r.State, units.Duration(ofSeconds(r.Seconds)), r.PID, api.OneLine(r.Host), job, r.Epoch, or(r.Launcher))
	if r.Message != nil {
		fmt.Fprintf(b, "it ends: %s\n", api.OneLine(*r.Message))
	}
	var parts []string
	more := ""
	for _, res := range live.Resources {
		if res.Used > res.Total {
			more = "; workers leave until no more is taken than that"
		}
		parts = append(parts, fmt.Sprintf("%s %s of %s", api.OneLine(res.Name), resourceAmount(res.Name, res.Used), resourceAmount(res.Name, res.Total)))
	}
	if parts == nil {
		parts = []string{"no limit"}
	}
	fmt.Fprintf(b, "resources: %s%s\n", strings.Join(parts, ", "), more)
	fmt.Fprintf(b, "workers: %s\n%s\n", workerSums(live.Workers), notUsed(live.Excluded))

	head := []string{"<task", "<state", "blocks", "success", "skipped", "failed", "orphaned", "abandoned", "running", "ready", "waiting", "retries", "max workers", "timeout"}
	var rows [][]string
	for _, t := range live.Tasks {
		timeout := "-"
		if t.TimeoutSeconds != nil {
			timeout = units.WriteDuration(ofSeconds(*t.TimeoutSeconds))
		}
		row := []string{t.ID, t.State}
		for _, n := range []int64{t.Blocks, t.Success, t.Skipped, t.Failed, t.Orphaned, t.Abandoned, t.Running, t.Ready + t.Leased - t.Running, t.Waiting, t.Retries} {
			row = append(row, units.Count(n))
		}
		rows = append(rows, append(row, or(t.MaxWorkers), timeout))
	}
	if err := report.Grid(b, "Tasks", head, rows); err != nil {
		return err
	}
	if err := writeJobs(b, live.Jobs); err != nil {
		return err
	}
	lead := "\n"
	for _, t := range live.Tasks {
		if t.DaisyContext != nil && t.State == "running" {
			fmt.Fprintf(b, "%sfor clients of %s: export DAISY_CONTEXT=%s\n", lead, api.OneLine(t.ID), api.OneLine(*t.DaisyContext))
			lead = ""
		}
	}
	if s.Message != nil {
		fmt.Fprintf(b, "\n%s\n", api.OneLine(*s.Message))
		return nil
	}
	lead = "\n"
	for _, t := range live.Tasks {
		if t.Waits != nil && r.Message == nil {
			fmt.Fprintf(b, "%s%s waits: %s\n", lead, api.OneLine(t.ID), api.OneLine(*t.Waits))
			lead = ""
		}
	}
	return nil
}

func resourceAmount(name string, n float64) string {
	if name == "memory" {
		return units.Size(int64(n))
	}
	return strconv.FormatFloat(n, 'f', -1, 64)
}

// workerSums says how many workers there are and what they do.
func workerSums(w api.LiveSums) string {
	var parts []string
	add := func(n int64, what string) {
		if n > 0 {
			parts = append(parts, units.Count(n)+" "+what)
		}
	}
	add(w.Busy, "busy")
	add(w.Idle, "idle")
	add(w.Starting, "starting")
	add(w.Suspect, "silent or without a connection")
	add(w.Leaving, "on their way out")
	if parts == nil {
		return "none"
	}
	return strings.Join(parts, ", ")
}
