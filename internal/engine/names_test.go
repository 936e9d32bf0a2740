package engine

import "testing"

// A worker that comes back is known by its name. One that nobody launched has none that a launched one has, or will have when it is asked for.
func TestNobodyTakesTheNameOfAWorkerThatIsLaunchedLater(t *testing.T) {
	e := forGuests(t, 9)
	for name, want := range map[string]bool{"7.0": false, "12.34": false, "7.0+2": true, "host-7.0": true, "7.00": true, "node7.example.org-12": true, "7.": true, ".7": true, "1.5.2": true} {
		var fx Effects
		e.Apply(0, &Event{Kind: EventJoin, Request: 1, Join: &Join{Name: name, Nonce: 7, Slots: 1}}, &fx)
		joined := false
		for _, f := range fx.List {
			joined = joined || f.Kind == EffectJoined
		}
		if joined != want {
			t.Errorf("%q is let in: %v, want %v", name, joined, want)
		}
	}
}
