package scheduler_test

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"example.org/daisy/geom"
	. "example.org/daisy/scheduler"
)

// plainPipeline is what both schedulers are made of.
type plainPipeline struct {
	tasks []plainTask
	edges [][2]int
}

// drawPipeline draws 1 to 4 tasks in 1 to 4 dimensions with edges in any shape: chains, fans, diamonds, tasks apart.
func drawPipeline(t *rapid.T) plainPipeline {
	d := rapid.IntRange(1, 4).Draw(t, "dims")
	world := make([]int64, d)
	for i := range world {
		world[i] = rapid.Int64Range(-40, 40).Draw(t, "world")
	}
	var p plainPipeline
	for i := range rapid.IntRange(1, 4).Draw(t, "tasks") {
		p.tasks = append(p.tasks, drawTask(t, world))
		for u := range i {
			if rapid.Bool().Draw(t, fmt.Sprintf("edge %d-%d", u, i)) {
				p.edges = append(p.edges, [2]int{u, i})
			}
		}
	}
	return p
}

// drawTask draws a task near a place. Contexts are none, even, lopsided, or larger than a block.
func drawTask(t *rapid.T, near []int64) plainTask {
	d := len(near)
	most := []int64{24, 6, 3, 2}[d-1] // blocks per axis
	p := plainTask{
		fit:        rapid.SampledFrom([]string{"valid", "overhang", "shrink"}).Draw(t, "fit"),
		conflict:   rapid.Bool().Draw(t, "conflict"),
		maxRetries: rapid.IntRange(0, 2).Draw(t, "max_retries"),
		maxLost:    rapid.IntRange(1, 3).Draw(t, "max_lost"),
	}
	kind := rapid.SampledFrom([]string{"none", "even", "lopsided", "large"}).Draw(t, "context")
	for i := range d {
		w := rapid.Int64Range(1, 6).Draw(t, "width")
		extent := max(1, w*rapid.Int64Range(1, most).Draw(t, "blocks")-rapid.Int64Range(0, w-1).Draw(t, "ragged"))
		low, high := int64(0), int64(0)
		switch kind {
		case "even":
			low = rapid.Int64Range(0, w).Draw(t, "low")
			high = low
		case "lopsided":
			low, high = rapid.Int64Range(0, w).Draw(t, "low"), rapid.Int64Range(0, w).Draw(t, "high")
		case "large":
			low, high = rapid.Int64Range(0, 3*w).Draw(t, "low"), rapid.Int64Range(0, 3*w).Draw(t, "high")
		}
		begin := near[i] + rapid.Int64Range(-7, 7).Draw(t, "begin")
		at := rapid.Int64Range(-20, 20).Draw(t, "template")
		p.total = append(p.total, [2]int64{begin - low, begin + extent + high})
		p.write = append(p.write, [2]int64{at, at + w})
		p.read = append(p.read, [2]int64{at - low, at + w + high})
	}
	n := len(first(p.blocks(0)))
	switch rapid.SampledFrom([]string{"none", "none", "some", "most", "all"}).Draw(t, "done") {
	case "some":
		p.skip = make([]bool, n)
		for i := range p.skip {
			p.skip[i] = rapid.Bool().Draw(t, "skip")
		}
	case "most":
		p.skip = make([]bool, n)
		for i := range p.skip {
			p.skip[i] = true
		}
		for range n / 16 {
			p.skip[rapid.IntRange(0, n-1).Draw(t, "not done")] = false
		}
	case "all":
		p.skip = make([]bool, n)
		for i := range p.skip {
			p.skip[i] = true
		}
	}
	return p
}

func first[A, B any](a A, _ B) A { return a }

func (p plainPipeline) scheduler(t rapid.TB) *Scheduler { return p.resumed(t, nil) }

