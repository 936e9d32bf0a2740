package scheduler_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"example.org/daisy/geom"
	. "example.org/daisy/scheduler"
)

// cube returns a grid of about n blocks in three dimensions, with a context in eighths of a block.
func cube(n int64, context int64, conflict bool) *geom.Grid {
	edge := int64(1)
	for edge*edge*edge < n {
		edge++
	}
	if n == 1e8 {
		return mustGrid(box(464, 464, 465), 8, context, conflict)
	}
	return mustGrid(box(edge, edge, edge), 8, context, conflict)
}

func box(shape ...int64) geom.Coordinate { return geom.Coord(shape...) }

// mustGrid returns a grid of the given blocks per axis, each w wide.
func mustGrid(blocks geom.Coordinate, w, context int64, conflict bool) *geom.Grid {
	d := blocks.Dims()
	total, c := blocks, geom.Fill(d, context)
	for i := range d {
		total = total.With(i, blocks.At(i)*w)
	}
	g, err := geom.NewGrid(geom.GridSpec{
		TotalRead:         geom.Roi{Offset: geom.Fill(d, 0), Shape: total}.Grow(c, c),
		Write:             geom.Roi{Offset: geom.Fill(d, 0), Shape: geom.Fill(d, w)},
		Read:              geom.Roi{Offset: geom.Fill(d, 0), Shape: geom.Fill(d, w)}.Grow(c, c),
		ReadWriteConflict: conflict,
	})
	if err != nil {
		panic(err)
	}
	return g
}

func mustPipeline(tasks []Task, edges ...Edge) *Pipeline {
	p, err := NewPipeline(tasks, edges)
	if err != nil {
		panic(err)
	}
	return p
}

func mustNew(p *Pipeline) *Scheduler {
	s, err := New(p, Options{})
	if err != nil {
		panic(err)
	}
	return s
}

type coreCase struct {
	name string
	make func(n int64) *Pipeline
}

func (c coreCase) pipeline1e8() *Pipeline { return c.make(1e8) }

// coreCases are the pipelines of the budget of the core; n is the number of blocks in all.
var coreCases = []coreCase{
	{"no_conflict", func(n int64) *Pipeline { return Single(Task{ID: "a", Grid: cube(n, 4, false)}) }},
	{"conflict", func(n int64) *Pipeline { return Single(Task{ID: "a", Grid: cube(n, 4, true)}) }},
	{"chain", func(n int64) *Pipeline {
		return mustPipeline([]Task{{ID: "a", Grid: cube(n/2, 0, false)}, {ID: "b", Grid: cube(n/2, 4, false)}}, Edge{"a", "b"})
	}},
	{"diamond", func(n int64) *Pipeline {
		return mustPipeline([]Task{{ID: "a", Grid: cube(n/4, 0, false)}, {ID: "b", Grid: cube(n/4, 4, false)}, {ID: "c", Grid: cube(n/4, 4, false)},
			{ID: "d", Grid: cube(n/4, 4, false)}}, Edge{"a", "b"}, Edge{"a", "c"}, Edge{"b", "d"}, Edge{"c", "d"})
	}},
}

// runAll runs a pipeline to its end with so many leases out, returned in random order, and returns the number of blocks.
func runAll(s *Scheduler, inFlight int) (blocks int64) {
	rng := rand.New(rand.NewPCG(1, 2))
	tasks := len(s.Pipeline().Tasks())
	out := make([]Lease, 0, inFlight)
	for !s.Ended() || len(out) > 0 {
		for task := tasks - 1; task >= 0 && len(out) < inFlight; {
			if h, ok := s.Acquire(task, Holder{}); ok {
				out = append(out, h.Lease)
			} else {
				task--
			}
		}
		if len(out) == 0 {
			if !s.Work(10000) && !s.Ended() {
				panic("nothing to do before the end")
			}
			continue
		}
		i := rng.IntN(len(out))
		if v := s.Release(out[i], Ending{Outcome: Success}); v != Succeeded {
			panic(v)
		}
		blocks++
		out[i] = out[len(out)-1]
		out = out[:len(out)-1]
	}
	return blocks
}

func BenchmarkCore(b *testing.B) {
	for _, c := range coreCases {
		for _, n := range []int64{1e6, 1e8} {
			if n == 1e8 && c.name == "diamond" {
				continue
			}
			b.Run(fmt.Sprintf("%s/1e%d", c.name, len(fmt.Sprint(n))-1), func(b *testing.B) {
				debug.FreeOSMemory() // what other rounds left behind would hide what this one takes
				blocks := int64(0)
				before, peak := residentBytes(), int64(0)
				for b.Loop() {
					s := mustNew(c.make(n))
					blocks += runAll(s, 64)
					if n == 1e8 {
						peak = max(peak, residentBytes()-before)
					}
				}
				b.ReportMetric(float64(blocks)/b.Elapsed().Seconds(), "blocks/s")
				if n == 1e8 {
					b.ReportMetric(float64(peak)/float64(blocks/int64(b.N)), "B/block")
				}
			})
		}
	}
}

