package sim

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"example.org/daisy/launcher"
	"example.org/daisy/scheduler"
)

// BatchConfig is a batch system. It knows nothing of the engine: who uses it asks it with the methods of batch.
type BatchConfig struct {
	// Nodes is how many it has; CPU and GPU (thousandths of a core and of a device) is what each has.
	Nodes    int
	CPU, GPU int64
	// Cycle is how often it starts what is pending. Load is the share of each node, in thousandths, that others take on average.
	Cycle time.Duration
	Load  int
	// Limit is how long an element may run, 0 = for ever; KillWait is the time from the first signal to the last.
	Limit, KillWait time.Duration
	// MaxSubmitted bounds the elements that one user may have queued or running, MaxArray those of one array; 0 = no bound.
	MaxSubmitted, MaxArray int
	// Requeue: elements that were preempted, or lost with their node, wait once more and are started again.
	Requeue bool
	// MinJobAge is how long an element that has ended is still listed. FailSeen is how long a dead node is thought alive.
	MinJobAge, FailSeen time.Duration
	// NoAccounts: nobody can look up how an element ended. FixedNodes: pending elements cannot be kept off nodes.
	NoAccounts, FixedNodes bool
	// Answer is the mean time of a command.
	Answer time.Duration
}

// A batch is the batch system. Arrays of elements wait, in the order of their priority, for a node that has room; elements end by
// themselves, at their limit, by being cancelled or preempted, and with their node.
type batch struct {
	world  *World
	cfg    BatchConfig
	rng    *rand.Rand
	nodes  []node
	arrays []*array // that it knows, oldest first
	nextID int
	busy   bool // a cycle is due
	// ghosts are processes on nodes that are not heard, of elements that were given up.
	ghosts []*worker
	// reserved is the node that others leave for what waits first; 0 = none.
	reserved int
	// hooks of whoever runs the elements' programs
	start func(a *array, i int)
	term  func(x *worker)
	kill  func(x *worker, how launcher.Cause)
}

// A node is one machine. The first is number 1.
type node struct {
	cpu, gpu  int64 // free, but for what others take
	others    int64 // cpu that others take
	down      bool  // it has no power
	drained   bool  // nothing more starts on it
	unheard   bool  // it is cut off from everybody
	blackHole bool  // whatever starts on it ends at once
}

// elementState is where an element is.
type elementState uint8

const (
	elementPending elementState = iota
	elementRunning
	elementEnded
	elementGone // it leaves no trace
)

// An array is one submission.
type array struct {
	id, tag  string
	foreign  bool // of another user
	priority int
	slots    int
	cpu, gpu int64 // of one element
	throttle int   // elements that may run at once, 0 = no limit
	exclude  []int
	elements []arrayElement
	held     string // reason for which nothing of it starts, "" = none
	twin     bool   // whoever submitted it has not been told of it
	home     *home  // it is the coordinator of the run; nil of all others
}

type arrayElement struct {
	state   elementState
	job     string
	node    int
	started time.Duration
	limit   time.Duration // when its time is over, 0 = never
	ended   time.Duration
	word    string
	end     launcher.End
	by      launcher.Canceller
	ending  string // the word that its end will have, once it is being ended
	x       *worker
	beside  []*worker // other processes that were started for it
	// restarts is how often it was started again. suspended: its processes are stopped, and its node runs something else.
	restarts  int
	suspended bool
}

// What happens to a batch system.
const (
	batchCycle what = iota
	batchLimits
	batchKills     // n = array and element
	batchSees      // n = node that has failed: now it is seen
	batchOthersEnd // n = array of somebody else
	batchSuspects  // n = node that is not heard, and lives
	batchWarns     // n = array and element: its time is nearly over
)

func newBatch(w *World, cfg BatchConfig, rng *rand.Rand) *batch {
	b := &batch{world: w, cfg: cfg, rng: rng, nextID: 100, nodes: make([]node, cfg.Nodes+1)}
	for i := range b.nodes {
		b.nodes[i].cpu, b.nodes[i].gpu = cfg.CPU, cfg.GPU
	}
	b.nodes[0].drained = true // the login node
	return b
}

