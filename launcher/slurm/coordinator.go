package slurm

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.org/daisy/internal/units"
	"example.org/daisy/launcher"
	"example.org/daisy/templates"
)

// The coordinator of a run can be a job itself. It is one job over the whole run: near its end it puts itself back into the queue, and goes
// on with the run when it starts again.

// CoordinatorOptions are what the table [slurm.coordinator] says.
type CoordinatorOptions struct {
	Options
	// CPUs and MemoryBytes are what the job asks for. Away is for how long workers keep what they run while it waits in the queue again.
	CPUs        int
	MemoryBytes int64
	Away        time.Duration
}

// What the job asks for where nothing is said.
const (
	defaultCoordinatorMemory = 2 << 30
	defaultAway              = time.Hour
)

// coordinatorKeys are the keys of [slurm.coordinator] that [slurm] does not have, or not so.
var coordinatorKeys = []string{"cpu", "memory", "away"}

// ParseCoordinator reads the options of the job that is the coordinator, as ParseOptions does those of workers.
func ParseCoordinator(given map[string][]string) (o CoordinatorOptions, faults, warnings []Fault) {
	rest := make(map[string][]string, len(given))
	for key, values := range given {
		if !slices.Contains(coordinatorKeys, key) {
			rest[key] = values
		}
	}
	o.Options, faults, warnings = ParseOptions(rest, func(path string) string { return path })
	// Mail is about the run here, which ends once.
	warnings = slices.DeleteFunc(warnings, func(w Fault) bool { return w.Key == "options" && strings.HasPrefix(w.Text, "--mail-") })
	o.CPUs, o.MemoryBytes, o.Away, o.Requeue = 1, defaultCoordinatorMemory, defaultAway, true
	p := &parsing{given: given}
	if s := p.one("cpu"); s != "" {
		var err error
		if o.CPUs, err = strconv.Atoi(s); err != nil || o.CPUs < 1 || o.CPUs > 4096 {
			p.fail("cpu", -1, "%q is not an integer from 1 to 4096", s)
		}
	}
	if s := p.one("memory"); s != "" {
		var err error
		if o.MemoryBytes, err = units.ParseSize(s); err != nil {
			p.fail("memory", -1, "%v", err)
		} else if o.MemoryBytes < 64<<20 {
			p.fail("memory", -1, "%s is less than 64MiB, with which no coordinator runs", s)
		}
	}
	if s := p.one("away"); s != "" {
		var err error
		if o.Away, err = units.ParseDuration(s); err != nil {
			p.fail("away", -1, "%v", err)
		}
	}
	return o, append(faults, p.faults...), warnings
}

// CoordinatorName is the job name of a run's coordinator. No submission of workers has such a name, so that a listing of those never has it.
func (l *Launcher) CoordinatorName(o *CoordinatorOptions) string {
	return strings.TrimSuffix(nameOf(o.Prefix, l.cfg.Run, ""), "-")
}

// isCoordinator tells whether a job name is that of the run's coordinator.
func (l *Launcher) isCoordinator(name string) bool {
	mark := "dz-" + l.cfg.Run
	return name == mark || strings.HasSuffix(name, "-"+mark)
}

// warnBefore is how long before its end the coordinator is warned, at least: Slurm may do it a minute earlier.
const warnBefore = time.Minute

// PlanCoordinator renders what would be submitted for the coordinator: argv is its program with arguments, dir the folder in which it runs,
// log the file that takes its output. After are dependencies, as sbatch has them. Nothing is run or written.
func (l *Launcher) PlanCoordinator(o *CoordinatorOptions, argv []string, dir, log string, after []string) (s Submission, err error) {
	s.Name = l.CoordinatorName(o)
	if strings.ContainsAny(log, "\\\n\x00") {
		return s, fmt.Errorf("the log path %s has a backslash, a line break or a zero byte, which sbatch cannot be told: put the run directory elsewhere", clip(log))
	}
	s.Argv = []string{"sbatch", "--parsable", "--job-name=" + s.Name, "--output=" + strings.ReplaceAll(log, "%", "%%"), "--open-mode=append", "--chdir=" + dir, "--export=ALL",
		"--signal=B:USR1@" + strconv.Itoa(int(warnBefore/time.Second)), "--nodes=1", "--ntasks=1"}
	needs, err := resources(&o.Options, launcher.Request{CPUMilli: int64(o.CPUs) * 1000, MemoryBytes: o.MemoryBytes})
	if err != nil {
		return s, err
	}
	s.Argv = append(append(s.Argv, needs...), placement(&o.Options, l.cfg.Cluster, nil)...)
	if len(after) > 0 {
		s.Argv = append(s.Argv, "--dependency="+strings.Join(after, ","), "--kill-on-invalid-dep=yes")
	}
	s.Argv = append(append(s.Argv, o.Extra...), filepath.Join(l.scripts, coordinatorScript))
	s.Env, _ = jobEnvironment(l.cfg.Env, nil)
	s.Script, err = templates.Coordinator.Render(templates.Values{Argv: argv, Dir: dir, Setup: o.Setup, Login: o.Login})
	return s, err
}

