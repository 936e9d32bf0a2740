package daisywire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// endsOf are the ends that have reached the owner of the blocks, in words.
func (s *shelf) endsOf() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var words []string
	for _, e := range s.ends {
		words = append(words, fmt.Sprintf("%d %s", e.Lease, [...]string{"succeeded", "broke", "timed out", "lost"}[e.Outcome]))
	}
	return strings.Join(words, ", ")
}

func TestABlockComesBackAsItsClientSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf("mal", 3)
		p := connect(t, s)
		done, failed, raised := p.block("mal"), p.block("mal"), p.block("mal")
		time.Sleep(7 * time.Second)
		done.Stats = &Stats{WallSeconds: 3, PeakRSSBytes: 5}
		p.back(done, Success)
		p.back(failed, Failed)
		p.say(&Message{Kind: BlockFailed, Block: raised, Error: "Traceback"})
		if err := p.close(); err != nil {
			t.Error(err)
		}
		if got := s.endsOf(); got != "0 succeeded, 1 broke, 2 broke" {
			t.Error(got)
		}
		if e := s.ends[0]; e.Took != 7*time.Second || e.Stats == nil || *e.Stats != *done.Stats {
			t.Errorf("%+v", e)
		}
		if e := s.ends[2]; e.Error != "Traceback" || e.Stats != nil {
			t.Errorf("%+v", e)
		}
		if s.left != 1 {
			t.Errorf("Leave was called %d times", s.left)
		}
	})
}

func TestWhatAClientHoldsWhenItEndsIsLost(t *testing.T) {
	for name, end := range map[string]func(*peer){
		"closes":                   func(p *peer) { _ = p.conn.Close() },
		"disconnects":              func(p *peer) { p.say(&Message{Kind: Disconnect}) },
		"sends what it should not": func(p *peer) { p.say(&Message{Kind: RequestShutdown}) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newShelf("mal", 2)
			p := connect(t, s)
			p.block("mal")
			p.block("mal")
			end(p)
			if err := p.dropped(); (err != nil) != strings.HasPrefix(name, "sends") {
				t.Errorf("the session ends with %v", err)
			}
			if got := s.endsOf(); got != "0 lost, 1 lost" || s.left != 1 {
				t.Errorf("%s; left %d times", got, s.left)
			}
		})
	}
}

// daisy's client ends its own process when a block has taken too long.
func TestAClientThatEndsAtTheTimeoutOfItsBlockHasNotLostIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf("mal", 2)
		s.timeout = 10 * time.Second
		p := connect(t, s)
		p.acquire("mal")
		if m := p.answer(); !m.HasTimeout || m.Timeout != 10 {
			t.Errorf("the client is told %v %v", m.HasTimeout, m.Timeout)
		}
		time.Sleep(9 * time.Second)
		p.block("mal")
		time.Sleep(time.Second)
		_ = p.close()
		if got := s.endsOf(); got != "0 timed out, 1 lost" {
			t.Error(got)
		}
	})
}

func TestAReleaseOfWhatTheClientDoesNotHoldChangesNothing(t *testing.T) {
	s := newShelf("mal", 2)
	other := connect(t, s)
	theirs := other.block("mal")
	p := connect(t, s)
	p.back(theirs, Success) // before it has said who it is
	ours := p.block("mal")
	p.back(theirs, Success)
	p.say(&Message{Kind: BlockFailed, Block: theirs, Error: "no"})
	foreign := ours
	foreign.TaskID = "other"
	p.back(foreign, Failed)
	p.back(ours, Success)
	p.back(ours, Failed)
	_ = p.close()
	if got := s.endsOf(); got != "1 succeeded" {
		t.Error(got)
	}
	other.back(theirs, Success)
	_ = other.close()
	if got := s.endsOf(); got != "1 succeeded, 0 succeeded" {
		t.Error(got)
	}
}

func TestABlockGivenBackAsAnotherCostsTheConnection(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Block)
		why    string
	}{
		"not begun":  {func(b *Block) { b.Status = Created }, "given back in the state Created"},
		"not ended":  {func(b *Block) { b.Status = Processing }, "given back in the state Processing"},
		"moved":      {func(b *Block) { b.Write.Offset = []int64{11} }, "other regions"},
		"reads more": {func(b *Block) { b.Read.Shape = []int64{11} }, "other regions"},
		"of a plane": {func(b *Block) { b.Read = Region{[]int64{0, 0}, []int64{10, 10}} }, "other regions"},
		"torn":       {func(b *Block) { b.Read.Shape = nil }, "different dimensions"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShelf("mal", 1)
			p := connect(t, s)
			b := p.block("mal")
			b.Status = Success
			c.change(&b)
			p.say(&Message{Kind: ReleaseBlock, Block: b})
			if err := p.dropped(); !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), c.why) {
				t.Errorf("%v, want %q", err, c.why)
			}
			if got := s.endsOf(); got != "0 lost" {
				t.Error(got)
			}
		})
	}
}

