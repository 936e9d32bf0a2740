package engine

import (
	"fmt"
	"slices"
	"time"

	"example.org/daisy/scheduler"
)

// Settings outlive the coordinator that was told of them: each is a record, and the latest of each limit holds.

// Settings are the limits that have been changed since the run began, in the order in which they became what they are: each names one.
func (e *Engine) Settings() []Setting { return slices.Clone(e.sets) }

// singles are settings of one limit each.
func (s *Setting) singles() []Setting {
	if s.Key != SetResources {
		return []Setting{*s}
	}
	var list []Setting
	for _, name := range s.Amounts.Names() {
		list = append(list, Setting{Key: SetResources, Amounts: scheduler.NewResources(map[string]int64{name: s.Amounts.Get(name)}), By: s.By})
	}
	return list
}

// name is the resource that a setting of one limit is about, "" if it is about a task.
func (s *Setting) name() string {
	if names := s.Amounts.Names(); s.Key == SetResources && len(names) > 0 {
		return names[0]
	}
	return ""
}

// Records are what the journal says of a setting.
func (s *Setting) records() []Record {
	var list []Record
	for _, one := range s.singles() {
		r := Record{Kind: RecordSet, State: uint8(one.Key), Task: one.Task, ID: one.name(), Text: one.By}
		switch one.Key {
		case SetResources:
			r.Count = one.Amounts.Get(r.ID)
		case SetMaxWorkers:
			r.Count = one.N
		case SetTimeout:
			r.Count = int64(one.Timeout)
		}
		list = append(list, r)
	}
	return list
}

// setting reads a record.
func setting(r *Record) (Setting, error) {
	s := Setting{Key: SettingKey(r.State), Task: r.Task, By: r.Text}
	switch s.Key {
	case SetResources:
		s.Amounts = scheduler.NewResources(map[string]int64{r.ID: r.Count})
	case SetMaxWorkers:
		s.N = r.Count
	case SetTimeout:
		s.Timeout = time.Duration(r.Count)
	default:
		return s, fmt.Errorf("a setting of the unknown kind %d", r.State)
	}
	return s, nil
}

// withSetting adds a setting of one limit to a list, in the place of an earlier one. No limit of workers is what the job has: nobody can
// set it, but a resume without one overrules what was set.
func withSetting(list []Setting, s Setting) []Setting {
	var now []Setting
	for _, was := range list {
		if was.Key != s.Key || was.Task != s.Task || was.name() != s.name() {
			now = append(now, was)
		}
	}
	if s.Key == SetMaxWorkers && s.N == 0 {
		return now
	}
	return append(now, s)
}

// Set adds a setting that is wanted of the epoch that comes, and returns its records, which are still to be journalled.
func (p *Past) Set(s Setting) []Record {
	for _, one := range s.singles() {
		p.sets = withSetting(p.sets, one)
	}
	return s.records()
}

// carryOver puts the settings of earlier epochs in force. One that is not possible any more is left out, and said.
func (e *Engine) carryOver(sets []Setting) {
	for i := range sets {
		s := &sets[i]
		if err := e.CheckSetting(s); err != nil {
			e.carried = append(e.carried, fmt.Sprintf("what %s had set is not possible any more: %v", s.By, err))
			continue
		}
		e.carried = append(e.carried, fmt.Sprintf("%s, as set by %s", e.limit(s), s.By))
	}
}
