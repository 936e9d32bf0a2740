package main

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"example.org/daisy/internal/engine"
	"example.org/daisy/internal/report"
	"example.org/daisy/internal/sim"
	"example.org/daisy/internal/units"
)

// simulation is the answer of simulate, as docs/simulation.md describes it.
type simulation struct {
	Version   int        `json:"version"`
	Name      string     `json:"name"`
	Seed      uint64     `json:"seed"`
	Assumed   assumed    `json:"assumed"`
	Forecasts []forecast `json:"forecasts"`
	Worth     []worth    `json:"worth"`
	Warnings  []string   `json:"warnings"`
}

// assumed is what was supposed, where a sweep says nothing else.
type assumed struct {
	Batch                 bool          `json:"batch_system"`
	QueueWait             *string       `json:"queue_wait"`
	TimeLimitSeconds      *float64      `json:"time_limit_seconds"`
	StartSeconds          float64       `json:"start_seconds"`
	Workers               *int64        `json:"workers"`
	WorkerFailuresPerHour float64       `json:"worker_failures_per_hour"`
	Tasks                 []assumedTask `json:"tasks"`
}

type assumedTask struct {
	ID            string  `json:"id"`
	BlockTime     string  `json:"block_time"`
	MeanSeconds   float64 `json:"mean_seconds"`
	BlockFailures float64 `json:"block_failures"`
}

type forecast struct {
	Sweep       []sweptValue   `json:"sweep"`
	State       string         `json:"state"`
	Message     string         `json:"message"`
	WallSeconds float64        `json:"wall_seconds"`
	WorkerHours forecastHours  `json:"worker_hours"`
	IdleShare   float64        `json:"idle_share"`
	QueuedHours float64        `json:"queued_hours"`
	Workers     int64          `json:"workers"`
	MostSlots   int64          `json:"most_slots"`
	Tasks       []forecastTask `json:"tasks"`
	Path        forecastPath   `json:"critical_path"`

	workers int64 // that max_workers was swept to
}

type forecastHours struct {
	Used   float64 `json:"used"`
	Idle   float64 `json:"idle"`
	Wasted float64 `json:"wasted"`
}

func (h forecastHours) all() float64 { return h.Used + h.Idle + h.Wasted }

type forecastTask struct {
	ID             string  `json:"id"`
	Blocks         int64   `json:"blocks"`
	Success        int64   `json:"success"`
	Skipped        int64   `json:"skipped"`
	Failed         int64   `json:"failed"`
	Orphaned       int64   `json:"orphaned"`
	TimedOut       int64   `json:"timed_out"`
	Lost           int64   `json:"lost"`
	Retries        int64   `json:"retries"`
	MaxConcurrency int64   `json:"max_concurrency"`
	BeganSeconds   float64 `json:"began_seconds"`
	EndedSeconds   float64 `json:"ended_seconds"`
	// TimesScaled is by how much its block times were scaled for a swept block shape.
	TimesScaled float64 `json:"times_scaled"`
}

type forecastPath struct {
	// BetweenSeconds is the time in which none of its blocks ran.
	BetweenSeconds float64            `json:"between_seconds"`
	Tasks          []forecastPathTask `json:"tasks"`
	Last           []forecastStep     `json:"last"`
	BoundBy        string             `json:"bound_by"`
}

type forecastPathTask struct {
	ID      string  `json:"id"`
	Blocks  int64   `json:"blocks"`
	Seconds float64 `json:"seconds"`
	// What its blocks waited for last.
	ForWorker int64 `json:"waited_for_a_worker"`
	ForBlocks int64 `json:"waited_for_blocks"`
	ForStart  int64 `json:"waited_for_a_start"`
	ForRetry  int64 `json:"waited_for_a_retry"`
}

type forecastStep struct {
	Task         string  `json:"task"`
	Block        int64   `json:"block"`
	Attempt      int32   `json:"attempt"`
	BeganSeconds float64 `json:"began_seconds"`
	Seconds      float64 `json:"seconds"`
	WaitedFor    string  `json:"waited_for"`
}

var causeWords = map[sim.Cause]string{sim.ByWorker: "worker", sim.ByNeed: "blocks", sim.ByStart: "start", sim.ByRetry: "retry"}