func (p plainPipeline) resumed(t rapid.TB, past []*Past) *Scheduler {
	t.Helper()
	roi := func(r [][2]int64) (out geom.Roi) {
		out.Offset, out.Shape = geom.Fill(len(r), 0), geom.Fill(len(r), 0)
		for i := range r {
			out.Offset, out.Shape = out.Offset.With(i, r[i][0]), out.Shape.With(i, r[i][1]-r[i][0])
		}
		return out
	}
	var tasks []Task
	for i, pt := range p.tasks {
		fit, err := geom.ParseFit(pt.fit)
		if err != nil {
			t.Fatal(err)
		}
		g, err := geom.NewGrid(geom.GridSpec{TotalRead: roi(pt.total), Read: roi(pt.read), Write: roi(pt.write), Fit: fit, ReadWriteConflict: pt.conflict})
		if err != nil {
			t.Fatal(err)
		}
		task := Task{ID: fmt.Sprint(i), Grid: g, MaxRetries: pt.maxRetries, MaxLost: pt.maxLost}
		for b, skip := range pt.skip { // even ones by the mask, odd ones by the done bits
			if task.Done == nil {
				task.Done, task.Mask = NewBitmap(g.Len()), NewBitmap(g.Len())
			}
			if skip && b%2 == 0 {
				task.Mask.Set(int64(b))
			} else if skip {
				task.Done.Set(int64(b))
			}
		}
		tasks = append(tasks, task)
	}
	var edges []Edge
	for _, e := range p.edges {
		edges = append(edges, Edge{fmt.Sprint(e[0]), fmt.Sprint(e[1])})
	}
	pl, err := NewPipeline(tasks, edges)
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(pl, Options{Past: past})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// drain does all bulk work, in slices of the given size.
func drain(s *Scheduler, units int) {
	for s.Work(units) {
	}
}

var endings = []Ending{
	{Outcome: Success}, {Outcome: Success}, {Outcome: Success}, {Outcome: Success}, {Outcome: Success}, {Outcome: Success},
	{Outcome: Skipped}, {Outcome: Failed}, {Outcome: Failed, Hold: true}, {Outcome: TimedOut}, {Outcome: OutOfMemory},
	{Outcome: Lost}, {Outcome: Lost, Blameless: true}, {Outcome: Returned}, {Outcome: Returned, Final: true},
	{Outcome: Recalled}, {Outcome: Recalled, Hold: true}, {Outcome: Lost, Hold: true},
}

// TestAnyOrderOfEventsEndsWhereThePlainModelDoes runs both schedulers through the same events. The scheduler may be behind with bulk
// work at any time; what it hands out must be ready in the model all the same, and when it has caught up both stand alike.
func TestAnyOrderOfEventsEndsWhereThePlainModelDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawPipeline(t)
		m, s := newModel(p.tasks, p.edges), p.scheduler(t)
		type out struct {
			lease Lease
			block *plainBlock
		}
		var leased []out
		var stale []Lease
		held := map[*plainBlock]bool{}
		seen := map[Lease]bool{}
		tasks := len(p.tasks)
		type ended struct {
			task  int
			block int64
			PastEnding
			verdict Verdict
			retry   bool // instead: the failed blocks of the task were to begin anew
		}
		var ends []ended
		clear := func(task int) {
			kept := leased[:0]
			for _, o := range leased {
				if o.block.task == task {
					stale = append(stale, o.lease)
				} else {
					kept = append(kept, o)
				}
			}
			leased = kept
		}
		sync := func() {
			drain(s, rapid.IntRange(1, 200).Draw(t, "units"))
			if d := m.difference(s); d != "" {
				t.Fatal(d)
			}
		}
		check := func(h Handout, task int) {
			b := m.blocks[task][h.Block]
			if b.state != BlockReady || int(h.Attempt) != b.attempts+1 || seen[h.Lease] || h.Lease == 0 || int(h.Task) != task {
				t.Fatalf("handed out %+v: the block is %v after %d attempts", h, b.state, b.attempts)
			}
			if again, ok := s.Lookup(h.Lease); !ok || again != h {
				t.Fatalf("Lookup says %+v %v of %+v", again, ok, h)
			}
			if s.HighWater(task) <= h.Block {
				t.Fatalf("block %d was handed out, the high water is %d", h.Block, s.HighWater(task))
			}
			seen[h.Lease] = true
			b.state = BlockLeased
			leased = append(leased, out{h.Lease, b})
		}
		acquire := func(task int) bool {
			h, ok := s.Acquire(task, Holder{Worker: rapid.Uint32Range(0, 3).Draw(t, "worker")})
			if ok {
				check(h, task)
			}
			return ok
		}
		t.Repeat(map[string]func(*rapid.T){
			"acquire": func(t *rapid.T) {
				for range rapid.IntRange(1, 6).Draw(t, "how many") {
					acquire(rapid.IntRange(0, tasks-1).Draw(t, "task"))
				}
			},
			"acquire those above": func(t *rapid.T) {
				sync()
				task := rapid.IntRange(0, tasks-1).Draw(t, "task")
				from := rapid.SampledFrom([]int64{0, 1, 5, 9, 13, 22, 63, 64, 65, int64(len(m.blocks[task])) - 1, int64(len(m.blocks[task]))}).Draw(t, "from")
				for range rapid.IntRange(1, 6).Draw(t, "how many") {
					must := m.above(task, from)
					h, ok := s.AcquireAbove(task, from, Holder{Worker: rapid.Uint32Range(0, 3).Draw(t, "worker")})
					if !ok {
						if must > 0 {
							t.Fatalf("%d blocks from %d on are ready, and none was found", must, from)
						}
						break
					}
					if h.Block < from {
						t.Fatalf("block %d, from %d on", h.Block, from)
					}
					check(h, task)
				}
			},
			"acquire a certain one": func(t *rapid.T) {
				sync() // what is ready is known for certain then
				task := rapid.IntRange(0, tasks-1).Draw(t, "task")
				block := rapid.Int64Range(-1, int64(len(m.blocks[task]))).Draw(t, "block")
				attempt := rapid.Int32Range(0, 3).Draw(t, "attempt")
				inside := block >= 0 && block < int64(len(m.blocks[task]))
				want := inside && m.blocks[task][block].state == BlockReady && int(attempt) > m.blocks[task][block].attempts
				h, ok := s.Reacquire(task, block, attempt, Holder{Worker: rapid.Uint32Range(0, 3).Draw(t, "worker")})
				if ok != want || ok && h.Block != block {
					t.Fatalf("block %d as attempt %d: %+v %v, want %v", block, attempt, h, ok, want)
				}
				if ok {
					check(h, task)
				}
			},
			"release": func(t *rapid.T) {
				for range rapid.IntRange(1, 6).Draw(t, "how many") {
					if len(leased) == 0 {
						return
					}
					i := rapid.IntRange(0, len(leased)-1).Draw(t, "which")
					e := rapid.SampledFrom(endings).Draw(t, "ending")
					o := leased[i]
					leased = append(leased[:i], leased[i+1:]...)
					want := m.release(o.block, e)
					if want == Held {
						held[o.block] = true
					}
					if got := s.Release(o.lease, e); got != want {
						t.Fatalf("release %+v: %v, want %v", e, got, want)
					}
					if e.Outcome != Recalled {
						if want == Held {
							want = Retry
						}
						ends = append(ends, ended{o.block.task, int64(m.index(o.block)), PastEnding{e.Outcome, e.Blameless, want == FailedForGood}, want, false})
					}
					stale = append(stale, o.lease)
				}
			},
			"release a lease that is over": func(t *rapid.T) {
				if len(stale) > 0 {
					if got := s.Release(rapid.SampledFrom(stale).Draw(t, "which"), rapid.SampledFrom(endings).Draw(t, "ending")); got != Stale {
						t.Fatalf("a lease that was over: %v", got)
					}
				}
			},
			"unhold": func(t *rapid.T) {
				for b := range held {
					s.Unhold(b.task, int64(m.index(b)))
					if b.state == BlockHeld {
						b.state = BlockReady
					}
					delete(held, b)
				}
				s.Unhold(0, 0) // not held: nothing happens
			},
			"abandon": func(t *rapid.T) {
				if rapid.IntRange(0, 3).Draw(t, "really") > 0 {
					return
				}
				sync() // bulk work left over would decide what is skipped or orphaned before the task is abandoned
				task := rapid.IntRange(0, tasks-1).Draw(t, "task")
				if m.taskState(task) == Running {
					clear(task)
				}
				s.Abandon(task)
				m.abandon(task)
			},
			"begin a new life": func(t *rapid.T) {
				if len(ends) == 0 || slices.Contains(m.abandoned, true) {
					return // what was given up is tried again then, which the model does not know
				}
				past := make([]*Past, tasks)
				for i := range past {
					past[i] = NewPast(int64(len(m.blocks[i])))
				}
				if rapid.IntRange(0, 2).Draw(t, "retry") == 0 {
					task := rapid.IntRange(0, tasks-1).Draw(t, "of task")
					ends = append(ends, ended{task: task, retry: true})
				}
				for _, e := range ends {
					if e.retry {
						past[e.task].Retry()
						continue
					}
					if got := past[e.task].Ended(e.block, e.PastEnding); got != e.verdict {
						t.Fatalf("%+v: %v", e, got)
					}
				}
				if rapid.Bool().Draw(t, "from its bytes") {
					for i := range past {
						var err error
						if past[i], _, err = ReadPast(int64(len(m.blocks[i])), past[i].AppendBytes(nil)); err != nil {
							t.Fatal(err)
						}
					}
				}
				if e := ends[len(ends)-1]; e.retry {
					m.retry(e.task)
				} else if e.verdict != Retry && past[e.task].Ended(e.block, e.PastEnding) != Stale {
					t.Fatal("an end counted twice")
				}
				s = p.resumed(t, past)
				for _, b := range leased {
					b.block.state = BlockReady
				}
				for b := range held {
					if b.state == BlockHeld {
						b.state = BlockReady
					}
				}
				if ends[len(ends)-1].retry {
					m.settleAll()
				}
				leased, stale = nil, nil
				clearMap(held)
				seen = map[Lease]bool{}
				sync()
			},
			"work a little": func(t *rapid.T) { s.Work(rapid.IntRange(0, 5).Draw(t, "units")) },
			"catch up":      func(t *rapid.T) { sync() },
			"": func(t *rapid.T) {
				if b := m.breach(s); b != "" {
					t.Fatal(b)
				}
			},
		})
		// To the end: all succeed, those held come back.
		sync()
		for !s.Ended() {
			progress := false
			for b := range held {
				s.Unhold(b.task, int64(m.index(b)))
				if b.state == BlockHeld {
					b.state = BlockReady
				}
				delete(held, b)
			}
			for task := range tasks {
				for acquire(task) {
					progress = true
				}
			}
			for _, o := range leased {
				progress = true
				m.release(o.block, Ending{Outcome: Success})
				if v := s.Release(o.lease, Ending{Outcome: Success}); v != Succeeded {
					t.Fatalf("%v", v)
				}
			}
			leased = leased[:0]
			sync()
			if !progress && !s.Ended() {
				t.Fatal("nothing is ready or leased, and the run has not ended")
			}
		}
		for task := range tasks {
			if c := s.Tally(task); c.Waiting+c.Ready+c.Leased != 0 {
				t.Fatalf("ended with %+v", c)
			}
		}
	})
}

