package engine

import (
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"example.org/daisy/internal/job"
	"example.org/daisy/internal/units"
	"example.org/daisy/scheduler"
)

// Past is what earlier epochs of a run have left in its journal: their records, folded.
type Past struct {
	exclude map[string]*Exclusion // nodes that are excluded by hand

	epochs  []PastEpoch
	before  time.Duration // length of all epochs but the last
	tasks   []pastTask
	workers map[uint32]*pastWorker
	numbers map[workerName]uint32 // the first number of each
	last    uint32                // the greatest number
	order   []*pastWorker         // as they joined
	tags    int
	subs    []*pastSubmission
	state   RunState // how the last epoch ended; RunRunning if it was cut off
	why     string
	sets    []Setting // the latest of each limit
	patient int64     // until when workers keep what they run without a coordinator, as they were told; in Unix nanoseconds
}

// PastEpoch is one life of a coordinator.
type PastEpoch struct {
	Epoch uint64
	// Began is in Unix nanoseconds, Lasted until the last thing that was written down.
	Began  int64
	Lasted time.Duration
}

// A PastWorker is one that had joined and was not seen to end.
type PastWorker struct {
	// ID is its id in the reports, Nonce what tells it from others of that name, Node where it ran.
	ID    string
	Nonce uint64
	Node  string
	PID   int
	// Launched: it was started by a launcher; others came by themselves.
	Launched bool
	number   uint32 // in the journal
}

type workerName struct {
	id    string
	nonce uint64
}

type pastTask struct {
	id       string
	hash     uint64
	ends     *scheduler.Past
	blocks   int64
	mark     int64
	most     int64
	checked  int64
	failed   int64
	failures []FailedBlock
	times    map[int64]uint32 // attempts by block that failed, as tracking counts them
	wave     int64            // no more workers of its class are asked for at once; 0 = no bound
	cuts     map[int64]uint32 // by block, how often it had the whole life of a worker and was cut by its end; of those that have not ended
}

type pastWorker struct {
	PastWorker
	slots int32
	grant Grant
	rows  []*row
	row   *row
	gone  bool
}

// NewPast makes an empty past of a pipeline.
func NewPast(p *scheduler.Pipeline) *Past {
	past := &Past{workers: make(map[uint32]*pastWorker), numbers: make(map[workerName]uint32), exclude: make(map[string]*Exclusion)}
	for _, t := range p.Tasks() {
		past.tasks = append(past.tasks, pastTask{id: t.ID, hash: hashOf(&t), blocks: t.Grid.Len(), ends: scheduler.NewPast(t.Grid.Len()), times: make(map[int64]uint32), cuts: make(map[int64]uint32)})
	}
	return past
}