// worth says how many workers pay, for one combination of the other keys.
type worth struct {
	Sweep   []sweptValue `json:"sweep"`
	Workers int64        `json:"max_workers"`
	Text    string       `json:"text"`
}

func (w *whatIf) assumed(v *variant) assumed {
	a := assumed{Batch: w.batch(v.job), StartSeconds: w.startTime.Seconds(), WorkerFailuresPerHour: w.workerFailures, Tasks: []assumedTask{}}
	if w.queueText != "" {
		a.QueueWait = &w.queueText
	}
	if limit := w.shortest(v); a.Batch && limit > 0 {
		s := limit.Seconds()
		a.TimeLimitSeconds = &s
	}
	if w.workers > 0 {
		a.Workers = &w.workers
	}
	for i, t := range v.config.Pipeline.Tasks() {
		k := v.config.Code[i]
		a.Tasks = append(a.Tasks, assumedTask{t.ID, w.said[t.ID], k.Times.Mean().Seconds(), k.Failures})
	}
	return a
}

// warnings are what people should know before they believe the answer.
func (w *whatIf) warnings(list []*variant) []string {
	texts := []string{}
	scaled := false
	for _, v := range list {
		for _, s := range v.scales {
			scaled = scaled || s != 1
		}
	}
	if scaled {
		texts = append(texts, "blocks of another shape are taken to need time in proportion to the volume that they write; what they read beyond it, and what each block costs by itself, is not known")
	}
	if v := list[0]; v.config.Batch && v.config.MaxSlots == 0 && !v.job.HasResources && !v.job.Unlimited() {
		texts = append(texts, "the run has the resources of this machine, as the job gives none: --workers N supposes room for N blocks")
	}
	for _, v := range list { // those of a sweep that have the marks have the same
		if text := v.sayDone(); text != "" {
			return append(texts, text)
		}
	}
	return texts
}

// sayDone says how many blocks are left out as done before, "" if none are: what is left may take no time at all, which says nothing of the job.
func (v *variant) sayDone() string {
	done, all := int64(0), int64(0)
	for _, t := range v.config.Pipeline.Tasks() {
		done, all = done+t.Done.Count(), all+t.Grid.Len()
	}
	if done == 0 {
		return ""
	}
	return fmt.Sprintf("%s of %s are done by the marks in %s, and are left out; --set run.tracking=DIR with a folder that is not there takes all", units.Count(done), units.Plural(all, "block"), v.job.Tracking)
}

// add takes a forecast in.
func (s *simulation) add(v *variant, f *sim.Forecast) {
	row := forecast{Sweep: append([]sweptValue{}, v.swept...), State: f.State.String(), Message: f.Why, WallSeconds: f.Wall.Seconds(),
		WorkerHours: forecastHours{f.Used.Hours(), f.Idle.Hours(), f.Wasted.Hours()}, IdleShare: f.IdleShare(), QueuedHours: f.Queued.Hours(),
		Workers: f.Workers, MostSlots: f.MostSlots}
	if f.State == engine.RunDone {
		row.Message = ""
	}
	for _, x := range v.swept {
		row.workers = max(row.workers, x.workers)
	}
	row.Path = forecastPath{BetweenSeconds: f.Path.Before.Seconds(), Tasks: []forecastPathTask{}, Last: []forecastStep{}, BoundBy: boundBy(&f.Path)}
	for i, t := range f.Tasks {
		y := t.Tally
		row.Tasks = append(row.Tasks, forecastTask{ID: t.ID, Blocks: y.Total, Success: y.Success, Skipped: y.Skipped, Failed: y.Failed, Orphaned: y.Orphaned,
			TimedOut: y.TimedOut, Lost: y.Lost, Retries: y.Retries, MaxConcurrency: t.Most, BeganSeconds: t.Began.Seconds(), EndedSeconds: t.Ended.Seconds(), TimesScaled: v.scales[t.ID]})
		p := f.Path.Tasks[i]
		row.Path.Tasks = append(row.Path.Tasks, forecastPathTask{t.ID, p.Blocks, p.Time.Seconds(), p.By[sim.ByWorker], p.By[sim.ByNeed], p.By[sim.ByStart], p.By[sim.ByRetry]})
	}
	for _, x := range f.Path.Latest {
		row.Path.Last = append(row.Path.Last, forecastStep{f.Tasks[x.Task].ID, x.Block, x.Attempt, x.Began.Seconds(), x.Took.Seconds(), causeWords[x.By]})
	}
	s.Forecasts = append(s.Forecasts, row)
}

