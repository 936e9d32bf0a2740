package worker

// A queue is one in a single slice. Adding and dropping cost the same however long it is: what was dropped leaves room that is used again
// before the slice grows.
type queue[T any] struct {
	all   []T
	first int // of those that have not been dropped
}

// list is what is in the queue, in its order; it may be changed in place.
func (q *queue[T]) list() []T { return q.all[q.first:] }

func (q *queue[T]) len() int { return len(q.all) - q.first }

func (q *queue[T]) add(v T) {
	if len(q.all) == cap(q.all) && q.first > len(q.all)/2 {
		q.keep(q.list())
	}
	q.all = append(q.all, v)
}

// drop takes the first n away.
func (q *queue[T]) drop(n int) {
	clear(q.all[q.first : q.first+n])
	if q.first += n; q.first == len(q.all) {
		q.all, q.first = q.all[:0], 0
	}
}

// keep makes the queue what is given: some of its own, in their order.
func (q *queue[T]) keep(some []T) {
	n := copy(q.all, some)
	clear(q.all[n:])
	q.all, q.first = q.all[:n], 0
}
