package engine

import (
	"strconv"
	"time"

	"example.org/daisy/internal/fleet"
	"example.org/daisy/launcher"
)

// A JobView is one submission to a batch system, with the task that its workers were asked for.
type JobView struct {
	fleet.Job
	Task int32
}

// Jobs lists the submissions that are not over, as far as is known; none where the launcher is no batch system.
func (e *Engine) Jobs() (views []JobView) {
	if e.book == nil {
		return nil
	}
	for _, j := range e.book.Jobs(e.now) {
		if s := e.submissions[j.Tag]; s != nil {
			views = append(views, JobView{Job: j, Task: s.request.Task})
		}
	}
	return views
}

// jobOf is what a batch system calls a worker, and how long it may run yet; "" and 0 where that is not known.
func (e *Engine) jobOf(w *worker) (job string, left time.Duration) {
	if e.book == nil || w.sub == nil {
		return "", 0
	}
	job = e.book.Bound(w.sub.tag)
	if job != "" && len(w.sub.workers) > 1 { // else it may be no array, and the id alone is right for both
		job += "_" + strconv.Itoa(w.element)
	}
	return job, e.book.TimeLeft(e.now, launcher.Worker{Tag: w.sub.tag, Element: w.element})
}
