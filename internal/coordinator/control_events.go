package coordinator

import (
	"bytes"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"example.org/daisy/internal/api"
	"example.org/daisy/scheduler"
)

// writeWithin bounds how long a reader may take to take what is written to it.
const writeWithin = 10 * time.Second

// serveEvents writes events as Server-Sent Events until the run or the reader ends.
func (c *Coordinator) serveEvents(w http.ResponseWriter, r *http.Request) {
	all, follow, err := eventQuery(r)
	if err != nil {
		c.refuseControl(w, r, err)
		return
	}
	epoch, after, resumes := lastEvent(r.Header.Get(api.HeaderLastEvent))
	reader, missed, ok := c.events.open(all, after, resumes && epoch == c.epoch)
	if !ok {
		c.refuse(w, r, http.StatusServiceUnavailable, "busy", fmt.Sprintf("%d look on already, as many as may; end one of them", mostReaders))
		return
	}
	defer reader.close()
	s := &eventStream{c: c, w: w, control: http.NewResponseController(w), tasks: c.pipeline.Tasks()}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set(api.HeaderProof, c.key().ProveAnswer(r, http.StatusOK, nil))
	w.WriteHeader(http.StatusOK)
	switch {
	case resumes && epoch != c.epoch:
		s.say(reader.next-1, api.EventMissed, fmt.Sprintf("what happened behind %s was told by another coordinator of this run; this one is number %d", eventID(epoch, after), c.epoch))
	case missed > 0:
		s.say(reader.next-1, api.EventMissed, fmt.Sprintf("%d events behind %s are not kept any more", missed, eventID(epoch, after)))
	}
	s.run(r, reader, follow)
}

func eventQuery(r *http.Request) (all, follow bool, err error) {
	q := r.URL.Query()
	flag := func(name string, otherwise bool) bool {
		switch text := q.Get(name); text {
		case "":
			return otherwise
		case "0", "1":
			return text == "1"
		default:
			err = wrongly("%s is %q; allowed is 0 or 1", name, text)
			return false
		}
	}
	return flag("all", false), flag("follow", true), err
}

// lastEvent reads the id of an event; ok is false for what is none.
func lastEvent(id string) (epoch, n uint64, ok bool) {
	first, second, _ := strings.Cut(id, "-")
	epoch, err := strconv.ParseUint(first, 10, 64)
	n, err2 := strconv.ParseUint(second, 10, 64)
	return epoch, n, err == nil && err2 == nil
}

// An eventStream writes to one reader.
type eventStream struct {
	c       *Coordinator
	w       http.ResponseWriter
	control *http.ResponseController
	tasks   []scheduler.Task
	text    bytes.Buffer
}

func (s *eventStream) run(r *http.Request, reader *reader, follow bool) {
	beat := time.NewTicker(api.EventsBeat)
	defer beat.Stop()
	var batch []happening
	for s.flush() {
		first, got, wake, lost := reader.read(batch[:0])
		batch = got
		for i := range got {
			if h := &got[i]; reader.eager || !h.quiet {
				s.append(s.c.event(s.tasks, first+uint64(i), h))
			}
		}
		switch {
		case lost > 0:
			s.say(first-1, api.EventCut, fmt.Sprintf("this reader is too slow: %d events were overwritten before it had read them; come back with Last-Event-ID: %s", lost, eventID(s.c.epoch, first-1)))
			s.flush()
			return
		case len(got) > 0:
			continue
		case wake == nil || !follow:
			return
		}
		select {
		case <-wake:
		case <-beat.C:
			s.text.WriteString(": \n\n")
		case <-r.Context().Done():
			return
		case <-s.c.listener.ctx.Done():
			return
		}
	}
}

// say adds an event that is about the stream and not about the run. n is that of the event before it, so that who comes back goes
// on behind that.
func (s *eventStream) say(n uint64, kind, message string) {
	s.append(s.c.event(s.tasks, n, &happening{at: time.Now(), kind: kind, task: -1, message: message}))
}

func (s *eventStream) append(e *api.Event) {
	fmt.Fprintf(&s.text, "id: %s\nevent: %s\ndata: %s\n\n", e.ID, e.Event, encode(e))
}

// flush writes what was added; false ends the stream. Where nothing can be written for writeWithin, the reader is given up.
func (s *eventStream) flush() bool {
	_ = s.control.SetWriteDeadline(time.Now().Add(writeWithin))
	if _, err := s.w.Write(s.text.Bytes()); err != nil {
		return false
	}
	s.text.Reset()
	return s.control.Flush() == nil
}