func (b *batch) act(ev *event) {
	switch ev.what {
	case batchCycle:
		b.busy = false
		b.cycle()
	case batchLimits:
		a, e := b.at(ev.n)
		if e.state == elementRunning && e.limit > 0 && b.world.now >= e.limit {
			b.finish(a, e, "TIMEOUT", ev.n)
			if !a.foreign {
				b.world.saw(sawTimeLimit)
			}
		}
	case batchKills:
		a, e := b.at(ev.n)
		if e.state == elementRunning && e.ending != "" && a.home != nil {
			a.home.killed()
		} else if e.state == elementRunning && e.ending != "" && e.x != nil {
			cause := launcher.Signalled
			b.kill(e.x, cause)
		}
	case batchWarns:
		if _, e := b.at(ev.n); e.state == elementRunning && e.x != nil && e.limit > 0 && b.world.now >= e.limit-warning {
			e.x.endsSoon(e.limit - b.world.now)
		}
	case batchSees:
		if b.nodes[ev.n].down {
			b.seeFailure(int(ev.n))
		}
	case batchSuspects:
		if b.nodes[ev.n].unheard {
			b.suspect(int(ev.n))
		}
	case batchOthersEnd:
		for i := range b.arrays[ev.n].elements {
			if e := &b.arrays[ev.n].elements[i]; e.state <= elementRunning {
				b.over(b.arrays[ev.n], e, elementEnded, "COMPLETED", launcher.End{})
			}
		}
	}
}

// key names an element in an event; arrays are never moved in their list.
func (b *batch) key(a *array, i int) uint64 { return uint64(slices.Index(b.arrays, a))<<32 | uint64(i) }

func (b *batch) at(key uint64) (*array, *arrayElement) {
	a := b.arrays[key>>32]
	return a, &a.elements[key&0xffffffff]
}

// wake has a cycle come soon.
func (b *batch) wake() {
	if !b.busy {
		b.busy = true
		d := b.cfg.Cycle
		b.world.queue.push(event{at: b.world.now + d/2 + time.Duration(b.rng.Int64N(int64(d)+1)), to: b, what: batchCycle})
	}
}

// cycle starts what has room.
func (b *batch) cycle() {
	for i := 1; i < len(b.nodes); i++ { // others come and go
		n := &b.nodes[i]
		share := int64(b.cfg.Load) * b.cfg.CPU / 1000
		n.others = min(max(n.others+b.rng.Int64N(b.cfg.CPU/2+1)-b.cfg.CPU/4+(share-n.others)/4, 0), b.cfg.CPU)
		if i == b.reserved {
			n.others = 0
		}
	}
	b.reserved = 0
	order := slices.Clone(b.arrays)
	slices.SortStableFunc(order, func(a, c *array) int { return cmp.Compare(c.priority, a.priority) })
	pending := false
	for _, a := range order {
		running := 0
		for i := range a.elements {
			if a.elements[i].state == elementRunning {
				running++
			}
		}
		for i := range a.elements {
			e := &a.elements[i]
			if e.state != elementPending {
				continue
			}
			pending = true
			if a.held != "" || a.throttle > 0 && running >= a.throttle {
				break
			}
			n := b.place(a)
			if n == 0 {
				if b.reserved == 0 { // it is its turn: others make room for it
					b.reserved = b.roomiest(a)
				}
				break
			}
			running++
			b.begin(a, i, n)
		}
	}
	if pending {
		b.wake()
	}
}

// place finds a node for an element, 0 if there is none. One that has failed, and was not seen to, takes elements still.
func (b *batch) place(a *array) int {
	for i := 1; i < len(b.nodes); i++ {
		n := &b.nodes[i]
		if !n.drained && n.cpu-n.others >= a.cpu && n.gpu >= a.gpu && !slices.Contains(a.exclude, i) {
			return i
		}
	}
	return 0
}

// roomiest is the node where an element could start first if others left it.
func (b *batch) roomiest(a *array) (best int) {
	for i := 1; i < len(b.nodes); i++ {
		if n := &b.nodes[i]; !n.drained && !slices.Contains(a.exclude, i) && (best == 0 || n.cpu > b.nodes[best].cpu) {
			best = i
		}
	}
	return best
}

func (b *batch) begin(a *array, i, where int) {
	e, n := &a.elements[i], &b.nodes[where]
	n.cpu -= a.cpu
	n.gpu -= a.gpu
	b.nextID++
	*e = arrayElement{state: elementRunning, job: strconv.Itoa(b.nextID), node: where, started: b.world.now, restarts: e.restarts}
	if b.cfg.Limit > 0 {
		e.limit = b.world.now + b.cfg.Limit
		b.world.queue.push(event{at: e.limit, to: b, what: batchLimits, n: b.key(a, i)})
		b.world.queue.push(event{at: max(e.limit-warning, b.world.now), to: b, what: batchWarns, n: b.key(a, i)})
	}
	if a.home != nil {
		a.home.begins()
	} else if a.foreign {
		return
	} else {
		b.start(a, i)
	}
	b.world.logf("batch: %s_%d (%s) starts on n%d", a.id, i, a.tag, where)
}

