package coordinator

import (
	"context"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.org/daisy/internal/engine"
	"example.org/daisy/internal/job"
	"example.org/daisy/internal/worker"
	"example.org/daisy/launcher"
	"example.org/daisy/launcher/launchertest"
	"example.org/daisy/scheduler"
)

// aBatchSystem runs a job of one task over a batch system in memory, which starts everything 2 s after it was submitted.
func aBatchSystem(t *testing.T, q *launchertest.Queue, blocks int64, user worker.Func) Result {
	t.Helper()
	return aBatchSystemWithLogs(t, q, blocks, io.Discard, user)
}

func aBatchSystemWithLogs(t *testing.T, q *launchertest.Queue, blocks int64, log io.Writer, user worker.Func) Result {
	t.Helper()
	d := job.Defaults
	task := lineTask(t, "a", blocks, 1)
	task.MaxWorkers, task.MaxWorkerRestarts = 8, 10
	c, err := New(Config{Unlimited: true, Launcher: q, Job: &job.Job{
		Name: "line", Tasks: []job.Task{task}, Grace: d.Grace, ReconnectGrace: d.ReconnectGrace, HeartbeatTimeout: d.HeartbeatTimeout,
		HintAfter: d.HintAfter, IdleTimeout: -1,
	}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() {
		for ctx.Err() == nil {
			more := q.More()
			for _, e := range q.Elements() {
				if e.State == launcher.Pending {
					all.Go(func() { work(ctx, c, q, e, log, user) })
				}
			}
			select {
			case <-more:
			case <-ctx.Done():
			}
		}
	})
	result, err := c.Run(t.Context())
	stop()
	all.Wait()
	if err != nil {
		t.Error(err)
	}
	return result
}

// work is the life of an element, if it is still pending when its time comes.
func work(ctx context.Context, c *Coordinator, q *launchertest.Queue, e launcher.Element, log io.Writer, user worker.Func) {
	select {
	case <-time.After(2 * time.Second):
	case <-ctx.Done():
		return
	}
	started := false
	q.Set(e.Tag, e.First, func(now *launcher.Element) {
		if started = now.State == launcher.Pending && now.Array == e.Array; started {
			now.State, now.Node = launcher.Running, "n1"
		}
	})
	if !started {
		return
	}
	err := worker.Run(ctx, worker.Config{
		Dial: c.Dial, RunID: c.RunID(), Secret: c.Secret(), Slots: 1, Node: "n1", Log: log, Funcs: map[string]worker.Func{"a": user},
		Identity: worker.Identity{Tag: e.Tag, Element: e.First, Array: e.Array},
	})
	end := launcher.End{}
	if err != nil {
		end.Exit = 1
	}
	q.End(e.Tag, e.First, end)
}

func TestARunOnABatchSystem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := launchertest.NewQueue()
		got := aBatchSystem(t, q, 20, func(ctx context.Context, _ *worker.Block) error {
			time.Sleep(5 * time.Second)
			return nil
		})
		if s := got.Stats.Tasks[0]; got.State != engine.RunDone || got.ExitStatus != 0 || s.Success != 20 {
			t.Errorf("it is %+v", got)
		}
		calls := q.Calls()
		if i := slices.Index(calls, "submit 1 4"); i != 0 || calls[1] != "bind 1 101" || !slices.Contains(calls, "list") {
			t.Errorf("calls %q", calls)
		}
		r, _ := q.Requested("1")
		if r.Count != 4 || len(r.Env) == 0 {
			t.Errorf("it was asked for %+v", r)
		}
	})
}

// TestWorkersForWhichThereIsNoRoomWithAllSlotsAreAskedForWithFewer: one that has more than were taken for it is refused when it joins.
func TestWorkersForWhichThereIsNoRoomWithAllSlotsAreAskedForWithFewer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := launchertest.NewQueue()
		d := job.Defaults
		task := lineTask(t, "a", 100, 1)
		task.Slots, task.MaxWorkerRestarts = 4, 10
		task.Requires = scheduler.NewResources(map[string]int64{"cpu": 1000, "memory": 1 << 30})
		c, err := New(Config{Budget: scheduler.NewResources(map[string]int64{"cpu": 6000, "memory": 100 << 30}), Launcher: q, Job: &job.Job{
			Name: "line", Tasks: []job.Task{task}, Grace: d.Grace, ReconnectGrace: d.ReconnectGrace, HeartbeatTimeout: d.HeartbeatTimeout, HintAfter: d.HintAfter, IdleTimeout: -1,
		}})
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Minute, func() { c.Stop(engine.StopNow, "enough") })
		if _, err := c.Run(t.Context()); err != nil {
			t.Error(err)
		}
		for tag, slots := range map[string]int64{"1": 4, "2": 2} {
			r, there := q.Requested(tag)
			if !there || r.CPUMilli != 1000*slots || r.MemoryBytes != slots<<30 || !slices.Equal(r.Argv, []string{"--slots", strconv.FormatInt(slots, 10)}) {
				t.Errorf("submission %s, of %d slots, asks for %+v", tag, slots, r)
			}
		}
	})
}

