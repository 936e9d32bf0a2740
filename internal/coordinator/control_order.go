package coordinator

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"

	"example.org/daisy/internal/api"
	"example.org/daisy/internal/engine"
	"example.org/daisy/internal/units"
	"example.org/daisy/scheduler"
)

// obey reads an order, has it checked and carried out between two events, and answers with what do says, once the functions that follow it
// are through.
func (c *Coordinator) obey(w http.ResponseWriter, r *http.Request, order any, do func() (api.Done, error), then ...func() error) {
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	if err := d.Decode(order); err != nil {
		c.refuseControl(w, r, wrongly("the order is not what was expected (use the daisy-submit that started the run): %v", err))
		return
	}
	var done api.Done
	var refusal error
	if err := c.between(r.Context(), func() { done, refusal = do() }); err != nil {
		c.refuseControl(w, r, err)
		return
	}
	for _, f := range then {
		if refusal == nil {
			refusal = f()
		}
	}
	if refusal != nil {
		c.refuseControl(w, r, refusal)
		return
	}
	done.Version = api.ControlVersion
	if done.Changes == nil {
		done.Changes = []api.Change{}
	}
	c.answer(w, r, http.StatusOK, done)
}

// applyNow takes an event to the engine. Called by its owner only.
func (c *Coordinator) applyNow(ev engine.Event) { c.applyAll([]engine.Event{ev}) }

// somebody is who gave an order.
func somebody(by string) string {
	if by = api.OneLine(by); by == "" {
		return "somebody"
	}
	return by
}

func (c *Coordinator) serveDrain(w http.ResponseWriter, r *http.Request) {
	var o api.Order
	c.obey(w, r, &o, func() (api.Done, error) {
		running, err := c.endEarly(engine.StopDrain, "drained by "+somebody(o.By))
		return api.Done{Message: "no more blocks are handed out; " + goOn(running) + ", and the run ends when they have ended"}, err
	})
}

// goOn says how many blocks are still at it.
func goOn(blocks int64) string {
	if blocks == 1 {
		return "1 block is running"
	}
	return units.Count(blocks) + " blocks are running"
}

func (c *Coordinator) serveCancel(w http.ResponseWriter, r *http.Request) {
	var o api.Order
	c.obey(w, r, &o, func() (api.Done, error) {
		kind, why := engine.StopCancel, "cancelled by "+somebody(o.By)
		switch o.How {
		case "":
		case "now":
			kind = engine.StopNow
		default:
			return api.Done{}, wrongly("how is %q; allowed is \"now\", or nothing", o.How)
		}
		running, err := c.endEarly(kind, why)
		if kind == engine.StopNow {
			return api.Done{Message: "the run ends now; " + units.Plural(running, "running block") + " given up"}, err
		}
		return api.Done{Message: fmt.Sprintf("no more blocks are handed out; %s, with %s to end", goOn(running), units.Duration(c.cfg.Job.Grace))}, err
	})
}

// endEarly ends the run, and says how many blocks run.
func (c *Coordinator) endEarly(kind engine.StopKind, why string) (running int64, err error) {
	if err := c.engine.CheckStop(kind); err != nil {
		return 0, err
	}
	running = c.engine.Running()
	c.cfg.Notice(why)
	c.applyNow(engine.Event{Kind: engine.EventStop, Stop: kind, Text: why})
	return running, nil
}

func (c *Coordinator) serveStopWorker(w http.ResponseWriter, r *http.Request) {
	var o api.Order
	c.obey(w, r, &o, func() (api.Done, error) {
		if o.Worker == "" {
			return api.Done{}, wrongly("no worker is named")
		}
		if err := c.engine.CheckStopWorker(o.Worker); err != nil {
			return api.Done{}, err
		}
		c.applyNow(engine.Event{Kind: engine.EventStopWorker, Worker: o.Worker, Text: "stopped by " + somebody(o.By)})
		return api.Done{Message: fmt.Sprintf("worker %s is told to leave; blocks that it runs and that do not end within %s go to others", o.Worker, units.Duration(c.cfg.Job.Grace))}, nil
	})
}

