package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"example.org/daisy/geom"
	"example.org/daisy/internal/job"
	"example.org/daisy/internal/report"
	"example.org/daisy/internal/tracking"
	"example.org/daisy/internal/units"
	"example.org/daisy/scheduler"
)

func planCommand() *cli.Command {
	return &cli.Command{
		Name: "plan", Usage: "show what a job would run, and start nothing",
		UsageText: "daisy-submit plan JOB [OPTIONS]",
		Description: `Checks the job file JOB and prints its tasks, regions and arrays, and how many blocks can run at once over the course of
the run. Blocks that the tracking folder says are done are counted. Nothing is started or written. What would keep the run from starting
here, as a limit of open files that is too low, is an error.

With the launcher slurm it says what workers ask for and what they cost at most. --test-only asks Slurm itself, once for each kind of
worker, whether it would take them and when the first would start; that uses up a job id each time.

EXAMPLE
   daisy-submit plan segment.toml

EXIT STATUS
   0    the job can be run
   2    the job file or the command line is wrong, this machine's limits are too low for the job, or Slurm would refuse it
   3    the tracking folder cannot be read, Slurm does not answer, or the answer could not be written
`,
		Flags: append(append(jobFlags(), selectionFlags()...),
			&cli.BoolFlag{Name: "test-only", Usage: "ask Slurm what it would make of the workers (sbatch --test-only)"},
			&cli.BoolFlag{Name: "json", Usage: "as JSON, in the shape of docs/plan.md"},
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
			if err := checkFiles(j); err != nil {
				return err
			}
			hold := memoryHoldAt("/")
			if _, err := hold.checkMemory(j); err != nil {
				return &statusError{exitUsage, err}
			}
			p, err := makePlan(j)
			if err != nil {
				return refused(err)
			}
			p.hold(j, hold)
			var refusal error
			if j.Launcher == "slurm" {
				p.addSlurm(j)
			}
			if c.Bool("test-only") {
				if j.Launcher != "slurm" {
					return usage("--test-only asks Slurm, and the launcher of %s is %q; --launcher slurm changes it", path, j.Launcher)
				}
				if refusal = p.askForecasts(c.Context, j); refusal != nil && p.Slurm[0].Forecast == nil {
					return refusal
				}
			}
			if c.Bool("json") {
				err = json.NewEncoder(c.App.Writer).Encode(p)
			} else {
				err = p.write(c.App.Writer)
			}
			if err != nil {
				return infrastructure(err)
			}
			return refusal
		},
	}
}

// exactUpTo is how many blocks are played through; above that the waves are an estimate.
const exactUpTo = 2_000_000

// plan is what would run, as docs/plan.md describes it.
type plan struct {
	Version  int        `json:"version"`
	Name     string     `json:"name"`
	Launcher string     `json:"launcher"`
	Budget   string     `json:"budget"`
	Blocks   int64      `json:"blocks"`
	Tasks    []planTask `json:"tasks"`
	// Exact: the waves were played through, not estimated.
	Exact    bool       `json:"exact"`
	Waves    []planWave `json:"waves"`
	Warnings []string   `json:"warnings"`
	// Defaults are the values that come from files of defaults.
	Defaults []planDefault `json:"defaults"`
	// Slurm is what the workers of each task ask of it, null with another launcher.
	Slurm []planSlurm `json:"slurm"`

	resources scheduler.Resources // of the budget
	tracked   bool                // there is a tracking folder
}

type planDefault struct {
	Task  *string `json:"task"`
	Key   string  `json:"key"`
	Value string  `json:"value"`
	File  string  `json:"file"`
	Line  int     `json:"line"`
	Cap   bool    `json:"cap"`
}

type planTask struct {
	ID         string      `json:"id"`
	After      []string    `json:"after"`
	Blocks     int64       `json:"blocks"`
	Masked     int64       `json:"masked"`
	Unselected int64       `json:"unselected"`
	Done       int64       `json:"done"`
	Grid       []int64     `json:"grid"`
	Levels     int         `json:"levels"`
	Fit        string      `json:"fit"`
	TotalRead  geom.Roi    `json:"total_read"`
	TotalWrite geom.Roi    `json:"total_write"`
	Unwritten  *planRest   `json:"unwritten"`
	BlockRead  []int64     `json:"block_read"`
	BlockWrite []int64     `json:"block_write"`
	ReadBytes  *int64      `json:"read_bytes"`
	WriteBytes *int64      `json:"write_bytes"`
	Requires   string      `json:"requires"`
	MaxWorkers int64       `json:"max_workers"`
	AtOnce     int64       `json:"at_once"`
	Input      *planVolume `json:"input"`
	Output     *planVolume `json:"output"`
	// EnforceMemory is how requires.memory is enforced here, null if it is not.
	EnforceMemory *string `json:"enforce_memory"`

	requires scheduler.Resources
	held     string // what that means
}