func clearMap[K comparable, V any](m map[K]V) { clear(m) }

// outcomeOf decides the end of an attempt from its block and number alone, so that the order of events does not matter.
func outcomeOf(seed uint64, h Handout) Ending {
	f := fnv.New64a()
	fmt.Fprint(f, seed, h.Task, h.Block, h.Attempt)
	x := f.Sum64()
	if x%4 != 0 {
		return Ending{Outcome: Success}
	}
	e := endings[x/4%uint64(len(endings))]
	if e.Outcome == Recalled { // no attempt: it would come back for ever
		return Ending{Outcome: Success}
	}
	e.Hold = false
	return e
}

// runOutcomes runs to the end with so many leases out at most, so many units of work after each release.
func runOutcomes(t rapid.TB, s *Scheduler, seed uint64, inFlight, units int) {
	var out []Handout
	for !s.Ended() {
		for task := range len(s.Pipeline().Tasks()) {
			for len(out) < inFlight {
				h, ok := s.Acquire(task, Holder{})
				if !ok {
					break
				}
				out = append(out, h)
			}
		}
		if len(out) == 0 {
			if !s.Work(units) && !s.Ended() {
				ready := int64(0)
				for task := range len(s.Pipeline().Tasks()) {
					ready += s.Tally(task).Ready
				}
				if ready == 0 {
					t.Fatal("stuck")
				}
			}
			continue
		}
		s.Release(out[0].Lease, outcomeOf(seed, out[0]))
		out = out[1:]
		s.Work(units)
	}
}

