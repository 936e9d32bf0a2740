package slurm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"mvdan.cc/sh/v3/syntax"

	"example.org/daisy/internal/process"
	"example.org/daisy/launcher"
	"example.org/daisy/templates"
)

// A Submission is what would be submitted for a request.
type Submission struct {
	// Name is that of the job.
	Name string
	// Argv is the command line of sbatch, Env its environment, Script the text of the last argument.
	Argv, Env []string
	Script    []byte
}

// submission is what is kept of one, in memory and beside its script, for calls of a later coordinator.
type submission struct {
	Argv    []string `json:"argv"`
	Plain   bool     `json:"plain"` // no array
	Exclude []string `json:"exclude"`
}

// Plan renders what would be submitted for a request, at a site. Nothing is run or written.
func (l *Launcher) Plan(r launcher.Request, site Site) (Submission, error) {
	s, _, err := l.plan(r, site)
	return s, err
}

func (l *Launcher) plan(r launcher.Request, site Site) (s Submission, note submission, err error) {
	o, faults, _ := ParseOptions(r.Options, l.absolute)
	for _, f := range faults {
		err = errors.Join(err, fmt.Errorf("%s: %s", f.Key, f.Text))
	}
	if err != nil {
		return s, note, err
	}
	l.mu.Lock()
	note.Plain = l.noArrays || !o.Arrays
	l.mu.Unlock()
	s.Name, note.Exclude = nameOf(o.Prefix, l.cfg.Run, r.Tag), o.Exclude
	output, err := outputPattern(r, note.Plain)
	if err != nil {
		return s, note, err
	}
	if r.Fill && len(r.Options["memory_option"]) == 0 {
		o.PerCPU = true // with a whole node Slurm gives all of its cores, but only the memory that was asked for
	}
	args, err := resources(&o, r)
	if err != nil {
		return s, note, err
	}
	signal := "B:USR1@"
	if o.Srun {
		signal = "USR1@"
	}
	s.Argv = []string{"sbatch", "--parsable", "--job-name=" + s.Name, "--output=" + output, "--open-mode=append", "--chdir=" + r.Dir, "--export=ALL",
		"--signal=" + signal + strconv.Itoa(int((site.KillWait+time.Minute)/time.Second)), "--nodes=1", "--ntasks=1"}
	if !note.Plain {
		spec := "--array=0-" + strconv.Itoa(r.Count-1)
		if r.Throttle > 0 && r.Throttle < r.Count {
			spec += "%" + strconv.Itoa(r.Throttle)
		}
		s.Argv = append(s.Argv, spec)
	}
	s.Argv = append(s.Argv, args...)
	s.Argv = append(s.Argv, placement(&o, l.cfg.Cluster, r.Exclude)...)
	s.Argv = append(s.Argv, o.Extra...)
	s.Argv = append(s.Argv, filepath.Join(l.scripts, s.Name+".sbatch"))
	note.Argv = s.Argv

	var odd []string
	s.Env, odd = jobEnvironment(l.cfg.Env, r.Env)
	s.Env = append(s.Env, killWait+"="+strconv.Itoa(int(site.KillWait/time.Second)))
	if o.SlurmEnv {
		s.Env = append(s.Env, showJob+"=1")
	}
	v := templates.Values{
		Argv: r.Argv, Env: odd, Tag: r.Tag, Dir: r.Dir, Setup: o.Setup, Login: o.Login, GPUs: r.GPUs > 0,
		Folders: []string{filepath.Dir(r.LogPath(launcher.Worker{Tag: r.Tag}))},
	}
	if o.Srun {
		v.Launch = []string{"srun", "--nodes=1", "--ntasks=1", "--cpus-per-task=" + strconv.FormatInt(r.Cores(), 10), "--mpi=none", "--export=ALL", "--input=none"}
	}
	s.Script, err = o.Script.Render(v)
	return s, note, err
}

func (l *Launcher) absolute(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(l.cfg.Base, path)
}