// planRest is what fit = "valid" leaves of the total write region, as no whole block fits there.
type planRest struct {
	Voxels  int64   `json:"voxels"` // 2^63-1 if there are more
	Percent float64 `json:"percent"`
	AtEnd   []int64 `json:"at_end"` // by axis
}

type planVolume struct {
	Path      string    `json:"path"`
	Format    string    `json:"format"`
	Type      string    `json:"type"`
	Shape     []int64   `json:"shape"`
	Chunks    []int64   `json:"chunks"`
	Sharded   bool      `json:"sharded"`
	VoxelSize []float64 `json:"voxel_size"`
}

type planWave struct {
	Repeat int64            `json:"repeat"`
	Blocks map[string]int64 `json:"blocks"`
}

func makePlan(j *job.Job) (*plan, error) {
	pipeline, err := j.Pipeline()
	if err != nil {
		return nil, err
	}
	budget := j.Budget(machine())
	p := &plan{
		Version: 1, Name: j.Name, Launcher: j.Launcher, Budget: budget.String(), Warnings: append([]string{}, j.Warnings...),
		resources: budget, tracked: j.Tracking != "", Defaults: []planDefault{},
	}
	for _, d := range j.Defaults {
		p.Defaults = append(p.Defaults, planDefault{pointer(d.Task), d.Key, d.Value, d.File, d.Line, d.Cap})
	}
	tasks := pipeline.Tasks()
	if p.tracked {
		if pipeline, err = withMarks(pipeline, j.Tracking); err != nil {
			return nil, err
		}
		tasks = pipeline.Tasks()
	}
	waves, exact := scheduler.Waves(pipeline, exactUpTo)
	p.Exact = exact
	most := make([]int64, len(tasks))
	for _, w := range waves {
		pw := planWave{Repeat: w.Repeat, Blocks: map[string]int64{}}
		for i, n := range w.Blocks {
			most[i] = max(most[i], n)
			if n > 0 {
				pw.Blocks[tasks[i].ID] = n
			}
		}
		p.Waves = append(p.Waves, pw)
	}
	for i, t := range tasks {
		jt, g := j.Task(t.ID), t.Grid
		pt := planTask{
			ID: t.ID, After: append([]string{}, jt.After...), Blocks: g.Len(), Masked: jt.Mask.Count() - jt.Unselected.Count(), Unselected: jt.Unselected.Count(), Done: t.Done.Count(),
			Grid: g.Shape().Slice(), Levels: g.Levels(), Fit: g.Spec().Fit.String(),
			TotalRead: g.TotalRead(), TotalWrite: g.TotalWrite(), Unwritten: unwritten(g),
			BlockRead: g.Spec().Read.Shape.Slice(), BlockWrite: g.BlockShape().Slice(),
			Requires: jt.Requires.String(), MaxWorkers: jt.MaxWorkers, AtOnce: min(most[i], fitting(jt, budget)),
			Input: volume(jt.Input), Output: volume(jt.Output), requires: jt.Requires,
		}
		if jt.MaxWorkers > 0 {
			pt.AtOnce = min(pt.AtOnce, jt.MaxWorkers)
		}
		if j.Launcher == "serial" {
			pt.AtOnce = min(pt.AtOnce, 1)
		}
		p.Blocks += pt.Blocks
		p.Tasks = append(p.Tasks, pt)
	}
	p.addBytes(j)
	return p, nil
}

// unselected is how many blocks are left out.
func (p *plan) unselected() (n int64) {
	for _, t := range p.Tasks {
		n += t.Unselected
	}
	return n
}

// hold adds how memory is enforced.
func (p *plan) hold(j *job.Job, h memoryHold) {
	for i := range p.Tasks {
		t := j.Task(p.Tasks[i].ID)
		if !t.EnforceMemory {
			continue
		}
		p.Tasks[i].EnforceMemory, p.Tasks[i].held = &h.how, h.says(t)
		if text := h.warns(t); text != "" {
			p.Warnings = append(p.Warnings, text)
		}
	}
}

