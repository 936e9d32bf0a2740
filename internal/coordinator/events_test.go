package coordinator

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.org/daisy/internal/api"
	"example.org/daisy/internal/engine"
	"example.org/daisy/internal/wire"
	"example.org/daisy/scheduler"
)

// watchableRun makes the run answer HTTP on a port of pipes.
func watchableRun(t *testing.T, c *Coordinator) *pipePort {
	t.Helper()
	port := openPort(t, c.listener)
	go func() { _ = c.http.Serve(c.listener) }()
	t.Cleanup(func() { _ = c.http.Close() })
	return port
}

// An onlooker reads the events of a run from a connection that holds nothing back: what it does not read, nobody can write.
type onlooker struct {
	t     *testing.T
	conn  net.Conn
	lines *bufio.Scanner
}

func lookOn(t *testing.T, c *Coordinator, port *pipePort, query, after string) *onlooker {
	t.Helper()
	conn := port.dial(t)
	r, err := http.NewRequest(http.MethodGet, "http://daisy"+api.PathEvents+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	if after != "" {
		r.Header.Set(api.HeaderLastEvent, after)
	}
	c.key().SignRequest(r, nil)
	if err := r.Write(conn); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReaderSize(conn, 16), r)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK || !c.key().CheckAnswer(resp, r, nil) || resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%v %v", resp.Status, resp.Header)
	}
	o := &onlooker{t, conn, bufio.NewScanner(resp.Body)}
	o.lines.Buffer(nil, 1<<16)
	return o
}

// next is the next event, nil at the end of the stream.
func (o *onlooker) next() *api.Event {
	o.t.Helper()
	id, name := "", ""
	for o.lines.Scan() {
		switch key, text, _ := strings.Cut(o.lines.Text(), ": "); key {
		case "id":
			id = text
		case "event":
			name = text
		case "data":
			var e api.Event
			if err := json.Unmarshal([]byte(text), &e); err != nil || e.ID != id || e.Event != name || e.Version != api.ControlVersion || e.Time.IsZero() {
				o.t.Fatalf("id %s, event %s: %s (%v)", id, name, text, err)
			}
			return &e
		}
	}
	return nil
}

// want reads events that say this.
func (o *onlooker) want(lines ...string) (last *api.Event) {
	o.t.Helper()
	for _, want := range lines {
		e := o.next()
		if e == nil {
			o.t.Fatalf("the stream has ended; want %q", want)
		}
		if got := e.Event + " " + e.Line(); got != want {
			o.t.Errorf("got %q, want %q", got, want)
		}
		last = e
	}
	return last
}

func TestWhoLooksOnSeesWhatHappensInItsOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		task := lineTask(t, "a", 2, 1)
		task.MaxRetries = 1
		c := newRun(t, task)
		port := watchableRun(t, c)
		ended := loops(t, c)
		o := lookOn(t, c, port, "?all=1", "")
		p := joinFrom(t, c, "n1", "w", 1)
		p.say(released(c, 1, p.acquire(1)[0], wire.Success))
		o.want("worker_joined worker w has joined for a on n1", "block a block 0: success (worker w) on n1")
		got[api.Done](t, c, http.MethodPost, api.PathSet, `{"by":"anna","sets":[{"key":"task.a.max_workers","value":"7"}]}`)
		got[api.Done](t, c, http.MethodPost, api.PathExclude, `{"by":"anna","node":"n7","reason":"hot"}`)
		got[api.Done](t, c, http.MethodPost, api.PathInclude, `{"by":"anna","node":"n7"}`)
		o.want(`set task "a": max_workers is 7 from now on (anna)`)
		if e := o.want("excluded node n7 is excluded by anna: hot"); *e.Node != "n7" {
			t.Errorf("%+v", e)
		}
		o.want("included node n7 may be used again (anna)")
		for seq := 2; seq <= 3; seq++ {
			p.say(wire.AppendRelease(nil, wire.Release{Seq: uint64(seq), Epoch: c.epoch, Lease: p.acquire(1)[0].Lease, Outcome: wire.Failed, Message: "exit status 3"}))
		}
		first := o.want("block a block 1: failed, to be tried again (worker w) on n1: exit status 3")
		if *first.State != "ready" || *first.Attempt != 1 || *first.Block != 1 || first.Index[0] != 1 {
			t.Errorf("%+v", first)
		}
		o.want("block a block 1, attempt 2: failed for good (worker w) on n1: exit status 3", "task_ended task a has ended: done")
		_ = p.conn.Close()
		o.want("worker_ended worker w has ended: left on n1")
		last := o.want("run_ended the run has ended: failed")
		<-ended
		c.events.end(time.Second)
		if e := o.next(); e != nil {
			t.Errorf("behind the end: %+v", e)
		}
		if last.ID != "1-10" {
			t.Errorf("the last event has the id %s", last.ID)
		}
	})
}