// Add takes in the next record. Of the end of an attempt it returns what the statistics are to be told, with times since the
// start of the first epoch. Records of another pipeline, or that no engine writes, are an error.
func (p *Past) Add(r *Record) (ended Attempt, isEnd bool, err error) {
	if r.Kind == RecordStart {
		return ended, false, p.start(r)
	}
	if len(p.epochs) == 0 {
		return ended, false, fmt.Errorf("a record of kind %d stands before the first start", r.Kind)
	}
	if r.Task < 0 || int(r.Task) >= len(p.tasks) {
		return ended, false, fmt.Errorf("a record of kind %d is about task %d of %d", r.Kind, r.Task, len(p.tasks))
	}
	t := &p.tasks[r.Task]
	at := time.Duration(r.At) * time.Microsecond
	last := &p.epochs[len(p.epochs)-1]
	last.Lasted = max(last.Lasted, at)
	at += p.before
	switch r.Kind {
	case RecordSubmission:
		p.tags++
		p.subs = append(p.subs, &pastSubmission{tag: r.ID, task: r.Task, count: r.Count, slots: r.Slots})
	case RecordAccepted:
		if s := p.submission(r.ID); s != nil && r.Text != "" {
			s.void = true
		}
	case RecordBound:
		if s := p.submission(r.ID); s != nil && s.array == "" {
			s.array = r.Text
		}
	case RecordShare:
		if s := p.submission(r.ID); s != nil {
			s.throttle = r.Count
		}
	case RecordVoid:
		if s := p.submission(r.ID); s != nil {
			s.void = true
		}
	case RecordWave:
		t.wave = r.Count
	case RecordCut:
		if r.Block < 0 || r.Block >= t.blocks {
			return ended, false, fmt.Errorf("block %d of task %q was cut, which has %d", r.Block, t.id, t.blocks)
		}
		t.cuts[r.Block]++
	case RecordJoin:
		w := &pastWorker{PastWorker: PastWorker{ID: r.ID, Nonce: r.Nonce, Node: r.Text, PID: int(r.PID), Launched: r.Launched, number: r.Worker}, slots: int32(r.Count), grant: r.Grant}
		if p.workers[r.Worker] != nil {
			return ended, false, fmt.Errorf("worker %d joins a second time", r.Worker)
		}
		p.add(w)
		p.order = append(p.order, w)
		w.serve(r.Task, at)
	case RecordServes:
		if w := p.workers[r.Worker]; w != nil {
			w.close("left", at)
			w.serve(r.Task, at)
		}
	case RecordGone:
		if w := p.workers[r.Worker]; w != nil {
			w.close(r.Text, at)
			w.gone = true
		}
	case RecordEnd:
		return p.end(r, at)
	case RecordExclude:
		p.excludes(r)
	case RecordFailed:
		b := FailedBlock{Task: r.Task, Block: r.Block, Attempts: r.Attempt, Outcome: scheduler.Outcome(r.Outcome), Message: r.Text, Tail: r.Tail}
		if w := p.workers[r.Worker]; w != nil {
			b.Worker, b.Node = w.ID, w.Node
		}
		if n := len(t.failures); n > 0 && t.failures[n-1].Block == b.Block {
			t.failures[n-1] = b
		}
	case RecordMark:
		t.mark = max(t.mark, min(r.Block, t.blocks))
	case RecordPeak:
		t.most = max(t.most, r.Count)
	case RecordRetry:
		t.ends.Retry()
		clear(t.cuts)
		t.failed, t.failures = 0, nil
	case RecordSet:
		s, err := setting(r)
		if err != nil {
			return ended, false, err
		}
		p.sets = withSetting(p.sets, s)
	case RecordAside:
		p.patient = max(p.patient, last.Began+int64(r.At)*int64(time.Microsecond)+r.Count)
	case RecordRunEnd:
		p.state, p.why = RunState(r.State), r.Text
	}
	return ended, false, nil
}

// add makes a worker known by its number, and by its id and nonce.
func (p *Past) add(w *pastWorker) {
	p.workers[w.number] = w
	p.last = max(p.last, w.number)
	if p.numbers[w.named()] == 0 {
		p.numbers[w.named()] = w.number
	}
}

func (w *PastWorker) named() workerName { return workerName{w.ID, w.Nonce} }

// start begins an epoch.
func (p *Past) start(r *Record) error {
	if err := p.sameTasks(r.Tasks); err != nil {
		return err
	}
	if n := len(p.epochs); n > 0 {
		p.cut()
	}
	p.epochs = append(p.epochs, PastEpoch{Epoch: r.Epoch, Began: r.Began})
	p.state, p.why = RunRunning, ""
	return nil
}

// sameTasks checks that what was written down was about the tasks of this pipeline.
func (p *Past) sameTasks(tasks []TaskRecord) error {
	if len(tasks) != len(p.tasks) {
		return fmt.Errorf("the job has %s now, and had %s when the run began: restore job.toml in the run directory, or start a new run",
			units.Plural(int64(len(p.tasks)), "task"), units.Plural(int64(len(tasks)), "task"))
	}
	for i, was := range tasks {
		if now := &p.tasks[i]; was.ID != now.id {
			return fmt.Errorf("task %d is %q now, and was %q when the run began: restore job.toml in the run directory, or start a new run", i+1, now.id, was.ID)
		} else if was.Blocks != now.blocks {
			return fmt.Errorf("task %q has %s now, and had %d when the run began: the shape of its array has changed; undo that, or start a new run", now.id, units.Plural(now.blocks, "block"), was.Blocks)
		} else if was.Hash != now.hash {
			return fmt.Errorf("task %q has as many blocks as when the run began, and others: the shape of its array has changed, or what its skip_mask leaves out; undo that, or start a new run", now.id)
		}
	}
	return nil
}

