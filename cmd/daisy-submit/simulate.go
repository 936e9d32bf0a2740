package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"example.org/daisy/internal/job"
	"example.org/daisy/internal/jobfile"
	"example.org/daisy/internal/sim"
	"example.org/daisy/launcher/slurm"
)

func simulateCommand() *cli.Command {
	return &cli.Command{
		Name: "simulate", Usage: "say how a job would go with other workers, block times or block shapes",
		UsageText: "daisy-submit simulate JOB --block-time TIME | --times RUN_DIR [OPTIONS]",
		Description: `Plays the run of the job file JOB through in virtual time, with the same scheduler and the same decisions about workers as a real
run, and prints how long it takes, what its workers do meanwhile, and which blocks it waits for. Nothing is started or written (but for
--svg). Blocks that the tracking folder says are done are left out.

A TIME is a duration (2s), or a distribution: uniform:1s,3s, lognormal:2s,0.5 (median, and standard deviation of the logarithm), or
exponential:10m (mean). With --queue-wait or --time-limit, and with launcher = "slurm" in the job, workers come from a batch system, else from this machine. With --workers N there is
room for N blocks at once, in place of the resources of the run and of max_workers.

--sweep compares: max_workers=8,16,32 is --workers with each of them, block.shape=[64,64,64],[128,128,128] the shape of the blocks of all
tasks, and any other key is one of --set. Blocks of another shape take time in proportion to the volume that they write.

EXAMPLE
   daisy-submit simulate segment.toml --times latest --sweep max_workers=8,16,32,64
   daisy-submit simulate segment.toml --block-time predict=lognormal:40s,0.3 --block-time label=5s --workers 200 --queue-wait 20m --time-limit 4h --svg run.svg

EXIT STATUS
   0    the answer was printed, whatever becomes of the run in it
   2    the job file or the command line is wrong, or the run cannot begin or does not end
   3    the tracking folder cannot be read, or the answer could not be written
   4    a rule that holds in every run was broken in it: a fault of this program, please report it
`,
		Flags: append(append([]cli.Flag{
			&cli.StringSliceFlag{Name: "block-time", Usage: "how long blocks take: `[TASK=]TIME`, of all tasks or of one; may be repeated"},
			&cli.StringFlag{Name: "times", Usage: "as long as in an earlier run: `RUN_DIR`, latest, or a stats.json"},
			&cli.Int64Flag{Name: "workers", DefaultText: "as the job says", Usage: "room for `N` blocks at once"},
			&cli.StringFlag{Name: "queue-wait", DefaultText: "no batch system", Usage: "how long a worker waits in the queue of a batch system: `TIME`"},
			&cli.StringFlag{Name: "time-limit", DefaultText: "the time of the job's options for Slurm", Usage: "a batch system ends a worker after `DURATION`"},
			&cli.StringFlag{Name: "start-time", Value: "200ms", Usage: "from the start of a worker until it asks for blocks: `DURATION`"},
			&cli.StringSliceFlag{Name: "block-failures", Usage: "share of attempts that fail: `[TASK=]SHARE`, as 0.01 or 1%; may be repeated"},
			&cli.StringFlag{Name: "worker-failures", Value: "0", Usage: "how often a worker dies in an hour: `RATE`, as 0.02"},
			&cli.Uint64Flag{Name: "seed", Value: 1, Usage: "`N`: the same seed gives the same answer"},
			&cli.StringSliceFlag{Name: "sweep", Usage: "compare: `KEY=VALUE,VALUE...`; may be repeated for all combinations"},
			&cli.StringFlag{Name: "svg", Usage: "draw workers and blocks over time into `FILE`"},
			&cli.BoolFlag{Name: "json", Usage: "as JSON, in the shape of docs/simulation.md"},
		}, jobFlags()...), selectionFlags()...),
		Action: simulate,
	}
}

