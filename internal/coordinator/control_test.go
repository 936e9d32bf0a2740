package coordinator

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.org/daisy/internal/api"
	"example.org/daisy/internal/engine"
	"example.org/daisy/internal/job"
	"example.org/daisy/internal/journal"
	"example.org/daisy/internal/rundir"
	"example.org/daisy/internal/wire"
	"example.org/daisy/scheduler"
)

// request makes a signed request, whose answer must be proven, and gives its status and body.
func request(t *testing.T, c *Coordinator, method, target, body string) (int, []byte) {
	t.Helper()
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	c.key().SignRequest(r, []byte(body))
	w := httptest.NewRecorder()
	c.newServer().Handler.ServeHTTP(w, r)
	answer := w.Result()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	if !c.key().CheckAnswer(answer, r, text) {
		t.Fatalf("%s %s: the answer %d is not proven: %s", method, target, answer.StatusCode, text)
	}
	return answer.StatusCode, text
}

// got asks for something that must be there.
func got[T any](t *testing.T, c *Coordinator, method, target, body string) (v T) {
	t.Helper()
	status, text := request(t, c, method, target, body)
	if status != http.StatusOK {
		t.Fatalf("%s %s: %d %s", method, target, status, text)
	}
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// wantRefused asks for something that must be refused, and for these reasons.
func wantRefused(t *testing.T, c *Coordinator, status int, method, target, body string, parts ...string) {
	t.Helper()
	was, text := request(t, c, method, target, body)
	var e api.Error
	if err := json.Unmarshal(text, &e); err != nil || was != status {
		t.Errorf("%s %s %s: %d %s, want %d", method, target, body, was, text, status)
	}
	for _, part := range parts {
		if !strings.Contains(e.Message, part) {
			t.Errorf("%s %s %s: %q does not say %q", method, target, body, e.Message, part)
		}
	}
}

func TestWhoDoesNotProveToKnowTheSecretSeesAndChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRun(t, lineTask(t, "a", 2, 1))
		loops(t, c)
		p := join(t, c, "w", 1)
		for _, path := range []string{api.PathState, api.PathWorkers, api.PathBlocks, api.PathDrain, api.PathCancel, api.PathStopWorker, api.PathSet, api.PathExclude, api.PathInclude, api.PathEvents} {
			method := http.MethodPost
			if path == api.PathState || path == api.PathWorkers || path == api.PathBlocks || path == api.PathEvents {
				method = http.MethodGet
			}
			r := httptest.NewRequest(method, path, strings.NewReader(`{"by":"mallory"}`))
			api.Key{Run: c.runID, Secret: "guessed"}.SignRequest(r, []byte(`{"by":"mallory"}`))
			w := httptest.NewRecorder()
			c.newServer().Handler.ServeHTTP(w, r)
			if w.Code != http.StatusUnauthorized || w.Header().Get(api.HeaderProof) != "" || strings.Contains(w.Body.String(), `"a"`) {
				t.Errorf("%s %s: %d %v %s", method, path, w.Code, w.Header(), w.Body)
			}
		}
		if g := p.acquire(1); len(g) != 1 {
			t.Errorf("the worker gets %v", g)
		}
	})
}

func TestTheStateHasCountsLimitsAndWhatATaskWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := lineTask(t, "a", 3, 1)
		a.MaxWorkers, a.Timeout = 5, time.Minute
		c := newRun(t, a, lineTask(t, "b", 3, 1, "a"))
		loops(t, c)
		s := got[api.State](t, c, http.MethodGet, api.PathState, "")
		if s.Version != api.ControlVersion || s.Run.State != "running" || s.Run.ID != c.runID || s.Run.Message != nil {
			t.Errorf("%+v", s.Run)
		}
		if w := s.Tasks[0].Waits; w == nil || *w != "no worker has come" {
			t.Errorf("a waits for %v", w)
		}
		if a := s.Tasks[0]; *a.MaxWorkers != 5 || *a.TimeoutSeconds != 60 || a.Blocks != 3 || a.Ready != 3 {
			t.Errorf("%+v", a)
		}
		if b := s.Tasks[1]; b.MaxWorkers != nil || b.TimeoutSeconds != nil || b.Waits == nil || !strings.Contains(*b.Waits, "a is not done (0 of 3)") {
			t.Errorf("%+v", b)
		}
		join(t, c, "w", 2).acquire(1)
		s = got[api.State](t, c, http.MethodGet, api.PathState, "")
		if s.Workers.Busy != 1 || s.Tasks[0].Running != 1 || s.Tasks[0].Leased != 1 || s.Tasks[0].Waits != nil {
			t.Errorf("%+v %+v", s.Workers, s.Tasks[0])
		}
	})
}

func TestWorkersAreListedAsTheyAreNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRun(t, lineTask(t, "a", 3, 1))
		loops(t, c)
		gone := join(t, c, "gone", 1)
		join(t, c, "busy", 1).acquire(1)
		gone.say(wire.AppendLeaving(nil, wire.Leaving{Reason: wire.LeaveDone}))
		_ = gone.conn.Close()
		time.Sleep(3 * time.Second)
		page := got[api.WorkerPage](t, c, http.MethodGet, api.PathWorkers, "")
		if len(page.Workers) != 1 || page.Next != nil {
			t.Fatalf("%+v", page)
		}
		if w := page.Workers[0]; w.ID != "busy" || w.State != "busy" || w.Task != "a" || w.Running != 1 || w.BusySeconds < 3 || *w.SilentSeconds < 3 || w.End != nil {
			t.Errorf("%+v", w)
		}
		page = got[api.WorkerPage](t, c, http.MethodGet, api.PathWorkers+"?ended=1", "")
		if w := page.Workers; len(w) != 1 || w[0].ID != "gone" || w[0].State != "ended" || *w[0].End != "left" || w[0].SilentSeconds != nil {
			t.Errorf("%+v", w)
		}
	})
}

func TestWorkersAreOrderedByTheirNumbers(t *testing.T) {
	ids := []string{"gpu-box", "10.0", "2.10", "2.9", "another"}
	slices.SortFunc(ids, compareWorkers)
	if want := []string{"2.9", "2.10", "10.0", "another", "gpu-box"}; !slices.Equal(ids, want) {
		t.Errorf("%v, want %v", ids, want)
	}
}

// allBlocks reads page after page.
func allBlocks(t *testing.T, c *Coordinator, query string) (blocks []api.LiveBlock, pages int) {
	t.Helper()
	for from := ""; ; {
		page := got[api.BlockPage](t, c, http.MethodGet, api.PathBlocks+"?"+query+from, "")
		blocks = append(blocks, page.Blocks...)
		if pages++; page.Next == nil {
			return blocks, pages
		}
		from = "&from=" + *page.Next
	}
}

func TestPagesHaveEveryBlockOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRun(t, lineTask(t, "a", 250, 1), lineTask(t, "b", 30, 1))
		loops(t, c)
		blocks, pages := allBlocks(t, c, "limit=100")
		seen := map[string]bool{}
		for _, b := range blocks {
			seen[fmt.Sprint(b.Task, b.Index, *b.Block)] = true
		}
		if len(blocks) != 280 || len(seen) != 280 || pages != 3 {
			t.Errorf("%d blocks, %d different, on %d pages", len(blocks), len(seen), pages)
		}
		if blocks, _ := allBlocks(t, c, "task=b&limit=7"); len(blocks) != 30 || blocks[0].Task != "b" {
			t.Errorf("task b has %d blocks", len(blocks))
		}
	})
}

func TestOneBlockAmongManyIsFoundWithOtherEventsInBetween(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 300_000
		task := lineTask(t, "a", n, 1)
		task.Mask = make([]uint64, (n+63)/64) // all blocks but the last
		for i := range n - 1 {
			task.Mask[i/64] |= 1 << (i % 64)
		}
		c := newRun(t, task)
		loops(t, c)
		join(t, c, "w", 1).acquire(1)
		blocks, _ := allBlocks(t, c, "state=leased,failed")
		if len(blocks) != 1 || *blocks[0].Block != n-1 || *blocks[0].Worker != "w" || blocks[0].RunningSeconds == nil {
			t.Errorf("%+v", blocks)
		}
		c.owned.Lock()
		_, next := c.engine.Blocks(0, 0, []scheduler.BlockState{scheduler.BlockOrphaned}, 10, nil)
		c.owned.Unlock()
		if next >= n/2 {
			t.Errorf("one look goes through %d blocks", next)
		}
	})
}

