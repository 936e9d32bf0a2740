package worker

import (
	"io"
	"testing"
	"time"
)

func TestAWorkerHasSleptPastTheLifeOfItsLeases(t *testing.T) {
	c := &Client{patience: patience{abandon: 10 * time.Minute, hint: 4 * time.Minute}}
	const at = time.Hour
	before := look{at: at, heard: at - 3*time.Second, answered: at - 3*time.Second}
	for name, tc := range map[string]struct {
		before look
		now    time.Duration
		want   bool
	}{
		"nothing has happened":                   {before, at + wakeStep, false},
		"it had to wait for a processor":         {before, at + 2*time.Second, false},
		"it slept for less":                      {before, at + 3*time.Minute, false},
		"as long as its batch system's word may": {before, at + 4*time.Minute, true},
		"patience ends while it is awake":        {look{at, at - 10*time.Minute, at - 10*time.Minute}, at + wakeStep, false},
		"somebody answered, but not the one":     {look{at, at - 9*time.Minute, at}, at + time.Minute, true},
	} {
		if got := c.slept(tc.before, tc.now); got != tc.want {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

func TestAStaleBlockGetsNoGrace(t *testing.T) {
	c := &crew{client: &Client{patience: patience{grace: time.Minute}}, cfg: Config{StopWithin: 2 * time.Second}}
	for why, want := range map[error]time.Duration{errStale: 0, errTaken: longestKillGrace, errStopped: time.Second} {
		if got := c.killGrace(why); got != want {
			t.Errorf("%v: got %v, want %v", why, got, want)
		}
	}
	c.signalled.Store(true) // SIGKILL follows
	for why, want := range map[error]time.Duration{errStale: 0, errTaken: 2 * time.Second, errStopped: 250 * time.Millisecond} {
		if got := c.killGrace(why); got != want {
			t.Errorf("after a signal, %v: got %v, want %v", why, got, want)
		}
	}
}

func TestAWorkerThatWasStoppedBeginsItsPatienceAnew(t *testing.T) {
	woken := 0
	c := &Client{cfg: Config{OnWake: func() { woken++ }, Log: io.Discard}, birth: time.Now().Add(-time.Hour), patience: patience{abandon: 4 * time.Second, hint: time.Minute}}
	before := time.Hour - 10*time.Second
	c.heard.Store(int64(before))
	c.lastLook = look{before, before, before}
	if left, _ := c.patienceLeft(); left < 3*time.Second || woken != 1 {
		t.Errorf("after a stop of 10s it has %v left, and was woken %d times", left, woken)
	}
	c.heard.Store(int64(before)) // nobody answers while it is awake
	if left, _ := c.patienceLeft(); left > 0 || woken != 1 {
		t.Errorf("after 10s of silence it has %v left, and was woken %d times", left, woken)
	}
}
