package coordinator

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"example.org/daisy/internal/api"
	"example.org/daisy/internal/engine"
	"example.org/daisy/internal/process"
	"example.org/daisy/internal/testenv"
	"example.org/daisy/internal/wire"
)

func TestNoHeartbeatComesBeforeTheWorkerHasSaidWhoItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRun(t, lineTask(t, "a", 1, 1)) // whose loop does not run
		t.Cleanup(c.closeSessions)
		ours, theirs := net.Pipe()
		if !c.startSession(theirs, nil, "101") {
			t.Fatal("the run takes no connections")
		}
		go beat(c) // before the answer to the upgrade is written, and
		synctest.Wait()
		got := make([]byte, 3)
		if _, err := io.ReadFull(ours, got); err != nil || string(got) != "101" {
			t.Errorf("%q (%v) came first, want the answer", got, err)
		}
		synctest.Wait()
		go beat(c) // before Hello
		_ = ours.SetReadDeadline(time.Now().Add(time.Second))
		if n, err := ours.Read(got); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%q (%v) came before Hello", got[:n], err)
		}
		_ = ours.SetReadDeadline(time.Time{})
		if _, err := ours.Write(wire.AppendHello(nil, wire.Hello{Worker: "w", Nonce: 1, Epoch: 1})); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		go beat(c)
		if kind, _, err := wire.NewReader(ours).Next(); err != nil || kind != wire.KindHeartbeat {
			t.Errorf("%v (%v) came after Hello, want a heartbeat", kind, err)
		}
	})
}

// beat sends a heartbeat to all.
func beat(c *Coordinator) {
	c.owned.Lock()
	defer c.owned.Unlock()
	for c.heartbeat(); len(c.owned.beating) > 0; {
		c.beatSome()
	}
}

// A heartbeat to many workers takes turns with what else there is to do.
func TestAHeartbeatToManyWorkersHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRun(t, lineTask(t, "a", 1, 1)) // whose loop does not run
		t.Cleanup(c.closeSessions)
		var peers []net.Conn
		for i := range 2*beatsAtOnce + 1 {
			ours, theirs := net.Pipe()
			peers = append(peers, ours)
			id := engine.SessionID(i + 1)
			c.sessions[id] = &session{id: id, conn: theirs, w: wire.NewWriter(theirs), greeted: true}
		}
		began := c.now()
		for turn, left := range []int{beatsAtOnce + 1, 1, 0, 0} {
			c.owned.Lock()
			c.turn(nil)
			if got := len(c.owned.beating); got != left || left > 0 && c.due() != 0 {
				t.Errorf("after turn %d the heartbeat is still to go to %d, want %d; the next turn is due at %v", turn+1, got, left, c.due())
			}
			c.owned.Unlock()
		}
		if c.owned.beat < began+c.heartbeatEvery() {
			t.Error("another heartbeat is due before its time")
		}
		for _, conn := range peers {
			if kind, _, err := wire.NewReader(conn).Next(); err != nil || kind != wire.KindHeartbeat {
				t.Fatalf("got %v (%v), want a heartbeat", kind, err)
			}
		}
	})
}

// ends lets workers join that nobody launched, has the last one open a stream and lose it, and gives what the engine is told.
func ends(t *testing.T, workers ...api.JoinRequest) engine.Event {
	t.Helper()
	c := newRun(t, lineTask(t, "a", 1, 1))
	answered := make(chan struct{})
	go func() { // the loop
		defer close(answered)
		for range workers {
			<-c.inbox.wake
			lists, _ := c.inbox.swap(nil, nil)
			events := slices.Concat(lists...)
			c.answerJoin(events[0].Request, joinAnswer{worker: events[0].Join.Name})
		}
	}()
	for _, w := range workers {
		body, err := json.Marshal(w)
		if err != nil {
			t.Fatal(err)
		}
		answer := httptest.NewRecorder()
		c.serveJoin(answer, httptest.NewRequest(http.MethodPost, api.PathJoin, bytes.NewReader(body)))
		if answer.Code != http.StatusOK {
			t.Fatalf("join: %d %s", answer.Code, answer.Body)
		}
	}
	<-answered
	ours, theirs := net.Pipe()
	last := workers[len(workers)-1]
	c.startSession(theirs, wire.AppendHello(nil, wire.Hello{Worker: last.Name, Nonce: last.Nonce, Epoch: 1}), "101")
	if _, err := io.ReadFull(ours, make([]byte, 3)); err != nil {
		t.Fatal(err)
	}
	_ = ours.Close()
	c.readers.Wait()
	if len(c.pids) != 0 {
		t.Errorf("after the end of the worker, %v is known of it", c.pids)
	}
	lists, _ := c.inbox.swap(nil, nil)
	events := slices.Concat(lists...)
	return events[len(events)-1]
}

