package main

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"example.org/daisy/internal/api"
	"example.org/daisy/internal/job"
	"example.org/daisy/internal/sim"
	"example.org/daisy/internal/units"
)

// whatIf is what the command line of simulate supposes.
type whatIf struct {
	blockTimes           perTask[timesOf]
	recorded             map[string]timesOf
	failures             perTask[float64]
	workers              int64
	queueWait            sim.Distribution
	queueText            string
	timeLimit, startTime time.Duration
	workerFailures       float64
	seed                 uint64
	sweeps               []sweep
	svg                  string
	json                 bool
	said                 map[string]string // of block times, by task
}

// timesOf is a distribution and what it was given as.
type timesOf struct {
	distribution sim.Distribution
	text         string
}

// perTask is a value that was given for all tasks, for some, or both.
type perTask[T any] struct {
	flag   string
	all    T
	hasAll bool
	byTask map[string]T
}

func (p *perTask[T]) of(task string, none T) T {
	if v, given := p.byTask[task]; given {
		return v
	}
	if p.hasAll {
		return p.all
	}
	return none
}

// unknown are errors for tasks that the job does not have.
func (p *perTask[T]) unknown(j *job.Job) (errs []error) {
	for id := range p.byTask {
		if j.Task(id) == nil {
			errs = append(errs, fmt.Errorf("--%s: there is no task %q%s", p.flag, id, job.Nearest(id, j.TaskIDs())))
		}
	}
	return errs
}

// read takes in [TASK=]VALUE arguments.
func (p *perTask[T]) read(c *cli.Context, flag string, parse func(string) (T, error)) (errs []error) {
	p.flag, p.byTask = flag, map[string]T{}
	for _, a := range c.StringSlice(flag) {
		task, text, named := strings.Cut(a, "=")
		if !named {
			task, text = "", a
		}
		v, err := parse(text)
		switch _, twice := p.byTask[task]; {
		case err != nil:
			errs = append(errs, fmt.Errorf("--%s %s: %w", flag, a, err))
		case named && twice, !named && p.hasAll:
			errs = append(errs, fmt.Errorf("--%s %s: given twice", flag, a))
		case named:
			p.byTask[task] = v
		default:
			p.all, p.hasAll = v, true
		}
	}
	return errs
}

// batch: workers come from a batch system.
func (w *whatIf) batch(j *job.Job) bool {
	return w.queueText != "" || w.timeLimit > 0 || j.Launcher == "slurm"
}

// readWhatIf reads the flags, all errors at once.
func readWhatIf(c *cli.Context) (*whatIf, error) {
	w := &whatIf{workers: c.Int64("workers"), seed: c.Uint64("seed"), svg: c.String("svg"), json: c.Bool("json"), said: map[string]string{}}
	errs := w.blockTimes.read(c, "block-time", parseTimes)
	errs = append(errs, w.failures.read(c, "block-failures", parseShare)...)
	wrong := func(flag string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("--%s %s: %w", flag, c.String(flag), err))
		}
	}
	var err error
	if name := c.String("times"); name != "" {
		if w.recorded, err = statsOf(name); err != nil {
			errs = append(errs, err)
		}
	}
	if c.IsSet("workers") && (w.workers < 1 || w.workers > mostSimulated) {
		errs = append(errs, fmt.Errorf("--workers must be from 1 to %d", mostSimulated))
	}
	w.queueWait = sim.Constant(0)
	if text := c.String("queue-wait"); text != "" {
		var t timesOf
		t, err = parseTimes(text)
		wrong("queue-wait", err)
		w.queueWait, w.queueText = t.distribution, text
	}
	if text := c.String("time-limit"); text != "" {
		if w.timeLimit, err = parseSimulated(text); err == nil && w.timeLimit < time.Minute {
			err = errors.New("must be a minute or more")
		}
		wrong("time-limit", err)
	}
	w.startTime, err = parseSimulated(c.String("start-time"))
	wrong("start-time", err)
	if w.workerFailures, err = strconv.ParseFloat(c.String("worker-failures"), 64); err != nil || !(w.workerFailures >= 0 && w.workerFailures <= 3600) {
		wrong("worker-failures", errors.New("must be a number from 0 to 3600, of failures in an hour"))
	}
	seen := map[string]bool{}
	for _, a := range c.StringSlice("sweep") {
		s, err := parseSweep(a)
		if err == nil && seen[s[0].Key] {
			err = errors.New("given twice")
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("--sweep %s: %w", a, err))
			continue
		}
		seen[s[0].Key] = true
		w.sweeps = append(w.sweeps, s)
	}
	if seen[maxWorkers] && w.workers > 0 {
		errs = append(errs, errors.New("--workers and --sweep max_workers: give one of them"))
	}
	if n := len(combinations(w.sweeps)); n > mostVariants {
		errs = append(errs, fmt.Errorf("--sweep: %d combinations; at most %d", n, mostVariants))
	}
	if w.svg != "" && len(w.sweeps) > 0 {
		errs = append(errs, errors.New("--svg draws one run: leave --sweep out"))
	}
	if errs != nil {
		return nil, &statusError{exitUsage, errors.Join(errs...)}
	}
	return w, nil
}