func TestAJobThatABatchSystemNeverAcceptsIsWrong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := launchertest.NewQueue()
		q.NextSubmit = func(launcher.Request) launchertest.Outcome {
			return launchertest.Outcome{Err: &launcher.Refusal{Kind: launcher.RefusedForGood, Text: "invalid partition specified: nope"}}
		}
		got := aBatchSystem(t, q, 4, nil)
		if got.ExitStatus != 2 || got.Reason != `task "a": the batch system refused its workers: invalid partition specified: nope` {
			t.Errorf("it is %d: %s", got.ExitStatus, got.Reason)
		}
	})
}

// TestABatchSystemThatDoesNotAnswerHoldsNothingUp: workers come, and the run ends, although no question is answered.
func TestABatchSystemThatDoesNotAnswerHoldsNothingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := launchertest.NewQueue()
		q.Down = errors.New("Unable to contact slurm controller")
		q.NextSubmit = func(launcher.Request) launchertest.Outcome {
			return launchertest.Outcome{Accepted: true, Err: launcher.ErrUnsure}
		}
		got := aBatchSystem(t, q, 4, func(context.Context, *worker.Block) error { return nil })
		if got.State != engine.RunDone {
			t.Errorf("it is %+v", got)
		}
	})
}

// hanging is a batch system that keeps submissions waiting for as long as they may.
type hanging struct {
	*launchertest.Queue
	hangs  chan struct{} // closed when one does
	mu     sync.Mutex
	inside bool
	closed bool // Close was called while no submission was under way
}

func (q *hanging) Submit(ctx context.Context, _ launcher.Request) (string, error) {
	q.set(true)
	close(q.hangs)
	<-ctx.Done()
	q.set(false)
	return "", launcher.ErrUnsure
}

func (q *hanging) set(inside bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.inside = inside
}

func (q *hanging) Close(context.Context) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = !q.inside
	return nil
}

// TestAnInterruptCutsASubmissionShortBeforeTheQueueIsEmptied: what it has made all the same is still found then.
func TestAnInterruptCutsASubmissionShortBeforeTheQueueIsEmptied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &hanging{Queue: launchertest.NewQueue(), hangs: make(chan struct{})}
		d := job.Defaults
		task := lineTask(t, "a", 4, 1)
		task.MaxWorkers, task.MaxWorkerRestarts = 2, 10
		c, err := New(Config{Unlimited: true, Launcher: q, Job: &job.Job{
			Name: "line", Tasks: []job.Task{task}, Grace: d.Grace, ReconnectGrace: d.ReconnectGrace, HeartbeatTimeout: d.HeartbeatTimeout, HintAfter: d.HintAfter, IdleTimeout: -1,
		}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, interrupt := context.WithCancel(t.Context())
		var began time.Time
		go func() {
			<-q.hangs
			began = time.Now()
			interrupt()
		}()
		got, err := c.Run(ctx)
		if took := time.Since(began); err != nil || got.State != engine.RunInterrupted || took > 15*time.Second || !q.closed {
			t.Errorf("%v after %v (%v); the queue was emptied afterwards: %v", got.State, took, err, q.closed)
		}
	})
}

// TestAWorkerHearsHowLongItsBatchSystemLetsItRun: at first, and when somebody has changed it.
func TestAWorkerHearsHowLongItsBatchSystemLetsItRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := launchertest.NewQueue()
		var mu sync.Mutex
		var log strings.Builder
		n := 0
		aBatchSystemWithLogs(t, q, 4, lockedWriter{&mu, &log}, func(context.Context, *worker.Block) error {
			mu.Lock()
			n++
			first := n == 1
			mu.Unlock()
			if !first {
				return nil
			}
			for _, left := range []time.Duration{2 * time.Hour, time.Hour} {
				for i := range 4 {
					q.Set("1", i, func(e *launcher.Element) { e.Left = left })
				}
				time.Sleep(20 * time.Minute)
			}
			return nil
		})
		for _, left := range []string{"2h00m", "1h00m"} {
			if !strings.Contains(log.String(), "the batch system lets this worker run for "+left+" more") {
				t.Errorf("no worker hears of %s: %s", left, log.String())
			}
		}
	})
}

type lockedWriter struct {
	mu *sync.Mutex
	to *strings.Builder
}

func (w lockedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.to.Write(p)
}
