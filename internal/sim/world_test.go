package sim

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/daisy/internal/engine"
	"example.org/daisy/internal/tracking"
)

func TestEventsComeInTheirOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var h eventHeap
	var want []event
	for i := range 1000 {
		ev := event{at: time.Duration(rng.IntN(50)), n: uint64(i)}
		h.push(ev)
		want = append(want, ev)
	}
	slices.SortStableFunc(want, func(a, b event) int { return int(a.at - b.at) })
	for i := range want {
		if got := h.pop(); got.n != want[i].n {
			t.Fatalf("event %d is %d at %v, want %d at %v", i, got.n, got.at, want[i].n, want[i].at)
		}
	}
}

// logOf is the hash of everything that happens under a seed.
func logOf(t *testing.T, seed uint64) string {
	t.Helper()
	c := Scenario(seed)
	h := sha256.New()
	c.Log = h
	if _, err := New(c).Run(); err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:8])
}

// logsFor has a process print its logs' hashes, and do nothing else.
const logsFor = "DAISY_SIM_LOGS"

// digests has the hash of the log of each of the first seeds, as some machine has found them: all others have to find the same, with the race detector and
// with any number of processors. A change of what is simulated changes them: -update-digests writes them anew.
const digests = "testdata/digests"

// TestASeedAlwaysSaysTheSame compares the logs of this process with those of others, which walk their maps in another order, on one processor and on
// two; and all of them with those in the repository, which some other machine has made.
func TestASeedAlwaysSaysTheSame(t *testing.T) {
	var logs bytes.Buffer
	for seed := uint64(1); seed <= 24; seed++ {
		fmt.Fprintf(&logs, "log of seed %d: %s\n", seed, logOf(t, seed))
	}
	if os.Getenv(logsFor) != "" {
		fmt.Print(logs.String())
		return
	}
	if *updateDigests {
		if err := os.WriteFile(digests, logs.Bytes(), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	kept, err := os.ReadFile(digests)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "in "+digests, logs.String(), string(kept))
	for _, processors := range []string{"1", "2"} {
		other := exec.Command(os.Args[0], "-test.run", "^TestASeedAlwaysSaysTheSame$")
		other.Env = append(os.Environ(), logsFor+"=1", "GOMAXPROCS="+processors)
		out, err := other.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		same(t, "with GOMAXPROCS="+processors, logs.String(), string(out))
	}
}

// same compares hashes, line by line.
func same(t *testing.T, where, here, there string) {
	t.Helper()
	for line := range strings.Lines(here) {
		if !strings.Contains(there, line) {
			t.Errorf("here the %s, and %s it is another one; if the simulation was changed: go test ./internal/sim -run '^TestASeedAlwaysSaysTheSame$' -update-digests", strings.TrimSpace(line), where)
		}
	}
}

func TestTheSimulationReachesWhatItIsFor(t *testing.T) {
	var lives, failed, done, batch, leftovers, snapshots int
	for seed := uint64(1); seed <= 150; seed++ {
		w := New(Scenario(seed))
		r, err := w.Run()
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if r.Lives > 1 {
			lives++
		}
		if w.cfg.Batch != nil {
			batch++
		}
		leftovers += len(w.outbox)
		snapshots += w.snapshots
		switch r.State {
		case engine.RunDone:
			done++
		case engine.RunFailed:
			failed++
		}
	}
	if lives < 30 || failed < 20 || done < 20 || batch < 30 || leftovers < 5 || snapshots < 50 {
		t.Errorf("of 150 runs %d had several lives, %d failed, %d were done, %d were on a batch system; %d results were left in the outbox, and %d snapshots made", lives, failed, done, batch, leftovers, snapshots)
	}
}

func TestAPowerFailureTakesWhatWasNotSynced(t *testing.T) {
	lostName, lostBytes, keptBytes := false, false, false
	for seed := range uint64(50) {
		d := newMemDisk(rand.New(rand.NewPCG(seed, 1)))
		f, err := d.Create("/a/one")
		if err != nil {
			t.Fatal(err)
		}
		write := func(b []byte) {
			if _, err := f.Write(b); err != nil {
				t.Fatal(err)
			}
		}
		write(bytes.Repeat([]byte("x"), 600))
		if err := errors.Join(f.Sync(), d.Sync("/a")); err != nil {
			t.Fatal(err)
		}
		write(bytes.Repeat([]byte("y"), 1200))
		if _, err := d.Create("/a/two"); err != nil {
			t.Fatal(err)
		}
		d.powerFailure()
		got, err := d.Read("/a/one", nil, 1<<20)
		if err != nil || len(got) < 600 || !bytes.Equal(got[:600], bytes.Repeat([]byte("x"), 600)) {
			t.Fatalf("what was synced is not there: %d bytes, %v", len(got), err)
		}
		lostBytes = lostBytes || len(got) < 1800 || bytes.IndexByte(got, 0) >= 0
		keptBytes = keptBytes || bytes.IndexByte(got, 'y') >= 0
		if _, err := d.Read("/a/two", nil, 1); errors.Is(err, fs.ErrNotExist) {
			lostName = true
		}
	}
	if !lostName || !lostBytes || !keptBytes {
		t.Errorf("in 50 power failures: a name was lost %v, bytes were lost %v, bytes were kept by chance %v", lostName, lostBytes, keptBytes)
	}
}

func TestAFolderIsRenamedWhollyOrNotAtAll(t *testing.T) {
	for seed := range uint64(50) {
		d := trackingDisk{memDisk: newMemDisk(rand.New(rand.NewPCG(seed, 1)))}
		if err := errors.Join(d.MkdirAll("/t/.new/done", 0), d.SyncDir("/t")); err != nil {
			t.Fatal(err)
		}
		if err := d.Rename("/t/.new", "/t/g"); err != nil {
			t.Fatal(err)
		}
		d.powerFailure()
		was, is := len(d.under("/t/.new")), len(d.under("/t/g"))
		if was+is != 2 || was != 0 && is != 0 {
			t.Fatalf("seed %d: %d names are where they were, %d where they should be", seed, was, is)
		}
	}
}

var _ tracking.Disk = trackingDisk{}

// TestShrink: a world that fails is reduced to the faults that it needs.
func TestShrinkKeepsWhatIsNeeded(t *testing.T) {
	c := large(50, 5)
	c.Small, c.NoJournal = true, false
	c.MaxTime = 2 * time.Hour
	for range 6 {
		c.Faults = append(c.Faults, Fault{At: time.Second, Kind: FaultSlowNet, For: time.Second})
	}
	if kept, err := Shrink(c); kept != nil || err != nil {
		t.Fatalf("a world that does not fail is shrunk to %v: %v", kept, err)
	}
	// A coordinator that is stopped for longer than the run may take.
	c.Faults[3] = Fault{At: time.Second, Kind: FaultStall, For: 100 * time.Hour}
	kept, err := Shrink(c)
	if err == nil || !slices.Equal(kept, []int{3}) {
		t.Errorf("it is shrunk to %v: %v", kept, err)
	}
}
