package launchertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"example.org/daisy/launcher"
)

// A Queue is a batch system in memory, for tests of what is built on one. Nothing happens in it by itself: the test says which element
// starts, ends or vanishes, and what is answered. It keeps accounts if Accounting is set.
type Queue struct {
	// Accounting: it keeps accounts.
	Accounting bool
	// Down is the error of every question, nil if it answers.
	Down error
	// NextSubmit is what becomes of the next submission; it is called once.
	NextSubmit func(launcher.Request) Outcome
	// CannotExclude is the error of Exclude.
	CannotExclude error
	// CannotThrottle is the error of Throttle, which then has no effect.
	CannotThrottle error

	mu       sync.Mutex
	number   int
	arrays   []*queueArray
	calls    []string
	bound    map[string]string
	requests map[string]launcher.Request
	more     chan struct{} // closed and replaced with every call
}

// Outcome is what becomes of a submission: whether there is an array of it, and what the answer is.
type Outcome struct {
	Accepted bool
	Err      error
}

type queueArray struct {
	id, tag  string
	throttle int
	elements []launcher.Element
}

// NewQueue returns one that answers and accepts everything.
func NewQueue() *Queue {
	return &Queue{number: 100, bound: map[string]string{}, requests: map[string]launcher.Request{}, more: make(chan struct{})}
}

const queueIdleTimeout, queueAbandonAfter = 2 * time.Minute, 15 * time.Minute

var _ launcher.Queue = (*Queue)(nil)

// Name and Properties are those of a batch system.
func (q *Queue) Name() string { return "queue" }

// Properties of a batch system.
func (q *Queue) Properties() launcher.Properties { return QueueProperties() }

// QueueProperties are those of every batch system.
func QueueProperties() launcher.Properties {
	return launcher.Properties{Queue: true, IdleTimeout: queueIdleTimeout, AbandonAfter: queueAbandonAfter}
}

// Check finds everything there.
func (q *Queue) Check(context.Context) error { return nil }

// Watch is never called back.
func (q *Queue) Watch(func(launcher.Status)) {}

// Close leaves everything as it is, so that a test can look at it.
func (q *Queue) Close(context.Context) error { return nil }

func (q *Queue) called(format string, args ...any) {
	q.calls = append(q.calls, fmt.Sprintf(format, args...))
	close(q.more)
	q.more = make(chan struct{})
}

// Calls lists what was asked so far, in order: "submit 1 4", "list", "known 101", "account 101,102", "exclude 101 n1", "cancel 1.2",
// "cancel array 101", "bind 1 101".
func (q *Queue) Calls() []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Clone(q.calls)
}

// More is closed with the next call.
func (q *Queue) More() <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.more
}

// Requested is what was submitted under a tag.
func (q *Queue) Requested(tag string) (launcher.Request, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	r, ok := q.requests[tag]
	return r, ok
}

// Submit makes an array of pending elements, unless NextSubmit says otherwise.
func (q *Queue) Submit(_ context.Context, r launcher.Request) (string, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.called("submit %s %d", r.Tag, r.Count)
	q.requests[r.Tag] = r
	out := Outcome{Accepted: true}
	if f := q.NextSubmit; f != nil {
		q.NextSubmit = nil
		out = f(r)
	}
	id := ""
	if out.Accepted {
		id = q.add(r.Tag, r.Count)
		q.arrays[len(q.arrays)-1].throttle = r.Throttle
	}
	if out.Err != nil {
		return "", out.Err
	}
	return id, nil
}

// Twin makes another array of pending elements under a tag, and returns its id.
func (q *Queue) Twin(tag string, count int) string {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.add(tag, count)
}

func (q *Queue) add(tag string, count int) string {
	q.number++
	a := &queueArray{id: fmt.Sprint(q.number), tag: tag}
	for i := range count {
		a.elements = append(a.elements, launcher.Element{Tag: tag, Array: a.id, First: i, Last: i, State: launcher.Pending, Word: "PENDING",
			Reason: launcher.Reason{Word: "Priority", Plain: "others are ahead in the queue"}})
	}
	q.arrays = append(q.arrays, a)
	return a.id
}

// Set changes an element of the array that was made first under a tag, as f says.
func (q *Queue) Set(tag string, element int, f func(*launcher.Element)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, a := range q.arrays {
		if a.tag == tag {
			for i := range a.elements {
				if a.elements[i].First == element {
					f(&a.elements[i])
				}
			}
			return
		}
	}
}

// Room reports whether one more element of the array that was made first under a tag may run, by its throttle.
func (q *Queue) Room(tag string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, a := range q.arrays {
		if a.tag == tag {
			n := 0
			for _, e := range a.elements {
				if e.State == launcher.Running {
					n++
				}
			}
			return a.throttle == 0 || n < a.throttle
		}
	}
	return false
}