func TestAClientThatIsTurnedAwayIsToldWhy(t *testing.T) {
	s := newShelf("mal", 2)
	p := connect(t, s)
	p.acquire("nope")
	if m := p.answer(); m.Kind != BlockFailed || m.Error != `there is no task "nope" here` {
		t.Errorf("it gets %s %q", m.Kind, m.Error)
	}
	if err := p.dropped(); err == nil || err.Error() != `there is no task "nope" here` {
		t.Error(err)
	}

	p = connect(t, s)
	p.block("mal")
	p.acquire("other")
	if m := p.answer(); m.Kind != BlockFailed || !strings.Contains(m.Error, `a client of task "mal" that asks for a block of task "other"`) {
		t.Errorf("it gets %s %q", m.Kind, m.Error)
	}
	if err := p.dropped(); !errors.Is(err, ErrMalformed) {
		t.Error(err)
	}
}

func TestAClientIsToldWhenNothingIsLeft(t *testing.T) {
	s := newShelf("mal", 1)
	s.none = true
	p := connect(t, s)
	b := p.block("mal")
	for range 2 {
		p.acquire("mal")
		if m := p.answer(); m.Kind != RequestShutdown {
			t.Errorf("the answer is %s", m.Kind)
		}
	}
	p.back(b, Success) // what it has it may still give back
	if err := p.close(); err != nil || s.endsOf() != "0 succeeded" {
		t.Errorf("%v; %s", err, s.endsOf())
	}
}

func TestAClientThatWaitsCanGiveBackMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf("mal", 1)
		p := connect(t, s)
		b := p.block("mal")
		p.acquire("mal")
		synctest.Wait()
		p.back(b, Failed) // so that there is one again
		if m := p.answer(); m.Kind != SendBlock || m.Block.SpatialID != 0 {
			t.Errorf("the answer is %+v", m)
		}
		_ = p.close()
		if got := s.endsOf(); got != "0 broke, 0 lost" {
			t.Error(got)
		}
	})
}

func TestAClientIsKnownByWhatItSaysFirst(t *testing.T) {
	s := newShelf("mal", 3)
	p := connect(t, s)
	p.say(&Message{Kind: Register, TaskID: "mal", Worker: 7})
	p.block("mal")
	p.say(&Message{Kind: AcquireBlock, TaskID: "mal", HasWorker: true, Worker: 8})
	p.answer()
	_ = p.close()
	p = connect(t, s)
	p.block("mal")
	_ = p.close()
	if want := []Client{{"mal", 7, true}, {"mal", 0, false}}; fmt.Sprint(s.joined) != fmt.Sprint(want) {
		t.Errorf("joined are %+v, want %+v", s.joined, want)
	}
}

func TestAClientMayComputeForDaysButNotBeginAFrameAndStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf("mal", 2)
		p := connect(t, s)
		time.Sleep(100 * time.Hour) // it loads a model before it asks for anything
		b := p.block("mal")
		time.Sleep(100 * time.Hour)
		p.back(b, Success)
		b = p.block("mal")
		b.Status = Success
		release := Append(nil, Released, &Message{Kind: ReleaseBlock, Block: b})
		p.send(release[:3])
		time.Sleep(FrameTime - time.Second)
		p.send(release[3:])
		synctest.Wait()
		if got := s.endsOf(); got != "0 succeeded, 1 succeeded" {
			t.Fatal(got)
		}
		begun := time.Now()
		p.send(release[:5])
		time.Sleep(FrameTime - time.Second)
		p.send(release[5:6]) // a byte now and then is no way out
		if err := p.dropped(); !errors.Is(err, ErrSilent) || time.Since(begun) != FrameTime {
			t.Errorf("after %s: %v", time.Since(begun), err)
		}
	})
}

func TestAClientThatDoesNotReadIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf("mal", 1)
		p := connect(t, s)
		p.acquire("mal")
		time.Sleep(FrameTime)
		synctest.Wait()
		if err := p.dropped(); err == nil || !strings.Contains(err.Error(), "has not read its answer") {
			t.Error(err)
		}
		if got := s.endsOf(); got != "0 lost" {
			t.Error(got)
		}
	})
}

func TestAClientThatAsksWithoutEndIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := connect(t, newShelf("mal", 0))
		for range maxRequests + 2 {
			p.acquire("mal")
			synctest.Wait()
		}
		if err := p.dropped(); !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), "asked for more than 64 blocks") {
			t.Error(err)
		}
	})
}

