package stats

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.org/daisy/internal/api"
	"example.org/daisy/scheduler"
)

// Input is all that the recorder cannot know: the counts, from the scheduler's tallies, and who took part. In all of it an
// empty string, a zero time and a size of 0 mean "no value". Names, messages and output that workers sent may hold anything.
type Input struct {
	Run Run
	// Tasks are in the order of those given to New.
	Tasks       []Task
	Workers     []Worker
	Coordinator Coordinator
}

// A Run is the run as a whole.
type Run struct {
	ID, Name string
	// State is the engine's word; "broken" (the infrastructure failed) is reported as failed, with Message and ExitStatus.
	State, Message string
	// ExitStatus counts only once the run has ended.
	ExitStatus     int
	Started, Ended time.Time
	// Began is when this coordinator started, zero if with the run.
	Began time.Time
	// Wall is how long the run went on, on a monotonic clock.
	Wall                               time.Duration
	Launcher, JobFile, Directory, Logs string
	// Epoch is that of this coordinator, Earlier are the segments before it.
	Epoch   uint64
	Earlier []api.Segment
	// Changes are the limits that are not those of the job.
	Changes []api.LimitChange
}

// A Task is one task at the end (or now).
type Task struct {
	State scheduler.TaskState
	Tally scheduler.Tally
	// UnselectedBits counts the blocks that the selection of the run leaves out. Of the others, DoneBits counts those that were
	// marked done at the start, MaskBits those that only the mask skips.
	UnselectedBits, DoneBits, MaskBits int64
	// MaxWorkers limits its slots now, and Timeout one block; 0 = no limit.
	MaxWorkers int64
	Timeout    time.Duration
	// Workers is how many workers have ever served it, MaxConcurrency how many of its blocks ran at once at most.
	Workers, MaxConcurrency int64
	// Failures are the first blocks that failed for good.
	Failures []Failure
}

// A Failure is a block that failed for good, with what its last attempt said.
type Failure struct {
	// Block is the spatial id; it counts if HasID.
	Block    uint64
	HasID    bool
	Index    []int64
	Attempts int64

	Worker, Node, Message, Tail, Log string
}

// A Worker is what a worker did for one task. A worker that served two tasks has two rows.
type Worker struct {
	Task, ID, Node string
	Slots          int64
	// Asked is what a batch system was asked for, and Granted what it gave.
	Asked, Granted    api.Amounts
	Processed, Failed int64
	// Busy and Idle add up over its slots.
	Busy, Idle   time.Duration
	PeakRSSBytes int64
	// End is "" while it lives.
	End, Log string
}

// A Coordinator is what the coordinator's own process used.
type Coordinator struct {
	CPU               time.Duration
	PeakRSSBytes      int64
	BytesIn, BytesOut int64
}

// Stats makes the statistics of the run so far. It panics if in.Tasks does not match the tasks given to New.
func (r *Recorder) Stats(in Input) api.Stats {
	if len(in.Tasks) != len(r.tasks) {
		panic("stats: " + strconv.Itoa(len(in.Tasks)) + " tasks for a recorder of " + strconv.Itoa(len(r.tasks)))
	}
	s := api.Stats{
		Version: api.StatsVersion,
		Run:     runStats(in.Run),
		Tasks:   make([]api.TaskStats, len(in.Tasks)),
		Coordinator: api.CoordinatorStats{
			CPUSeconds:   in.Coordinator.CPU.Seconds(),
			PeakRSSBytes: positive(in.Coordinator.PeakRSSBytes),
			BytesIn:      in.Coordinator.BytesIn,
			BytesOut:     in.Coordinator.BytesOut,
		},
	}
	slots := map[string]slotTime{} // by task
	for _, w := range in.Workers {
		all := slots[w.Task]
		all.busy += w.Busy.Seconds()
		all.idle += w.Idle.Seconds()
		slots[w.Task] = all
	}
	position := map[string]int{}
	for i := range r.tasks {
		t := &r.tasks[i]
		position[t.info.ID] = i
		s.Tasks[i] = t.stats(in.Tasks[i])
		s.Run.WorkerHours.Used += t.used.Hours()
		s.Run.WorkerHours.Wasted += t.wasted.Hours()
		rows := t.askedAgainstUsed(in.Tasks[i], slots[t.info.ID])
		s.Run.Resources = append(s.Run.Resources, rows...)
		s.Tasks[i].Suggested = t.suggested(rows)
	}
	for _, w := range in.Workers {
		s.Run.WorkerHours.Idle += w.Idle.Hours()
	}
	s.Workers = workerRows(in.Workers, position)
	s.Nodes = r.nodeRows(s.Workers, position)
	for i := range s.Workers {
		r.addCores(&s.Run.CoreHours, &s.Workers[i], position)
	}
	return s
}

