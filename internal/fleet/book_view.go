package fleet

import (
	"slices"
	"time"

	"example.org/daisy/launcher"
)

// A Job is what a Book knows of one submission that is not over, for people.
type Job struct {
	// Array is "" as long as the system has not said its id; Unsure: it is not known whether it took the submission.
	Tag, Array string
	Unsure     bool
	// Asked are workers that no answer has shown, Queued are pending, Running have been started; Connected of them are.
	Asked, Queued, Running, Connected int
	// Waits is why they are pending, as of the last answer; StartsIn is counted from now on.
	Waits []Waiting
	// Nodes are those of workers that run, sorted.
	Nodes []string
}

// Jobs lists all submissions that are not over, in their order.
func (b *Book) Jobs(now time.Duration) []Job {
	list := make([]Job, 0, len(b.order))
	for _, en := range b.order {
		j := Job{Tag: en.tag, Array: en.array, Unsure: en.state == unsure}
		for i := range en.elements {
			el := &en.elements[i]
			switch {
			case el.state == over:
				continue
			case el.state == ran || el.joined:
				j.Running++
				if el.node != "" {
					j.Nodes = append(j.Nodes, el.node)
				}
			case el.state == queued:
				j.Queued++
			default:
				j.Asked++
			}
			if el.connected {
				j.Connected++
			}
		}
		if j.Asked+j.Queued+j.Running == 0 {
			continue
		}
		slices.Sort(j.Nodes)
		j.Nodes = slices.Compact(j.Nodes)
		j.Waits = b.waits(now, en)
		list = append(list, j)
	}
	return list
}

// TimeLeft is how long the system will let a worker run; 0 if it has not said so.
func (b *Book) TimeLeft(now time.Duration, w launcher.Worker) time.Duration {
	if _, el := b.find(w); el != nil && el.until > now {
		return el.until - now
	}
	return 0
}
