package report

import (
	"encoding/json"
	"slices"
	"time"

	"example.org/daisy/internal/api"
)

// jsonInterval is how often progress is written at most.
const jsonInterval = time.Second

// jsonLines writes one JSON object a line.
type jsonLines struct {
	out    *outlet
	when   time.Time // of the last progress event
	shown  Snapshot  // as last written
	latest *progressEvent
}

type progressEvent struct {
	Event          string              `json:"event"`
	Time           time.Time           `json:"time"`
	State          string              `json:"state"`
	ElapsedSeconds float64             `json:"elapsed_seconds"`
	Tasks          []taskProgressEvent `json:"tasks"`
}

type taskProgressEvent struct {
	TaskProgress
	PerSecond  *float64 `json:"per_second"`
	ETASeconds *float64 `json:"eta_seconds"`
	Waits      *string  `json:"waits"`
}

type noticeEvent struct {
	Event string `json:"event"`
	Text  string `json:"text"`
}

type endEvent struct {
	Event string     `json:"event"`
	Time  *time.Time `json:"time"`
	Stats api.Stats  `json:"stats"`
}

func (j *jsonLines) update(now time.Time, s *Snapshot, paces []pace) {
	if !j.when.IsZero() && s.State == j.shown.State && slices.Equal(s.Tasks, j.shown.Tasks) {
		j.latest = nil
		return
	}
	e := &progressEvent{Event: "progress", Time: now.UTC(), State: s.State, ElapsedSeconds: s.Elapsed.Seconds(), Tasks: []taskProgressEvent{}}
	for i, t := range s.Tasks {
		row := taskProgressEvent{TaskProgress: t}
		if t.Waits != "" {
			row.Waits = &t.Waits
		}
		if rate, ok := paces[i].perSecond(); ok {
			row.PerSecond = &rate
		}
		if left, ok := paces[i].left(t.left()); ok {
			eta := left.Seconds()
			row.ETASeconds = &eta
		}
		e.Tasks = append(e.Tasks, row)
	}
	j.latest = e
	if !j.when.IsZero() && now.Sub(j.when) < jsonInterval {
		return
	}
	j.when = now
	j.shown = Snapshot{State: s.State, Tasks: append(j.shown.Tasks[:0], s.Tasks...)}
	j.flush()
}

// flush writes the progress that has not been written yet.
func (j *jsonLines) flush() {
	if j.latest != nil {
		j.write(j.latest, roomForProgress)
		j.latest = nil
	}
}

func (j *jsonLines) notice(text string) { j.write(noticeEvent{"notice", text}, roomForNotices) }

func (j *jsonLines) end(s api.Stats, _ *Snapshot, _ []pace) {
	j.flush()
	j.write(endEvent{"end", s.Run.Ended, s}, roomForTheEnd)
}

func (j *jsonLines) close() { j.flush() }

func (j *jsonLines) write(event any, room int) {
	line, err := json.Marshal(event)
	if err != nil { // a number that JSON cannot hold: say so rather than nothing
		line, _ = json.Marshal(noticeEvent{"notice", "an event could not be written: " + err.Error()})
	}
	j.out.send(append(line, '\n'), room)
}
