package coordinator

import (
	"errors"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"example.org/daisy/internal/daisywire"
)

// The end of its connection is that of a client, at once: no time passes before its block is another's.
func TestTheBlockOfAClientThatIsGoneIsAnothersAtOnce(t *testing.T) {
	for name, end := range map[string]func(*daisyClient){
		"closed":       func(d *daisyClient) { _ = d.conn.Close() },
		"disconnected": func(d *daisyClient) { d.say(daisywire.Message{Kind: daisywire.Disconnect}) },
		"dropped":      func(d *daisyClient) { d.say(daisywire.Message{Kind: daisywire.RequestShutdown}) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newRun(t, clientTask(t, "a", 1))
				ended := loops(t, c)
				gone, heir := visit(t, c), visit(t, c)
				gone.acquire("a", 0)
				heir.ask("a", 0)
				synctest.Wait()
				began := time.Now()
				end(gone)
				b := heir.block()
				wantAtOnce(t, "the block", began)
				heir.release(b)
				<-ended
				if n, _ := c.engine.Tally(0); n.Success != 1 || n.Lost != 1 || n.Processed != 1 || n.Retries != 0 {
					t.Errorf("%+v", n)
				}
				if got, want := rowsOf(c), []string{"client-0 lost 0/0", "client-0+2 left 1/0"}; !slices.Equal(got, want) {
					t.Errorf("the workers are %q, want %q", got, want)
				}
			})
		})
	}
}

func TestAClientMayComputeForAsLongAsItsTimeoutSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		task := clientTask(t, "a", 2)
		task.Timeout = 50 * time.Hour
		c := newRun(t, task)
		ended := loops(t, c)
		d := visit(t, c)
		time.Sleep(10 * time.Hour) // it loads its model
		b := d.acquire("a")
		time.Sleep(49 * time.Hour)
		d.release(b)
		hangs := d.acquire("a")
		began := time.Now()
		if m, err := d.hear(); !errors.Is(err, io.EOF) {
			t.Errorf("it hears %s, %v", m.Kind, err)
		}
		if took := time.Since(began); took < task.Timeout || took > task.Timeout+time.Minute {
			t.Errorf("a client that does not end itself is dropped after %s", took)
		}
		heir := visit(t, c)
		if b = heir.acquire("a"); b.SpatialID != hangs.SpatialID {
			t.Errorf("block %d goes out, want %d", b.SpatialID, hangs.SpatialID)
		}
		heir.release(b)
		<-ended
		if n, _ := c.engine.Tally(0); n.Success != 2 || n.TimedOut != 1 || n.Lost != 0 || n.Retries != 1 {
			t.Errorf("%+v", n)
		}
	})
}

// daisy's client ends its own process when its block has taken too long.
func TestAClientThatEndsItselfAtTheTimeoutHasTimedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		task := clientTask(t, "a", 1)
		task.Timeout = 10 * time.Second
		c := newRun(t, task)
		ended := loops(t, c)
		for range 2 {
			d := visit(t, c)
			d.ask("a")
			if m, err := d.hear(); err != nil || !m.HasTimeout || m.Timeout != 10 {
				t.Errorf("it is told %+v, %v", m, err)
			}
			time.Sleep(10 * time.Second)
			_ = d.conn.Close()
		}
		<-ended
		if n, _ := c.engine.Tally(0); n.TimedOut != 2 || n.Lost != 0 || n.Failed != 1 {
			t.Errorf("%+v", n)
		}
	})
}

// A lease is of a connection: who comes next from the same address, where a port is used again, has nothing of the one before.
func TestAConnectionInheritsNothingOfTheOneThatHadItsAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRun(t, clientTask(t, "a", 2))
		ended := loops(t, c)
		before, other := visit(t, c), visit(t, c)
		b := before.acquire("a", 7)
		_ = before.conn.Close()
		synctest.Wait()
		other.acquire("a", 8) // b, which is ready again
		next := visit(t, c)
		if before.conn.LocalAddr().String() != next.conn.LocalAddr().String() {
			t.Fatal("they have different addresses")
		}
		own := next.acquire("a", 7)
		next.release(b) // as if it had been its own
		synctest.Wait()
		if n, _ := c.engine.Tally(0); n.Success != 0 || n.Lost != 1 {
			t.Errorf("after a release of what another has: %+v", n)
		}
		next.release(own)
		other.release(b)
		<-ended
		if n, _ := c.engine.Tally(0); n.Success != 2 || n.Lost != 1 || n.Processed != 2 || n.Retries+n.Failed != 0 {
			t.Errorf("%+v", n)
		}
	})
}