// resources are the options of sbatch for what one worker needs.
func resources(o *Options, r launcher.Request) ([]string, error) {
	args := []string{"--cpus-per-task=" + strconv.FormatInt(r.Cores(), 10)}
	if r.MemoryBytes > 0 && !o.NoMemory {
		const mib = 1 << 20
		if o.PerCPU {
			args = append(args, fmt.Sprintf("--mem-per-cpu=%dM", up(up(r.MemoryBytes, mib), r.Cores())))
		} else {
			args = append(args, fmt.Sprintf("--mem=%dM", up(r.MemoryBytes, mib)))
		}
	}
	gres := slices.Clone(o.Gres)
	gpu := slices.IndexFunc(gres, func(g string) bool { return g == "gpu" || strings.HasPrefix(g, "gpu:") })
	kind := "gpu"
	if gpu >= 0 {
		kind = gres[gpu]
		gres = slices.Delete(gres, gpu, gpu+1)
		if r.GPUs == 0 {
			return nil, fmt.Errorf("gres names %s, but requires has no gpu: write how many a slot needs, as in requires = { gpu = 1 }", kind)
		}
	}
	count := strconv.Itoa(r.GPUs)
	switch {
	case r.GPUs == 0:
	case o.GPUsPerNode:
		args = append(args, "--gpus-per-node="+strings.TrimPrefix(strings.TrimPrefix(kind, "gpu"), ":")+map[bool]string{true: ":", false: ""}[kind != "gpu"]+count)
	default:
		gres = append([]string{kind + ":" + count}, gres...)
	}
	if len(gres) > 0 {
		args = append(args, "--gres="+strings.Join(gres, ","))
	}
	return args, nil
}

// up divides and rounds up.
func up(n, by int64) int64 { return (n + by - 1) / by }

// placement are the options that say where, for whom and under which limits jobs run.
func placement(o *Options, cluster string, exclude []string) (args []string) {
	add := func(name, value string) {
		if value != "" {
			args = append(args, "--"+name+"="+value)
		}
	}
	if o.Requeue {
		args = append(args, "--requeue")
	} else {
		args = append(args, "--no-requeue")
	}
	if o.Time > 0 {
		add("time", writeTime(o.Time))
	}
	add("clusters", cluster)
	add("partition", o.Partition)
	add("account", o.Account)
	add("qos", o.QOS)
	add("constraint", o.Constraint)
	add("nodelist", strings.Join(o.Nodelist, ","))
	add("exclude", strings.Join(slices.Concat(o.Exclude, exclude), ","))
	add("reservation", o.Reservation)
	add("licenses", strings.Join(o.Licenses, ","))
	add("nice", o.Nice)
	add("begin", o.Begin)
	add("hint", o.Hint)
	return args
}

// showJob tells the worker that user code is to see the variables of the job.
const showJob = "DAISY_SLURM_ENV"

// identity are the variables that the script and the launcher set.
var identity = []string{killWait, "DAISY_TAG", "DAISY_ELEMENT", "DAISY_ARRAY", "DAISY_RESTART", "DAISY_NODE", "DAISY_GPUS"}

// killWait tells the worker how many seconds after SIGTERM it is killed.
const killWait = "DAISY_KILL_WAIT"

// jobEnvironment is the environment of sbatch, which the job inherits: the launcher's own, and over it that of the request. Variables by
// which sbatch would take options stay out. Those that the shell of the script would drop are given apart.
func jobEnvironment(base, over []string) (env, odd []string) {
	at := map[string]int{}
	for _, kv := range slices.Concat(base, over) {
		name, _, _ := strings.Cut(kv, "=")
		ofJob := strings.HasPrefix(name, "SLURM_") || strings.HasPrefix(name, "SBATCH_") || strings.HasPrefix(name, "SQUEUE_")
		if ofJob && name != "SLURM_CONF" && name != "SLURM_CLUSTERS" || slices.Contains(identity, name) {
			continue
		}
		if !syntax.ValidName(name) {
			odd = append(odd, kv)
			continue
		}
		if i, there := at[name]; there {
			env[i] = kv
			continue
		}
		at[name] = len(env)
		env = append(env, kv)
	}
	return env, odd
}