// tasks are the names of the tasks.
func (f *forecast) tasks() (ids []string) {
	for _, t := range f.Tasks {
		ids = append(ids, t.ID)
	}
	return ids
}

// boundBy is what most blocks of a path waited for, besides the first of each worker: "workers", "blocks", or "" if there is nothing to say.
func boundBy(p *sim.Path) string {
	workers, blocks := p.By(sim.ByWorker), p.By(sim.ByNeed)
	switch {
	case workers+blocks == 0:
		return ""
	case workers >= blocks:
		return "workers"
	default:
		return "blocks"
	}
}

// pays is the least share of what it could save for which a step to more workers is worth it.
const pays = 0.5

// gain is the share of the possible that a step to more workers saves: 1 if the run is shorter in the same proportion.
func gain(from, to *forecast) float64 {
	if to.WallSeconds == 0 { // there was nothing to do
		return 0
	}
	return (from.WallSeconds/to.WallSeconds - 1) / (float64(to.workers)/float64(from.workers) - 1)
}

// conclude says for each combination of the other keys how many workers are worth asking for.
func (s *simulation) conclude() {
	groups := map[string][]*forecast{}
	var order []string
	for i := range s.Forecasts {
		f := &s.Forecasts[i]
		if f.workers == 0 {
			return
		}
		key := sweepText(f.others())
		if groups[key] == nil {
			order = append(order, key)
		}
		groups[key] = append(groups[key], f)
	}
	for _, key := range order {
		if w, ok := conclusion(groups[key]); ok {
			s.Worth = append(s.Worth, w)
		}
	}
}

// others are the swept values but for max_workers.
func (f *forecast) others() []sweptValue {
	list := []sweptValue{}
	for _, v := range f.Sweep {
		if v.Key != maxWorkers {
			list = append(list, v)
		}
	}
	return list
}

func sweepText(list []sweptValue) string {
	var parts []string
	for _, v := range list {
		parts = append(parts, v.Key+"="+v.Value)
	}
	return strings.Join(parts, " ")
}

// conclusion goes up with the workers as long as a step pays.
func conclusion(list []*forecast) (worth, bool) {
	list = sortedByWorkers(list)
	if len(list) < 2 {
		return worth{}, false
	}
	best := 0
	for i := 1; i < len(list) && gain(list[best], list[i]) >= pays; i++ {
		best = i
	}
	b := list[best]
	w := worth{Sweep: b.others(), Workers: b.workers}
	w.Text = fmt.Sprintf("%d workers: %s, %s worker-hours", b.workers, span(b.WallSeconds), hours(b.WorkerHours.all()))
	if best+1 < len(list) {
		next := list[best+1]
		saved := "save nothing"
		if d := b.WallSeconds - next.WallSeconds; d > 0 {
			saved = fmt.Sprintf("save %s (%s of the time)", span(d), percent(d/b.WallSeconds))
		}
		w.Text += fmt.Sprintf("; %d, %s as many, %s", next.workers, times(float64(next.workers)/float64(b.workers)), saved)
	} else {
		w.Text += "; more than that may pay, too"
	}
	return w, true
}

func sortedByWorkers(list []*forecast) []*forecast {
	sorted := append([]*forecast{}, list...)
	for i := 1; i < len(sorted); i++ {
		for k := i; k > 0 && sorted[k].workers < sorted[k-1].workers; k-- {
			sorted[k], sorted[k-1] = sorted[k-1], sorted[k]
		}
	}
	distinct := sorted[:0]
	for _, f := range sorted {
		if n := len(distinct); n == 0 || distinct[n-1].workers != f.workers {
			distinct = append(distinct, f)
		}
	}
	return distinct
}

func span(seconds float64) string { return units.Duration(ofSeconds(seconds)) }

