package slurm

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.org/daisy/internal/units"
	"example.org/daisy/templates"
)

// Options are what the tables [slurm] and [task.slurm] of a job file say for one task.
type Options struct {
	Partition, Account, QOS, Constraint, Reservation, Begin, Hint string

	// Time is the wall time of a worker, 0 = the partition's default.
	Time time.Duration
	// Nodelist and Exclude name nodes, also as lists of Slurm ("n[1-4]").
	Nodelist, Exclude []string
	// Gres are further generic resources of one worker; that of GPUs has their type, not their number.
	Gres, Licenses []string
	Nice           string

	// Arrays: workers are elements of job arrays. ArrayLimit is how many one array may have, where some
	// of them wait for others (Request.Throttle); 0 = only as many as may run.
	Arrays     bool
	ArrayLimit int

	// Extra are further options of sbatch, each complete in itself ("--name=value").
	Extra []string
	// Setup is shell before the worker, Wrap words before each user command.
	Setup string
	Wrap  []string
	// Template is the path of an own template, as given, and Script that template.
	Template string
	Script   *templates.Template

	Login, Srun, Requeue, SlurmEnv bool
	// PerCPU: memory is asked for by core; NoMemory: not at all. GPUsPerNode: GPUs are asked for as such, not as gres.
	PerCPU, NoMemory, GPUsPerNode bool

	Cluster, Prefix string
}

// Keys are the names of the keys, sorted.
func Keys() []string { return slices.Sorted(slices.Values(keyNames)) }

var keyNames = []string{
	"partition", "account", "qos", "time", "nodelist", "constraint", "gres", "exclude", "reservation", "nice", "licenses", "begin", "hint",
	"arrays", "array_limit", "options", "setup", "wrap", "template", "login_env", "launch", "requeue", "memory_option", "gpu_option",
	"cluster", "slurm_env", "prefix",
}

// A Fault is something wrong with one key.
type Fault struct {
	Key string
	// Item is the place in a list, -1 where the key as a whole is meant.
	Item int
	// Text says what is wrong, then what is allowed.
	Text string
}

// ParseOptions reads the options of a task, as the job file has them: each key with a list, of one value where it is no list. It finds
// every fault. Warnings are for people. path makes the path of a template absolute.
func ParseOptions(given map[string][]string, path func(string) string) (o Options, faults, warnings []Fault) {
	p := &parsing{given: given}
	o.Arrays = true
	for key, values := range given {
		if !slices.Contains(keyNames, key) {
			p.fail(key, -1, "unknown key; there are %s", strings.Join(Keys(), ", "))
		}
		for i, v := range values {
			if strings.ContainsRune(v, 0) {
				p.fail(key, i, "it has a zero byte, which no option can hold")
			} else if key != "setup" && strings.ContainsAny(v, "\n\r") {
				p.fail(key, i, "%s has a line break", clip(v))
			}
		}
	}
	p.absorb(&o)

	p.word("partition", &o.Partition)
	p.word("account", &o.Account)
	p.word("qos", &o.QOS)
	p.word("constraint", &o.Constraint)
	p.word("reservation", &o.Reservation)
	p.word("begin", &o.Begin)
	p.word("hint", &o.Hint)
	p.word("nice", &o.Nice)
	if n, err := strconv.Atoi(o.Nice); o.Nice != "" && (err != nil || n < -2147483645 || n > 2147483645) {
		p.fail("nice", -1, "%s is not an integer", clip(o.Nice))
	}
	p.word("cluster", &o.Cluster)
	if strings.Contains(o.Cluster, ",") || o.Cluster == "all" {
		p.fail("cluster", -1, "%s is more than one cluster; all workers of a run are on one", clip(o.Cluster))
	}
	if s := p.one("time"); s != "" {
		var err error
		if o.Time, err = ParseTime(s); err != nil {
			p.fail("time", -1, "%v", err)
		}
	}
	p.words("nodelist", &o.Nodelist)
	if n := len(ExpandNodes(strings.Join(o.Nodelist, ","))); o.Nodelist != nil && n > 1 {
		p.fail("nodelist", -1, "it names %d nodes, all of which sbatch would give to one job, and this job is on one; to choose among nodes use partition, constraint or exclude", n)
	}
	p.words("exclude", &o.Exclude)
	p.words("licenses", &o.Licenses)
	p.words("gres", &o.Gres)
	for i, g := range o.Gres {
		p.gres(i, g)
	}

	p.flag("arrays", &o.Arrays)
	p.flag("login_env", &o.Login)
	p.flag("requeue", &o.Requeue)
	p.flag("slurm_env", &o.SlurmEnv)
	if s := p.one("array_limit"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 || n >= mostElements {
			p.fail("array_limit", -1, "%s is not an integer from 1 to %d", clip(s), mostElements-1)
		}
		o.ArrayLimit = n
	}
	o.Srun = p.choice("launch", "script", "srun") == "srun"
	switch p.choice("memory_option", "mem", "mem-per-cpu", "none") {
	case "mem-per-cpu":
		o.PerCPU = true
	case "none":
		o.NoMemory = true
	}
	o.GPUsPerNode = p.choice("gpu_option", "gres", "gpus-per-node") == "gpus-per-node"
	p.prefix(&o)
	p.script(&o, path)
	slices.SortStableFunc(p.faults, func(a, b Fault) int { return strings.Compare(a.Key, b.Key) })
	return o, p.faults, p.warnings
}