// outputPattern is the file of a worker's log as a pattern of sbatch, in which %a stands for the element.
func outputPattern(r launcher.Request, plain bool) (string, error) {
	if r.LogPath == nil {
		return "", errors.New("it has no log path")
	}
	path := func(element int) string { return r.LogPath(launcher.Worker{Tag: r.Tag, Element: element}) }
	pattern := strings.ReplaceAll(path(0), "%", "%%")
	if !plain {
		const probe = 3141592
		before, after, ok := strings.Cut(path(probe), strconv.Itoa(probe))
		if !ok || path(27) != before+"27"+after {
			return "", fmt.Errorf("the log path %s does not hold the number of the element once", clip(path(0)))
		}
		pattern = strings.ReplaceAll(before, "%", "%%") + "%a" + strings.ReplaceAll(after, "%", "%%")
	}
	if strings.ContainsAny(pattern, "\\\n\x00") {
		return "", fmt.Errorf("the log path %s has a backslash, a line break or a zero byte, which sbatch cannot be told: put the run directory elsewhere", clip(path(0)))
	}
	return pattern, nil
}

// check finds what is wrong with a request before Slurm is asked.
func (l *Launcher) check(r launcher.Request) error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if err := checkTag(r.Tag); err != nil {
		faults = append(faults, err)
	}
	if _, taken := l.notes[r.Tag]; taken {
		fault("the tag is taken by an earlier submission")
	}
	if r.Count < 1 || r.Count >= mostElements {
		fault("it asks for %d workers", r.Count)
	}
	if err := process.CheckCommand(r.Argv, r.Env, r.Dir); err != nil {
		faults = append(faults, err)
	}
	if r.LogPath == nil {
		fault("it has no log path")
	} else if dir := filepath.Dir(r.LogPath(launcher.Worker{Tag: r.Tag})); !filepath.IsAbs(dir) {
		fault("the log path is not absolute")
	} else if _, err := os.Stat(dir); err != nil {
		// Slurm would take the job, which would then fail without a word.
		fault("logs: %w", err)
	}
	return errors.Join(faults...)
}

// Submit runs sbatch once. The array is the id that sbatch gave. Its error is a *launcher.Refusal where Slurm refused, and wraps
// launcher.ErrUnsure where it may have accepted.
func (l *Launcher) Submit(ctx context.Context, r launcher.Request) (array string, err error) {
	if array, err = l.submit(ctx, r); err != nil {
		if errors.Is(err, launcher.ErrUnsure) {
			site, _ := l.Site(ctx) // the usual one where nobody can be asked
			l.mu.Lock()
			l.lateTo = time.Now().Add(2 * site.MessageTimeout)
			l.mu.Unlock()
		}
		return "", fmt.Errorf("submission %q: %w", r.Tag, err)
	}
	return array, nil
}

func (l *Launcher) submit(ctx context.Context, r launcher.Request) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", context.Cause(ctx)
	}
	done, err := l.change(ctx)
	if err != nil {
		return "", err
	}
	defer done()
	l.mu.Lock()
	closed, err := l.closed, l.check(r)
	l.mu.Unlock()
	if closed {
		return "", errors.New("the Slurm launcher is closed")
	}
	if err != nil {
		return "", err
	}
	site, err := l.Site(ctx)
	if err != nil {
		return "", notNow("%v", err)
	}
	for {
		s, note, err := l.plan(r, site)
		if err != nil { // as it would be the next time
			return "", &launcher.Refusal{Kind: launcher.RefusedForGood, Text: err.Error()}
		}
		if err := tooMany(r.Count, note.Plain, site); err != nil {
			return "", err
		}
		array, err := l.sbatch(ctx, r.Tag, s, note)
		// MaxArraySize may be 0, or the configuration kept from users.
		var refusal *launcher.Refusal
		if r.Count > 1 || note.Plain || !errors.As(err, &refusal) || !strings.Contains(refusal.Text, "Invalid job array specification") {
			return array, err
		}
		l.mu.Lock()
		l.noArrays = true
		delete(l.notes, r.Tag)
		l.mu.Unlock()
	}
}