// happen makes n events.
func (c *Coordinator) happen(t *testing.T, n int) {
	t.Helper()
	for i := range n {
		c.events.notice(fmt.Sprint(i))
	}
}

// eventsOf reads what there is.
func eventsOf(t *testing.T, c *Coordinator, query, after string) (events []api.Event) {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, api.PathEvents+"?follow=0"+query, nil)
	if after != "" {
		r.Header.Set(api.HeaderLastEvent, after)
	}
	c.key().SignRequest(r, nil)
	w := httptest.NewRecorder()
	c.newServer().Handler.ServeHTTP(w, r)
	if w.Code != http.StatusOK {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	for line := range strings.Lines(w.Body.String()) {
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			var e api.Event
			if err := json.Unmarshal([]byte(data), &e); err != nil {
				t.Fatal(err)
			}
			events = append(events, e)
		}
	}
	return events
}

func TestWhoComesBackGoesOnBehindTheLastEventThatItHasSeen(t *testing.T) {
	c := newRun(t, lineTask(t, "a", 1, 1))
	c.happen(t, 10)
	all := eventsOf(t, c, "", "")
	if len(all) != 10 {
		t.Fatalf("%d events", len(all))
	}
	if rest := eventsOf(t, c, "", all[6].ID); cmp.Diff(all[7:], rest) != "" {
		t.Errorf("behind %s: %+v", all[6].ID, rest)
	}
	if rest := eventsOf(t, c, "", all[9].ID); rest != nil {
		t.Errorf("behind the last: %+v", rest)
	}
	if rest := eventsOf(t, c, "", "no id"); len(rest) != 10 {
		t.Errorf("behind what is no id: %+v", rest)
	}
	for _, unheard := range []string{"1-99", "1-18446744073709551615"} {
		if rest := eventsOf(t, c, "", unheard); rest != nil {
			t.Errorf("behind %s, which has not happened: %+v", unheard, rest)
		}
	}
}

func TestAGapIsSaid(t *testing.T) {
	c := newRun(t, lineTask(t, "a", 1, 1))
	c.happen(t, eventsKept+100)
	rest := eventsOf(t, c, "", "1-30")
	if len(rest) != eventsKept+1 || rest[0].Event != api.EventMissed || !strings.HasPrefix(*rest[0].Message, "70 events behind 1-30 ") || *rest[1].Message != "100" {
		t.Errorf("%d events: %+v", len(rest), rest[:2])
	}
	if again := eventsOf(t, c, "", rest[0].ID); cmp.Diff(rest[1:], again) != "" {
		t.Errorf("behind the gap: %d events", len(again))
	}
	if rest := eventsOf(t, c, "", "1-100"); len(rest) != eventsKept || rest[0].Event == api.EventMissed {
		t.Errorf("behind the last one that is not kept: %d events, %+v", len(rest), rest[0])
	}
	rest = eventsOf(t, c, "", "7-30")
	if rest[0].Event != api.EventMissed || !strings.Contains(*rest[0].Message, "another coordinator") || len(rest) != eventsKept+1 {
		t.Errorf("of another coordinator: %+v", rest[0])
	}
}

func attemptOf(block int64, outcome scheduler.Outcome, verdict scheduler.Verdict) *engine.Attempt {
	return &engine.Attempt{Handout: scheduler.Handout{Block: block, Attempt: 1}, Outcome: outcome, Verdict: verdict}
}

