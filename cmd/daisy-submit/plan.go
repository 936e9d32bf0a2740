package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"example.org/daisy/geom"
	"example.org/daisy/internal/job"
	"example.org/daisy/internal/report"
	"example.org/daisy/internal/units"
	"example.org/daisy/scheduler"
)

func planCommand() *cli.Command {
	return &cli.Command{
		Name: "plan", Usage: "show what a job would run, and start nothing",
		UsageText: "daisy-submit plan JOB [OPTIONS]",
		Description: `Checks the job file JOB and prints its tasks, regions and arrays, and how many blocks can run at once over the course of
the run. Nothing is started or written.

EXAMPLE
   daisy-submit plan segment.toml

EXIT STATUS
   0    the job can be run
   2    the job file or the command line is wrong
   3    the answer could not be written
`,
		Flags: append(jobFlags(), &cli.BoolFlag{Name: "json", Usage: "as JSON, in the shape of docs/plan.md"}),
		Action: func(c *cli.Context) error {
			path, err := oneArgument(c, "a job file")
			if err != nil {
				return err
			}
			j, err := loadJob(c, path)
			if err != nil {
				return err
			}
			p, err := makePlan(j)
			if err != nil {
				return &statusError{exitUsage, err}
			}
			if c.Bool("json") {
				err = json.NewEncoder(c.App.Writer).Encode(p)
			} else {
				err = p.write(c.App.Writer)
			}
			if err != nil {
				return infrastructure(err)
			}
			return nil
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
}

type planTask struct {
	ID         string      `json:"id"`
	After      []string    `json:"after"`
	Blocks     int64       `json:"blocks"`
	Masked     int64       `json:"masked"`
	Grid       []int64     `json:"grid"`
	Levels     int         `json:"levels"`
	Fit        string      `json:"fit"`
	TotalRead  geom.Roi    `json:"total_read"`
	TotalWrite geom.Roi    `json:"total_write"`
	BlockRead  []int64     `json:"block_read"`
	BlockWrite []int64     `json:"block_write"`
	Requires   string      `json:"requires"`
	MaxWorkers int64       `json:"max_workers"`
	AtOnce     int64       `json:"at_once"`
	Input      *planVolume `json:"input"`
	Output     *planVolume `json:"output"`
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
	p := &plan{Version: 1, Name: j.Name, Launcher: j.Launcher, Budget: budget.String(), Warnings: append([]string{}, j.Warnings...)}
	tasks := pipeline.Tasks()
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
			ID: t.ID, After: append([]string{}, jt.After...), Blocks: g.Len(), Masked: jt.Mask.Count(), Grid: g.Shape().Slice(), Levels: g.Levels(), Fit: g.Spec().Fit.String(),
			TotalRead: g.TotalRead(), TotalWrite: g.TotalWrite(),
			BlockRead: g.Spec().Read.Shape.Slice(), BlockWrite: g.BlockShape().Slice(),
			Requires: jt.Requires.String(), MaxWorkers: jt.MaxWorkers, AtOnce: min(most[i], fitting(jt, budget)),
			Input: volume(jt.Input), Output: volume(jt.Output),
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
	return p, nil
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
		tasks = append(tasks, []string{t.ID, dash(strings.Join(t.After, ", ")), units.Count(t.Blocks), numbers(t.Grid, " x "), strconv.Itoa(t.Levels), t.Requires, limit, units.Count(t.AtOnce)})
		regions = append(regions, []string{t.ID, t.TotalRead.String(), t.TotalWrite.String(), numbers(t.BlockRead, " x "), numbers(t.BlockWrite, " x "), t.Fit})
		for _, a := range []struct {
			role string
			v    *planVolume
		}{{"array", t.Input}, {"output", t.Output}} {
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
			arrays = append(arrays, []string{t.ID, a.role, a.v.Path, a.v.Format, a.v.Type, numbers(a.v.Shape, " x "), unit + " " + numbers(a.v.Chunks, " x "), size})
		}
	}
	title := fmt.Sprintf("Plan of %s: %s blocks in %d tasks, launcher %s, budget %s", p.Name, units.Count(p.Blocks), len(p.Tasks), p.Launcher, dash(p.Budget))
	if err := report.Grid(w, title+"\n\nTasks", []string{"<task", "<after", "blocks", "grid", "levels", "<requires", "max workers", "at once"}, tasks); err != nil {
		return err
	}
	if err := report.Grid(w, "\nRegions", []string{"<task", "<total read", "<total write", "block reads", "block writes", "<fit"}, regions); err != nil {
		return err
	}
	if arrays != nil {
		if err := report.Grid(w, "\nArrays", []string{"<task", "<role", "<path", "<format", "<type", "shape", "<written in", "voxel size"}, arrays); err != nil {
			return err
		}
	}
	if err := p.writeWaves(w); err != nil {
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
