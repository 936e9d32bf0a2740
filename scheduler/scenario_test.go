package scheduler_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"example.org/daisy/geom"
	. "example.org/daisy/scheduler"
)

// TestScenarios plays the files of testdata/scenarios: events in, decisions out. Blocks are written task/block.
//
//	pipeline                 lines "task ID blocks=N[xM] width=W [low=n high=n] [fit=f] [conflict] [retries=n] [lost=n] [done=b,b] [mask=b,b]"
//	                         and "edge UP DOWN"; prints where every block stands
//	acquire task [n] [worker=w] [node=n]
//	release block outcome [hold] [blameless] [final]    of the block's latest lease
//	began block              its worker has started it
//	unhold block             the time to keep it back is over
//	abandon task
//	work [units]             bulk work: one slice, or all
//	blocks, tally, failures  what stands where
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata/scenarios", func(t *testing.T, path string) {
		var s *scenario
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd == "pipeline" {
				p, err := readPipeline(d.Input)
				if err != nil {
					return err.Error() + "\n"
				}
				core, err := New(p, Options{})
				if err != nil {
					return err.Error() + "\n"
				}
				s = &scenario{Scheduler: core, leases: map[string]Lease{}}
				return s.blocks()
			}
			return s.play(t, d)
		})
	})
}

type scenario struct {
	*Scheduler
	leases map[string]Lease // latest, by block
}

func (s *scenario) play(t *testing.T, d *datadriven.TestData) string {
	args, opts := []string{}, map[string]string{}
	for _, a := range d.CmdArgs {
		if a.Vals == nil {
			args = append(args, a.Key)
			opts[a.Key] = ""
		} else {
			opts[a.Key] = a.Vals[0]
		}
	}
	number := func(text string) int64 {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		return n
	}
	has := func(name string) bool { _, ok := opts[name]; return ok }
	block := func(name string) (int, int64) {
		task, b, _ := strings.Cut(name, "/")
		return s.Pipeline().Index(task), number(b)
	}
	switch d.Cmd {
	case "acquire":
		var h Holder
		if has("worker") {
			h.Worker = uint32(number(opts["worker"]))
		}
		if has("node") {
			h.Node = uint32(number(opts["node"]))
		}
		n := int64(1)
		if len(args) > 1 {
			n = number(args[1])
		}
		out := ""
		for range n {
			got, ok := s.Acquire(s.Pipeline().Index(args[0]), h)
			if !ok {
				return out + "nothing ready\n"
			}
			name := fmt.Sprintf("%s/%d", args[0], got.Block)
			s.leases[name] = got.Lease
			out += fmt.Sprintf("%s attempt %d\n", name, got.Attempt)
		}
		return out
	case "release":
		for o := Success; o <= Recalled; o++ {
			if o.String() == args[1] {
				return s.Release(s.leases[args[0]], Ending{Outcome: o, Hold: has("hold"), Blameless: has("blameless"), Final: has("final")}).String() + "\n"
			}
		}
		d.Fatalf(t, "no outcome %q", args[1])
	case "began":
		s.Began(s.leases[args[0]])
		return s.tally()
	case "unhold":
		s.Unhold(block(args[0]))
		return s.blocks()
	case "abandon":
		s.Abandon(s.Pipeline().Index(args[0]))
		return s.blocks()
	case "work":
		if len(args) > 0 {
			more := s.Work(int(number(args[0])))
			return s.blocks() + fmt.Sprintf("more: %v\n", more)
		}
		drain(s.Scheduler, 100)
		return s.blocks()
	case "blocks":
		return s.blocks()
	case "tally":
		return s.tally()
	case "failures":
		out := ""
		for task, spec := range s.Pipeline().Tasks() {
			s.Failures(task, func(b int64, attempts int) bool {
				out += fmt.Sprintf("%s/%d after %d attempts\n", spec.ID, b, attempts)
				return true
			})
		}
		return out
	}
	d.Fatalf(t, "no command %q", d.Cmd)
	return ""
}

// blocks writes a line per task: its state, and where each block stands.
func (s *scenario) blocks() string {
	out := ""
	for task, spec := range s.Pipeline().Tasks() {
		out += fmt.Sprintf("%s %v:", spec.ID, s.State(task))
		for b := range spec.Grid.Len() {
			out += " " + s.Block(task, b).String()
		}
		out += "\n"
	}
	return out
}

// tally writes the counts that are not 0.
func (s *scenario) tally() string {
	out := ""
	for task, spec := range s.Pipeline().Tasks() {
		out += fmt.Sprintf("%s %v:", spec.ID, s.State(task))
		for field := range strings.FieldsSeq(strings.Trim(fmt.Sprintf("%+v", s.Tally(task)), "{}")) {
			if name, n, _ := strings.Cut(field, ":"); n != "0" {
				out += fmt.Sprintf(" %s=%s", strings.ToLower(name), n)
			}
		}
		out += "\n"
	}
	return out
}

func readPipeline(input string) (*Pipeline, error) {
	var tasks []Task
	var edges []Edge
	for line := range strings.Lines(input) {
		words := strings.Fields(line)
		if words[0] == "edge" {
			edges = append(edges, Edge{words[1], words[2]})
			continue
		}
		opts := map[string]string{"width": "10", "low": "0", "high": "0", "retries": "2", "lost": "5", "fit": "valid"}
		for _, w := range words[2:] {
			name, value, _ := strings.Cut(w, "=")
			opts[name] = value
		}
		n := map[string]int64{}
		for _, name := range []string{"width", "low", "high", "retries", "lost"} {
			n[name], _ = strconv.ParseInt(opts[name], 10, 64)
		}
		sides := strings.Split(opts["blocks"], "x")
		low, high, width := geom.Fill(len(sides), n["low"]), geom.Fill(len(sides), n["high"]), geom.Fill(len(sides), n["width"])
		total := geom.Fill(len(sides), 0)
		for i, side := range sides {
			blocks, _ := strconv.ParseInt(side, 10, 64)
			total = total.With(i, blocks*n["width"])
		}
		fit, err := geom.ParseFit(opts["fit"])
		if err != nil {
			return nil, err
		}
		_, conflict := opts["conflict"]
		origin := geom.Fill(len(sides), 0)
		g, err := geom.NewGrid(geom.GridSpec{
			TotalRead: geom.Roi{Offset: origin, Shape: total}.Grow(low, high), Read: geom.Roi{Offset: origin, Shape: width}.Grow(low, high),
			Write: geom.Roi{Offset: origin, Shape: width}, Fit: fit, ReadWriteConflict: conflict})
		if err != nil {
			return nil, err
		}
		bits := func(list string) Bitmap {
			if list == "" {
				return nil
			}
			b := NewBitmap(g.Len())
			for one := range strings.SplitSeq(list, ",") {
				i, _ := strconv.ParseInt(one, 10, 64)
				b.Set(i)
			}
			return b
		}
		tasks = append(tasks, Task{ID: words[1], Grid: g, MaxRetries: int(n["retries"]), MaxLost: int(n["lost"]), Done: bits(opts["done"]), Mask: bits(opts["mask"])})
	}
	return NewPipeline(tasks, edges)
}
