package engine

import (
	"testing"

	"example.org/daisy/launcher"
)

const manyRows = 500_000

// What commands ask of a run again and again looks at no worker that has ended, of whom a long run has had very many.
func TestWhereARunStandsIsSaidWithoutALookAtWorkersThatHaveEnded(t *testing.T) {
	e := beginRun(t, 1, launcher.Properties{}, nil).e
	e.rows = make([]*row, manyRows) // whoever looks at one of these panics
	var snap Snapshot
	e.Overview(&snap)
	if len(snap.Tasks) != 1 || len(snap.Workers) != 0 || e.Running() != 0 || e.Excluded() != nil || len(e.WorkerStates()) != 0 || len(e.Limits().Tasks) != 1 {
		t.Errorf("%+v", snap)
	}
	if err := e.CheckStop(StopDrain); err != nil {
		t.Error(err)
	}
}

func TestAPageOfWorkersThatHaveEndedIsMadeInSlices(t *testing.T) {
	e := beginRun(t, 1, launcher.Properties{}, nil).e
	w := &worker{id: "1.0"}
	for range manyRows {
		e.rows = append(e.rows, &row{worker: w, over: true})
	}
	views, next, done := e.EndedRows(0, 1000, nil)
	if len(views) != 1000 || next != 1000 || done {
		t.Errorf("a page of 1000 took %d rows and gave %d", next, len(views))
	}
	for i := range e.rows {
		e.rows[i].over = false
	}
	if _, next, done = e.EndedRows(0, 1000, nil); next > viewUnits || done {
		t.Errorf("one look for rows that are not there goes through %d", next)
	}
}

func BenchmarkOverviewWith500000WorkersThatHaveEnded(b *testing.B) {
	e := beginRun(b, 1, launcher.Properties{}, nil).e
	e.rows = make([]*row, manyRows)
	var snap Snapshot
	for b.Loop() {
		e.Overview(&snap)
	}
}

func BenchmarkALookForEndedWorkers(b *testing.B) {
	e := beginRun(b, 1, launcher.Properties{}, nil).e
	for range manyRows {
		e.rows = append(e.rows, &row{worker: &worker{}})
	}
	for b.Loop() {
		e.EndedRows(0, 1000, nil)
	}
}
