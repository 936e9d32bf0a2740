package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"example.org/daisy/internal/coordinator"
	"example.org/daisy/internal/job"
	"example.org/daisy/internal/report"
	"example.org/daisy/internal/rundir"
	"example.org/daisy/internal/units"
	"example.org/daisy/launcher"
	"example.org/daisy/launcher/slurm"
)

// planSlurm is what the workers of one task ask of Slurm.
type planSlurm struct {
	Task string `json:"task"`
	// Workers is how many there are at once at most, First how many are submitted before one of them has proved to work.
	Workers int64 `json:"workers"`
	First   int64 `json:"first"`
	// Arrays: they are elements of job arrays.
	Arrays bool `json:"arrays"`
	// Fill: a worker has as many slots as what it is given holds; it asks for one.
	Fill bool `json:"fill"`
	// Cores, MemoryBytes and GPUs are what one worker asks for.
	Cores       int64 `json:"cores"`
	MemoryBytes int64 `json:"memory_bytes"`
	GPUs        int64 `json:"gpus"`
	// TimeSeconds is the limit of a worker, null if the partition's default holds.
	TimeSeconds *float64 `json:"time_seconds"`
	// CoreHours is what the workers cost if each of them lives to its limit once, by what each asks for, or by the forecast if that is more;
	// BlockCoreHours is what the blocks cost if each attempt
	// takes its timeout. Null without a limit, or a timeout.
	CoreHours      *float64 `json:"core_hours"`
	BlockCoreHours *float64 `json:"block_core_hours"`
	// Forecast is what Slurm said, with --test-only.
	Forecast *planForecast `json:"forecast"`
}

// planForecast is what sbatch --test-only said of workers like these.
type planForecast struct {
	// Start is when one would start, Cores what it would get; null if Slurm gave no forecast, and Said says why.
	Start     *time.Time `json:"start"`
	Cores     *int64     `json:"cores"`
	Nodes     *string    `json:"nodes"`
	Partition *string    `json:"partition"`
	Said      *string    `json:"said"`
	refused   bool       // and will be
}

// addSlurm adds what the workers ask of Slurm.
func (p *plan) addSlurm(j *job.Job) {
	for i := range p.Tasks {
		t := j.Task(p.Tasks[i].ID)
		o, _, _ := slurm.ParseOptions(t.Options, func(path string) string { return inFolder(j.Dir, path) })
		r := coordinator.RequestFor(j, t, "1", 1, nil, "")
		slots := int64(max(t.Slots, 1))
		s := planSlurm{
			Task: t.ID, Workers: (p.Tasks[i].AtOnce + slots - 1) / slots, Arrays: o.Arrays, Fill: t.Fill,
			Cores: r.Cores(), MemoryBytes: r.MemoryBytes, GPUs: int64(r.GPUs),
		}
		s.First = min(int64(firstWorkers(t)), s.Workers)
		if o.Time > 0 {
			seconds := o.Time.Seconds()
			s.TimeSeconds = &seconds
			s.cost()
		}
		if left := p.Tasks[i].Blocks - p.Tasks[i].Masked - p.Tasks[i].Unselected - p.Tasks[i].Done; t.Timeout > 0 {
			hours := float64(max(left, 0)) * float64(1+t.MaxRetries) * t.Timeout.Hours() * float64(s.Cores) / float64(slots)
			s.BlockCoreHours = &hours
		}
		p.Slurm = append(p.Slurm, s)
	}
}

// cost is the most that the workers of a task cost in one life.
func (s *planSlurm) cost() {
	if s.TimeSeconds == nil {
		return
	}
	hours := float64(s.Workers) * float64(s.most()) * *s.TimeSeconds / 3600
	s.CoreHours = &hours
}

// most is how many cores one worker gets: what it asks for, or what Slurm says, which may be more.
func (s *planSlurm) most() int64 {
	if f := s.Forecast; f != nil && f.Cores != nil {
		return max(s.Cores, *f.Cores)
	}
	return s.Cores
}

