package coordinator

import (
	"strconv"
	"strings"

	"example.org/daisy/internal/api"
	"example.org/daisy/internal/engine"
	"example.org/daisy/internal/job"
	"example.org/daisy/internal/units"
	"example.org/daisy/scheduler"
)

// Limits that may change: by people while the run goes on, and by the command line of a resume. Each change is in the journal.

// limit finds the limit that a key names, and for one of the budget the name of the resource.
func (c *Coordinator) limit(key string) (s engine.Setting, resource string, err error) {
	if name, ok := strings.CutPrefix(key, "run.resources."); ok && name != "" {
		s.Key = engine.SetResources
		return s, name, nil
	}
	path, ok := strings.CutPrefix(key, "task.")
	dot := strings.LastIndexByte(path, '.')
	if !ok || dot < 0 {
		return s, "", wrongly("%s", settable)
	}
	id, last := strings.Trim(path[:dot], `"`), path[dot+1:]
	task := c.pipeline.Index(id)
	if task < 0 {
		return s, "", wrongly("there is no task %q in this run; it has %s", id, c.taskNames())
	}
	s.Task = int32(task)
	switch last {
	case "max_workers":
		s.Key = engine.SetMaxWorkers
	case "timeout":
		s.Key = engine.SetTimeout
	default:
		return s, "", wrongly("%q cannot be changed; %s", last, settable)
	}
	return s, "", nil
}

// keyOf is the key of a setting of one limit.
func (c *Coordinator) keyOf(s *engine.Setting) string {
	task := "task." + c.pipeline.Tasks()[s.Task].ID
	switch s.Key {
	case engine.SetMaxWorkers:
		return task + ".max_workers"
	case engine.SetTimeout:
		return task + ".timeout"
	default:
		return "run.resources." + s.Amounts.Names()[0]
	}
}

// withinCaps says why the site does not allow a setting.
func withinCaps(s *engine.Setting, caps *job.Caps) error {
	beyond := func(value, most string) error {
		return wrongly("%s is more than this site allows (%s); allowed is at most %s", value, caps.File, most)
	}
	switch s.Key {
	case engine.SetMaxWorkers:
		if caps.MaxWorkers > 0 && s.N > caps.MaxWorkers {
			return beyond(strconv.FormatInt(s.N, 10), strconv.FormatInt(caps.MaxWorkers, 10))
		}
	case engine.SetTimeout:
		if most := units.WriteDuration(caps.Timeout); caps.Timeout > 0 && s.Timeout == 0 {
			return beyond("no timeout", most)
		} else if caps.Timeout > 0 && s.Timeout > caps.Timeout {
			return beyond(units.WriteDuration(s.Timeout), most)
		}
	case engine.SetResources:
		for _, name := range s.Amounts.Names() {
			if n := s.Amounts.Get(name); caps.Resources.Has(name) && n > caps.Resources.Get(name) {
				return beyond(amountText(name, n), amountText(name, caps.Resources.Get(name)))
			}
		}
	}
	return nil
}

// amountText is an amount as a job file has it.
func amountText(name string, n int64) string {
	_, text, _ := strings.Cut(scheduler.NewResources(map[string]int64{name: n}).String(), "=")
	return text
}

// present is the limit that a setting changes, as it is.
func (c *Coordinator) present(s *engine.Setting) string {
	l := c.engine.Limits()
	return limitText(s, &l)
}

// limitText is the limit that a setting changes, as limits have it.
func limitText(s *engine.Setting, l *engine.Limits) string {
	switch s.Key {
	case engine.SetMaxWorkers:
		if n := l.Tasks[s.Task].MaxWorkers; n > 0 {
			return strconv.FormatInt(n, 10)
		}
		return "no limit"
	case engine.SetTimeout:
		return units.WriteDuration(l.Tasks[s.Task].Timeout)
	default:
		name := s.Amounts.Names()[0]
		return amountText(name, l.Total.Get(name))
	}
}

// ofJob are the limits as the job has them.
func (c *Coordinator) ofJob() engine.Limits {
	l := engine.Limits{Total: c.cfg.Budget, Unlimited: c.cfg.Unlimited}
	for _, t := range c.pipeline.Tasks() {
		spec := c.cfg.Job.Task(t.ID)
		l.Tasks = append(l.Tasks, engine.TaskLimits{MaxWorkers: spec.MaxWorkers, Timeout: spec.Timeout})
	}
	return l
}

// overrule has the limits that a resume was given win over what was set while the run went on. It returns the records of it, which are
// still to be journalled, so that they hold over the next resume, too. Other keys are none of its business.
func (c *Coordinator) overrule(past *engine.Past, keys []string) (records []engine.Record) {
	l := c.ofJob()
	for _, key := range keys {
		s, name, err := c.limit(key)
		names := []string{name}
		if key == "run.resources" {
			s, err, names = engine.Setting{Key: engine.SetResources}, nil, l.Total.Names()
		}
		if err != nil || s.Key == engine.SetResources && l.Unlimited {
			continue
		}
		s.By = "the command line of the resume"
		switch s.Key {
		case engine.SetMaxWorkers:
			s.N = l.Tasks[s.Task].MaxWorkers
		case engine.SetTimeout:
			s.Timeout = l.Tasks[s.Task].Timeout
		case engine.SetResources:
			amounts := map[string]int64{}
			for _, n := range names {
				amounts[n] = l.Total.Get(n)
			}
			s.Amounts = scheduler.NewResources(amounts)
		}
		records = append(records, past.Set(s)...)
	}
	return records
}

// tellLimits takes the limits that are in force after a resume to what workers are told when they join.
func (c *Coordinator) tellLimits() {
	for i, l := range c.engine.Limits().Tasks {
		c.specs[i].TimeoutSeconds = l.Timeout.Seconds()
	}
}

// changes are the limits that are not those of the job.
func (c *Coordinator) changes() (list []api.LimitChange) {
	now, was := c.engine.Limits(), c.ofJob()
	for _, s := range c.engine.Settings() {
		change := api.LimitChange{Key: c.keyOf(&s), Was: limitText(&s, &was), Now: limitText(&s, &now), By: s.By}
		if change.Was != change.Now {
			list = append(list, change)
		}
	}
	return list
}