const (
	mostSimulated = 100_000
	mostVariants  = 100
	maxWorkers    = "max_workers"
	blockShape    = "block.shape"
)

// longestSimulated bounds the times that are supposed: what takes for years in virtual time takes for minutes in real time, too.
const longestSimulated = 365 * 24 * time.Hour

// parseSimulated reads a duration of what is simulated.
func parseSimulated(text string) (time.Duration, error) {
	d, err := units.ParseDuration(text)
	if err == nil && d > longestSimulated {
		err = fmt.Errorf("%s is more than a year, the longest time that can be simulated", text)
	}
	return d, err
}

// parseTimes reads a TIME.
func parseTimes(text string) (timesOf, error) {
	t := timesOf{text: text}
	kind, rest, is := strings.Cut(text, ":")
	if !is {
		d, err := parseSimulated(text)
		t.distribution = sim.Constant(d)
		return t, err
	}
	first, second, two := strings.Cut(rest, ",")
	a, err := parseSimulated(strings.TrimSpace(first))
	switch {
	case kind != "uniform" && kind != "lognormal" && kind != "exponential":
		return t, fmt.Errorf("%q is no distribution; write a duration, uniform:LOW,HIGH, lognormal:MEDIAN,SIGMA or exponential:MEAN", kind)
	case err != nil:
		return t, err
	case kind == "exponential" && two, kind != "exponential" && !two:
		return t, errors.New("wrong number of values; write uniform:LOW,HIGH, lognormal:MEDIAN,SIGMA or exponential:MEAN")
	case kind == "exponential":
		t.distribution = sim.Exponential(a)
		return t, nil
	case kind == "uniform":
		b, err := parseSimulated(strings.TrimSpace(second))
		if err == nil && b < a {
			err = errors.New("the second time is less than the first")
		}
		t.distribution = sim.Uniform(a, b)
		return t, err
	}
	sigma, err := strconv.ParseFloat(strings.TrimSpace(second), 64)
	if err != nil || !(sigma >= 0 && sigma <= 5) {
		return t, fmt.Errorf("%q is no sigma; it is a number from 0 to 5", second)
	}
	t.distribution = sim.LogNormal(a, sigma)
	return t, nil
}

// parseShare reads 0.01 or 1%.
func parseShare(text string) (float64, error) {
	number, percent := strings.CutSuffix(text, "%")
	v, err := strconv.ParseFloat(number, 64)
	if percent {
		v /= 100
	}
	if err != nil || !(v >= 0 && v <= 1) {
		return 0, errors.New("must be a share from 0 to 1, or from 0% to 100%")
	}
	return v, nil
}

// A sweep is the values of one key.
type sweep []sweptValue

type sweptValue struct {
	Key     string `json:"key"`
	Value   string `json:"value"`
	workers int64  // of max_workers, else 0
}