// warning is how long before its limit an element is told of it.
const warning = 90 * time.Second

// ended: the program of an element is gone.
func (b *batch) ended(a *array, i int, x *worker, how launcher.End) {
	e := &a.elements[i]
	if e.x != x {
		b.ghosts = slices.DeleteFunc(b.ghosts, func(g *worker) bool { return g == x })
		return // one that was given up before
	}
	e.x = nil
	if e.state != elementRunning {
		return
	}
	if b.nodes[e.node].down {
		return // nobody is there to see it
	}
	word, end := "COMPLETED", launcher.End{Cause: launcher.Exited, Exit: how.Exit}
	switch {
	case e.ending != "":
		word = e.ending
	case how.Cause == launcher.Signalled:
		word, end = "FAILED", launcher.End{Cause: launcher.Signalled, Signal: how.Signal}
	case how.Exit != 0:
		word = "FAILED"
	}
	switch word {
	case "TIMEOUT":
		end = launcher.End{Cause: launcher.TimeLimit}
	case "PREEMPTED":
		end = launcher.End{Cause: launcher.Preempted}
	case "CANCELLED":
		end = launcher.End{Cause: launcher.Cancelled}
	}
	b.over(a, e, elementEnded, word, end)
}

// over ends an element, and frees what it took.
func (b *batch) over(a *array, e *arrayElement, state elementState, word string, end launcher.End) {
	if e.state == elementRunning {
		b.nodes[e.node].cpu += a.cpu
		b.nodes[e.node].gpu += a.gpu
	}
	e.state, e.word, e.end, e.ended, e.suspended = state, word, end, b.world.now, false
	b.world.logf("batch: an element of %s (%s) is %s", a.id, a.tag, word)
	b.endBeside(e, launcher.Signalled)
	if state == elementEnded && b.cfg.Requeue && !a.foreign && (end.Cause == launcher.Preempted || end.Cause == launcher.NodeFailed) {
		if e.x != nil {
			b.ghosts = append(b.ghosts, e.x)
		}
		*e = arrayElement{state: elementPending, restarts: e.restarts + 1}
		b.world.saw(sawRequeued)
	}
	a.home.ended(word)
	b.wake()
}

// isGhost: its batch system has given its element up, and it lives.
func (w *worker) isGhost() bool {
	if w.element == nil || w.beside {
		return false
	}
	e := &w.element.elements[w.at.Element]
	return e.x != w || e.state != elementRunning
}

// endBeside ends the other processes of an element, unless its node is cut off: then they go on for a while.
func (b *batch) endBeside(e *arrayElement, cause launcher.Cause) {
	list := e.beside
	e.beside = nil
	for _, x := range list {
		if b.nodes[e.node].unheard {
			b.ghosts = append(b.ghosts, x)
		} else {
			b.kill(x, cause)
		}
	}
}

// finish ends a running element: a signal, and a harder one later.
func (b *batch) finish(a *array, e *arrayElement, word string, key uint64) {
	if e.ending != "" {
		return
	}
	e.ending = word
	if a.home != nil {
		b.world.queue.push(event{at: b.world.now + b.cfg.KillWait, to: b, what: batchKills, n: key})
		a.home.told()
		return
	}
	if e.x == nil { // of others, or on a node that is down
		if a.foreign {
			b.over(a, e, elementEnded, word, launcher.End{})
		}
		return
	}
	b.world.queue.push(event{at: b.world.now + b.cfg.KillWait, to: b, what: batchKills, n: key})
	b.term(e.x)
	for _, x := range slices.Clone(e.beside) {
		b.term(x)
	}
}

// fail takes the power from a node. It is seen later.
func (b *batch) fail(where int) {
	n := &b.nodes[where]
	if n.down {
		return
	}
	n.down = true
	for _, a := range b.arrays {
		for i := range a.elements {
			if e := &a.elements[i]; e.state == elementRunning && e.node == where && e.x != nil {
				b.kill(e.x, launcher.NodeFailed)
				b.endBeside(e, launcher.NodeFailed)
				b.world.saw(sawNodeFail)
			}
		}
	}
	b.world.home.nodeFails(where)
	b.world.queue.push(event{at: b.world.now + b.cfg.FailSeen, to: b, what: batchSees, n: uint64(where)})
}