func TestTheLastErrorOfABlockThatIsTriedAgainIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		task := lineTask(t, "a", 2, 1)
		task.MaxRetries = 1
		c := newRun(t, task)
		loops(t, c)
		p := join(t, c, "w", 1)
		fail := func(seq int, message string) {
			p.say(wire.AppendRelease(nil, wire.Release{Seq: uint64(seq), Epoch: c.epoch, Lease: p.acquire(1)[0].Lease, Outcome: wire.Failed, Message: message, Tail: "line"}))
			synctest.Wait()
		}
		fail(1, "first")
		b := got[api.BlockPage](t, c, http.MethodGet, api.PathBlocks+"?state=ready", "").Blocks[0]
		if *b.LastEnd != "failed" || *b.Message != "first" || *b.Worker != "w" || *b.Attempt != 1 {
			t.Errorf("%+v", b)
		}
		fail(2, "second")
		b = got[api.BlockPage](t, c, http.MethodGet, api.PathBlocks+"?state=failed", "").Blocks[0]
		if *b.Message != "second" || *b.Attempt != 2 || *b.Tail != "line" {
			t.Errorf("%+v", b)
		}
		fail(3, "third")
		p.say(released(c, 4, p.acquire(1)[0], wire.Success))
		p.want(wire.KindDrain)
		b = got[api.BlockPage](t, c, http.MethodGet, api.PathBlocks+"?state=success", "").Blocks[0]
		if b.LastEnd != nil || b.Message != nil || b.Log != nil {
			t.Errorf("of a block that has succeeded: %+v", b)
		}
	})
}

func TestOnlyTheLatestMishapsAreKept(t *testing.T) {
	var m mishaps
	note := func(block int64, text string) {
		m.note(&engine.Attempt{Handout: scheduler.Handout{Block: block, Attempt: 1}, Outcome: scheduler.Failed, Failure: &engine.Failure{Message: text}})
	}
	for i := range int64(3 * mishapsKept) {
		note(i, strings.Repeat("x", 1000))
	}
	note(3*mishapsKept-1, "again")
	m.note(&engine.Attempt{Handout: scheduler.Handout{Block: 7, Attempt: 1}})
	if len(m.list) != mishapsKept || len(m.at) != mishapsKept || m.of(0, 7).attempt != 0 || m.of(0, 2*mishapsKept-1).attempt != 0 {
		t.Errorf("%d are kept, and %d found", len(m.list), len(m.at))
	}
	if got := m.of(0, 2*mishapsKept); len(got.message) != longestMishap {
		t.Errorf("of an early one there is %d", len(got.message))
	}
	if got := m.of(0, 3*mishapsKept-1); got.message != "again" {
		t.Errorf("the last one is %q", got.message)
	}
}

func TestADrainedRunEndsWithTheBlocksThatRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRun(t, lineTask(t, "a", 9, 1))
		ended := loops(t, c)
		p := join(t, c, "w", 1)
		lease := p.acquire(1)[0]
		done := got[api.Done](t, c, http.MethodPost, api.PathDrain, `{"by":"anna\non here"}`)
		if !strings.Contains(done.Message, "1 block is running") {
			t.Error(done.Message)
		}
		p.want(wire.KindDrain)
		s := got[api.State](t, c, http.MethodGet, api.PathState, "")
		if s.Run.State != "ending" || *s.Run.Message != "drained by anna on here" {
			t.Errorf("%+v", s.Run)
		}
		wantRefused(t, c, http.StatusConflict, http.MethodPost, api.PathDrain, `{}`, "is ending already: drained by anna on here")
		wantRefused(t, c, http.StatusConflict, http.MethodPost, api.PathSet, `{"sets":[{"key":"task.a.timeout","value":"1m"}]}`, "is ending")
		time.Sleep(20 * time.Second) // longer than the grace of a run that is cancelled
		p.say(released(c, 1, lease, wire.Success))
		_ = p.conn.Close()
		<-ended
		if tally := c.engine.State(); tally != engine.RunStopped {
			t.Errorf("the run is %v", tally)
		}
		_ = c.listener.Close()
		wantRefused(t, c, http.StatusConflict, http.MethodPost, api.PathCancel, `{}`, "the run is over")
	})
}

func TestACancelledRunGivesItsBlocksTheGraceAndOneThatIsCancelledNowNone(t *testing.T) {
	for how, want := range map[string]time.Duration{"": 10 * time.Second, "now": 0} {
		synctest.Test(t, func(t *testing.T) {
			c := newRun(t, lineTask(t, "a", 9, 1))
			loops(t, c)
			p := join(t, c, "w", 1)
			p.acquire(1)
			began := time.Now()
			wantRefused(t, c, http.StatusBadRequest, http.MethodPost, api.PathCancel, `{"how":"soon"}`, `"soon"`)
			got[api.Done](t, c, http.MethodPost, api.PathDrain, `{}`)
			got[api.Done](t, c, http.MethodPost, api.PathCancel, `{"how":"`+how+`"}`)
			for c.leased() > 0 {
				time.Sleep(time.Second)
				synctest.Wait()
			}
			if d := time.Since(began); d != want {
				t.Errorf("how %q: the block was given up after %v, want %v", how, d, want)
			}
		})
	}
}

