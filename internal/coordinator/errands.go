package coordinator

import (
	"context"
	"sync"
)

// errands runs calls of the launcher one after the other in a goroutine of its own, so that a slow batch system holds up
// nothing but the next call to it.
type errands struct {
	mu    sync.Mutex
	queue []func(context.Context)
	wake  chan struct{} // capacity 1
	done  sync.WaitGroup
}

func (e *errands) start(ctx context.Context) {
	e.wake = make(chan struct{}, 1)
	e.done.Go(func() {
		for {
			e.mu.Lock()
			queue := e.queue
			e.queue = nil
			e.mu.Unlock()
			for _, f := range queue {
				f(ctx)
			}
			if len(queue) > 0 {
				continue
			}
			select {
			case <-e.wake:
			case <-ctx.Done():
				return
			}
		}
	})
}

func (e *errands) add(f func(context.Context)) {
	e.mu.Lock()
	e.queue = append(e.queue, f)
	e.mu.Unlock()
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

func (e *errands) wait() { e.done.Wait() }