// withMarks is the pipeline with the blocks that are done by the marks in a tracking folder, which a run would skip.
func withMarks(p *scheduler.Pipeline, folder string) (*scheduler.Pipeline, error) {
	tasks := p.Tasks()
	var errs []error
	for i := range tasks {
		var err error
		if tasks[i].Done, err = tracking.ReadDone(filepath.Join(folder, tasks[i].ID), tasks[i].Grid); err != nil {
			errs = append(errs, fmt.Errorf("task %q: %w", tasks[i].ID, err))
		}
	}
	if errs != nil {
		return nil, errors.Join(errs...)
	}
	return scheduler.NewPipeline(tasks, p.Edges())
}

// fitting is how many blocks of a task the budget lets run at once.
func fitting(t *job.Task, budget scheduler.Resources) int64 {
	most := int64(1) << 62
	for _, name := range t.Requires.Names() {
		if need := t.Requires.Get(name); need > 0 {
			most = min(most, budget.Get(name)/need)
		}
	}
	return most
}

// unwritten is nil if nothing is left, as always with another fit.
func unwritten(g *geom.Grid) *planRest {
	rest := &planRest{AtEnd: g.Unwritten().Slice()}
	if units.AtEnd(rest.AtEnd) == "" {
		return nil
	}
	all, written := big.NewInt(1), big.NewInt(1)
	for axis, left := range rest.AtEnd {
		extent := g.TotalWrite().Shape.At(axis)
		all.Mul(all, big.NewInt(extent))
		written.Mul(written, big.NewInt(extent-left))
	}
	voxels := written.Sub(all, written)
	rest.Voxels = math.MaxInt64
	if voxels.IsInt64() {
		rest.Voxels = voxels.Int64()
	}
	share, _ := new(big.Rat).SetFrac(voxels, all).Float64()
	rest.Percent = 100 * share
	return rest
}

// sayUnwritten is for people, in the plan and at the start of a run.
func sayUnwritten(task string, rest *planRest) string {
	return fmt.Sprintf("task %q: fit = \"valid\" leaves unwritten %v; fit = \"shrink\" covers all", task, rest)
}

// String is "1,200 voxels (13.3%): the last 5 on axis 0, the last 3 on axis 2".
func (r *planRest) String() string {
	count := units.Count(r.Voxels)
	if r.Voxels == math.MaxInt64 {
		count = "2^63 or more"
	}
	percent := strconv.FormatFloat(r.Percent, 'f', 1, 64)
	if percent == "0.0" {
		percent = "less than 0.1"
	}
	return fmt.Sprintf("%s voxels (%s%%): %s", count, percent, units.AtEnd(r.AtEnd))
}

// readable is r.String() with memory rounded for people.
func readable(r scheduler.Resources) string {
	parts := make([]string, 0, len(r.Names()))
	for _, name := range r.Names() {
		n := r.Get(name)
		if name == "memory" {
			parts = append(parts, "memory="+units.Size(n))
		} else {
			parts = append(parts, scheduler.NewResources(map[string]int64{name: n}).String())
		}
	}
	return strings.Join(parts, " ")
}

func volume(v *job.Volume) *planVolume {
	if v == nil {
		return nil
	}
	return &planVolume{Path: v.Path, Format: v.Format, Type: v.DType, Shape: v.Shape.Slice(), Chunks: v.Chunks.Slice(), Sharded: v.Sharded, VoxelSize: v.VoxelSize}
}

// shownWaves is how many lines of waves people see.
const shownWaves = 20