func simulate(c *cli.Context) error {
	path, err := oneArgument(c, "a job file")
	if err != nil {
		return err
	}
	w, err := readWhatIf(c)
	if err != nil {
		return err
	}
	variants, err := w.variants(c, path)
	if err != nil {
		return err
	}
	answer := simulation{Version: 1, Name: variants[0].job.Name, Seed: w.seed, Assumed: w.assumed(variants[0]), Forecasts: []forecast{}, Worth: []worth{}, Warnings: w.warnings(variants)}
	for _, v := range variants {
		f, err := sim.Predict(v.config)
		if err != nil {
			return w.noForecast(v, err)
		}
		answer.add(v, &f)
		if w.svg != "" {
			if err := writePicture(w.svg, v.job.Name, answer.Forecasts[0].tasks(), f.Picture); err != nil {
				return infrastructure(err)
			}
		}
	}
	answer.conclude()
	if w.json {
		err = json.NewEncoder(c.App.Writer).Encode(answer)
	} else {
		err = answer.write(c.App.Writer)
	}
	if err != nil {
		return infrastructure(err)
	}
	return nil
}

// noForecast is why there is none: the run cannot begin or does not end, or this program is wrong.
func (w *whatIf) noForecast(v *variant, err error) error {
	if errors.Is(err, sim.ErrBroken) {
		return &statusError{exitBroken, fmt.Errorf("%s%w; please report it with the job file and this command (seed %d)", v.prefix(), err, w.seed)}
	}
	return usage("%s%w", v.prefix(), err)
}

// A variant is one run to be simulated.
type variant struct {
	job    *job.Job
	swept  []sweptValue
	scales map[string]float64
	config sim.ForecastConfig
}

// prefix names it in an error.
func (v *variant) prefix() string {
	if len(v.swept) == 0 {
		return ""
	}
	var parts []string
	for _, s := range v.swept {
		parts = append(parts, s.Key+"="+s.Value)
	}
	return strings.Join(parts, " ") + ": "
}

// variants loads the job once for each combination of the sweeps, all errors at once.
func (w *whatIf) variants(c *cli.Context, path string) ([]*variant, error) {
	part, err := selection(c)
	if err != nil {
		return nil, err
	}
	load := func(sets ...string) (*job.Job, error) {
		return loadSet(c, path, slices.Concat(c.StringSlice("set"), sets), jobfile.Options{Selection: part, CheckSlurm: checkSlurm})
	}
	base, err := load()
	if err != nil {
		return nil, err
	}
	code, err := w.code(base)
	if err != nil {
		return nil, err
	}
	var list []*variant
	var errs []error
	for _, values := range combinations(w.sweeps) {
		v := &variant{job: base, swept: values, scales: map[string]float64{}}
		workers, sets := w.workers, []string(nil)
		for _, s := range values {
			switch {
			case s.workers > 0:
				workers = s.workers
			case s.Key == blockShape:
				for _, id := range base.TaskIDs() {
					sets = append(sets, "task."+id+".block.shape="+s.Value)
				}
			default:
				sets = append(sets, s.Key+"="+s.Value)
			}
		}
		if sets != nil {
			if v.job, err = load(sets...); err != nil {
				errs = append(errs, fmt.Errorf("%s%w", v.prefix(), err))
				continue
			}
		}
		if err := w.configure(v, base, code, workers); err != nil {
			errs = append(errs, fmt.Errorf("%s%w", v.prefix(), err))
			continue
		}
		list = append(list, v)
	}
	if errs != nil {
		err := errors.Join(errs...)
		var s *statusError
		if errors.As(err, &s) {
			return nil, &statusError{s.status, err}
		}
		return nil, &statusError{exitUsage, err}
	}
	return list, nil
}