// leased is how many blocks of the first task are out.
func (c *Coordinator) leased() int64 {
	var snap engine.Snapshot
	c.owned.Lock()
	defer c.owned.Unlock()
	c.engine.Snapshot(&snap)
	return snap.Tasks[0].Tally.Leased
}

func TestOneWorkerIsStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRun(t, lineTask(t, "a", 9, 1))
		loops(t, c)
		p, other := join(t, c, "w", 1), join(t, c, "other", 1)
		got[api.Done](t, c, http.MethodPost, api.PathStopWorker, `{"by":"anna","worker":"w"}`)
		if m, err := wire.DecodeStop(p.want(wire.KindStop).payload); err != nil || m.Message != "stopped by anna" {
			t.Errorf("%+v, %v", m, err)
		}
		other.acquire(1)
		wantRefused(t, c, http.StatusConflict, http.MethodPost, api.PathStopWorker, `{"worker":"nobody"}`, `"nobody"`)
		wantRefused(t, c, http.StatusBadRequest, http.MethodPost, api.PathStopWorker, `{}`, "no worker is named")
		wantRefused(t, c, http.StatusBadRequest, http.MethodPost, api.PathStopWorker, `{"wroker":"w"}`, "wroker")
	})
}

func TestLimitsAreSetAllOrNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		task := lineTask(t, "a.b", 9, 1)
		task.Timeout = time.Minute
		c := newRun(t, task, lineTask(t, "c", 1, 1))
		loops(t, c)
		p := join(t, c, "w", 1)
		set := func(sets ...string) string {
			var list []api.KeySet
			for _, s := range sets {
				key, value, _ := strings.Cut(s, "=")
				list = append(list, api.KeySet{Key: key, Value: value})
			}
			text, err := json.Marshal(api.SetOrder{By: "anna", Sets: list})
			if err != nil {
				t.Fatal(err)
			}
			return string(text)
		}
		for wrong, want := range map[string]string{
			"task.a.b.timeout=5":         "unit",
			"task.a.b.timout=5m":         `"timout" cannot be changed`,
			"task.x.timeout=5m":          `no task "x"`,
			"task.a.b.max_workers=0":     "1 or more",
			"task.a.b.max_workers=1.5":   "1 or more",
			"run.grace=5s":               "run.resources.NAME",
			"run.resources.gpu=0.5":      "not whole",
			"run.resources.cpu=0.0001":   "0.001",
			"run.resources.memory=4":     "unit",
			"run.resources.=4":           "run.resources.NAME",
			"timeout=4m":                 "task.ID.max_workers",
			"task.timeout=4m":            "task.ID.max_workers",
			"task.a.b.max_workers=many ": "1 or more",
		} {
			wantRefused(t, c, http.StatusBadRequest, http.MethodPost, api.PathSet, set("task.a.b.max_workers=7", wrong), want)
		}
		wantRefused(t, c, http.StatusConflict, http.MethodPost, api.PathSet, set("run.resources.cpu=2"), "no limit on resources")
		wantRefused(t, c, http.StatusBadRequest, http.MethodPost, api.PathSet, set(), "nothing is set")
		if s := got[api.State](t, c, http.MethodGet, api.PathState, ""); s.Tasks[0].MaxWorkers != nil {
			t.Errorf("max_workers was set to %d with something wrong beside it", *s.Tasks[0].MaxWorkers)
		}

		done := got[api.Done](t, c, http.MethodPost, api.PathSet, set("task.a.b.max_workers=3", `task.a.b.timeout="2h"`))
		want := []api.Change{{Key: "task.a.b.max_workers", Was: "no limit", Now: "3"}, {Key: "task.a.b.timeout", Was: "1m", Now: "2h"}}
		if !slices.Equal(done.Changes, want) {
			t.Errorf("%+v, want %+v", done.Changes, want)
		}
		for name, told := range map[string]func() api.TaskSpec{
			"a worker that is there": func() (spec api.TaskSpec) {
				m, err := wire.DecodeReassign(p.want(wire.KindReassign).payload)
				if err != nil || json.Unmarshal(m.Spec, &spec) != nil {
					t.Fatal(err)
				}
				return spec
			},
			"a worker that joins": func() api.TaskSpec { return c.spec(0) },
		} {
			if spec := told(); spec.ID != "a.b" || spec.TimeoutSeconds != 7200 {
				t.Errorf("%s is told of a timeout of %v s of task %q", name, spec.TimeoutSeconds, spec.ID)
			}
		}
	})
}

