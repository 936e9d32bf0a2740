package coordinator

import (
	"net/http"
	"testing"
	"testing/synctest"

	"example.org/daisy/internal/api"
	"example.org/daisy/internal/daisywire"
)

func TestClientsShareTheBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		task := clientTask(t, "a", 4)
		task.MaxWorkers = 2
		c := newRun(t, task)
		ended := loops(t, c)
		one, other, third := visit(t, c), visit(t, c), visit(t, c)
		a, b := one.acquire("a"), other.acquire("a")
		third.ask("a")
		synctest.Wait()
		if s := got[api.State](t, c, http.MethodGet, api.PathState, ""); s.Tasks[0].Running != 2 || s.Tasks[0].Leased != 2 {
			t.Errorf("with max_workers 2 there run %d blocks", s.Tasks[0].Running)
		}
		one.release(a)
		third.release(third.block())
		other.release(b)
		one.work("a", 0)
		<-ended
	})
}

// A script may have several threads with one client.
func TestAClientMayHaveSeveralBlocksAtOnceAndEachCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		task := clientTask(t, "a", 7)
		task.MaxWorkers = 3
		c := newRun(t, task)
		ended := loops(t, c)
		d, other := visit(t, c), visit(t, c)
		var held []daisywire.Block
		for range 3 {
			held = append(held, d.acquire("a"))
		}
		other.ask("a")
		d.ask("a")
		synctest.Wait()
		if s := got[api.State](t, c, http.MethodGet, api.PathState, ""); s.Tasks[0].Running != 3 || s.Tasks[0].Leased != 3 {
			t.Errorf("with max_workers 3 there run %d blocks, and %d are handed out", s.Tasks[0].Running, s.Tasks[0].Leased)
		}
		d.release(held[2])
		others := other.block() // it has waited for longer
		d.release(held[0])
		held[0] = d.block()
		d.say(daisywire.Message{Kind: daisywire.BlockFailed, Block: held[1], Error: "no"})
		d.release(held[0])
		other.release(others)
		if n := other.work("a", 0); n != 3 {
			t.Errorf("the other client did %d blocks more", n)
		}
		<-ended
		if n, _ := c.engine.Tally(0); n.Success != 7 || n.Retries != 1 || n.Processed != 8 {
			t.Errorf("%+v", n)
		}
		views, _, _ := c.engine.EndedRows(0, 10, nil)
		slots := map[string]int{}
		for _, v := range views {
			slots[v.ID] = v.Slots
		}
		if slots["client"] != 3 || slots["client+2"] != 1 {
			t.Errorf("the clients have %v slots", slots)
		}
	})
}