// configure makes the run of a variant. Times and failures are those of the blocks of the base.
func (w *whatIf) configure(v *variant, base *job.Job, code map[string]sim.ForecastCode, workers int64) error {
	j := *v.job
	j.Tasks = slices.Clone(j.Tasks)
	v.job = &j
	cfg := sim.ForecastConfig{Seed: w.seed, Job: &j, Budget: j.Budget(machine()), Unlimited: j.Unlimited(), Batch: w.batch(&j), QueueWait: w.queueWait, TimeLimit: w.timeLimit,
		StartTime: w.startTime, WorkerFailures: w.workerFailures, Picture: w.svg != ""}
	switch {
	case workers > 0:
		cfg.Unlimited, cfg.MaxSlots = true, int(workers)
		for i := range j.Tasks {
			j.Tasks[i].MaxWorkers = workers
			j.Tasks[i].Slots = int(min(int64(j.Tasks[i].Slots), workers))
		}
	case j.Launcher == "serial":
		cfg.MaxSlots = 1
	}
	pipeline, err := j.Pipeline()
	if err != nil {
		return &statusError{exitUsage, err}
	}
	same := true
	for i := range j.Tasks {
		was, now := base.Tasks[i].Grid, j.Tasks[i].Grid
		same = same && was.Spec() == now.Spec()
		v.scales[j.Tasks[i].ID] = volumeOf(now.BlockShape().Slice()) / volumeOf(was.BlockShape().Slice())
	}
	if j.Tracking != "" && same { // marks are of blocks of one shape
		if pipeline, err = withMarks(pipeline, j.Tracking); err != nil {
			return refused(err)
		}
	}
	cfg.Pipeline = pipeline
	for _, t := range pipeline.Tasks() {
		k := code[t.ID]
		k.Scale = v.scales[t.ID]
		cfg.Code = append(cfg.Code, k)
	}
	for _, t := range pipeline.Tasks() {
		cfg.TimeLimits = append(cfg.TimeLimits, wallTime(j.Task(t.ID)))
	}
	v.config = cfg
	return nil
}

// wallTime is the time that a task's options ask Slurm for, 0 if they do not say: then it is the partition's, which nobody knows here.
func wallTime(t *job.Task) time.Duration {
	if of := t.Options["time"]; len(of) == 1 {
		d, _ := slurm.ParseTime(of[0]) // the launcher has checked it
		return d
	}
	return 0
}

func volumeOf(shape []int64) float64 {
	v := 1.0
	for _, n := range shape {
		v *= float64(n)
	}
	return v
}

// code is what the blocks of each task do. Every task needs times.
func (w *whatIf) code(j *job.Job) (map[string]sim.ForecastCode, error) {
	code := map[string]sim.ForecastCode{}
	var errs []error
	for _, id := range j.TaskIDs() {
		k := sim.ForecastCode{Scale: 1, Failures: w.failures.of(id, 0)}
		times, given := w.blockTimes.byTask[id]
		if !given {
			times, given = w.recorded[id]
		}
		if !given {
			times, given = w.blockTimes.all, w.blockTimes.hasAll
		}
		if !given {
			errs = append(errs, fmt.Errorf("task %q: nothing says how long its blocks take; give --block-time %s=2s, or --times with a run in which some of its blocks ended well", id, id))
		}
		k.Times = times.distribution
		w.said[id] = times.text
		code[id] = k
	}
	errs = append(errs, slices.Concat(w.blockTimes.unknown(j), w.failures.unknown(j))...)
	if errs != nil {
		return nil, &statusError{exitUsage, errors.Join(errs...)}
	}
	return code, nil
}

// statsOf reads the statistics that --times names, a file or those of a run: of each task that has some, how long its blocks took.
func statsOf(name string) (map[string]timesOf, error) {
	path := name
	for _, candidate := range []string{name, filepath.Join("runs", name)} {
		if info, err := os.Stat(candidate); err == nil {
			if path = candidate; info.IsDir() {
				path = filepath.Join(candidate, "stats.json")
			}
			break
		}
	}
	s, err := readStatsFile(path)
	if err != nil {
		return nil, fmt.Errorf("--times: %w; give the directory of a run that has ended, its name in runs/, or a stats.json", err)
	}
	found := map[string]timesOf{}
	for i := range s.Tasks {
		t := &s.Tasks[i]
		d, ok, err := measured(&t.BlockSeconds)
		if err != nil {
			return nil, fmt.Errorf("--times: %s is damaged: task %q has %w", path, t.ID, err)
		}
		if ok {
			found[t.ID] = timesOf{d, "as in " + name}
		}
	}
	return found, nil
}