func TestWhatIsSetObeysTheCapsOfTheSite(t *testing.T) {
	caps := job.Caps{MaxWorkers: 8, Timeout: time.Hour, Resources: scheduler.NewResources(map[string]int64{"cpu": 4000, "memory": 1 << 30}), File: "/etc/site.toml"}
	c := newRun(t, lineTask(t, "a", 9, 1))
	for set, want := range map[string]string{
		"task.a.max_workers=8":      "",
		"task.a.max_workers=9":      "9 is more than this site allows (/etc/site.toml); allowed is at most 8",
		"task.a.timeout=1h":         "",
		"task.a.timeout=61m":        "1h1m is more than this site allows (/etc/site.toml); allowed is at most 1h",
		"task.a.timeout=0s":         "no timeout is more than this site allows (/etc/site.toml); allowed is at most 1h",
		"run.resources.cpu=4":       "",
		"run.resources.gpu=99":      "",
		"run.resources.cpu=5":       "5 is more than this site allows (/etc/site.toml); allowed is at most 4",
		"run.resources.memory=2GiB": "2GiB is more than this site allows (/etc/site.toml); allowed is at most 1GiB",
	} {
		key, value, _ := strings.Cut(set, "=")
		s, err := c.setting(api.KeySet{Key: key, Value: value})
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if err := withinCaps(&s, &caps); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", set, got, want)
		}
		if err := withinCaps(&s, &job.Caps{}); err != nil {
			t.Errorf("%s, without caps: %v", set, err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		c := newRun(t, lineTask(t, "a", 9, 1))
		c.cfg.Job.Caps = caps
		loops(t, c)
		wantRefused(t, c, http.StatusBadRequest, http.MethodPost, api.PathSet, `{"sets":[{"key":"task.a.max_workers","value":"9"}]}`, "more than this site allows")
	})
}

func TestWhatIsSetIsDurableBeforeItIsAnswered(t *testing.T) {
	dir, err := rundir.Create(t.TempDir(), "run", "")
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		c := newRunIn(t, dir, lineTask(t, "a", 9, 1))
		loops(t, c) // so that nobody else commits
		defer c.inbox.put(engine.Event{Kind: engine.EventBroken, Text: "the test is over"})
		got[api.Done](t, c, http.MethodPost, api.PathSet, `{"by":"anna","sets":[{"key":"task.a.max_workers","value":"9"}]}`)
		var found engine.Record
		if _, err := journal.Read(dir.JournalDir(), func(_, _ uint64, raw []byte) error {
			r, err := engine.DecodeRecord(raw)
			if r.Kind == engine.RecordSet {
				found = r
			}
			return err
		}); err != nil || found.Count != 9 || found.Text != "anna" {
			t.Errorf("the journal says %+v (%v)", found, err)
		}
	})
}

func TestAQueryThatMeansNothingIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRun(t, lineTask(t, "a", 9, 1))
		loops(t, c)
		for target, want := range map[string]string{
			api.PathBlocks + "?task=b":        `no task "b" in this run; it has "a"`,
			api.PathBlocks + "?state=running": "waiting, ready, held, leased (in the hands of a worker), ",
			api.PathBlocks + "?limit=0":       "allowed is 1 to",
			api.PathBlocks + "?limit=1001":    "allowed is 1 to",
			api.PathBlocks + "?from=x":        "no page ended so",
			api.PathBlocks + "?from=-1:0":     "no page ended so",
			api.PathBlocks + "?from=0:-5":     "no page ended so",
			api.PathWorkers + "?limit=x":      "allowed is 1 to",
			api.PathWorkers + "?from=-1":      "no page ended so",
		} {
			wantRefused(t, c, http.StatusBadRequest, http.MethodGet, target, "", want)
		}
		if page := got[api.BlockPage](t, c, http.MethodGet, api.PathBlocks+"?from=99:0", ""); len(page.Blocks) != 0 || page.Next != nil {
			t.Errorf("behind the last task: %+v", page)
		}
	})
}