// Start has an element run on a node.
func (q *Queue) Start(tag string, element int, node string) {
	q.Set(tag, element, func(e *launcher.Element) {
		e.State, e.Word, e.Node, e.Job, e.Reason = launcher.Running, "RUNNING", node, fmt.Sprintf("%s_%d", e.Array, element), launcher.Reason{}
	})
}

// End ends an element.
func (q *Queue) End(tag string, element int, end launcher.End) {
	q.Set(tag, element, func(e *launcher.Element) { e.State, e.Word, e.End = launcher.Ended, "ENDED", end })
}

// Forget takes an element out of all answers.
func (q *Queue) Forget(tag string, element int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, a := range q.arrays {
		if a.tag == tag {
			a.elements = slices.DeleteFunc(a.elements, func(e launcher.Element) bool { return e.First == element })
			return
		}
	}
}

// Bind is noted: Cancel needs it.
func (q *Queue) Bind(tag, array string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.called("bind %s %s", tag, array)
	q.bound[tag] = array
}

// List answers with all elements.
func (q *Queue) List(context.Context) (launcher.Listing, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.called("list")
	return q.all(nil)
}

// Elements lists everything that there is, whether it answers or not.
func (q *Queue) Elements() (list []launcher.Element) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, a := range q.arrays {
		list = append(list, a.rows()...)
	}
	return list
}

// rows are the elements of an array, with its throttle if they are pending.
func (a *queueArray) rows() []launcher.Element {
	list := slices.Clone(a.elements)
	for i := range list {
		if list[i].State == launcher.Pending {
			list[i].Throttle = a.throttle
		}
	}
	return list
}

func (q *Queue) all(arrays []string) (launcher.Listing, error) {
	var l launcher.Listing
	if q.Down != nil {
		return l, q.Down
	}
	for _, a := range q.arrays {
		if arrays == nil || slices.Contains(arrays, a.id) {
			l.Elements = append(l.Elements, a.rows()...)
		}
	}
	return l, nil
}

// Known reports whether an array has elements.
func (q *Queue) Known(_ context.Context, array string) (bool, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.called("known %s", array)
	l, err := q.all([]string{array})
	return len(l.Elements) > 0, err
}

// Account answers with the elements of arrays that have ended.
func (q *Queue) Account(_ context.Context, arrays ...string) (launcher.Listing, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.called("account %s", strings.Join(arrays, ","))
	if !q.Accounting {
		return launcher.Listing{}, launcher.ErrNoAccounting
	}
	return q.all(arrays)
}

// Throttle is noted, and what it is stands in every pending row. Room goes by it.
func (q *Queue) Throttle(_ context.Context, array string, n int) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.called("throttle %s %d", array, n)
	if q.CannotThrottle != nil {
		return q.CannotThrottle
	}
	for _, a := range q.arrays {
		if a.id == array && q.Down == nil {
			a.throttle = n
		}
	}
	return q.Down
}

// Exclude notes the nodes.
func (q *Queue) Exclude(_ context.Context, array string, nodes []string) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.called("exclude %s %s", array, strings.Join(nodes, ","))
	return q.CannotExclude
}

// Cancel ends elements of bound arrays.
func (q *Queue) Cancel(_ context.Context, workers ...launcher.Worker) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	var names []string
	for _, w := range workers {
		names = append(names, w.String())
	}
	q.called("cancel %s", strings.Join(names, ","))
	if q.Down != nil {
		return q.Down
	}
	for _, w := range workers {
		q.cancel(q.bound[w.Tag], w.Element)
	}
	return nil
}

// Kill is Cancel.
func (q *Queue) Kill(ctx context.Context, workers ...launcher.Worker) error {
	return q.Cancel(ctx, workers...)
}

// cancel ends an element of an array, all with -1. What its node has taken along has ended as far as the system is concerned.
func (q *Queue) cancel(array string, element int) {
	for _, a := range q.arrays {
		if a.id != array {
			continue
		}
		for i := range a.elements {
			if e := &a.elements[i]; (element < 0 || e.First == element) && (e.State == launcher.Pending || e.State == launcher.Running) {
				e.State, e.Word, e.End, e.By = launcher.Ended, "CANCELLED", launcher.End{Cause: launcher.Cancelled}, launcher.CancelledByOwner
			}
		}
	}
}

// CancelArray ends an array whole.
func (q *Queue) CancelArray(_ context.Context, tag, array string) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.called("cancel array %s", array)
	for _, a := range q.arrays {
		if a.id == array && a.tag != tag {
			return errors.New("that array is not of this submission")
		}
	}
	if q.Down != nil {
		return q.Down
	}
	q.cancel(array, -1)
	return nil
}