const coordinatorScript = "coordinator.sbatch"

// SubmitCoordinator runs sbatch once, and gives the id of the job. Its error is a *launcher.Refusal where Slurm refused, and wraps
// launcher.ErrUnsure where it may have accepted.
func (l *Launcher) SubmitCoordinator(ctx context.Context, s Submission) (id string, err error) {
	if err := writeFile(s.Argv[len(s.Argv)-1], s.Script); err != nil {
		return "", fmt.Errorf("the batch script cannot be written: %w", err)
	}
	return l.runSbatch(ctx, s)
}

// A CoordinatorJob is what Slurm says of the job that is a coordinator.
type CoordinatorJob struct {
	ID, Name string
	State    launcher.State
	// Word is Slurm's own word for the state, Plain what it means, Reason why the job waits.
	Word, Plain string
	Reason      launcher.Reason
	// Node is where it runs, "" if nowhere. Start is when it started or is to start, zero if that is not known.
	Node  string
	Start time.Time
}

// coordinatorFormat has the fields of a row of squeue: job, state, start time, node, name, reason. The last two may hold nearly anything.
const coordinatorFormat = rowBegin + "%A|%T|%S|%N|%j|%r" + rowEnd

// FindCoordinator asks squeue for the job of the run's coordinator; nil if it knows none. Of several, one that has not ended counts, then
// the latest. An answer that is not whole is an error.
func (l *Launcher) FindCoordinator(ctx context.Context) (*CoordinatorJob, error) {
	answer, err := l.jobs(ctx, coordinatorFormat)
	if err != nil {
		return nil, err
	}
	return l.parseCoordinator(answer)
}

func (l *Launcher) parseCoordinator(answer string) (found *CoordinatorJob, err error) {
	list, err := rows(answer)
	if err != nil {
		return nil, err
	}
	for _, row := range list {
		f := strings.SplitN(row, "|", 6)
		if len(f) < 6 || !l.isCoordinator(f[4]) {
			continue
		}
		j := &CoordinatorJob{ID: jobID(f[0]), Name: f[4], Node: f[3], Plain: Plain(f[1]), Reason: reasonOf(f[5])}
		j.State, j.Word, _ = stateOf(f[1], f[3])
		if n, err := strconv.ParseInt(f[2], 10, 64); err == nil && n > 0 {
			j.Start = time.Unix(n, 0)
		}
		if j.ID == "" || found != nil && (found.State != launcher.Ended && j.State == launcher.Ended || (found.State == launcher.Ended) == (j.State == launcher.Ended) && number64(j.ID) < number64(found.ID)) {
			continue
		}
		found = j
	}
	return found, nil
}

func number64(id string) int64 {
	n, _ := strconv.ParseInt(id, 10, 64)
	return n
}

// Why a job is told to end (SIGTERM).
type EndReason int

const (
	// EndWanted: somebody cancelled it, or nobody can say.
	EndWanted EndReason = iota
	// EndRequeued: it is in the queue again already, as after a preemption.
	EndRequeued
	// EndTimeLimit: its time limit is over.
	EndTimeLimit
)

// WhyEnds asks why a job is told to end, of which restarts is how often it has been started before.
func (l *Launcher) WhyEnds(ctx context.Context, id string, restarts int) (EndReason, error) {
	got, err := l.run(ctx, "scontrol", l.on("-o", "show", "job", id)...)
	if err != nil {
		return EndWanted, err
	}
	return whyEnds(got.stdout, restarts), nil
}

func whyEnds(answer string, restarts int) EndReason {
	for field := range strings.FieldsSeq(answer) {
		key, value, _ := strings.Cut(field, "=")
		switch {
		case key == "Restarts":
			if n, err := number(value); err == nil && int(n) > restarts {
				return EndRequeued
			}
		case key == "Reason" && value == "TimeLimit":
			return EndTimeLimit
		}
	}
	return EndWanted
}

// Requeue ends a job of the user's and puts it back into the queue, under its id.
func (l *Launcher) Requeue(ctx context.Context, id string) error {
	done, err := l.change(ctx)
	if err != nil {
		return err
	}
	defer done()
	_, err = l.run(ctx, "scontrol", l.on("requeue", id)...)
	return err
}

// CancelCoordinator ends the job of the run's coordinator, which gets SIGTERM if it runs. The filters make sure that it is this user's and has
// that name, which is the coordinator's.
func (l *Launcher) CancelCoordinator(ctx context.Context, id, name string) error {
	if jobID(id) == "" || !l.isCoordinator(name) {
		return fmt.Errorf("job %q with the name %q is no coordinator of run %s", id, name, l.cfg.Run)
	}
	return l.scancel(ctx, "-u", l.user, "-n", name, id)
}