// cut ends the last epoch: whoever had not ended is lost with it.
func (p *Past) cut() {
	p.before += p.epochs[len(p.epochs)-1].Lasted
	for _, w := range p.order {
		w.close("lost", p.before)
	}
}

// end takes in the end of an attempt.
func (p *Past) end(r *Record, at time.Duration) (Attempt, bool, error) {
	t := &p.tasks[r.Task]
	if r.Block < 0 || r.Block >= t.blocks {
		return Attempt{}, false, fmt.Errorf("an attempt of block %d of task %q, which has %d", r.Block, t.id, t.blocks)
	}
	a := Attempt{Handout: scheduler.Handout{Lease: scheduler.Lease(r.Lease), Task: r.Task, Block: r.Block, Attempt: r.Attempt},
		Outcome: scheduler.Outcome(r.Outcome), At: at, Held: time.Duration(r.Held) * time.Microsecond, Use: r.Use}
	a.Verdict = t.ends.Ended(r.Block, scheduler.PastEnding{Outcome: a.Outcome, Blameless: r.Blameless, Failed: r.Final})
	if a.Verdict == scheduler.Stale {
		return Attempt{}, false, nil // of a block that had ended: two epochs have known of it
	}
	if r.Final || a.Outcome == scheduler.Success || a.Outcome == scheduler.Skipped {
		delete(t.cuts, r.Block)
	}
	switch a.Outcome {
	case scheduler.Failed, scheduler.TimedOut, scheduler.OutOfMemory:
		t.times[r.Block]++
	}
	w := p.workers[r.Worker]
	if w != nil {
		a.Worker, a.Node = w.ID, w.Node
	}
	switch {
	case a.Verdict == scheduler.WasSkipped:
		t.checked++
	case a.Verdict == scheduler.FailedForGood:
		t.failed++
		if len(t.failures) < keptFailures {
			// The record that says why comes next, unless the run was cut off in between.
			t.failures = append(t.failures, FailedBlock{Task: r.Task, Block: r.Block, Attempts: r.Attempt, Outcome: a.Outcome, Worker: a.Worker, Node: a.Node,
				Message: "the coordinator was ended before it had written down why"})
		}
	}
	if w != nil {
		row := w.rowOf(r.Task, at)
		row.busy += a.Held
		row.peak = max(row.peak, r.Use.PeakRSSBytes)
		if a.Outcome == scheduler.Success || a.Outcome == scheduler.Failed {
			row.processed++
		}
		if a.Outcome == scheduler.Failed {
			row.failed++
		}
	}
	return a, true, nil
}

// rowOf is the worker's row for a task.
func (w *pastWorker) rowOf(task int32, at time.Duration) *row {
	for _, r := range w.rows {
		if r.task == task {
			return r
		}
	}
	r := &row{task: task, slots: w.slots, since: at, over: true, end: "lost"}
	w.rows = append(w.rows, r)
	return r
}

func (w *pastWorker) serve(task int32, at time.Duration) {
	w.row = w.rowOf(task, at)
	w.row.over, w.row.end, w.row.since = false, "", at
}

func (w *pastWorker) close(word string, at time.Duration) {
	if w.row == nil || w.row.over {
		return
	}
	w.row.over, w.row.end = true, word
	w.row.served += time.Duration(w.row.slots) * max(at-w.row.since, 0)
}

// Epochs are the lives so far, the first one first.
func (p *Past) Epochs() []PastEpoch { return slices.Clone(p.epochs) }

// Lasted is the length of all epochs.
func (p *Past) Lasted() time.Duration {
	d := p.before
	if n := len(p.epochs); n > 0 {
		d += p.epochs[n-1].Lasted
	}
	return d
}

