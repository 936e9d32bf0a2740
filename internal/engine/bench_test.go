package engine

import (
	"fmt"
	"testing"
	"time"

	"example.org/daisy/internal/job"
	"example.org/daisy/scheduler"
)

// BenchmarkEngine runs two million blocks an iteration through Apply, as the coordinator does: one block an acquire, one event for
// each release, a commit after each round; timeouts armed, 64 workers of one slot, journal records made. It reports blocks/s.
func BenchmarkEngine(b *testing.B) { benchmarkApply(b, 1, 1) }

// BenchmarkEngineBatch16 is the same with acquires of 16.
func BenchmarkEngineBatch16(b *testing.B) { benchmarkApply(b, 16, 1) }

// BenchmarkEngineChain is the same with acquires of 16 and a chain of four tasks.
func BenchmarkEngineChain(b *testing.B) { benchmarkApply(b, 16, 4) }

func benchmarkApply(b *testing.B, batch, chain int) {
	blocks := 2_000_000 * b.N
	const workers = 64
	j := testJob()
	n := int64(blocks)/int64(chain) + workers*64
	for i := range chain {
		task := job.Task{ID: fmt.Sprint("task", i), Slots: 1, MaxRetries: 2, MaxLost: 5, MaxWorkerRestarts: 10, Timeout: 10 * time.Minute,
			Requires: cpus(1), Grid: line1D(b, n), Runner: job.Runner{Kind: job.RunnerCommand}}
		if i > 0 {
			task.After = []string{j.Tasks[i-1].ID}
		}
		j.Tasks = append(j.Tasks, task)
	}
	p, err := j.Pipeline()
	if err != nil {
		b.Fatal(err)
	}
	e, err := New(Config{Job: j, Pipeline: p, Launcher: localProperties(), Epoch: 1, Budget: cpus(workers)})
	if err != nil {
		b.Fatal(err)
	}
	var fx Effects
	now, appended := time.Duration(0), uint64(0)
	var seq, request [workers + 1]uint64
	var held [workers + 1][]scheduler.Handout
	apply := func(ev Event) {
		e.Apply(now, &ev, &fx)
		for i := range fx.List {
			switch f := &fx.List[i]; f.Kind {
			case EffectAppend:
				appended++
			case EffectBlocks:
				held[f.Session] = append(held[f.Session], f.Handouts...)
			}
		}
		fx.Reset()
	}
	apply(Event{Kind: EventTick})
	apply(Event{Kind: EventCommitted, UpTo: appended})
	for w := range workers {
		apply(Event{Kind: EventJoin, Request: 1, Join: &Join{Tag: "1", Element: w, Nonce: 1, Slots: 1, Node: "n"}})
		apply(Event{Kind: EventAttach, Session: SessionID(w + 1), Worker: fmt.Sprintf("1.%d", w), Nonce: 1})
	}
	b.ResetTimer()
	done := 0
	for done < blocks && !e.Finished() {
		for s := SessionID(1); s <= workers; s++ {
			if len(held[s]) == 0 {
				request[s]++
				apply(Event{Kind: EventAcquire, Session: s, Request: request[s], N: int32(batch)})
			}
		}
		for s := SessionID(1); s <= workers; s++ {
			for _, h := range held[s] {
				now += 100
				seq[s]++
				apply(Event{Kind: EventRelease, Session: s, Seq: seq[s], Epoch: 1, Lease: h.Lease, Use: Use{WallNanos: 1000}})
				done++
			}
			held[s] = held[s][:0]
		}
		apply(Event{Kind: EventCommitted, UpTo: appended})
	}
	b.ReportMetric(float64(done)/b.Elapsed().Seconds(), "blocks/s")
}

// BenchmarkManyBlocksComeBack has a worker come back after a resume with as many blocks as are ever granted at once. It reports blocks/s, which
// do not depend on how many there are.
func BenchmarkManyBlocksComeBack(b *testing.B) {
	const n = 1 << 15
	j := testJob()
	j.Tasks = []job.Task{{ID: "a", Slots: 1, MaxLost: 3, MaxWorkerRestarts: 10, Requires: cpus(1), Runner: job.Runner{Kind: job.RunnerCommand}, Grid: line1D(b, n)}}
	p, err := j.Pipeline()
	if err != nil {
		b.Fatal(err)
	}
	var held []Held
	for i := range int64(n) {
		held = append(held, Held{Epoch: 1, Lease: scheduler.Lease(i + 1), Block: i, Attempt: 1})
	}
	for b.Loop() {
		e, err := New(Config{Job: j, Pipeline: p, Epoch: 2, Unlimited: true, External: true})
		if err != nil {
			b.Fatal(err)
		}
		var fx Effects
		e.Apply(0, &Event{Kind: EventJoin, Request: 1, Join: &Join{Name: "w", Nonce: 7, Slots: 1}}, &fx)
		for session := range SessionID(2) { // the answer to the first is lost
			fx.Reset()
			e.Apply(0, &Event{Kind: EventAttach, Session: session + 1, Worker: "w", Nonce: 7, Held: held}, &fx)
			if kept := len(fx.List[len(fx.List)-1].Kept); kept != n && session == 1 {
				b.Fatalf("%d blocks are kept, want %d", kept, n)
			}
		}
	}
	b.ReportMetric(float64(2*n)*float64(b.N)/b.Elapsed().Seconds(), "blocks/s")
}
