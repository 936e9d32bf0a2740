package coordinator

import (
	"cmp"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.org/daisy/internal/api"
	"example.org/daisy/internal/engine"
	"example.org/daisy/scheduler"
)

// pageLimit reads how many entries a page may have.
func pageLimit(r *http.Request) (int, error) {
	text := r.URL.Query().Get("limit")
	if text == "" {
		return api.MostBlocks, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > api.MostBlocks {
		return 0, wrongly("limit is %q; allowed is 1 to %d", text, api.MostBlocks)
	}
	return n, nil
}

func (c *Coordinator) serveWorkers(w http.ResponseWriter, r *http.Request) {
	limit, err := pageLimit(r)
	from, fromText := 0, r.URL.Query().Get("from")
	if fromText != "" && err == nil {
		if from, err = strconv.Atoi(fromText); err != nil || from < 0 {
			err = wrongly("from is %q, and no page ended so", fromText)
		}
	}
	var views []engine.WorkerView
	var excluded []engine.ExcludedNode
	next, done := 0, true
	if err == nil && r.URL.Query().Get("ended") != "" {
		next, done = from, false
		for err == nil && !done && len(views) < limit {
			err = c.between(r.Context(), func() { views, next, done = c.engine.EndedRows(next, limit, views) })
		}
	} else if err == nil {
		// Their names first, to put them in order, and then what there is to say of those on this page only.
		var ids []string
		err = c.between(r.Context(), func() { ids = c.engine.LiveIDs() })
		if err == nil {
			slices.SortFunc(ids, compareWorkers)
			from = min(from, len(ids))
			next = min(from+limit, len(ids))
			done = next == len(ids)
			err = c.between(r.Context(), func() { views, excluded = c.engine.LiveWorkers(ids[from:next], nil), c.engine.Excluded() })
		}
	}
	if err != nil {
		c.refuseControl(w, r, err)
		return
	}
	page := api.WorkerPage{Version: api.ControlVersion, Workers: []api.LiveWorker{}, Excluded: c.liveExcluded(excluded)}
	for _, v := range views {
		page.Workers = append(page.Workers, c.liveWorker(&v))
	}
	if !done {
		page.Next = value(strconv.Itoa(next))
	}
	c.answer(w, r, http.StatusOK, page)
}

func (c *Coordinator) liveWorker(v *engine.WorkerView) api.LiveWorker {
	live := api.LiveWorker{ID: v.ID, Task: c.specs[v.Task].ID, Node: value(v.Node), State: v.State, Why: value(v.Why), End: value(v.End), Slots: int64(v.Slots),
		Running: int64(v.Running), Held: int64(v.Held), Processed: v.Processed, Failed: v.WorkerSnapshot.Failed, BusySeconds: v.Busy.Seconds(), IdleSeconds: v.Idle.Seconds(),
		PeakRSSBytes: value(v.PeakRSSBytes), Log: value(c.workerLog(v.ID))}
	live.Job = value(v.Job)
	live.Asked, live.Granted = amountsOf(c.cfg.Job.Task(live.Task), &v.WorkerSnapshot)
	if v.Left > 0 {
		live.LeftSeconds = value(v.Left.Seconds())
	}
	if v.Silent >= 0 {
		seconds := v.Silent.Seconds()
		live.SilentSeconds = &seconds
	}
	return live
}

// compareWorkers orders those that were launched by number, and others by name behind them.
func compareWorkers(a, b string) int {
	tagA, elementA := launched(a)
	tagB, elementB := launched(b)
	return cmp.Or(cmp.Compare(tagA, tagB), cmp.Compare(elementA, elementB), cmp.Compare(a, b))
}

// launched reads "3.0", element 0 of submission 3; of any other name it makes what comes behind all of those.
func launched(id string) (tag, element int) {
	first, second, _ := strings.Cut(id, ".")
	tag, err := strconv.Atoi(first)
	element, err2 := strconv.Atoi(second)
	if err != nil || err2 != nil {
		return math.MaxInt, 0
	}
	return tag, element
}

// scanFor is how long one request for blocks goes on with a page that does not get full.
const scanFor = 2 * time.Second

func (c *Coordinator) serveBlocks(w http.ResponseWriter, r *http.Request) {
	q, err := c.blockQuery(r)
	if err != nil {
		c.refuseControl(w, r, err)
		return
	}
	page := api.BlockPage{Version: api.ControlVersion, Blocks: []api.LiveBlock{}}
	for began := time.Now(); q.task < q.end && len(page.Blocks) < q.limit && time.Since(began) < scanFor; {
		var views []engine.BlockView
		var kept []mishap
		var next int64
		err := c.between(r.Context(), func() {
			views, next = c.engine.Blocks(q.task, q.from, q.states, q.limit-len(page.Blocks), nil)
			for i := range views {
				kept = append(kept, c.mishaps.of(int32(q.task), views[i].Block))
			}
		})
		if err != nil {
			c.refuseControl(w, r, err)
			return
		}
		for i := range views {
			page.Blocks = append(page.Blocks, c.liveBlock(q.task, &views[i], &kept[i]))
		}
		if q.from = next; next >= c.pipeline.Tasks()[q.task].Grid.Len() {
			q.task, q.from = q.task+1, 0
		}
	}
	if q.task < q.end {
		page.Next = value(fmt.Sprintf("%d:%d", q.task, q.from))
	}
	c.answer(w, r, http.StatusOK, page)
}

// A blockQuery is which blocks somebody wants to see: from a block of a task on, before the task end.
type blockQuery struct {
	task, end int
	from      int64
	states    []scheduler.BlockState
	limit     int
}

func (c *Coordinator) blockQuery(r *http.Request) (q blockQuery, err error) {
	if q.limit, err = pageLimit(r); err != nil {
		return q, err
	}
	values := r.URL.Query()
	q.end = len(c.specs)
	if id := values.Get("task"); id != "" {
		if q.task = c.pipeline.Index(id); q.task < 0 {
			return q, wrongly("there is no task %q in this run; it has %s", id, c.taskNames())
		}
		q.end = q.task + 1
	}
	if text := values.Get("state"); text != "" {
		for name := range strings.SplitSeq(text, ",") {
			state, known := blockState(name)
			if !known {
				return q, wrongly("there is no state %q; a block is %s", name, blockStates())
			}
			q.states = append(q.states, state)
		}
	}
	if text := values.Get("from"); text != "" {
		task, block, _ := strings.Cut(text, ":")
		at, err := strconv.Atoi(task)
		from, err2 := strconv.ParseInt(block, 10, 64)
		if err != nil || err2 != nil || at < q.task || from < 0 {
			return q, wrongly("from is %q, and no page ended so", text)
		}
		q.task, q.from = at, from
	}
	return q, nil
}

func blockState(name string) (scheduler.BlockState, bool) {
	for s := scheduler.BlockWaiting; s <= scheduler.BlockAbandoned; s++ {
		if s.String() == name {
			return s, true
		}
	}
	return 0, false
}

func blockStates() string {
	var names []string
	for s := scheduler.BlockWaiting; s <= scheduler.BlockAbandoned; s++ {
		if s == scheduler.BlockLeased { // people call it running, but it may wait in its worker
			names = append(names, s.String()+" (in the hands of a worker)")
			continue
		}
		names = append(names, s.String())
	}
	return strings.Join(names, ", ")
}

func (c *Coordinator) taskNames() string {
	var names []string
	for i := range c.specs {
		names = append(names, strconv.Quote(c.specs[i].ID))
	}
	return strings.Join(names, ", ")
}

func (c *Coordinator) liveBlock(task int, v *engine.BlockView, kept *mishap) api.LiveBlock {
	grid := c.pipeline.Tasks()[task].Grid
	b := api.LiveBlock{Task: c.specs[task].ID, Index: grid.Index(v.Block).Slice(), State: v.State.String()}
	if id, fits := grid.ID(v.Block); fits {
		b.Block = &id
	}
	attempt, worker, node := v.Attempt, v.Worker, v.Node
	if kept.attempt > 0 && v.State != scheduler.BlockSuccess && v.State != scheduler.BlockSkipped {
		b.LastEnd, b.Message, b.Log = value(kept.outcome.String()), value(kept.message), value(c.workerLog(kept.worker))
		if worker == "" {
			attempt, worker, node = kept.attempt, kept.worker, kept.node
		}
	}
	if v.Message != "" { // the engine keeps more of those that failed for good
		b.LastEnd, b.Message, b.Tail, b.Log = value(v.Outcome.String()), value(v.Message), value(v.Tail), value(c.workerLog(v.Worker))
	}
	b.Attempt, b.Worker, b.Node = value(int64(attempt)), value(worker), value(node)
	if v.Running {
		seconds := v.For.Seconds()
		b.RunningSeconds = &seconds
	}
	return b
}

const (
	// mishapsKept is of how many blocks the last bad end is remembered, longestMishap how many bytes of its message.
	mishapsKept   = 4096
	longestMishap = 400
)

// A mishap is an attempt that did not end well.
type mishap struct {
	task         int32
	attempt      int32
	block        int64
	outcome      scheduler.Outcome
	worker, node string
	message      string
}

// mishaps are the latest, one for each block. They belong to the owner of the engine.
type mishaps struct {
	list []mishap
	next int
	at   map[[2]int64]int
}

func (m *mishaps) note(a *engine.Attempt) {
	if a.Outcome == scheduler.Success || a.Outcome == scheduler.Skipped || a.Outcome == scheduler.Recalled {
		return
	}
	n := mishap{task: a.Handout.Task, attempt: a.Handout.Attempt, block: a.Handout.Block, outcome: a.Outcome, worker: a.Worker, node: a.Node}
	if a.Failure != nil {
		n.message = a.Failure.Message[:min(len(a.Failure.Message), longestMishap)]
	}
	m.keep(n)
}

// keep keeps a mishap in the place of an earlier one of its block, or of the one that is longest there.
func (m *mishaps) keep(n mishap) {
	key := [2]int64{int64(n.task), n.block}
	i, known := m.at[key]
	switch {
	case known:
		m.list[i] = n
		return
	case m.at == nil:
		m.at = map[[2]int64]int{}
	}
	if len(m.list) < mishapsKept {
		m.at[key] = len(m.list)
		m.list = append(m.list, n)
		return
	}
	old := &m.list[m.next]
	delete(m.at, [2]int64{int64(old.task), old.block})
	*old = n
	m.at[key] = m.next
	m.next = (m.next + 1) % mishapsKept
}

// of is the last one of a block; without an attempt if there is none.
func (m *mishaps) of(task int32, block int64) mishap {
	if i, known := m.at[[2]int64{int64(task), block}]; known {
		return m.list[i]
	}
	return mishap{}
}