func TestWorkInSlicesOfOneEndsLikeWorkAtOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawPipeline(t)
		seed := rapid.Uint64().Draw(t, "seed")
		small, large := p.scheduler(t), p.scheduler(t)
		runOutcomes(t, small, seed, rapid.IntRange(1, 5).Draw(t, "in flight"), 1)
		runOutcomes(t, large, seed, 1000, 1<<20)
		for task := range p.tasks {
			if a, b := small.Tally(task), large.Tally(task); a != b {
				t.Fatalf("task %d: %+v in small slices, %+v at once", task, a, b)
			}
			for b := range small.Tally(task).Total {
				if x, y := small.Block(task, b), large.Block(task, b); x != y {
					t.Fatalf("task %d block %d: %v in small slices, %v at once", task, b, x, y)
				}
			}
		}
	})
}

// Tasks of one axis whose blocks differ so much in size that one block waits for more than a byte counts, and one is needed by more
// than are told at once.
func TestCountersAndFansBeyondAByteAreExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		extent := rapid.Int64Range(200, 3000).Draw(t, "extent")
		var p plainPipeline
		widths := rapid.SampledFrom([][]int64{{1, extent, 1}, {1, 300, 1}, {extent, 1, extent}, {1, 241}, {1, 700, 2}}).Draw(t, "widths")
		for i, w := range widths {
			w = min(w, extent)
			c := rapid.Int64Range(0, 3).Draw(t, "context")
			task := plainTask{fit: "shrink", conflict: rapid.Bool().Draw(t, "conflict"), maxRetries: 0, maxLost: 5,
				total: [][2]int64{{-c, extent + c}}, write: [][2]int64{{0, w}}, read: [][2]int64{{-c, w + c}}}
			if rapid.Bool().Draw(t, "mostly done") {
				n := len(first(task.blocks(0)))
				task.skip = make([]bool, n)
				for b := range task.skip {
					task.skip[b] = true
				}
				task.skip[rapid.IntRange(0, n-1).Draw(t, "not done")] = false
			}
			p.tasks = append(p.tasks, task)
			if i > 0 {
				p.edges = append(p.edges, [2]int{i - 1, i})
			}
		}
		runBesideModel(t, p)
	})
}