// seeFailure ends what was on a node that has failed.
func (b *batch) seeFailure(where int) {
	b.nodes[where].drained = true
	for _, a := range b.arrays {
		for i := range a.elements {
			if e := &a.elements[i]; e.state == elementRunning && e.node == where && e.x == nil && a.lost() {
				b.over(a, e, elementEnded, "NODE_FAIL", launcher.End{Cause: launcher.NodeFailed})
			}
		}
	}
}

// suspect takes a node that is not heard for dead. What runs there goes on.
func (b *batch) suspect(where int) {
	b.nodes[where].drained = true
	for _, a := range b.arrays {
		for i := range a.elements {
			if e := &a.elements[i]; e.state == elementRunning && e.node == where {
				b.over(a, e, elementEnded, "NODE_FAIL", launcher.End{Cause: launcher.NodeFailed})
				if !a.foreign {
					b.world.saw(sawNetless)
				}
			}
		}
	}
}

// rejoins brings such a node back: what it still runs of those that were given up is ended.
func (b *batch) rejoins(where int) {
	b.nodes[where].unheard = false
	for _, a := range b.arrays {
		for i := range a.elements {
			if e := &a.elements[i]; e.state >= elementEnded && e.node == where && e.x != nil {
				b.kill(e.x, launcher.Signalled)
			}
		}
	}
	for _, x := range slices.Clone(b.ghosts) {
		if x.node == where && !x.dead {
			b.kill(x, launcher.Signalled)
		}
	}
	b.world.home.rejoins(where)
	b.nodes[where].drained = b.nodes[where].down
	b.wake()
}

// repair brings a node back.
func (b *batch) repair(where int) {
	b.seeFailure(where)
	b.nodes[where].down, b.nodes[where].drained = false, false
	b.wake()
}

// preempt ends what runs on a node, for the sake of others.
func (b *batch) preempt(where int) {
	for k, a := range b.arrays {
		for i := range a.elements {
			if e := &a.elements[i]; e.state == elementRunning && e.node == where {
				b.finish(a, e, "PREEMPTED", uint64(k)<<32|uint64(i))
				if !a.foreign {
					b.world.saw(sawPreempted)
				}
			}
		}
	}
	b.nodes[where].others = b.cfg.CPU
}

// submit makes an array. The error is a *launcher.Refusal.
func (b *batch) submit(tag string, count, slots int, each scheduler.Resources, exclude []int) (*array, error) {
	held := 0
	for _, a := range b.arrays {
		for i := range a.elements {
			if !a.foreign && a.elements[i].state <= elementRunning {
				held++
			}
		}
	}
	cpu, gpu := each.Get("cpu"), each.Get("gpu")
	switch {
	case b.cfg.MaxArray > 0 && count > b.cfg.MaxArray, b.cfg.MaxSubmitted > 0 && held+count > b.cfg.MaxSubmitted:
		b.world.saw(sawLimits)
		return nil, &launcher.Refusal{Kind: launcher.RefusedForLimits, Text: "Job violates accounting/QOS policy"}
	case cpu > b.cfg.CPU || gpu > b.cfg.GPU:
		return nil, &launcher.Refusal{Kind: launcher.RefusedForGood, Text: "Requested node configuration is not available"}
	case b.nowhere(exclude):
		return nil, &launcher.Refusal{Kind: launcher.RefusedForGood, Text: "Requested node configuration is not available"}
	}
	b.nextID++
	a := &array{id: strconv.Itoa(b.nextID), tag: tag, slots: slots, cpu: cpu, gpu: gpu, exclude: exclude, elements: make([]arrayElement, count)}
	b.arrays = append(b.arrays, a)
	b.world.logf("batch: %s is array %s of %d", tag, a.id, count)
	b.wake()
	return a, nil
}

// nowhere: no node is left.
func (b *batch) nowhere(exclude []int) bool { return len(exclude) >= len(b.nodes)-1 }

// keepOff keeps pending elements off nodes.
func (b *batch) keepOff(a *array, exclude []int) {
	a.exclude = exclude
	a.held = ""
	if b.nowhere(exclude) {
		a.held = "BadConstraints"
	}
}

// find is the array that an id stands for now, nil if there is none.
func (b *batch) find(id string) *array {
	for _, a := range slices.Backward(b.arrays) {
		if a.id == id && b.lists(a) {
			return a
		}
	}
	return nil
}

// lists: something of it is listed still.
func (b *batch) lists(a *array) bool {
	return slices.ContainsFunc(a.elements, func(e arrayElement) bool { return b.listed(&e) })
}