func hours(h float64) string {
	switch {
	case h == 0:
		return "0"
	case h < 0.0095:
		return strconv.FormatFloat(h, 'g', 2, 64)
	case h < 99.95:
		return strconv.FormatFloat(h, 'f', 2, 64)
	}
	return units.Count(int64(math.Round(h)))
}

func percent(share float64) string { return strconv.FormatFloat(100*share, 'f', 1, 64) + "%" }

func times(x float64) string { return strconv.FormatFloat(x, 'g', 3, 64) + " times" }

// write prints it for people.
func (s *simulation) write(w io.Writer) error {
	write := s.writeOne
	if len(s.Forecasts) > 1 {
		write = s.writeSweep
	}
	if err := s.writeAssumed(w); err != nil {
		return err
	}
	if err := write(w); err != nil {
		return err
	}
	for _, text := range s.Warnings {
		if _, err := fmt.Fprintln(w, "\nnote: "+text); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintln(w, "\nNothing was started.")
	return err
}

// shortest is the time limit, or the shortest of those of the tasks; 0 if there is none.
func (w *whatIf) shortest(v *variant) time.Duration {
	limit := w.timeLimit
	for _, d := range v.config.TimeLimits {
		if w.timeLimit == 0 && d > 0 && (limit == 0 || d < limit) {
			limit = d
		}
	}
	return limit
}

func (s *simulation) writeAssumed(w io.Writer) error {
	a := s.Assumed
	from := "on this machine"
	if a.Batch {
		from = "from a batch system"
		if a.QueueWait != nil {
			from += ", after " + *a.QueueWait + " in its queue"
		}
		if a.TimeLimitSeconds != nil {
			from += ", for at most " + span(*a.TimeLimitSeconds)
		}
	}
	if a.WorkerFailuresPerHour > 0 {
		from += fmt.Sprintf(", of which each dies %g times an hour", a.WorkerFailuresPerHour)
	}
	var rows [][]string
	for _, t := range a.Tasks {
		rows = append(rows, []string{t.ID, t.BlockTime, span(t.MeanSeconds), percent(t.BlockFailures)})
	}
	return report.Grid(w, fmt.Sprintf("Simulation of %s (seed %d): workers %s\n\nSupposed", s.Name, s.Seed, from), []string{"<task", "<block time", "mean", "attempts that fail"}, rows)
}

// writeOne shows one run.
func (s *simulation) writeOne(w io.Writer) error {
	f := &s.Forecasts[0]
	state := f.State
	if f.Message != "" {
		state += " (" + f.Message + ")"
	}
	h := f.WorkerHours
	rows := [][]string{
		{"state", state}, {"wall time", span(f.WallSeconds)},
		{"worker-hours", fmt.Sprintf("%s: %s used, %s idle (%s), %s wasted", hours(h.all()), hours(h.Used), hours(h.Idle), percent(f.IdleShare), hours(h.Wasted))},
		{"workers", fmt.Sprintf("%s, with at most %s at once", units.Count(f.Workers), units.Plural(f.MostSlots, "slot"))},
	}
	if s.Assumed.Batch {
		rows = append(rows, []string{"in the queue", hours(f.QueuedHours) + " worker-hours"})
	}
	if err := report.Grid(w, "\nRun", []string{"<what", "<"}, rows); err != nil {
		return err
	}
	rows = nil
	for _, t := range f.Tasks {
		rows = append(rows, []string{t.ID, units.Count(t.Blocks), units.Count(t.Success), units.Count(t.Skipped), units.Count(t.Failed + t.Orphaned), units.Count(t.Retries), units.Count(t.TimedOut), units.Count(t.Lost),
			units.Count(t.MaxConcurrency), span(t.BeganSeconds), span(t.EndedSeconds)})
	}
	if err := report.Grid(w, "\nTasks", []string{"<task", "blocks", "success", "skipped", "failed", "retries", "timed out", "lost", "at once", "began", "ended"}, rows); err != nil {
		return err
	}
	return f.writePath(w)
}

// writePath says what the run waited for.
func (f *forecast) writePath(w io.Writer) error {
	p := &f.Path
	var rows [][]string
	for _, t := range p.Tasks {
		rows = append(rows, []string{t.ID, units.Count(t.Blocks), span(t.Seconds), percent(t.Seconds / max(f.WallSeconds, 1e-9)),
			units.Count(t.ForWorker), units.Count(t.ForBlocks), units.Count(t.ForStart), units.Count(t.ForRetry)})
	}
	rows = append(rows, []string{"(between blocks)", "", span(p.BetweenSeconds), percent(p.BetweenSeconds / max(f.WallSeconds, 1e-9)), "", "", "", ""})
	title := "\nCritical path: blocks one after another that make up the time of the run, and what they waited for"
	if err := report.Grid(w, title, []string{"<task", "blocks", "time", "share", "a worker", "other blocks", "its start", "a retry"}, rows); err != nil {
		return err
	}
	rows = nil
	for _, x := range p.Last {
		rows = append(rows, []string{x.Task, strconv.FormatInt(x.Block, 10), strconv.Itoa(int(x.Attempt)), span(x.BeganSeconds), span(x.Seconds), x.WaitedFor})
	}
	if err := report.Grid(w, "\nIts last blocks", []string{"<task", "block", "attempt", "began", "took", "<waited for"}, rows); err != nil {
		return err
	}
	text := map[string]string{
		"workers": "\nMost of its blocks waited for a worker: with more workers the run is shorter.",
		"blocks":  "\nMost of its blocks waited for other blocks: more workers change little.",
	}[p.BoundBy]
	if text == "" {
		return nil
	}
	_, err := fmt.Fprintln(w, text)
	return err
}

// writeSweep compares runs.
func (s *simulation) writeSweep(w io.Writer) error {
	var head []string
	for _, v := range s.Forecasts[0].Sweep {
		head = append(head, v.Key)
	}
	head = append(head, "wall time", "worker-hours", "used", "idle", "wasted", "at once", "<waits for", "<state")
	byWorkers := len(s.Worth) > 0
	if byWorkers {
		head = append(head, "step pays", "<worth it")
	}
	var rows [][]string
	for i := range s.Forecasts {
		f := &s.Forecasts[i]
		var row []string
		for _, v := range f.Sweep {
			row = append(row, v.Value)
		}
		h := f.WorkerHours
		row = append(row, span(f.WallSeconds), hours(h.all()), hours(h.Used), percent(f.IdleShare), hours(h.Wasted), units.Count(f.MostSlots), dash(f.Path.BoundBy), f.State)
		if byWorkers {
			row = append(row, s.step(f), s.mark(f))
		}
		rows = append(rows, row)
	}
	if err := report.Grid(w, "\nWhat is worth asking for", head, rows); err != nil {
		return err
	}
	for _, x := range s.Worth {
		text := "Worth asking for"
		if len(x.Sweep) > 0 {
			text += " with " + sweepText(x.Sweep)
		}
		if _, err := fmt.Fprintf(w, "%s: %s.\n", text, x.Text); err != nil {
			return err
		}
	}
	if byWorkers {
		_, err := fmt.Fprintf(w, "A step to more workers pays 100%% if the run becomes shorter in the same proportion; it is worth it from %.0f%% on.\n", 100*pays)
		return err
	}
	return nil
}

// step is how much the step to a run from the one with fewer workers pays.
func (s *simulation) step(f *forecast) string {
	if before := s.fewer(f); before != nil {
		return fmt.Sprintf("%.0f%%", 100*gain(before, f))
	}
	return "-"
}

// fewer is the run with the next lower number of workers that is else alike, nil if there is none.
func (s *simulation) fewer(f *forecast) (found *forecast) {
	for i := range s.Forecasts {
		o := &s.Forecasts[i]
		if o.workers < f.workers && sweepText(o.others()) == sweepText(f.others()) && (found == nil || o.workers > found.workers) {
			found = o
		}
	}
	return found
}

// mark is "yes" for up to as many workers as are worth asking for.
func (s *simulation) mark(f *forecast) string {
	for _, x := range s.Worth {
		if sweepText(x.Sweep) == sweepText(f.others()) && f.workers > x.Workers {
			return "no"
		}
	}
	return "yes"
}