func TestTheEndOfAProcessIsSeenAndNotTakenForThatOfItsSuccessor(t *testing.T) {
	space := process.Space()
	if space == "" {
		testenv.Unavailable(t, "here nobody can see that a process has ended")
	}
	cmd := exec.Command("true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	dead := api.JoinRequest{Protocol: wire.Version, Name: "gpu-box", Nonce: 1, Slots: 1, PID: cmd.Process.Pid, PIDSpace: space}
	alive, elsewhere, of1 := dead, dead, dead
	alive.Nonce, alive.PID = 2, os.Getppid()
	elsewhere.Nonce, elsewhere.PID, elsewhere.PIDSpace = 3, 1, "another space"
	of1.Nonce = 4
	for name, tc := range map[string]struct {
		joins []api.JoinRequest
		gone  bool
	}{
		"it has ended":                          {[]api.JoinRequest{dead}, true},
		"it lives":                              {[]api.JoinRequest{alive}, false},
		"the earlier one of its name has ended": {[]api.JoinRequest{dead, alive}, false},
		"the earlier one ended, it is in a container": {[]api.JoinRequest{dead, elsewhere}, false},
		"it was in a container, the next has ended":   {[]api.JoinRequest{elsewhere, of1}, true},
	} {
		if e := ends(t, tc.joins...); e.Kind != engine.EventDetach || e.Gone != tc.gone {
			t.Errorf("%s: event %v says gone: %v, want %v", name, e.Kind, e.Gone, tc.gone)
		}
	}
}

func TestAProcessThatEndedIsNotTakenForOneThatJoinedBeforeIt(t *testing.T) {
	c := newRun(t, lineTask(t, "a", 1, 1))
	c.pids["gpu-box"] = watchable{nonce: 2, pid: 1} // joined after the one that says hello here
	if pid := c.greet(&session{}, wire.Hello{Worker: "gpu-box", Nonce: 1}); pid != 0 {
		t.Errorf("process %d is watched for another", pid)
	}
	if pid := c.greet(&session{}, wire.Hello{Worker: "gpu-box", Nonce: 2}); pid != 1 {
		t.Errorf("process %d is watched, want 1", pid)
	}
}

// One commit may acknowledge the results of thousands of workers: nobody waits for the system calls of that.
func TestAcknowledgementsAreWrittenWhenTheEngineIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRun(t, lineTask(t, "a", 1, 1)) // whose loop does not run
		ours, theirs := net.Pipe()
		defer ours.Close()
		s := &session{id: 1, conn: theirs, w: wire.NewWriter(theirs), greeted: true}
		c.sessions[1] = s
		c.owned.Lock()
		c.tell(&engine.Effect{Kind: engine.EffectAcknowledge, Session: 1, Seq: 7})
		c.flushLazy()
		read := make(chan wire.Kind, 1)
		go func() {
			kind, _, _ := wire.NewReader(ours).Next()
			read <- kind
		}()
		synctest.Wait()
		if len(read) > 0 {
			t.Error("it was written while the engine was taken")
		}
		c.release()
		if kind := <-read; kind != wire.KindAcknowledged {
			t.Errorf("got %v", kind)
		}
		c.closeSessions()
	})
}