// askForecasts asks Slurm once for each kind of worker. The error is that of tasks whose workers it would refuse.
func (p *plan) askForecasts(ctx context.Context, j *job.Job) error {
	l, err := slurmDoctor(j)
	if err != nil {
		return err
	}
	site, err := l.Site(ctx)
	if err != nil {
		return infrastructure(fmt.Errorf("no forecast, as Slurm cannot be asked: %w", err))
	}
	worker, err := findWorker("slurm")
	if err != nil {
		return infrastructure(err)
	}
	known := map[string]*planForecast{}
	var errs []error
	for i := range p.Slurm {
		t := j.Task(p.Slurm[i].Task)
		kind := t.LauncherClass() + t.Requires.Times(int64(max(t.Slots, 1))).String()
		f := known[kind]
		if f == nil {
			dir := filepath.Join(j.Directory, rundir.SafeName(j.Name)+"-"+someTime)
			r := coordinator.RequestFor(j, t, "1", int(max(p.Slurm[i].First, 1)), []string{worker}, dir)
			r.Env = slurm.Environment(os.Environ())
			r.LogPath = func(w launcher.Worker) string { return filepath.Join(dir, "logs", w.String()+".log") }
			s, err := l.Plan(r, site)
			if err != nil {
				return &statusError{exitUsage, fmt.Errorf("task %q: %w", t.ID, err)}
			}
			f = forecastOf(l.TestOnly(ctx, s))
			known[kind] = f
		}
		p.Slurm[i].Forecast = f
		p.Slurm[i].cost()
		if f.refused {
			errs = append(errs, fmt.Errorf("task %q: Slurm would refuse its workers: %s", t.ID, *f.Said))
		}
	}
	if errs != nil {
		return &statusError{exitUsage, errors.Join(errs...)}
	}
	return nil
}

func forecastOf(f slurm.Forecast, err error) *planForecast {
	if err != nil {
		said := err.Error()
		var r *launcher.Refusal
		return &planForecast{Said: &said, refused: errors.As(err, &r) && r.Kind == launcher.RefusedForGood}
	}
	return &planForecast{Start: &f.Start, Cores: &f.CPUs, Nodes: pointer(f.Nodes), Partition: pointer(f.Partition)}
}

// writeSlurm is for people.
func (p *plan) writeSlurm(w io.Writer, now time.Time) error {
	if p.Slurm == nil {
		return nil
	}
	hours := func(h *float64) string {
		if h == nil {
			return "-"
		}
		return wholeHours(*h)
	}
	head := []string{"<task", "workers at once", "first", "<each asks for", "time", "core-hours", "core-hours by timeout"}
	forecasts := p.Slurm[0].Forecast != nil
	if forecasts {
		head = append(head, "<forecast")
	}
	var rows [][]string
	cores, known := int64(0), true
	total := 0.0
	for i := range p.Slurm {
		s := &p.Slurm[i]
		first := units.Count(s.First)
		switch {
		case !s.Arrays:
			first += " jobs"
		case s.First > 1:
			first += " in an array"
		}
		asks := units.Plural(s.Cores, "core")
		if s.MemoryBytes > 0 {
			asks += ", " + units.Size(s.MemoryBytes)
		}
		if s.GPUs > 0 {
			asks += ", " + units.Plural(s.GPUs, "GPU")
		}
		if s.Fill {
			asks += ", and fills what it is given"
		}
		limit := "site's"
		if s.TimeSeconds != nil {
			limit = units.WriteDuration(ofSeconds(*s.TimeSeconds))
		}
		row := []string{s.Task, units.Count(s.Workers), first, asks, limit, hours(s.CoreHours), hours(s.BlockCoreHours)}
		if forecasts {
			row = append(row, s.Forecast.text(now))
		}
		rows = append(rows, row)
		cores += s.Workers * s.most()
		if s.CoreHours == nil {
			known = false
		} else {
			total += *s.CoreHours
		}
	}
	if err := report.Grid(w, "\nWorkers as jobs of Slurm", head, rows); err != nil {
		return err
	}
	text := "all at once: " + units.Plural(cores, "core")
	if known {
		text += fmt.Sprintf(", and %s core-hours if each worker lives to its limit once; a run that takes longer starts others after them", wholeHours(total))
	}
	for i := range p.Slurm {
		if s := &p.Slurm[i]; s.Fill {
			text += fmt.Sprintf("\n%s fills: that many workers, with one slot each, is the most there can be; with all of a node to each there are fewer", s.Task)
			if s.Forecast == nil {
				text += ", each of which costs what it is given (--test-only shows that)"
			}
		}
	}
	_, err := fmt.Fprintln(w, text)
	return err
}

// wholeHours rounds up.
func wholeHours(h float64) string {
	if h > 1e15 {
		return fmt.Sprintf("%.1e", h)
	}
	return units.Count(int64(math.Ceil(h)))
}

// text is when and where one of the workers would start, and with what, if that is not what it asked for.
func (f *planForecast) text(now time.Time) string {
	if f.Start == nil {
		return "none: " + *f.Said
	}
	when := "now"
	if in := f.Start.Sub(now); in > time.Minute {
		when = "in " + units.Duration(in.Round(time.Minute))
	}
	text := when + " on " + *f.Nodes
	if f.Partition != nil {
		text += " in " + *f.Partition
	}
	return text + ", " + strconv.FormatInt(*f.Cores, 10) + " CPUs"
}
