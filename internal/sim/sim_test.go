package sim

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var (
	seeds         = flag.Int("seeds", 0, "how many seeds TestSeeds runs; 0 = as many as fit a test run")
	from          = flag.Uint64("from", 1, "the first seed of TestSeeds")
	seed          = flag.Uint64("seed", 1, "the seed that TestSeed runs")
	keep          = flag.String("keep", "all", "the faults of the seed that TestSeed keeps, by number: all, none, or 0,3,7")
	stop          = flag.Int("stop", 5, "TestSeeds stops at so many failures; at 1 it does not look for fewer faults")
	updateDigests = flag.Bool("update-digests", false, "TestASeedAlwaysSaysTheSame writes "+digests+" anew")
	withLog       = flag.Bool("log", false, "TestSeed prints everything that happens")
)

// raced: the race detector is on, and everything takes long.
var raced = false

// TestSeeds runs many worlds. A failing one says how to run it again, with fewer faults.
func TestSeeds(t *testing.T) {
	n := *seeds
	switch {
	case n > 0:
	case testing.Short(), raced:
		n = 400
	default:
		n = 4000
	}
	var next atomic.Uint64
	next.Store(*from)
	var failures atomic.Int32
	var events atomic.Int64
	var longest atomic.Pointer[longRun]
	var seen [sights]atomic.Int64
	start := time.Now()
	var crew sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		crew.Go(func() {
			for failures.Load() < int32(*stop) {
				s := next.Add(1) - 1
				if s >= *from+uint64(n) {
					return
				}
				w := New(Scenario(s))
				result, err := w.Run()
				for k, times := range w.seen {
					seen[k].Add(int64(min(times, 1)))
				}
				events.Add(result.Events)
				if was := longest.Load(); was == nil || result.Events > was.events {
					longest.Store(&longRun{s, result.Events})
				}
				if err != nil {
					failures.Add(1)
					if *stop == 1 {
						t.Errorf("seed %d: %v", s, err)
						return
					}
					report(t, s, err)
				}
			}
		})
	}
	crew.Wait()
	for k := range seen {
		worlds := seen[k].Load()
		t.Logf("%6d worlds: %s", worlds, sightNames[k])
		if failures.Load() == 0 && n >= enoughSeeds && worlds < leastSeen {
			t.Errorf("%q was seen in %d of %d worlds: what is never seen proves nothing", sightNames[k], worlds, n)
		}
	}
	t.Logf("%d seeds, %d events in %v; the longest is %+v", n, events.Load(), time.Since(start).Round(time.Millisecond), longest.Load())
}

// In so many seeds, everything that a world may meet is to be met in so many worlds.
const enoughSeeds, leastSeen = 4000, 5

// longRun is how many events a seed takes.
type longRun struct {
	seed   uint64
	events int64
}

// report says what happened, and how to see it again with no more faults than it needs.
func report(t *testing.T, seed uint64, err error) {
	c := Scenario(seed)
	kept, fewer := Shrink(c)
	names, list := "none", ""
	for k, i := range kept {
		if names += fmt.Sprint(",", i); k == 0 {
			names = fmt.Sprint(i)
		}
		list += fmt.Sprintf("\n  fault %d: %v", i, c.Faults[i])
	}
	t.Errorf("seed %d: %v\nwith %d of %d faults: %v%s\nagain: go test ./internal/sim -run '^TestSeed$' -v -seed=%d -keep=%s -log", seed, err, len(kept), len(c.Faults), fewer, list, seed, names)
}

// TestSeed runs one world.
func TestSeed(t *testing.T) {
	c := Scenario(*seed)
	c.Faults = chosen(t, c.Faults, *keep)
	for i, f := range c.Faults {
		t.Logf("fault %d: %v", i, f)
	}
	if *withLog {
		c.Log = os.Stdout
	}
	result, err := New(c).Run()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%v after %v, %d events, %d lives: %s", result.State, result.Time, result.Events, result.Lives, result.Why)
}

func chosen(t *testing.T, all []Fault, keep string) []Fault {
	switch keep {
	case "all":
		return all
	case "none":
		return nil
	}
	var list []Fault
	for _, text := range strings.Split(keep, ",") {
		i := 0
		if _, err := fmt.Sscan(text, &i); err != nil || i < 0 || i >= len(all) {
			t.Fatalf("-keep=%s: there is no fault %q of 0 to %d", keep, text, len(all)-1)
		}
		list = append(list, all[i])
	}
	return list
}