func TestEndsOfBlocksThatEndedWellAreKeptOnlyForThoseWhoWantThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRun(t, lineTask(t, "a", 9, 1))
		kinds := func(query, after string) string {
			var words []string
			for _, e := range eventsOf(t, c, query, after) {
				word := e.Event
				if e.Block != nil {
					word = fmt.Sprint(*e.Block)
				}
				words = append(words, word)
			}
			return strings.Join(words, " ")
		}
		check := func(what, got, want string) {
			t.Helper()
			if got != want {
				t.Errorf("%s: %q, want %q", what, got, want)
			}
		}
		c.events.attempt(attemptOf(0, scheduler.Success, scheduler.Succeeded))
		c.events.attempt(attemptOf(1, scheduler.Failed, scheduler.Retry))
		c.events.attempt(attemptOf(1, scheduler.Recalled, scheduler.Retry))
		check("before anybody looked on", kinds("&all=1", ""), "1") // and that is a look
		c.events.attempt(attemptOf(2, scheduler.Success, scheduler.Succeeded))
		c.events.attempt(attemptOf(3, scheduler.Skipped, scheduler.WasSkipped))
		check("without all", kinds("", ""), "1")
		time.Sleep(lingers - time.Second)
		check("in time", kinds("&all=1", "1-1"), "2 3") // which makes it last longer
		time.Sleep(lingers - time.Second)
		c.events.attempt(attemptOf(4, scheduler.Success, scheduler.Succeeded))
		time.Sleep(2 * time.Second)
		c.events.attempt(attemptOf(5, scheduler.Success, scheduler.Succeeded))
		check("too late", kinds("&all=1", "1-3"), "4 missed")
		check("without all, which has missed nothing", kinds("", ""), "1")
	})
}

func TestASlowReaderHoldsUpNobodyAndIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRun(t, lineTask(t, "a", 9, 1))
		port := watchableRun(t, c)
		loops(t, c)
		slow, quick := lookOn(t, c, port, "", ""), lookOn(t, c, port, "", "")
		began := time.Now()
		c.happen(t, 10)
		synctest.Wait() // the writer of the slow one hangs in the middle of these
		c.happen(t, eventsKept/2)
		got := 0
		for got < 10+eventsKept/2 {
			if e := quick.next(); e == nil || e.Event != api.EventNotice {
				t.Fatalf("the quick one gets %+v", e)
			}
			got++
		}
		c.happen(t, eventsKept)
		join(t, c, "w", 1).acquire(1)
		wantAtOnce(t, "the work of others", began)

		_ = slow.conn.SetReadDeadline(time.Now().Add(time.Minute))
		var last, cut *api.Event
		for e := slow.next(); e != nil; e = slow.next() {
			last, cut = cut, e
		}
		if cut.Event != api.EventCut || last.ID != cut.ID || !strings.Contains(*cut.Message, "Last-Event-ID: "+last.ID) {
			t.Errorf("the slow one ends with %+v and %+v", last, cut)
		}
		back := lookOn(t, c, port, "", cut.ID)
		if e := back.next(); e.Event != api.EventMissed {
			t.Errorf("when it comes back: %+v", e)
		}
	})
}

func TestAReaderThatReadsNothingIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRun(t, lineTask(t, "a", 9, 1))
		port := watchableRun(t, c)
		loops(t, c)
		lookOn(t, c, port, "", "")
		c.happen(t, 10)
		time.Sleep(writeWithin - time.Second)
		if n := c.onlookers(); n != 1 {
			t.Errorf("%d look on", n)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if n := c.onlookers(); n != 0 {
			t.Errorf("%d look on after %v in which nothing was read", n, writeWithin)
		}
	})
}

// onlookers is how many there are.
func (c *Coordinator) onlookers() int {
	c.events.mu.Lock()
	defer c.events.mu.Unlock()
	return c.events.readers
}

func TestManyLookOnButNotTooMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRun(t, lineTask(t, "a", 9, 1))
		port := watchableRun(t, c)
		loops(t, c)
		var all []*onlooker
		for range mostReaders {
			all = append(all, lookOn(t, c, port, "", ""))
		}
		wantRefused(t, c, http.StatusServiceUnavailable, http.MethodGet, api.PathEvents+"?follow=0", "", "64 look on already")
		c.happen(t, 3)
		for _, o := range all {
			o.want("notice 0", "notice 1", "notice 2")
		}
		go all[0].lines.Scan() // so that nobody writes when
		synctest.Wait()
		_ = all[0].conn.Close() // it goes without a word
		synctest.Wait()
		if n := c.onlookers(); n != mostReaders-1 {
			t.Errorf("%d look on after one has gone", n)
		}
		lookOn(t, c, port, "", "1-3")
	})
}

func TestAStreamSaysThatItLivesWhenNothingHappens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRun(t, lineTask(t, "a", 9, 1))
		port := watchableRun(t, c)
		loops(t, c)
		o := lookOn(t, c, port, "", "")
		began := time.Now()
		_ = o.conn.SetReadDeadline(began.Add(time.Hour))
		for range 4 { // beyond the time that a request may take to be read
			for o.lines.Scan() && o.lines.Text() == "" {
			}
			if o.lines.Text() != ": " {
				t.Fatalf("%q", o.lines.Text())
			}
		}
		if d := time.Since(began); d != 4*api.EventsBeat {
			t.Errorf("four beats took %v", d)
		}
	})
}

func TestTheEndOfARunWaitsForReadersButNotForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRun(t, lineTask(t, "a", 9, 1))
		began := time.Now()
		c.events.end(time.Second)
		wantAtOnce(t, "the end without readers", began)

		c = newRun(t, lineTask(t, "a", 9, 1))
		port := watchableRun(t, c)
		o := lookOn(t, c, port, "", "")
		c.happen(t, 1)
		go func() { time.Sleep(time.Second); _, _ = io.Copy(io.Discard, o.conn) }()
		c.events.end(time.Minute)
		if d := time.Since(began); d != time.Second {
			t.Errorf("with a reader that reads after a second it took %v", d)
		}

		c = newRun(t, lineTask(t, "a", 9, 1))
		port = watchableRun(t, c)
		lookOn(t, c, port, "", "")
		c.happen(t, 1)
		began = time.Now()
		c.events.end(3 * time.Second)
		if d := time.Since(began); d != 3*time.Second {
			t.Errorf("with a reader that does not read it took %v", d)
		}
	})
}

func TestTheLastEventReachesWhoReadsItLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRun(t, lineTask(t, "a", 9, 1))
		port := openPort(t, c.listener)
		over := make(chan error, 1)
		go func() {
			_, err := c.Run(t.Context())
			over <- err
		}()
		synctest.Wait()
		o := lookOn(t, c, port, "", "")
		c.Stop(engine.StopNow, "told to")
		synctest.Wait()
		time.Sleep(lastWordWithin / 2)
		if e := o.want("task_ended task a has ended: abandoned", "run_ended the run has ended: stopped: told to"); *e.State != "stopped" {
			t.Errorf("%+v", e)
		}
		if e := o.next(); e != nil {
			t.Errorf("behind the end: %+v", e)
		}
		if err := <-over; err != nil {
			t.Error(err)
		}
	})
}

func TestAQueryForEventsThatMeansNothingIsRefused(t *testing.T) {
	c := newRun(t, lineTask(t, "a", 9, 1))
	wantRefused(t, c, http.StatusBadRequest, http.MethodGet, api.PathEvents+"?all=yes", "", `all is "yes"; allowed is 0 or 1`)
	wantRefused(t, c, http.StatusBadRequest, http.MethodGet, api.PathEvents+"?follow=2", "", `follow is "2"`)
}

// What every block of a run pays for those who might look on.
func BenchmarkEndOfABlockWithNobodyLookingOn(b *testing.B) {
	l, a := newEventLog(), attemptOf(7, scheduler.Success, scheduler.Succeeded)
	for b.Loop() {
		l.attempt(a)
	}
}

func BenchmarkEndOfABlockThatIsKept(b *testing.B) {
	l, a := newEventLog(), attemptOf(7, scheduler.Success, scheduler.Succeeded)
	l.open(true, 0, false)
	for b.Loop() {
		l.attempt(a)
	}
}
