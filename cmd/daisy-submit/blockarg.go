package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"example.org/daisy/geom"
	"example.org/daisy/internal/job"
)

// blockArgument is a block as people name it: by its id, or by its position in the grid.
type blockArgument struct {
	id    uint64
	index []int64 // nil: the id counts
}

// parseBlock reads "17", an id, or "0,1,4", a position; that in a grid of one axis is written "(4)".
func parseBlock(text string) (blockArgument, error) {
	if id, err := strconv.ParseUint(text, 10, 64); err == nil {
		return blockArgument{id: id}, nil
	}
	inside := strings.TrimSpace(text)
	if in, ok := strings.CutPrefix(inside, "("); ok {
		inside = strings.TrimSuffix(in, ")")
	}
	var b blockArgument
	for part := range strings.SplitSeq(inside, ",") {
		n, err := strconv.ParseInt(strings.TrimSpace(part), 10, 64)
		if err != nil || n < 0 {
			return b, fmt.Errorf("%q is no block; allowed is an id, as 17, or a position in the grid, as 0,1,4, or (4) where there is one axis", text)
		}
		b.index = append(b.index, n)
	}
	return b, nil
}

// in finds the block in a grid.
func (b blockArgument) in(g *geom.Grid) (int64, error) {
	if b.index == nil {
		if flat, ok := g.BlockOfID(b.id); ok {
			return flat, nil
		}
		return 0, fmt.Errorf("there is no block %d; the grid has %d blocks, from position %s to %s; a position is written 0,1,4", b.id, g.Len(), position(g, 0), position(g, g.Len()-1))
	}
	if at, err := geom.CoordOf(b.index); err == nil {
		if flat := g.Flat(at); flat >= 0 {
			return flat, nil
		}
	}
	return 0, fmt.Errorf("there is no block at (%s); the grid is %s blocks, counted from 0", numbers(b.index, ", "), numbers(g.Shape().Slice(), " x "))
}

func position(g *geom.Grid, flat int64) string {
	if flat < 0 || flat >= g.Len() {
		return "-"
	}
	return g.Index(flat).String()
}

// inLogs is what logs call the block, in each task of a job that has it; only in task, if that is not "".
func (b blockArgument) inLogs(j *job.Job, task string) (*wantedBlock, error) {
	var misses []error
	w := &wantedBlock{names: map[string]string{}}
	for i := range j.Tasks {
		if task != "" && j.Tasks[i].ID != task {
			continue
		}
		g := j.Tasks[i].Grid
		flat, err := b.in(g)
		if err != nil {
			misses = append(misses, fmt.Errorf("task %q: %w", j.Tasks[i].ID, err))
			continue
		}
		if id, fits := g.ID(flat); fits {
			w.names[j.Tasks[i].ID] = strconv.FormatUint(id, 10)
		} else {
			w.names[j.Tasks[i].ID] = g.Index(flat).String()
		}
	}
	if len(w.names) == 0 {
		return nil, errors.Join(misses...)
	}
	return w, nil
}