// parsing collects faults.
type parsing struct {
	given            map[string][]string
	faults, warnings []Fault
}

func (p *parsing) fail(key string, item int, format string, args ...any) {
	p.faults = append(p.faults, Fault{key, item, fmt.Sprintf(format, args...)})
}

func (p *parsing) warn(key string, item int, format string, args ...any) {
	p.warnings = append(p.warnings, Fault{key, item, fmt.Sprintf(format, args...)})
}

// one is the value of a key that has one, "" if it is not given.
func (p *parsing) one(key string) string {
	values, there := p.given[key]
	switch {
	case !there:
		return ""
	case len(values) != 1:
		p.fail(key, -1, "%d values; it takes one", len(values))
		return ""
	case strings.TrimSpace(values[0]) == "":
		p.fail(key, -1, "empty; leave it out, or give it a value")
		return ""
	}
	return values[0]
}

// word is a value without blanks.
func (p *parsing) word(key string, into *string) {
	s := p.one(key)
	if strings.ContainsAny(s, " \t") {
		p.fail(key, -1, "%s has a blank in it", clip(s))
		return
	}
	*into = s
}

// words is a list of values without blanks.
func (p *parsing) words(key string, into *[]string) {
	for i, s := range p.given[key] {
		switch {
		case strings.TrimSpace(s) == "":
			p.fail(key, i, "empty; leave it out")
		case strings.ContainsAny(s, " \t"):
			p.fail(key, i, "%s has a blank in it; write several as a list", clip(s))
		default:
			*into = append(*into, s)
		}
	}
}

func (p *parsing) flag(key string, into *bool) {
	switch s := p.one(key); s {
	case "":
	case "true", "false":
		*into = s == "true"
	default:
		p.fail(key, -1, "%s is neither true nor false", clip(s))
	}
}

// choice is one of a few values, the first where none is given.
func (p *parsing) choice(key string, allowed ...string) string {
	s := p.one(key)
	if s == "" {
		return allowed[0]
	}
	if !slices.Contains(allowed, s) {
		p.fail(key, -1, "unknown value %s; allowed are %q", clip(s), allowed)
	}
	return s
}

// gres checks "name", "name:type", "name:count", "name:type:count".
func (p *parsing) gres(i int, g string) {
	parts := strings.Split(g, ":")
	last := parts[len(parts)-1]
	isCount := len(parts) > 1 && strings.Trim(last, "0123456789") == ""
	switch {
	case strings.Contains(g, ","):
		p.fail("gres", i, "%s names several; write them as a list", clip(g))
	case slices.Contains(parts, "") || len(parts) > 3:
		p.fail("gres", i, "%s is not name, name:type, name:count or name:type:count", clip(g))
	case parts[0] == "gpu" && (isCount || len(parts) == 3):
		p.fail("gres", i, "%q counts GPUs, which is for requires.gpu of the task; write their type only, as in \"gpu:a100\"", g)
	}
}

func (p *parsing) prefix(o *Options) {
	p.word("prefix", &o.Prefix)
	// PREFIX-dz-RUN-TAG, with a run of 8 characters and a tag of up to 7.
	const most = longestName - len("-dz-12345678-1234567")
	if o.Prefix != "" && (!named(o.Prefix) || len(o.Prefix) > most) {
		p.fail("prefix", -1, "%s is not 1 to %d letters, digits, \".\", \"_\" and \"-\", which names of jobs begin with", clip(o.Prefix), most)
	}
}

