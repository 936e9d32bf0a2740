package coordinator

import (
	"example.org/daisy/internal/api"
	"example.org/daisy/internal/engine"
)

// liveJobs are jobs of a batch system, for people.
func (c *Coordinator) liveJobs(views []engine.JobView) []api.LiveJob {
	list := []api.LiveJob{}
	for _, v := range views {
		j := api.LiveJob{Job: value(v.Array), Submission: v.Tag, Task: c.specs[v.Task].ID, Unsure: v.Unsure, Asked: int64(v.Asked), Pending: int64(v.Queued),
			Running: int64(v.Running), Connected: int64(v.Connected), Waits: []api.LiveWaiting{}, Nodes: append([]string{}, v.Nodes...)}
		for _, w := range v.Waits {
			live := api.LiveWaiting{Workers: int64(w.Count), Reason: value(w.Word), Meaning: value(w.Plain)}
			if w.StartsIn > 0 {
				live.StartsInSeconds = value(w.StartsIn.Seconds())
			}
			j.Waits = append(j.Waits, live)
		}
		list = append(list, j)
	}
	return list
}
