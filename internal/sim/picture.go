package sim

import "time"

// A Picture is who was there and what ran when. Short runs have every block in it; of others it has shares in bands of slots and
// columns of time, so that its size is bounded.
type Picture struct {
	// End is that of the run.
	End time.Duration
	// Spans are all blocks, nil if there are more than mostSpans.
	Spans []Span
	// Column is the length of a column, Band how many slots are in a band.
	Column time.Duration
	Band   int
	// Lanes is how many slots there were at once.
	Lanes int
	// Shown is how many tasks are told apart; those beyond count as the last.
	Shown int

	cells   []time.Duration // by column, band, and task; at the end of the tasks, the time in which workers were there
	since   []time.Duration // by lane; never = nobody is there
	columns int             // in use
	full    bool            // there were too many blocks for Spans
}

// Span is one block. Task -1 is the presence of a worker.
type Span struct {
	Lane, Task int32
	From, To   time.Duration
}

const (
	mostSpans    = 2500
	mostColumns  = 400
	mostBands    = 64
	shownTasks   = 8
	firstColumns = 100 * time.Millisecond
)

func newPicture(tasks int) *Picture {
	p := &Picture{Column: firstColumns, Band: 1, Shown: min(tasks, shownTasks)}
	p.cells = make([]time.Duration, mostColumns*mostBands*(p.Shown+1))
	return p
}

func (p *Picture) cell(column, band int) []time.Duration {
	n := p.Shown + 1
	at := (column*mostBands + band) * n
	return p.cells[at : at+n]
}

// Columns and Bands are how many there are.
func (p *Picture) Columns() int { return p.columns }
func (p *Picture) Bands() int   { return (p.Lanes + p.Band - 1) / p.Band }

// Share is the share of the slots of a band in a column that run blocks of a task, and with the task -1 in which a worker was there.
func (p *Picture) Share(column, band, task int) float64 {
	length := min(p.Column, p.End-time.Duration(column)*p.Column)
	slots := min(p.Band, p.Lanes-band*p.Band)
	if length <= 0 || slots <= 0 {
		return 0
	}
	if task < 0 {
		task = p.Shown
	}
	return min(float64(p.cell(column, band)[task])/(float64(length)*float64(slots)), 1)
}

// begins: a worker is there.
func (p *Picture) begins(lane int32, now time.Duration) {
	if p == nil {
		return
	}
	for int(lane) >= len(p.since) {
		p.since = append(p.since, never)
	}
	p.since[lane] = now
	p.Lanes = max(p.Lanes, int(lane)+1)
	for p.Bands() > mostBands {
		p.mergeBands()
	}
}

// leaves: it is there no longer.
func (p *Picture) leaves(lane int32, now time.Duration) {
	if p == nil || p.since[lane] == never {
		return
	}
	p.span(Span{lane, -1, p.since[lane], now})
	p.since[lane] = never
}

// ran: a block has run.
func (p *Picture) ran(lane, task int32, from, to time.Duration) {
	if p == nil {
		return
	}
	p.span(Span{lane, min(task, int32(p.Shown)-1), from, to})
}

func (p *Picture) span(s Span) {
	if !p.full {
		if len(p.Spans) == mostSpans {
			p.full, p.Spans = true, nil
		} else {
			p.Spans = append(p.Spans, s)
		}
	}
	for s.To > mostColumns*p.Column {
		p.mergeColumns()
	}
	task := int(s.Task)
	if task < 0 {
		task = p.Shown
	}
	for s.From < s.To {
		c := int(s.From / p.Column)
		until := min(time.Duration(c+1)*p.Column, s.To)
		p.cell(c, int(s.Lane)/p.Band)[task] += until - s.From
		p.columns = max(p.columns, c+1)
		s.From = until
	}
}

// mergeColumns makes one of two columns.
func (p *Picture) mergeColumns() {
	n := mostBands * (p.Shown + 1)
	for c := range mostColumns {
		for i := range n {
			sum := time.Duration(0)
			if 2*c+1 < mostColumns {
				sum = p.cells[2*c*n+i] + p.cells[(2*c+1)*n+i]
			}
			p.cells[c*n+i] = sum
		}
	}
	p.Column *= 2
	p.columns = (p.columns + 1) / 2
}

// mergeBands makes one of two bands.
func (p *Picture) mergeBands() {
	for c := range mostColumns {
		for b := range mostBands {
			into := p.cell(c, b)
			for i := range into {
				sum := time.Duration(0)
				if 2*b+1 < mostBands {
					sum = p.cell(c, 2*b)[i] + p.cell(c, 2*b+1)[i]
				}
				into[i] = sum
			}
		}
	}
	p.Band *= 2
}