// script reads what goes into the batch script.
func (p *parsing) script(o *Options, path func(string) string) {
	o.Script = templates.Worker
	if o.Setup = p.one("setup"); o.Setup != "" {
		probe := templates.Values{Argv: []string{"/worker"}, Dir: "/", Tag: "1", Setup: o.Setup}
		if _, err := templates.Worker.Render(probe); err != nil {
			p.fail("setup", -1, "%v", err)
		}
	}
	for i, w := range p.given["wrap"] {
		if w == "" && i == 0 {
			p.fail("wrap", i, "empty; it begins with a program, as in [\"apptainer\", \"exec\", \"img.sif\"]")
		}
		o.Wrap = append(o.Wrap, w)
	}
	if o.Template = p.one("template"); o.Template == "" {
		return
	}
	own, err := templates.Read(path(o.Template))
	if err != nil {
		p.fail("template", -1, "%v", err)
		return
	}
	warnings, err := own.Check()
	if err != nil {
		p.fail("template", -1, "%v", err)
		return
	}
	for _, w := range warnings {
		p.warn("template", -1, "%s", w)
	}
	o.Script = own
	p.directives(own)
}

// directives judges the #SBATCH lines of an own template.
func (p *parsing) directives(own *templates.Template) {
	if line := own.Ignored(); line > 0 {
		p.fail("template", -1, "line %d: sbatch does not read #SBATCH behind the first command; put it at the top", line)
	}
	words, lines := own.Directives()
	for i := 0; i < len(words); i++ {
		opt, used, err := readOption(words[i:])
		if err == nil {
			err = reserved(opt)
		}
		if err != nil {
			p.fail("template", -1, "line %d: %v", lines[i], err)
		}
		i += used - 1
	}
}

// ParseTime reads a wall time: "10m", "2d", as durations are written, or "1:30:00", "2-00:00", "30:00", as Slurm has them. A bare
// number is an error, as people differ about its unit.
func ParseTime(s string) (time.Duration, error) {
	const allowed = `allowed are "90m", "12h", "2d", and as Slurm has it "1:30:00" (hours), "30:00" (minutes) and "2-12:00" (days and hours)`
	bad := fmt.Errorf("%s is no wall time; %s", clip(s), allowed)
	if !strings.ContainsAny(s, ":-") {
		if strings.Trim(s, "0123456789") == "" {
			return 0, fmt.Errorf("the bare number %s has no unit; %s", clip(s), allowed)
		}
		d, err := units.ParseDuration(s)
		if err != nil {
			return 0, fmt.Errorf("%w; %s", err, allowed)
		}
		return judgeTime(s, d)
	}
	var total time.Duration
	days, clock, hasDays := strings.Cut(s, "-")
	if !hasDays {
		clock = s
	}
	fields := strings.Split(clock, ":")
	units := []time.Duration{time.Minute, time.Second} // "M:S"
	if len(fields) == 3 || hasDays {
		units = []time.Duration{time.Hour, time.Minute, time.Second}
	}
	if hasDays {
		n, err := number(days)
		if err != nil || n > 100_000 {
			return 0, bad
		}
		total = time.Duration(n) * 24 * time.Hour
	}
	if len(fields) > len(units) {
		return 0, bad
	}
	for i, f := range fields {
		n, err := number(f)
		if err != nil || n > 100_000 {
			return 0, bad
		}
		total += time.Duration(n) * units[i]
	}
	return judgeTime(s, total)
}

// longestTime is far above what any site gives, and far below where times cannot be added up any more.
const longestTime = 100 * 365 * 24 * time.Hour

// judgeTime: Slurm counts wall times in minutes.
func judgeTime(s string, d time.Duration) (time.Duration, error) {
	switch {
	case d < time.Minute:
		return 0, fmt.Errorf("%s is less than a minute, the shortest time that Slurm knows", clip(s))
	case d > longestTime:
		return 0, fmt.Errorf("%s is more than a hundred years", clip(s))
	}
	return d, nil
}

// writeTime writes a wall time for sbatch, rounded up to minutes as Slurm does.
func writeTime(d time.Duration) string {
	m := int64((d + time.Minute - 1) / time.Minute)
	return fmt.Sprintf("%d-%02d:%02d:00", m/(24*60), m/60%24, m%60)
}