// In two and three dimensions what a block waits for is rows apart.
func TestCountersBeyondAByteAreExactInBoxes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := rapid.IntRange(2, 3).Draw(t, "dims")
		most := []int64{40, 12}[d-2]
		up := plainTask{fit: "shrink", conflict: rapid.Bool().Draw(t, "conflict"), maxLost: 5}
		down := plainTask{fit: "shrink", conflict: rapid.Bool().Draw(t, "conflict"), maxLost: 5}
		for range d {
			extent := rapid.Int64Range(most/2, most).Draw(t, "extent")
			w := rapid.Int64Range((extent+2)/3, extent).Draw(t, "width")
			low, high := rapid.Int64Range(0, extent).Draw(t, "low"), rapid.Int64Range(0, extent).Draw(t, "high")
			up.total, up.write, up.read = append(up.total, [2]int64{0, extent}), append(up.write, [2]int64{0, 1}), append(up.read, [2]int64{0, 1})
			down.total = append(down.total, [2]int64{-low, extent + high})
			down.write, down.read = append(down.write, [2]int64{0, w}), append(down.read, [2]int64{-low, w + high})
		}
		n := len(first(up.blocks(0)))
		skip := rapid.SampledFrom([]string{"nothing", "the end", "nearly all"}).Draw(t, "skip")
		for b := range n {
			up.skip = append(up.skip, skip == "nearly all" || skip == "the end" && b > n/2)
		}
		if skip == "nearly all" {
			for range n / 16 {
				up.skip[rapid.IntRange(0, n-1).Draw(t, "not done")] = false
			}
		}
		runBesideModel(t, plainPipeline{tasks: []plainTask{up, down, down}, edges: [][2]int{{0, 1}, {0, 2}, {1, 2}}})
	})
}

