package coordinator

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"example.org/daisy/internal/api"
	"example.org/daisy/internal/engine"
)

// controlRoutes are those of the commands that look at a run, or change it.
func (c *Coordinator) controlRoutes(mux *http.ServeMux) {
	mux.HandleFunc("GET "+api.PathState, c.guarded(c.serveState))
	mux.HandleFunc("GET "+api.PathWorkers, c.guarded(c.serveWorkers))
	mux.HandleFunc("GET "+api.PathBlocks, c.guarded(c.serveBlocks))
	mux.HandleFunc("GET "+api.PathEvents, c.guarded(c.serveEvents))
	mux.HandleFunc("POST "+api.PathDrain, c.guarded(c.serveDrain))
	mux.HandleFunc("POST "+api.PathCancel, c.guarded(c.serveCancel))
	mux.HandleFunc("POST "+api.PathStopWorker, c.guarded(c.serveStopWorker))
	mux.HandleFunc("POST "+api.PathExclude, c.guarded(c.serveExclude))
	mux.HandleFunc("POST "+api.PathInclude, c.guarded(c.serveInclude))
	mux.HandleFunc("POST "+api.PathSet, c.guarded(c.serveSet))
}

var errOver = errors.New("the run is over")

// underAnother is said instead where only this coordinator ends.
const underAnother = "the run goes on under another coordinator; try again"

// between has f called by the owner of the engine between two events. When it gives an error, f may be called later all the
// same: what f writes must not be looked at then.
func (c *Coordinator) between(ctx context.Context, f func()) error {
	done := make(chan struct{})
	c.inbox.call(func() {
		defer close(done)
		c.applyNow(tick) // so that the engine knows how late it is
		f()
	})
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-c.listener.ctx.Done():
		return errOver
	}
}

// refuseControl words why a command gets nothing.
func (c *Coordinator) refuseControl(w http.ResponseWriter, r *http.Request, err error) {
	var wrong *wrongQuery
	switch {
	case errors.Is(err, errOver) && c.goesOn.Load():
		c.refuse(w, r, http.StatusServiceUnavailable, "busy", underAnother)
	case errors.Is(err, errOver):
		c.refuse(w, r, http.StatusConflict, "ended", err.Error())
	case errors.As(err, &wrong):
		c.refuse(w, r, http.StatusBadRequest, "bad_request", err.Error())
	case r.Context().Err() != nil:
		c.refuse(w, r, http.StatusServiceUnavailable, "busy", "the coordinator does not answer; try again")
	default:
		c.refuse(w, r, http.StatusConflict, "not_now", err.Error())
	}
}

// A wrongQuery is what no coordinator could do.
type wrongQuery struct{ text string }

func (e *wrongQuery) Error() string { return e.text }

func wrongly(format string, args ...any) error { return &wrongQuery{fmt.Sprintf(format, args...)} }

// value is v, or null for its zero.
func value[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

func (c *Coordinator) serveState(w http.ResponseWriter, r *http.Request) {
	var snap engine.Snapshot
	var limits engine.Limits
	var workers map[string]int64
	var excluded []engine.ExcludedNode
	var jobs []engine.JobView
	var now time.Duration
	err := c.between(r.Context(), func() {
		c.engine.Overview(&snap)
		limits, workers, excluded, now = c.engine.Limits(), c.engine.WorkerStates(), c.engine.Excluded(), c.now()
		jobs = c.engine.Jobs()
	})
	if err != nil {
		c.refuseControl(w, r, err)
		return
	}
	j := c.cfg.Job
	s := api.State{Version: api.ControlVersion, Resources: []api.LiveResource{}, Excluded: c.liveExcluded(excluded), Tasks: []api.LiveTask{}, Jobs: c.liveJobs(jobs)}
	host, _ := os.Hostname() // "" where it is not known
	s.Run = api.LiveRun{ID: c.runID, Name: j.Name, State: "running", Message: value(snap.Ending), Epoch: c.epoch, Started: c.began.UTC(), Seconds: now.Seconds(),
		Host: host, PID: int64(os.Getpid()), Program: c.cfg.Version, JobFile: value(j.File), Directory: value(c.runPath())}
	if snap.Ending != "" {
		s.Run.State = "ending"
	}
	if l := c.cfg.Launcher; l != nil {
		s.Run.Launcher = value(l.Name())
	}
	s.Workers = api.LiveSums{Starting: workers["starting"], Idle: workers["idle"], Busy: workers["busy"], Suspect: workers["suspect"], Leaving: workers["leaving"]}
	if !limits.Unlimited {
		for _, name := range limits.Total.Names() {
			s.Resources = append(s.Resources, api.LiveResource{Name: name, Total: inUnits(name, limits.Total.Get(name)), Used: inUnits(name, limits.Used.Get(name))})
		}
	}
	for i, t := range snap.Tasks {
		n := t.Tally
		live := api.LiveTask{ID: t.ID, State: t.State.String(), Blocks: n.Total, Waiting: n.Waiting, Ready: n.Ready, Leased: n.Leased, Success: n.Success,
			Skipped: n.Skipped, Failed: n.Failed, Orphaned: n.Orphaned, Abandoned: n.Abandoned, Unselected: c.cfg.Job.Task(t.ID).Unselected.Count(), Processed: n.Processed, Retries: n.Retries, TimedOut: n.TimedOut,
			Lost: n.Lost, Returned: n.Returned, OutOfMemory: n.OutOfMemory, Running: t.SlotsBusy, Idle: t.SlotsIdle, Starting: t.SlotsStarting,
			MaxWorkers: value(limits.Tasks[i].MaxWorkers), Waits: value(t.Waits), DaisyContext: value(c.ClientContext(t.ID))}
		if d := limits.Tasks[i].Timeout; d > 0 {
			live.TimeoutSeconds = value(d.Seconds())
		}
		s.Tasks = append(s.Tasks, live)
	}
	c.answer(w, r, http.StatusOK, s)
}

// inUnits is an amount of a resource as people give it.
func inUnits(name string, n int64) float64 {
	if name == "memory" {
		return float64(n)
	}
	return float64(n) / 1000
}
