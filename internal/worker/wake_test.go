package worker

import (
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
