//go:build linux && amd64

package e2e

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.org/daisy/internal/engine"
	"example.org/daisy/internal/journal"
	"example.org/daisy/internal/testenv"
	"example.org/daisy/scheduler"
)

// crashJob has blocks that succeed at once, that succeed the second time, that fail for good and orphan another, and that are
// skipped by their check. Results are renamed into place, and every block that starts is noted.
func crashJob() string {
	const limits = "max_retries = 1\nmax_lost = 50\n"
	return job("resources = { cpu = 2 }\ntracking = \"tracking\"",
		blocks("one", 6)+shell("echo 0 {index} >> started; test {index} != 3 && test {index}-$DAISY_ATTEMPT != 1-1 || exit 1; echo {index} > one-{index}.$$ && mv one-{index}.$$ one-{index}")+limits,
		blocks("two", 6)+shell("echo 1 {index} >> started; cat one-{index} > two-{index}.$$ && mv two-{index}.$$ two-{index}")+limits+
			"check = { command = [\"sh\", \"-c\", \"test {index} = 4\"] }\nafter = [\"one\"]\n")
}

// crashResult is all that must be as if nobody had died.
type crashResult struct {
	Counts map[string]counts // of blocks
	Files  map[string]string
	Done   map[string]string // marks of tracking
	Failed map[string]int    // listed failures by task
}

// crashResultOf gives the result, and checks that journal, statistics and tracking say the same of the attempts too. A failure that was
// not durable yet may be missing in all of them.
func crashResultOf(t testing.TB, dir string) crashResult {
	t.Helper()
	r := crashResult{map[string]counts{}, map[string]string{}, map[string]string{}, map[string]int{}}
	written := recordsOf(t, dir)
	for task, ts := range statsOf(t, dir+"/out").Tasks {
		c := countsOf(ts)
		if n := written.processed[int64(task)]; c.Processed != n {
			t.Errorf("%s: processed is %d, and the journal has %d valid returns", ts.ID, c.Processed, n)
		}
		c.Processed, c.Retries = 0, 0
		r.Counts[ts.ID] = c
		r.Failed[ts.ID] = len(ts.Failures)
		r.Done[ts.ID] = readFile(t, dir+"/tracking/"+ts.ID+"/done/c/0")
		failures := readFile(t, dir+"/tracking/"+ts.ID+"/failures/c/0")
		for i := range 6 {
			if n, want := binary.LittleEndian.Uint32([]byte(failures[4*i:])), written.failed[blockName{int64(task), int64(i)}]; n != want {
				t.Errorf("block %d of %s has failed %d times according to tracking, and %d times according to the journal", i, ts.ID, n, want)
			}
			name := ts.ID + "-" + strconv.Itoa(i)
			data, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
			r.Files[name] = string(data)
		}
	}
	return r
}

// A blockName is the number of a task and that of a block.
type blockName struct{ task, block int64 }

// written is what the journal has of the ends of attempts.
type written struct {
	well      map[blockName]bool
	failed    map[blockName]uint32
	processed map[int64]int64 // valid returns by task
}

func recordsOf(t testing.TB, dir string) written {
	t.Helper()
	w := written{map[blockName]bool{}, map[blockName]uint32{}, map[int64]int64{}}
	_, err := journal.Read(filepath.Join(dir, "out", "journal"), func(_, _ uint64, raw []byte) error {
		r, err := engine.DecodeRecord(raw)
		if err != nil || r.Kind != engine.RecordEnd {
			return err
		}
		b := blockName{int64(r.Task), r.Block}
		switch scheduler.Outcome(r.Outcome) {
		case scheduler.Success:
			w.processed[b.task]++
			w.well[b] = true
		case scheduler.Skipped:
			w.well[b] = true
		case scheduler.Failed:
			w.processed[b.task]++
			w.failed[b]++
		}
		return nil
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return w
}

// starts lists the blocks that were started, in order.
func starts(t testing.TB, dir string) (list []blockName) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "started"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		task, block, _ := strings.Cut(strings.TrimSpace(line), " ")
		i, err1 := strconv.ParseInt(task, 10, 64)
		j, err2 := strconv.ParseInt(block, 10, 64)
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		list = append(list, blockName{i, j})
	}
	return list
}

// effectsOf lists what a life of a coordinator does, sorted.
func effectsOf(t testing.TB, counts string) (kinds []string, times map[string]int) {
	t.Helper()
	if err := json.Unmarshal([]byte(readFile(t, counts)), &times); err != nil {
		t.Fatal(err)
	}
	return slices.Sorted(maps.Keys(times)), times
}

