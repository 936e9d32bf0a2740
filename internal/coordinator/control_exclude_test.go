package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.org/daisy/internal/api"
	"example.org/daisy/internal/engine"
	"example.org/daisy/internal/wire"
)

func TestWorkersOfAnExcludedNodeAreDrainedAndNoneComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRun(t, lineTask(t, "a", 9, 1))
		loops(t, c)
		p, other := joinFrom(t, c, "n1", "w", 1), joinFrom(t, c, "n2", "other", 1)
		lease := p.acquire(1)[0]
		done := got[api.Done](t, c, http.MethodPost, api.PathExclude, `{"by":"anna\non here","node":"n1","reason":"it is\nhot"}`)
		if !strings.Contains(done.Message, "1 worker is told") || done.Version != api.ControlVersion {
			t.Errorf("%+v", done)
		}
		const why = "node n1 is excluded by anna on here: it is hot"
		if m, err := wire.DecodeDrain(p.want(wire.KindDrain).payload); err != nil || m.Message != why {
			t.Errorf("%+v, %v", m, err)
		}
		s := got[api.State](t, c, http.MethodGet, api.PathState, "")
		page := got[api.WorkerPage](t, c, http.MethodGet, api.PathWorkers, "")
		for name, list := range map[string][]api.LiveExcluded{"state": s.Excluded, "workers": page.Excluded} {
			if len(list) != 1 || list[0].Node != "n1" || *list[0].By != "anna on here" || *list[0].Reason != "it is hot" || list[0].Task != nil {
				t.Errorf("%s: %+v", name, list)
			}
		}
		if w := page.Workers[1]; w.ID != "w" || w.State != "leaving" || *w.Why != why {
			t.Errorf("%+v", w)
		}
		p.say(released(c, 1, lease, wire.Success))
		_ = p.conn.Close()
		wantJoinRefused(t, c, "n1", why)
		other.acquire(1)

		got[api.Done](t, c, http.MethodPost, api.PathInclude, `{"by":"ben","node":"n1"}`)
		if s := got[api.State](t, c, http.MethodGet, api.PathState, ""); len(s.Excluded) != 0 {
			t.Errorf("after include: %+v", s.Excluded)
		}
		joinFrom(t, c, "n1", "again", 1).acquire(1)
	})
}

// wantJoinRefused joins on a node as a worker does, by HTTP.
func wantJoinRefused(t *testing.T, c *Coordinator, node, why string) {
	t.Helper()
	status, text := request(t, c, http.MethodPost, api.PathJoin, `{"protocol":1,"name":"new","nonce":2,"slots":1,"node":"`+node+`"}`)
	var e api.Error
	if err := json.Unmarshal(text, &e); err != nil || status != http.StatusForbidden || e.Code != "excluded" || e.Message != why {
		t.Errorf("a join from %s: %d %s", node, status, text)
	}
}

func TestWhatCannotBeExcludedIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRun(t, lineTask(t, "a", 9, 1))
		loops(t, c)
		for _, name := range []string{"", "n1,n2", "n[1-3]", "n 1", "n\\n1", strings.Repeat("n", 256), "*"} {
			want := "the name of one node"
			if name == "" {
				want = "no node is named"
			}
			wantRefused(t, c, http.StatusBadRequest, http.MethodPost, api.PathExclude, `{"node":"`+name+`"}`, want)
		}
		wantRefused(t, c, http.StatusConflict, http.MethodPost, api.PathInclude, `{"node":"n1"}`, "n1 is not excluded")
		done := got[api.Done](t, c, http.MethodPost, api.PathExclude, `{"node":"n1.gpu-a_b"}`)
		if !strings.Contains(done.Message, "none is known to be there") {
			t.Error(done.Message)
		}
		wantRefused(t, c, http.StatusConflict, http.MethodPost, api.PathExclude, `{"node":"n1.gpu-a_b"}`, "already")
		join(t, c, "w", 1).acquire(1) // so that the end takes a while
		got[api.Done](t, c, http.MethodPost, api.PathDrain, `{}`)
		wantRefused(t, c, http.StatusConflict, http.MethodPost, api.PathExclude, `{"node":"n3"}`, "is ending")
	})
}

func TestWhoWaitsForTheJournalIsAnsweredWhenItIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			then engine.Event
			want error
		}{
			"written": {engine.Event{Kind: engine.EventCommitted}, nil},
			"broken":  {engine.Event{Kind: engine.EventBroken, Text: "the disk is full"}, errUnwritten},
		} {
			run := newRun(t, lineTask(t, "a", 9, 1))
			loops(t, run)
			if err := run.between(t.Context(), func() { run.appended++ }); err != nil { // a record that no commit has reached yet
				t.Fatal(err)
			}
			began, ended := time.Now(), make(chan error, 1)
			patient, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			go func() { ended <- run.written(patient) }()
			limited, cancel := context.WithTimeout(t.Context(), time.Second)
			if err := run.written(limited); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v", name, err)
			}
			cancel()
			if c.then.Kind == engine.EventCommitted {
				c.then.UpTo = run.appended
			}
			run.inbox.put(c.then)
			if err := <-ended; !errors.Is(err, c.want) || time.Since(began) != time.Second {
				t.Errorf("%s: %v after %v", name, err, time.Since(began))
			}
		}
	})
}

func TestANodeStaysExcludedInTheNextLifeOfTheRun(t *testing.T) {
	r := newPastRun(t, 3, nil, joined,
		engine.Record{Kind: engine.RecordExclude, Final: true, ID: "n1", Text: "hot", Tail: "anna"},
		engine.Record{Kind: engine.RecordExclude, Final: true, ID: "n2", Tail: "anna"},
		engine.Record{Kind: engine.RecordExclude, ID: "n2", Tail: "ben"})
	c, err := r.resume()
	if err != nil {
		t.Fatal(err)
	}
	list := c.liveExcluded(c.engine.Excluded())
	if len(list) != 1 || list[0].Node != "n1" || *list[0].By != "anna" || *list[0].Reason != "hot" {
		t.Errorf("%+v", list)
	}
}