// runBesideModel runs the scheduler to its end beside the model, releasing in any order; some blocks may fail.
func runBesideModel(t *rapid.T, p plainPipeline) {
	m, s := newModel(p.tasks, p.edges), p.scheduler(t)
	failing := rapid.Int64Range(0, 20).Draw(t, "one in so many fails")
	order := rand.New(rand.NewPCG(1, rapid.Uint64().Draw(t, "order")))
	var out []Handout
	for n := int64(0); !s.Ended(); {
		for task := range p.tasks {
			for range rapid.IntRange(1, 2000).Draw(t, "how many") {
				h, ok := s.Acquire(task, Holder{})
				if !ok {
					break
				}
				b := m.blocks[h.Task][h.Block]
				if b.state != BlockReady {
					t.Fatalf("handed out %+v: the block is %v", h, b.state)
				}
				b.state = BlockLeased
				out = append(out, h)
			}
		}
		if len(out) == 0 && !s.Work(1000) && !s.Ended() {
			if d := m.difference(s); d != "" {
				t.Fatal(d)
			}
		}
		order.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
		keep := min(len(out)-1, order.IntN(20)) // stragglers
		for _, h := range out[max(keep, 0):] {
			e := Ending{Outcome: Success}
			if n++; failing > 10 && n%(failing*20) == 0 {
				e.Outcome = Failed
			}
			m.release(m.blocks[h.Task][h.Block], e)
			s.Release(h.Lease, e)
		}
		out = out[:max(keep, 0)]
		s.Work(rapid.IntRange(1, 500).Draw(t, "units"))
	}
	if d := m.difference(s); d != "" {
		t.Fatal(d)
	}
}

// TestARunEndedInTheMiddleOfBulkWorkKeepsTheRules abandons tasks while skipping, opening and orphaning are still pending. What then
// becomes of a block depends on how far that was; that counts add up and that nothing runs too early does not.
func TestARunEndedInTheMiddleOfBulkWorkKeepsTheRules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawPipeline(t)
		m, s := newModel(p.tasks, p.edges), p.scheduler(t)
		var out []Handout
		for step := 0; !s.Ended(); step++ {
			task := rapid.IntRange(0, len(p.tasks)-1).Draw(t, "task")
			switch rapid.IntRange(0, 5).Draw(t, "what") {
			case 0, 1:
				if h, ok := s.Acquire(task, Holder{}); ok {
					out = append(out, h)
				}
			case 2, 3:
				if len(out) > 0 {
					s.Release(out[0].Lease, rapid.SampledFrom(endings).Draw(t, "ending"))
					out = out[1:]
				}
			case 4:
				s.Work(rapid.IntRange(1, 3).Draw(t, "units"))
			case 5:
				if step > 10 {
					s.Abandon(task)
				}
			}
			if b := m.breach(s); b != "" {
				t.Fatal(b)
			}
		}
		if s.Work(1) {
			t.Fatal("there is work left after the end")
		}
	})
}