// State is how the last epoch ended, RunRunning if it was cut off; why is the reason that it gave.
func (p *Past) State() (state RunState, why string) { return p.state, p.why }

// Failed is how many blocks of a task have failed for good.
func (p *Past) Failed(task int) int64 { return p.tasks[task].failed }

// Number is the number of the worker of an id and nonce, 0 if none has joined.
func (p *Past) Number(id string, nonce uint64) uint32 { return p.numbers[workerName{id, nonce}] }

// NextNumber is one that no worker has had.
func (p *Past) NextNumber() uint32 { return p.last + 1 }

// Live lists the workers that had joined, in whatever epoch, and were not seen to end.
func (p *Past) Live() []PastWorker {
	var live []PastWorker
	for _, w := range p.order {
		if !w.gone {
			live = append(live, w.PastWorker)
		}
	}
	return live
}

// Succeeded calls yield with each block of a task that succeeded or was found done by its check, in order.
func (p *Past) Succeeded(task int, yield func(block int64)) { p.tasks[task].ends.Succeeded(yield) }

// Failures calls yield with each block of a task of which attempts failed, timed out or ran out of memory, and with their number, in no
// order. What became of the block later does not matter.
func (p *Past) Failures(task int, yield func(block int64, times uint32)) {
	for block, times := range p.tasks[task].times {
		yield(block, times)
	}
}

// TaskRecordOf is what the journal says of a task at the start of an epoch.
func TaskRecordOf(t *scheduler.Task) TaskRecord {
	return TaskRecord{ID: t.ID, Blocks: t.Grid.Len(), Hash: hashOf(t)}
}

// hashOf tells the blocks of a task, and those that are masked, from any others: what a journal says of blocks is true only of the same.
func hashOf(t *scheduler.Task) uint64 {
	f := fnv.New64a()
	fmt.Fprintf(f, "%v", t.Grid.Spec())
	h := f.Sum64()
	for i, word := range t.Mask {
		h = (h^(word+uint64(i)))*0x9e3779b97f4a7c15 + h>>29
	}
	return h
}

func (p *Past) ends() []*scheduler.Past {
	var list []*scheduler.Past
	for i := range p.tasks {
		list = append(list, p.tasks[i].ends)
	}
	return list
}

// resume takes over what the past knows. Called once, before the first event.
func (e *Engine) resume(p *Past) {
	if len(p.epochs) > 0 {
		p.cut()
	}
	e.tags = p.tags
	e.patient = max(time.Duration(p.patient-e.cfg.Began), 0)
	e.carryOver(p.sets)
	for i := range e.tasks {
		t, was := &e.tasks[i], &p.tasks[i]
		t.most, t.checked, t.failed, t.failures = was.most, was.checked, was.failed, was.failures
		t.mark.written, t.mark.durable, t.reserved = was.mark, was.mark, was.mark
		e.carryOverBatch(int32(i), was)
	}
	if e.book != nil {
		defer e.adopt(p)
	}
	last := p.lastOf()
	for _, w := range p.order {
		e.joins = max(e.joins, w.number)
		v := e.inherit(w, e.book != nil && last[w.ID] != w)
		for _, r := range w.rows {
			r.worker = v
			if v == nil {
				r.worker = &worker{id: w.ID, node: w.Node, number: w.number, grant: w.grant, ended: true}
			}
			e.rows = append(e.rows, r)
			e.tasks[r.task].served++
		}
		if v != nil {
			v.rows = w.rows
			e.openRow(v)
			e.recount(v)
		}
	}
}

// Standing is an engine of a run that nobody coordinates, only to look at: what has ended by its records, and what follows from that for
// other blocks. That goes in slices; before each it asks whether to go on, and gives nil if not. The past belongs to it from then on.
func (p *Past) Standing(j *job.Job, pipeline *scheduler.Pipeline, goOn func() bool) (*Engine, error) {
	e, err := New(Config{Job: j, Pipeline: pipeline, Unlimited: true, External: true, Past: p})
	if err != nil {
		return nil, err
	}
	for more := true; more; more = e.sched.Work(workUnits) {
		if !goOn() {
			return nil, nil
		}
	}
	return e, nil
}