// tooMany refuses what Slurm would refuse.
func tooMany(count int, plain bool, site Site) error {
	switch {
	case plain && count > 1:
		return &launcher.Refusal{Kind: launcher.RefusedForLimits, Most: 1, Text: "without job arrays, a submission is one worker"}
	case !plain && site.MaxArraySize > 0 && count > site.MaxArraySize:
		return &launcher.Refusal{Kind: launcher.RefusedForLimits, Most: site.MaxArraySize, Text: fmt.Sprintf("an array of %d is larger than the site allows (MaxArraySize is %d)", count, site.MaxArraySize)}
	}
	return nil
}

// notNow is the error of a submission that Slurm has not heard of, for a cause that may pass: a disk that is full, a file system that is away.
func notNow(format string, args ...any) error {
	return &launcher.Refusal{Kind: launcher.RefusedForNow, Text: fmt.Sprintf(format, args...)}
}

// sbatch writes the script and runs sbatch on it.
func (l *Launcher) sbatch(ctx context.Context, tag string, s Submission, note submission) (string, error) {
	path := s.Argv[len(s.Argv)-1]
	if err := writeFile(path, s.Script); err != nil {
		return "", notNow("the batch script cannot be written: %v", err)
	}
	kept, _ := json.MarshalIndent(note, "", "  ")
	if err := writeFile(l.notePath(tag), kept); err != nil {
		return "", notNow("what belongs to the batch script cannot be written: %v", err)
	}
	l.mu.Lock()
	l.notes[tag] = note
	l.mu.Unlock()
	id, err := l.runSbatch(ctx, s)
	if err != nil && !errors.Is(err, launcher.ErrUnsure) {
		l.forget(tag)
	}
	return id, err
}

// runSbatch runs sbatch on a script that is there.
func (l *Launcher) runSbatch(ctx context.Context, s Submission) (string, error) {
	program, err := l.find("sbatch")
	if err != nil {
		return "", notNow("%v", err)
	}
	lock, err := l.lockSubmissions(ctx)
	if err != nil {
		return "", notNow("%v", err)
	}
	cmd := exec.Command(program, s.Argv[1:]...)
	cmd.Env = s.Env
	got, err := lock.start(ctx, l, cmd)
	if errors.Is(err, errStuck) { // it may submit as long as it lives, and keeps the lock until then
		return "", fmt.Errorf("%w (%w)", launcher.ErrUnsure, err)
	}
	lock.release()
	id := submittedID(got.stdout)
	switch failed := submissionFailed(got.stderr); {
	case id != "" && !failed: // also where it was cut short, or failed, after it had the answer
		return id, nil
	case err == nil && !failed:
		return "", fmt.Errorf("%w (sbatch succeeded without one job id; it said: %s)", launcher.ErrUnsure, clip(got.stdout+got.stderr))
	case err == nil: // a wrapper loses the status
		err = errStatus
	}
	if cmd.Process == nil {
		return "", notNow("%v", err)
	}
	return "", refusalOf(got.stderr, err)
}

func (l *Launcher) forget(tag string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.notes, tag)
}

func (l *Launcher) notePath(tag string) string { return filepath.Join(l.scripts, tag+".json") }

// noteOf is what is kept of a submission, of an earlier coordinator too; the zero value if nothing is.
func (l *Launcher) noteOf(tag string) submission {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n, known := l.notes[tag]; known {
		return n
	}
	var n submission
	if text, err := os.ReadFile(l.notePath(tag)); err == nil && json.Unmarshal(text, &n) == nil {
		l.notes[tag] = n
	}
	return n
}

// writeFile replaces a file as a whole.
func writeFile(path string, text []byte) error {
	if err := os.WriteFile(path+".new", text, 0o644); err != nil { //nolint:gosec // its folder is the user's own, and it has no secrets
		return err
	}
	return os.Rename(path+".new", path)
}