// done returns the marks of n blocks, done but for those given.
func done(n int64, but ...int64) Bitmap {
	bits := NewBitmap(n)
	for i := range bits {
		bits[i] = ^uint64(0)
	}
	for _, block := range but {
		bits.Clear(block)
	}
	return bits
}

// BenchmarkFirstBlock measures from the description of 10^8 blocks to the first one handed out: the time of the slowest round and the
// memory that it made resident.
func BenchmarkFirstBlock(b *testing.B) {
	last := cube(1e8, 4, false).Len() - 1
	for _, c := range []struct {
		name string
		make func() *Pipeline
	}{
		{"fresh", coreCases[0].pipeline1e8},
		{"fresh_conflict", coreCases[1].pipeline1e8},
		{"fresh_chain", coreCases[2].pipeline1e8},
		{"resume_last_left", func() *Pipeline {
			return Single(Task{ID: "a", Grid: cube(1e8, 4, false), Done: done(last+1, last)})
		}},
		{"resume_conflict_first_left", func() *Pipeline { // a block of the last level
			return Single(Task{ID: "a", Grid: cube(1e8, 4, true), Done: done(last+1, 0)})
		}},
		{"resume_chain_upstream_done", func() *Pipeline {
			return mustPipeline([]Task{{ID: "a", Grid: cube(1e8, 0, false), Done: done(last + 1)}, {ID: "b", Grid: cube(1e8, 4, true)}}, Edge{"a", "b"})
		}},
		{"resume_chain_one_left", func() *Pipeline { // the one left of the upstream task is held, so the first block is downstream
			return mustPipeline([]Task{{ID: "a", Grid: cube(1e8, 0, false), Done: done(last+1, last)}, {ID: "b", Grid: cube(1e8, 4, false)}}, Edge{"a", "b"})
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			worst, memory := time.Duration(0), int64(0)
			for b.Loop() {
				b.StopTimer()
				p := c.make()
				debug.FreeOSMemory()
				before := residentBytes()
				b.StartTimer()
				begin := time.Now()
				s := mustNew(p)
				task := len(p.Tasks()) - 1
				if strings.HasPrefix(c.name, "fresh") {
					task = 0
				}
				for {
					if _, ok := s.Acquire(task, Holder{}); ok {
						break
					}
					if !s.Work(1<<16) && s.Tally(task).Ready == 0 {
						panic("no block")
					}
				}
				worst = max(worst, time.Since(begin))
				b.StopTimer()
				memory = max(memory, residentBytes()-before)
				b.StartTimer()
			}
			b.ReportMetric(float64(worst.Microseconds())/1000, "worst-ms")
			b.ReportMetric(float64(memory)/1e6, "MB")
		})
	}
}