func (b *batch) listed(e *arrayElement) bool {
	return e.state <= elementRunning || e.state == elementEnded && b.world.now < e.ended+b.cfg.MinJobAge
}

// list is what it says of one user's elements.
func (b *batch) list() (l launcher.Listing) {
	for _, a := range b.arrays {
		if a.foreign {
			continue
		}
		for i := range a.elements {
			if e := &a.elements[i]; b.listed(e) {
				l.Elements = b.row(l.Elements, a, i)
			}
		}
	}
	return l
}

// row adds an element, to the row before it where both are pending.
func (b *batch) row(rows []launcher.Element, a *array, i int) []launcher.Element {
	e := &a.elements[i]
	r := launcher.Element{Tag: a.tag, Array: a.id, Job: e.job, First: i, Last: i, Word: e.word, Throttle: a.throttle}
	switch e.state {
	case elementPending:
		r.State, r.Word, r.Reason = launcher.Pending, "PENDING", launcher.Reason{Word: "Priority", Plain: "others go first"}
		if a.held != "" {
			r.Reason = launcher.Reason{Word: a.held, Plain: "it never starts", Never: true}
		}
		if n := len(rows); n > 0 && rows[n-1].Array == a.id && rows[n-1].State == launcher.Pending && rows[n-1].Last == i-1 {
			rows[n-1].Last = i
			return rows
		}
	case elementRunning:
		r.State, r.Word, r.Node = launcher.Running, "RUNNING", b.world.nodeName(e.node)
		if e.ending != "" {
			r.State, r.Word = launcher.Unknown, "COMPLETING"
		} else if e.suspended {
			r.State, r.Word = launcher.Unknown, "SUSPENDED"
		}
		if e.limit > 0 {
			r.Left = max(e.limit-b.world.now, time.Second)
		}
	default:
		r.State, r.End, r.By, r.Node = launcher.Ended, e.end, e.by, b.world.nodeName(e.node)
		if e.end.Cause == launcher.NodeFailed {
			r.State = launcher.Unknown
		}
	}
	return append(rows, r)
}

// account is what the accounts say of arrays, of all if there are none.
func (b *batch) account(ids []string) (l launcher.Listing) {
	for _, a := range b.arrays {
		if a.foreign || len(ids) > 0 && !slices.Contains(ids, a.id) {
			continue
		}
		for i := range a.elements {
			if a.elements[i].state != elementGone {
				l.Elements = b.row(l.Elements, a, i)
			}
		}
	}
	return l
}

// cancel ends elements of an array: pending ones leave no trace.
func (b *batch) cancel(a *array, list []int, by launcher.Canceller) {
	k := uint64(slices.Index(b.arrays, a)) << 32
	for _, i := range list {
		if i < 0 || i >= len(a.elements) {
			continue
		}
		switch e := &a.elements[i]; e.state {
		case elementPending:
			b.over(a, e, elementGone, "CANCELLED", launcher.End{})
		case elementRunning:
			e.by = by
			b.finish(a, e, "CANCELLED", k|uint64(i))
		}
	}
}

func (a *array) all() (list []int) {
	for i := range a.elements {
		list = append(list, i)
	}
	return list
}

// forgetAll is what a controller does that has lost its state: it knows no array any more, ends what it finds on its nodes, and gives
// ids out again, to others.
func (b *batch) forgetAll() {
	ids := 0
	for _, a := range b.arrays {
		for i := range a.elements {
			e := &a.elements[i]
			if e.state == elementRunning && e.x != nil {
				e.ending = "CANCELLED"
				b.kill(e.x, launcher.Signalled)
			}
			if a.home != nil && e.state == elementRunning {
				a.home.dies()
			}
			if e.state <= elementRunning {
				b.over(a, e, elementGone, "LOST", launcher.End{})
			}
			if e.state == elementEnded {
				e.state = elementGone
			}
		}
	}
	b.ghosts = nil
	for _, a := range slices.Clone(b.arrays) {
		if n, _ := strconv.Atoi(a.id); !a.foreign && ids < 3 {
			ids++
			b.world.saw(sawIDsAgain)
			b.arrays = append(b.arrays, &array{id: strconv.Itoa(n), tag: fmt.Sprint("other", n), foreign: true, priority: 1, cpu: b.cfg.CPU / 2, elements: make([]arrayElement, 2)})
			b.world.queue.push(event{at: b.world.now + time.Duration(b.rng.Int64N(int64(2*time.Hour))), to: b, what: batchOthersEnd, n: uint64(len(b.arrays) - 1)})
		}
	}
	b.wake()
}