func parseSweep(text string) (sweep, error) {
	key, list, ok := strings.Cut(text, "=")
	if key = strings.TrimSpace(key); !ok || key == "" {
		return nil, errors.New("write KEY=VALUE,VALUE, as max_workers=8,16,32")
	}
	if key != maxWorkers && key != blockShape && !strings.HasPrefix(key, "run.") && !strings.HasPrefix(key, "task.") {
		return nil, fmt.Errorf("%q is neither max_workers nor block.shape nor a key of --set (run.KEY, task.ID.KEY)", key)
	}
	var s sweep
	for _, value := range splitValues(list) {
		v := sweptValue{Key: key, Value: strings.TrimSpace(value)}
		if v.Value == "" {
			return nil, errors.New("a value is empty")
		}
		if key == maxWorkers {
			n, err := strconv.ParseInt(v.Value, 10, 64)
			if err != nil || n < 1 || n > mostSimulated {
				return nil, fmt.Errorf("%q is no number from 1 to %d", v.Value, mostSimulated)
			}
			v.workers = n
		}
		s = append(s, v)
	}
	return s, nil
}

// splitValues splits at commas that stand in no bracket and no string.
func splitValues(text string) (list []string) {
	depth, from, quoted := 0, 0, false
	for i, r := range text {
		switch {
		case r == '"':
			quoted = !quoted
		case quoted:
		case r == '[' || r == '{':
			depth++
		case r == ']' || r == '}':
			depth--
		case r == ',' && depth <= 0:
			list = append(list, text[from:i])
			from = i + 1
		}
	}
	return append(list, text[from:])
}

// combinations are all of the values of sweeps, the last one's changing first; one without values if there are no sweeps.
func combinations(sweeps []sweep) [][]sweptValue {
	list := [][]sweptValue{nil}
	for _, s := range sweeps {
		var longer [][]sweptValue
		for _, begin := range list {
			for _, v := range s {
				longer = append(longer, append(begin[:len(begin):len(begin)], v))
			}
			if len(longer) > mostVariants {
				break // refused already
			}
		}
		list = longer
	}
	return list
}

// measured is the distribution of the times of a run: through its bins, its percentiles and its longest, with its mean; ok is false if no
// block was measured.
func measured(b *api.BlockSeconds) (d sim.Distribution, ok bool, err error) {
	if len(b.Histogram) == 0 || b.Mean == nil || b.Max == nil || b.P50 == nil || b.P95 == nil {
		return d, false, nil
	}
	seconds := []float64{*b.Mean, *b.P50, *b.P95, *b.Max}
	total := 0.0
	for _, bin := range b.Histogram {
		seconds = append(seconds, bin[0])
		if total += bin[1]; bin[1] < 0 || total > 1e18 {
			return d, false, fmt.Errorf("%g blocks in a bin", bin[1])
		}
	}
	for _, s := range seconds {
		if !(s >= 0 && s <= 10*longestSimulated.Seconds()) { // limits of bins are above what is in them
			return d, false, fmt.Errorf("%g seconds for a block", s)
		}
	}
	if total == 0 {
		return d, false, nil
	}
	at := func(share, seconds float64) sim.Quantile {
		return sim.Quantile{Share: share, Time: ofSeconds(min(seconds, *b.Max))}
	}
	list := []sim.Quantile{at(0, binBelow(b.Histogram[0][0])), at(0.5, *b.P50), at(0.95, *b.P95), at(1, *b.Max)}
	sum := 0.0
	for _, bin := range b.Histogram[:len(b.Histogram)-1] {
		sum += bin[1]
		list = append(list, at(sum/total, bin[0]))
	}
	return sim.Measured(list, ofSeconds(*b.Mean)), true, nil
}

// binBelow is the limit below one of 1, 2, 5 × 10^k.
func binBelow(upper float64) float64 {
	if mantissa := upper / math.Pow(10, math.Floor(math.Log10(upper)+1e-9)); mantissa > 3 {
		return upper / 2.5
	}
	return upper / 2
}
