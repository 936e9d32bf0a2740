package coordinator

import (
	"testing"
	"testing/synctest"

	"example.org/daisy/internal/engine"
	"example.org/daisy/internal/wire"
	"pgregory.net/rapid"
)

func TestTheInboxGivesAllEventsInTheOrderInWhichTheyCame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := newInbox()
		var lists [][]engine.Event
		var mine []engine.Event // of a reader
		next, seen := uint64(0), uint64(0)
		event := func() engine.Event {
			next++
			return engine.Event{Kind: engine.EventRelease, Seq: next, Tag: "to be dropped"}
		}
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0:
				lists, _ = b.swap(lists, nil)
				for _, events := range lists {
					for _, e := range events {
						if seen++; e.Seq != seen || e.Kind != engine.EventRelease {
							t.Fatalf("event %d came, want %d", e.Seq, seen)
						}
					}
				}
				if !b.empty() {
					t.Fatal("something is left")
				}
			case 1:
				b.put(event())
			default:
				for range rapid.IntRange(1, 5).Draw(t, "events") {
					mine = append(mine, event())
				}
				if mine = b.give(mine); len(mine) != 0 {
					t.Fatalf("%d events came back", len(mine))
				}
				for _, e := range mine[:cap(mine)] {
					if e.Tag != "" {
						t.Fatalf("what event %d points to is kept", e.Seq)
					}
				}
			}
		}
	})
}

func TestSuccessesThatComeTogetherAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRun(t, lineTask(t, "a", 4, 4))
		loops(t, c)
		p := join(t, c, "w", 4)
		m := wire.Successes{Seq: 1, Epoch: 1}
		for i := range 4 {
			p.say(wire.AppendAcquire(nil, wire.Acquire{Request: uint64(i) + 1, Max: 1}))
			m.Ended = append(m.Ended, wire.Ended{Lease: p.granted()[0].Lease, WallNanos: 10})
		}
		p.say(wire.AppendSuccesses(nil, m))
		p.want(wire.KindDrain)
		if got, err := wire.DecodeAcknowledged(p.want(wire.KindAcknowledged).payload); err != nil || got.Seq != 4 {
			t.Errorf("acknowledged up to %d (%v), want 4", got.Seq, err)
		}
		var s engine.Snapshot
		if err := c.Snapshot(t.Context(), &s); err != nil {
			t.Fatal(err)
		}
		if y := s.Tasks[0].Tally; y.Success != 4 || y.Processed != 4 {
			t.Errorf("got %+v, want 4 blocks that succeeded", y)
		}
	})
}