// BenchmarkLongestHold measures the longest single call, Work in slices of sliceUnits included, from the event to the end of all that
// follows from it; of several rounds the best, because a busy machine takes its share of any of them.
func BenchmarkLongestHold(b *testing.B) {
	const sliceUnits = 1 << 15
	one := mustGrid(box(1, 1, 1), 8*464, 0, false)
	star := func() *Pipeline { // one block that 10^8 others need
		return mustPipeline([]Task{{ID: "one", Grid: one}, {ID: "many", Grid: cube(1e8, 0, false)}}, Edge{"one", "many"})
	}
	// all returns two tasks of so many blocks on each axis; those of the second need all of the first.
	all := func(blocks geom.Coordinate, marks Bitmap, each geom.Coordinate, eachMarks Bitmap) *Pipeline {
		extent := geom.Coord(max(blocks.At(0), each.At(0)), max(blocks.At(1), each.At(1)))
		grid := func(blocks, context geom.Coordinate) *geom.Grid {
			write := geom.Roi{Offset: box(0, 0), Shape: box(extent.At(0)/blocks.At(0), extent.At(1)/blocks.At(1))}
			g, err := geom.NewGrid(geom.GridSpec{TotalRead: geom.Roi{Offset: box(0, 0), Shape: extent}.Grow(context, context), Read: write.Grow(context, context), Write: write})
			if err != nil {
				panic(err)
			}
			return g
		}
		return mustPipeline([]Task{{ID: "a", Grid: grid(blocks, box(0, 0)), Done: marks}, {ID: "b", Grid: grid(each, extent), Done: eachMarks}}, Edge{"a", "b"})
	}
	for _, c := range []struct {
		name  string
		make  func() *Pipeline
		event func(s *Scheduler)
		tried int64 // one block in so many has been tried, and the others have succeeded; 0 = no past
	}{
		{"success", star, func(s *Scheduler) { releaseFirst(s, Success) }, 0},
		{"failure", star, func(s *Scheduler) { releaseFirst(s, Failed) }, 0},
		{"failure_above_conflict", func() *Pipeline {
			return mustPipeline([]Task{{ID: "one", Grid: one}, {ID: "many", Grid: cube(1e8, 4, true)}}, Edge{"one", "many"})
		}, func(s *Scheduler) { releaseFirst(s, Failed) }, 0},
		{"abandon", coreCases[2].pipeline1e8, func(s *Scheduler) { s.Abandon(0) }, 0},
		{"all_but_one_done", func() *Pipeline {
			g := cube(1e8, 4, true)
			return mustPipeline([]Task{{ID: "a", Grid: g, Done: done(g.Len(), g.Len()/2)}, {ID: "one", Grid: one}}, Edge{"a", "one"})
		}, func(*Scheduler) {}, 0},
		{"counters_beyond_a_byte", func() *Pipeline { return all(box(1, 1000), nil, box(1, 4e6), nil) }, func(s *Scheduler) {
			for range 240 { // then each of the 4e6 looks for what is left
				releaseFirst(s, Success)
			}
		}, 0},
		{"resume_before_blocks_that_need_all", func() *Pipeline { return all(box(1e6, 20), done(2e7, 5), box(50, 1), nil) }, func(*Scheduler) {}, 0},
		{"resume_one_that_many_need", func() *Pipeline { return all(box(16, 1), done(16, 5), box(1e7, 1), done(1e7, 7)) }, func(*Scheduler) {}, 0},
		{"resume_with_4e6_that_were_tried", func() *Pipeline { return Single(Task{ID: "a", Grid: cube(2e7, 0, false)}) }, func(*Scheduler) {}, 5},
	} {
		b.Run(c.name, func(b *testing.B) {
			var longest, best time.Duration
			timed := func(call func()) {
				begin := time.Now()
				call()
				longest = max(longest, time.Since(begin))
			}
			for b.Loop() {
				b.StopTimer()
				p, past := c.make(), []*Past(nil)
				if c.tried > 0 {
					n := p.Tasks()[0].Grid.Len()
					past = []*Past{NewPast(n)}
					for block := range n {
						end := PastEnding{Outcome: Success}
						if block%c.tried == 0 {
							end.Outcome = Lost
						}
						past[0].Ended(block, end)
					}
				}
				s, err := New(p, Options{Past: past})
				if err != nil {
					b.Fatal(err)
				}
				debug.FreeOSMemory()
				b.StartTimer()
				longest = 0
				timed(func() { c.event(s) })
				for more := true; more; {
					timed(func() { more = s.Work(sliceUnits) })
				}
				if best == 0 || longest < best {
					best = longest
				}
			}
			b.ReportMetric(float64(best.Microseconds())/1000, "longest-ms")
		})
	}
}

// BenchmarkTouched measures the memory, beside the bytes of the states, for each of a million blocks that were all leased at once and
// of which the given became then.
func BenchmarkTouched(b *testing.B) {
	const n = 1e6
	for _, c := range []struct {
		name   string
		ending Ending
	}{{"leased", Ending{}}, {"retried", Ending{Outcome: Lost}}, {"held", Ending{Outcome: Lost, Hold: true}}, {"failed", Ending{Outcome: Returned, Final: true}}} {
		b.Run(c.name, func(b *testing.B) {
			memory := int64(0)
			out := make([]Lease, 0, n)
			for b.Loop() {
				before := heapBytes()
				s := mustNew(Single(Task{ID: "a", Grid: mustGrid(box(n), 8, 0, false)}))
				for out = out[:0]; len(out) < n; {
					h, _ := s.Acquire(0, Holder{Worker: 1, Node: 1})
					out = append(out, h.Lease)
				}
				if c.ending.Outcome != Success {
					for _, l := range out {
						s.Release(l, c.ending)
					}
				}
				memory = max(memory, heapBytes()-before-n)
				runtime.KeepAlive(s)
			}
			b.ReportMetric(float64(memory)/n, "B/block")
		})
	}
}

func heapBytes() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func releaseFirst(s *Scheduler, o Outcome) {
	h, _ := s.Acquire(0, Holder{})
	if v := s.Release(h.Lease, Ending{Outcome: o}); v != Succeeded && v != FailedForGood {
		panic(v)
	}
}

// residentBytes returns the resident memory of this process 0 where /proc does not tell.
func residentBytes() int64 {
	data, _ := os.ReadFile("/proc/self/statm")
	var size, resident int64
	if _, err := fmt.Fscan(strings.NewReader(string(data)), &size, &resident); err != nil {
		return 0
	}
	return resident * int64(os.Getpagesize())
}