func runStats(in Run) api.RunStats {
	run := api.RunStats{
		ID: in.ID, Name: in.Name, State: in.State, Message: text(api.OneLine(in.Message)),
		Started: in.Started.UTC(), Ended: utc(in.Ended), WallSeconds: in.Wall.Seconds(),
		Launcher: text(in.Launcher), JobFile: text(in.JobFile), Directory: text(in.Directory), Logs: text(in.Logs),
		Segments:  []api.Segment{},
		Changes:   append([]api.LimitChange{}, in.Changes...),
		Resources: []api.AskedUsage{},
	}
	if in.State == "broken" {
		run.State = "failed"
	}
	if !in.Ended.IsZero() {
		run.ExitStatus = &in.ExitStatus
	}
	last := api.Segment{Epoch: in.Epoch, Started: run.Started, Ended: run.Ended, WallSeconds: run.WallSeconds}
	if !in.Began.IsZero() {
		last.Started = in.Began.UTC()
	}
	for _, e := range in.Earlier {
		last.WallSeconds = max(0, last.WallSeconds-e.WallSeconds)
		e.Started = e.Started.UTC()
		if e.Ended != nil {
			e.Ended = utc(*e.Ended)
		}
		run.Segments = append(run.Segments, e)
	}
	run.Segments = append(run.Segments, last)
	return run
}

func (t *taskRecord) stats(in Task) api.TaskStats {
	y := in.Tally
	s := api.TaskStats{
		ID: t.info.ID, State: in.State.String(), Blocks: y.Total, UnwrittenAtEnd: append([]int64{}, t.info.UnwrittenAtEnd...),
		Waiting: y.Waiting, Ready: y.Ready, Leased: y.Leased,
		Success: y.Success, Skipped: y.Skipped, Failed: y.Failed, Orphaned: y.Orphaned, Abandoned: y.Abandoned,
		Unselected: in.UnselectedBits,
		SkippedWhy: t.skippedWhy(in),
		Processed:  y.Processed, Retries: y.Retries, Reclaimed: y.TimedOut + y.Lost,
		TimedOut: y.TimedOut, Lost: y.Lost, Returned: y.Returned, OutOfMemory: y.OutOfMemory,
		TimedOutWorkers: int64(len(t.timedOutOn)),
		Workers:         in.Workers, MaxConcurrency: in.MaxConcurrency,
		TimeoutSeconds: seconds(in.Timeout),
		BlockSeconds:   t.times.stats(),
		CPUBusy:        t.cpuBusy(),
		PeakRSSBytes:   positive(t.peakRSS),
		WastedSeconds:  t.wasted.Seconds(),
		Failures:       []api.BlockFailure{},
	}
	if t.read > 0 || t.written > 0 {
		s.IOReadBytes, s.IOWriteBytes = &t.read, &t.written
	}
	if t.seen {
		wall := (t.ended - t.began).Seconds()
		s.WallSeconds = &wall
	}
	for _, f := range in.Failures {
		b := api.BlockFailure{
			Index: append([]int64{}, f.Index...), Attempts: f.Attempts, Worker: text(api.OneLine(f.Worker)), Node: text(api.OneLine(f.Node)),
			Message: api.OneLine(f.Message), Tail: text(api.Printable(f.Tail)), Log: text(f.Log),
		}
		if f.HasID {
			id := f.Block
			b.Block = &id
		}
		s.Failures = append(s.Failures, b)
	}
	return s
}

// skippedWhy divides the skipped blocks. Which of the kinds were skipped is certain if all were, or if there is only one kind; of a run
// that ended early with several it is not.
func (t *taskRecord) skippedWhy(in Task) api.SkippedWhy {
	why := api.SkippedWhy{Check: min(t.skippedByCheck, in.Tally.Skipped)}
	rest := in.Tally.Skipped - why.Check
	unselected, done, mask := in.UnselectedBits, in.DoneBits, in.MaskBits
	switch {
	case rest == unselected+done+mask:
	case unselected == 0 && mask == 0:
		done = rest
	case unselected == 0 && done == 0:
		mask = rest
	case done == 0 && mask == 0:
		unselected = rest
	default:
		return why
	}
	why.NotSelected, why.DoneBefore, why.Mask = &unselected, &done, &mask
	return why
}

// cpuBusy is CPU seconds / (block seconds × cores asked for).
func (t *taskRecord) cpuBusy() *float64 {
	asked := float64(t.info.Requires.Get("cpu")) / 1000
	if t.cpuSeconds == 0 || t.cpuWall == 0 || asked <= 0 {
		return nil
	}
	busy := t.cpuSeconds / (t.cpuWall * asked)
	return &busy
}