func (c *Coordinator) serveSet(w http.ResponseWriter, r *http.Request) {
	var o api.SetOrder
	c.obey(w, r, &o, func() (api.Done, error) {
		if len(o.Sets) == 0 {
			return api.Done{}, wrongly("nothing is set")
		}
		var settings []engine.Setting
		var errs []error
		for _, kv := range o.Sets {
			s, err := c.setting(kv)
			if err == nil {
				err = withinCaps(&s, &c.cfg.Job.Caps)
			}
			if err == nil {
				s.By = somebody(o.By)
				err = c.engine.CheckSetting(&s)
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", api.OneLine(kv.Key), err))
			}
			settings = append(settings, s)
		}
		if errs != nil {
			return api.Done{}, errors.Join(errs...)
		}
		done := api.Done{Message: "it holds for the rest of the run, over a resume too"}
		for i := range settings {
			was := c.present(&settings[i])
			c.events.during(api.EventSet, "", func() { c.change(&settings[i]) })
			done.Changes = append(done.Changes, api.Change{Key: o.Sets[i].Key, Was: was, Now: c.present(&settings[i])})
		}
		return done, nil
	}, c.commitNow)
}

// commitNow makes durable what somebody is about to be told.
func (c *Coordinator) commitNow() error {
	if c.journal == nil {
		return nil
	}
	if _, err := c.journal.Commit(); err != nil {
		return fmt.Errorf("it holds now, but a resume may not know of it: %w", err)
	}
	return nil
}

// change has a limit be another, for the engine and for workers that join.
func (c *Coordinator) change(s *engine.Setting) {
	if s.Key == engine.SetTimeout {
		c.mu.Lock()
		c.specs[s.Task].TimeoutSeconds = s.Timeout.Seconds()
		c.mu.Unlock()
	}
	c.applyNow(engine.Event{Kind: engine.EventSet, Set: s})
}

// spec is what a worker is told of a task; for those who are not the owner of the engine, who may change it.
func (c *Coordinator) spec(task int32) api.TaskSpec {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.specs[task]
}

const settable = "what can be set while a run goes on is run.resources.NAME, and max_workers and timeout of a task, as task.ID.max_workers"

// setting reads a key and its value.
func (c *Coordinator) setting(kv api.KeySet) (s engine.Setting, err error) {
	text := strings.TrimSpace(kv.Value)
	if unquoted, err := strconv.Unquote(text); err == nil {
		text = unquoted
	}
	s, name, err := c.limit(kv.Key)
	if err != nil {
		return s, err
	}
	switch s.Key {
	case engine.SetResources:
		n, err := readAmount(name, text)
		s.Amounts = scheduler.NewResources(map[string]int64{name: n})
		return s, err
	case engine.SetMaxWorkers:
		if s.N, err = strconv.ParseInt(text, 10, 64); err != nil || s.N < 1 {
			return s, wrongly("%q is no number of workers; allowed is 1 or more", text)
		}
	case engine.SetTimeout:
		if s.Timeout, err = units.ParseDuration(text); err != nil {
			return s, wrongly("%v", err)
		}
	}
	return s, nil
}

// readAmount reads memory in bytes, everything else in thousandths.
func readAmount(name, text string) (int64, error) {
	if name == "memory" {
		n, err := units.ParseSize(text)
		if err != nil {
			return 0, wrongly("%v", err)
		}
		return n, nil
	}
	const most = 1e12
	v, err := strconv.ParseFloat(text, 64)
	n := math.Round(v * 1000)
	if err != nil || math.IsNaN(v) || v < 0 || v > most || math.Abs(v*1000-n) > 1e-6 {
		return 0, wrongly("%q is no amount; allowed is 0 to %d in steps of 0.001", text, int64(most))
	}
	if name == "gpu" && math.Mod(n, 1000) != 0 {
		return 0, wrongly("gpu = %s is not whole; GPUs are given to slots one by one", text)
	}
	return int64(n), nil
}