// TestTheRunEndsRightWhateverEffectItDiedAt kills the coordinator right before and right after an effect, its next life likewise,
// and then resumes until the run has ended. Nothing may differ from a run that nobody disturbed. The effects are drawn from
// those that such lives have: DAISY_CRASH sets how many, "all" takes every one for the first life; DAISY_CRASH_SEED repeats a draw.
func TestTheRunEndsRightWhateverEffectItDiedAt(t *testing.T) {
	t.Parallel()
	dir, path := writeJob(t, crashJob())
	whole := traced(t, effect{}, filepath.Join(dir, "counts"), dir, "run", path, "--run-dir", "out")
	if r := whole.wait(); r.status == 98 {
		testenv.Unavailable(t, "this system does not let a process trace another: "+r.stderr)
	} else if r.status != 1 {
		t.Fatalf("exit status %d", r.status)
	}
	want := crashResultOf(t, dir)
	kinds, times := effectsOf(t, filepath.Join(dir, "counts"))

	// A life that is a resume has effects of its own.
	dir, path = writeJob(t, crashJob())
	at := effect{"sync out/journal/journal-#-#.log", 1 + times["sync out/journal/journal-#-#.log"]/2, true}
	if r := traced(t, at, "", dir, "run", path, "--run-dir", "out").wait(); r.status != died {
		t.Fatalf("exit status %d", r.status)
	}
	traced(t, effect{}, filepath.Join(dir, "counts"), dir, "run", "--resume", "out").wait()
	resumeKinds, resumeTimes := effectsOf(t, filepath.Join(dir, "counts"))

	seed := uint64(time.Now().UnixNano())
	if n, err := strconv.ParseUint(os.Getenv("DAISY_CRASH_SEED"), 10, 64); err == nil {
		seed = n
	}
	t.Logf("DAISY_CRASH_SEED=%d draws from %d kinds of effects, and %d of a resumed life", seed, len(kinds), len(resumeKinds))
	random := rand.New(rand.NewPCG(seed, 0))
	var first []effect
	if os.Getenv("DAISY_CRASH") == "all" {
		for _, kind := range kinds {
			for n := range times[kind] {
				first = append(first, effect{kind, n + 1, false}, effect{kind, n + 1, true})
			}
		}
	} else {
		n := 24
		if m, err := strconv.Atoi(os.Getenv("DAISY_CRASH")); err == nil {
			n = m
		}
		for range n {
			first = append(first, draw(random, kinds, times))
		}
	}
	for _, a := range first {
		b := draw(random, resumeKinds, resumeTimes)
		t.Run(a.String()+", then "+b.String(), func(t *testing.T) {
			t.Parallel()
			got := dieAndResume(t, a, b)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("it differs from a run that nobody disturbed (-whole +killed):\n%s", diff)
			}
		})
	}
}

// draw takes any effect of any kind, and half of the time one of a kind that comes again and again: most others belong to the start.
func draw(random *rand.Rand, kinds []string, times map[string]int) effect {
	if random.IntN(2) == 0 {
		kinds = slices.DeleteFunc(slices.Clone(kinds), func(kind string) bool { return times[kind] == 1 })
	}
	kind := kinds[random.IntN(len(kinds))]
	return effect{kind, 1 + random.IntN(times[kind]), random.IntN(2) == 0}
}

// dieAndResume has the first lives of a run die at an effect each.
func dieAndResume(t *testing.T, deaths ...effect) crashResult {
	t.Helper()
	dir, path := writeJob(t, crashJob())
	begin := []string{"run", path, "--run-dir", "out"}
	args := begin
	started := 0 // before this life
	before := map[blockName]bool{}
	for life := 0; ; life++ {
		if life > len(deaths)+2 {
			t.Fatalf("it has not ended after %d lives", life)
		}
		at := effect{}
		if life < len(deaths) {
			at = deaths[life]
		}
		r := traced(t, at, "", dir, args...).wait()
		now := starts(t, dir)
		for _, b := range now[started:] {
			if before[b] {
				t.Errorf("life %d runs block %d of task %d again, which had succeeded", life+1, b.block, b.task)
			}
		}
		started, before = len(now), recordsOf(t, dir).well
		for i, id := range []string{"one", "two"} {
			marks, _ := os.ReadFile(filepath.Join(dir, "tracking", id, "done", "c", "0"))
			for block, mark := range marks {
				if mark != 0 && !before[blockName{int64(i), int64(block)}] {
					t.Errorf("after life %d block %d of %s is marked as done, which is not in the journal", life+1, block, id)
				}
			}
		}
		switch {
		case r.status == 1: // some blocks failed, as they should
			return crashResultOf(t, dir)
		case r.status == died:
			args = []string{"run", "--resume", "out"}
		case r.status == 2 && len(before) == 0 && len(now) == 0:
			wantText(t, r.stderr, "run directory") // nothing had begun
			if err := os.RemoveAll(filepath.Join(dir, "out")); err != nil {
				t.Fatal(err)
			}
			args = begin
		default:
			t.Fatalf("life %d: exit status %d:\n%s", life+1, r.status, r.all())
		}
	}
}