// stats of nil is that of a task without a successful attempt.
func (b *blockTimes) stats() api.BlockSeconds {
	s := api.BlockSeconds{Histogram: [][2]float64{}}
	if b == nil {
		return s
	}
	p50, p95, longest := b.quantile(50), b.quantile(95), time.Duration(b.max).Seconds()
	mean := b.mean
	s = api.BlockSeconds{Mean: &mean, P50: &p50, P95: &p95, Max: &longest, Histogram: b.histogram()}
	if slope, ok := b.slope(); ok {
		s.Slope = &slope
	}
	return s
}

// workerRows are in the order of submissions, a worker's rows in the order of tasks.
func workerRows(workers []Worker, position map[string]int) []api.WorkerStats {
	rows := make([]api.WorkerStats, 0, len(workers))
	for _, w := range workers {
		rows = append(rows, api.WorkerStats{
			Task: w.Task, ID: api.OneLine(w.ID), Node: text(api.OneLine(w.Node)), Slots: w.Slots, Asked: w.Asked, Granted: w.Granted, Processed: w.Processed, Failed: w.Failed,
			BusySeconds: w.Busy.Seconds(), IdleSeconds: w.Idle.Seconds(), PeakRSSBytes: positive(w.PeakRSSBytes),
			End: text(w.End), Log: text(w.Log),
		})
	}
	slices.SortStableFunc(rows, func(a, b api.WorkerStats) int {
		return cmp.Or(compareIDs(a.ID, b.ID), cmp.Compare(position[a.Task], position[b.Task]))
	})
	return rows
}

// compareIDs orders worker ids by their numbers: "2.0" before "10.0", and names after numbers.
func compareIDs(a, b string) int {
	as, bs := strings.Split(a, "."), strings.Split(b, ".")
	for i := range min(len(as), len(bs)) {
		x, xErr := strconv.ParseUint(as[i], 10, 64)
		y, yErr := strconv.ParseUint(bs[i], 10, 64)
		var order int
		switch {
		case xErr == nil && yErr == nil:
			order = cmp.Compare(x, y)
		case xErr == nil:
			order = -1
		case yErr == nil:
			order = 1
		default:
			order = strings.Compare(as[i], bs[i])
		}
		if order != 0 {
			return order
		}
	}
	return cmp.Or(cmp.Compare(len(as), len(bs)), strings.Compare(a, b))
}

// addCores adds the core-hours of a worker's row, if it is known what it was given.
func (r *Recorder) addCores(to *api.CoreHours, w *api.WorkerStats, position map[string]int) {
	if w.Granted.Cores == nil || w.Slots < 1 {
		return
	}
	const hour = 3600
	granted := *w.Granted.Cores * (w.BusySeconds + w.IdleSeconds) / float64(w.Slots) / hour
	each := float64(r.tasks[position[w.Task]].info.Requires.Get("cpu")) / 1000
	used := min(each*w.BusySeconds/hour, granted)
	if to.Granted == nil {
		*to = api.CoreHours{Granted: new(float64), Used: new(float64), Idle: new(float64)}
	}
	*to.Granted += granted
	*to.Used += used
	*to.Idle += granted - used
}

func (r *Recorder) nodeRows(workers []api.WorkerStats, position map[string]int) []api.NodeStats {
	byNode := map[string]*api.NodeStats{}
	met := map[[2]string]bool{} // node, worker
	wasted := map[string]time.Duration{}
	for node, d := range r.wasted {
		wasted[api.OneLine(node)] += d
	}
	for _, w := range workers {
		if w.Node == nil {
			continue
		}
		n := byNode[*w.Node]
		if n == nil {
			n = &api.NodeStats{Node: *w.Node, Ends: map[string]int64{}, WastedSeconds: wasted[*w.Node].Seconds()}
			byNode[*w.Node] = n
		}
		n.Processed += w.Processed
		n.Failed += w.Failed
		n.BusySeconds += w.BusySeconds
		n.IdleSeconds += w.IdleSeconds
		r.addCores(&n.CoreHours, &w, position)
		if w.PeakRSSBytes != nil && (n.PeakRSSBytes == nil || *w.PeakRSSBytes > *n.PeakRSSBytes) {
			n.PeakRSSBytes = w.PeakRSSBytes
		}
		if key := [2]string{n.Node, w.ID}; !met[key] {
			met[key] = true
			n.Workers++
			if w.End != nil {
				n.Ends[*w.End]++
			}
		}
	}
	nodes := make([]api.NodeStats, 0, len(byNode))
	for _, n := range byNode {
		nodes = append(nodes, *n)
	}
	slices.SortFunc(nodes, func(a, b api.NodeStats) int { return strings.Compare(a.Node, b.Node) })
	return nodes
}

// The functions below make "no value" of a zero.

func text(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func positive(n int64) *int64 {
	if n <= 0 {
		return nil
	}
	return &n
}

func seconds(d time.Duration) *float64 {
	if d <= 0 {
		return nil
	}
	s := d.Seconds()
	return &s
}

func utc(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}