func TestASessionEndsWithItsContextAndGivesBackWhatIsOut(t *testing.T) {
	for _, waiting := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := newShelf("mal", 1)
			ctx, cancel := context.WithCancelCause(t.Context())
			p := connectWith(ctx, t, s)
			p.block("mal")
			if waiting {
				p.acquire("mal")
				synctest.Wait()
			}
			why := errors.New("the block has timed out")
			cancel(why)
			if err := p.dropped(); err != why {
				t.Errorf("the session ends with %v", err)
			}
			if got := s.endsOf(); got != "0 lost" || s.left != 1 {
				t.Errorf("%s; left %d times", got, s.left)
			}
		})
	}
}

// The sources of daisy 2 before its release sent frames without a version byte, of several forms.
func TestClientsOfOlderSourcesAreServed(t *testing.T) {
	block := func(i byte) string {
		return "\x01" + string([]byte{20 * i}) + "\x01\x14\x01" + string([]byte{20 * i}) + "\x01\x14\x03mal" + string([]byte{i})
	}
	some := "\x01" + strings.Repeat("\x00", leastStats)
	for name, c := range map[string]struct {
		sends []string // after the first block
		first string
		want  string
		text  string
	}{
		"acquire with nothing behind, block without statistics": {first: "\x00\x03mal", sends: []string{"\x02" + block(0) + "\x02"}, want: "0 succeeded"},
		"acquire with a worker id, block with statistics":       {first: "\x00\x03mal\x01\x07", sends: []string{"\x02" + block(0) + "\x02" + some}, want: "0 succeeded"},
		"acquire without a worker id, block with none":          {first: "\x00\x03mal\x00", sends: []string{"\x02" + block(0) + "\x03\x00"}, want: "0 broke"},
		"failed, no statistics known, text":                     {first: "\x00\x03mal", sends: []string{"\x03" + block(0) + "\x03\x02no"}, want: "0 broke", text: "no"},
		"failed, no statistics known, no text":                  {first: "\x00\x03mal", sends: []string{"\x03" + block(0) + "\x03\x00"}, want: "0 broke"},
		"failed, no statistics known, a text of one letter":     {first: "\x00\x03mal", sends: []string{"\x03" + block(0) + "\x03\x01x"}, want: "0 broke", text: "x"},
		"failed, no statistics, text":                           {first: "\x00\x03mal", sends: []string{"\x03" + block(0) + "\x03\x00\x02no"}, want: "0 broke", text: "no"},
		"failed, no statistics, no text":                        {first: "\x00\x03mal", sends: []string{"\x03" + block(0) + "\x03\x00\x00"}, want: "0 broke"},
		"failed, statistics, text":                              {first: "\x00\x03mal", sends: []string{"\x03" + block(0) + "\x03" + some + "\x02no"}, want: "0 broke", text: "no"},
		"goes away":                                             {first: "\x00\x03mal", sends: []string{"\x05"}, want: "0 lost"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShelf("mal", 1)
			p := connect(t, s)
			p.send(frame([]byte(c.first)...))
			answer := make([]byte, 4+1+len(block(0)))
			if _, err := io.ReadFull(p.conn, answer); err != nil || string(answer[4:]) != "\x01"+block(0) {
				t.Fatalf("the client gets %q, %v", answer, err)
			}
			for _, m := range c.sends {
				go func() { p.send(frame([]byte(m)...)); _ = p.conn.Close() }()
			}
			if err := p.dropped(); err != nil {
				t.Error(err)
			}
			if got := s.endsOf(); got != c.want || s.ends[0].Error != c.text || strings.Contains(c.sends[0], some) != (s.ends[0].Stats != nil) {
				t.Errorf("%s, %+v; want %s, text %q", got, s.ends, c.want, c.text)
			}
		})
	}
	t.Run("goes away at once", func(t *testing.T) {
		p := connect(t, newShelf("mal", 1))
		p.send(frame(5))
		if err := p.dropped(); err != nil {
			t.Error(err)
		}
	})
	t.Run("register", func(t *testing.T) {
		s := newShelf("mal", 1)
		p := connect(t, s)
		p.send(frame([]byte("\x06\x03mal\x07")...))
		p.send(frame([]byte("\x00\x03mal")...))
		_, _ = io.ReadFull(p.conn, make([]byte, 8))
		_ = p.close()
		if want := []Client{{"mal", 7, true}}; fmt.Sprint(s.joined) != fmt.Sprint(want) {
			t.Errorf("joined are %+v, want %+v", s.joined, want)
		}
	})
}

// A client that was told that there is no more may live on, and do what it likes.
func TestTheSessionOfAClientThatIsToldToGoEndsOnceItHoldsNothing(t *testing.T) {
	s := newShelf("mal", 0)
	s.none = true
	p := connect(t, s)
	p.acquire("mal")
	if m := p.answer(); m.Kind != RequestShutdown {
		t.Errorf("the answer is %s", m.Kind)
	}
	if err := p.dropped(); err != nil || s.left != 1 {
		t.Errorf("%v; left %d times", err, s.left)
	}
}