func (p *plan) write(w io.Writer) error {
	var tasks, regions, arrays [][]string
	for _, t := range p.Tasks {
		limit := "-"
		if t.MaxWorkers > 0 {
			limit = units.Count(t.MaxWorkers)
		}
		done := "-"
		if p.tracked {
			done = units.Count(t.Done)
		}
		tasks = append(tasks, []string{t.ID, dash(strings.Join(t.After, ", ")), units.Count(t.Blocks), done, numbers(t.Grid, " x "), strconv.Itoa(t.Levels), readable(t.requires), limit, units.Count(t.AtOnce)})
		regions = append(regions, []string{t.ID, t.TotalRead.String(), t.TotalWrite.String(), numbers(t.BlockRead, " x "), numbers(t.BlockWrite, " x "), t.Fit})
		for _, a := range []struct {
			role  string
			v     *planVolume
			block *int64
		}{{"array", t.Input, t.ReadBytes}, {"output", t.Output, t.WriteBytes}} {
			if a.v == nil {
				continue
			}
			unit := "chunk"
			if a.v.Sharded {
				unit = "shard"
			}
			size := "-"
			if a.v.VoxelSize != nil {
				size = strings.Trim(fmt.Sprint(a.v.VoxelSize), "[]")
			}
			block := "-"
			if a.block != nil {
				block = units.Size(*a.block)
			}
			arrays = append(arrays, []string{t.ID, a.role, a.v.Path, a.v.Format, a.v.Type, numbers(a.v.Shape, " x "), unit + " " + numbers(a.v.Chunks, " x "), block, size})
		}
	}
	blocks := units.Plural(p.Blocks, "block")
	if leftOut := p.unselected(); leftOut > 0 {
		blocks = fmt.Sprintf("%s (%s selected)", blocks, units.Count(p.Blocks-leftOut))
	}
	title := fmt.Sprintf("Plan of %s: %s in %s, launcher %s, budget %s", p.Name, blocks, units.Plural(int64(len(p.Tasks)), "task"), p.Launcher, dash(readable(p.resources)))
	if err := report.Grid(w, title+"\n\nTasks", []string{"<task", "<after", "blocks", "done before", "grid", "levels", "<requires", "max workers", "at once"}, tasks); err != nil {
		return err
	}
	if err := report.Grid(w, "\nRegions", []string{"<task", "<total read", "<total write", "block reads", "block writes", "<fit"}, regions); err != nil {
		return err
	}
	for _, t := range p.Tasks {
		if t.Unwritten != nil {
			if _, err := fmt.Fprintln(w, sayUnwritten(t.ID, t.Unwritten)); err != nil {
				return err
			}
		}
		if t.held != "" {
			if _, err := fmt.Fprintln(w, t.held); err != nil {
				return err
			}
		}
	}
	if arrays != nil {
		if err := report.Grid(w, "\nArrays", []string{"<task", "<role", "<path", "<format", "<type", "shape", "<written in", "a block", "voxel size"}, arrays); err != nil {
			return err
		}
	}
	if err := p.writeSlurm(w, time.Now()); err != nil {
		return err
	}
	if err := p.writeWaves(w); err != nil {
		return err
	}
	if err := p.writeDefaults(w); err != nil {
		return err
	}
	for _, text := range p.Warnings {
		if _, err := fmt.Fprintln(w, "\nwarning: "+text); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintln(w, "\nNothing was started.")
	return err
}

// writeWaves shows how many blocks are ready at once over the course of the run, if there were workers for all of them.
func (p *plan) writeWaves(w io.Writer) error {
	head := []string{"step"}
	for _, t := range p.Tasks {
		head = append(head, t.ID)
	}
	var rows [][]string
	step := int64(1)
	for i, wave := range p.Waves {
		if i == shownWaves {
			rows = append(rows, append([]string{fmt.Sprintf("… %d more", len(p.Waves)-i)}, make([]string, len(p.Tasks))...))
			break
		}
		name := units.Count(step)
		if wave.Repeat > 1 {
			name += "-" + units.Count(step+wave.Repeat-1)
		}
		step += wave.Repeat
		row := []string{name}
		for _, t := range p.Tasks {
			row = append(row, units.Count(wave.Blocks[t.ID]))
		}
		rows = append(rows, row)
	}
	title := "\nBlocks that can run at once, step by step, with workers for all"
	if !p.Exact {
		title += " (estimated: too many blocks to play through)"
	}
	return report.Grid(w, title, head, rows)
}

// writeDefaults says which values come from where, if not from the job, the command line or this program.
func (p *plan) writeDefaults(w io.Writer) error {
	if len(p.Defaults) == 0 {
		return nil
	}
	var rows [][]string
	for _, d := range p.Defaults {
		of, where := "run", fmt.Sprintf("%s:%d", d.File, d.Line)
		if d.Task != nil {
			of = *d.Task
		}
		if d.Cap {
			where += " (the most that the site allows)"
		}
		rows = append(rows, []string{of, d.Key, d.Value, where})
	}
	return report.Grid(w, "\nFrom defaults of the user or the site", []string{"<of", "<key", "<value", "<from"}, rows)
}

func numbers(v []int64, between string) string {
	parts := make([]string, len(v))
	for i, n := range v {
		parts[i] = strconv.FormatInt(n, 10)
	}
	return strings.Join(parts, between)
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
