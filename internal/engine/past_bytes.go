package engine

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"example.org/daisy/scheduler"
)

// pastVersion is the version of the bytes of a Past.
const pastVersion = 2

// AppendBytes appends all that the past knows, so that ReadPast and the records that came later make what all records make. It is to be
// called before New.
func (p *Past) AppendBytes(dst []byte) []byte {
	c := coder{buf: append(dst, pastVersion)}
	p.fields(&c)
	return c.buf
}

// ReadPast makes the past of a pipeline from what AppendBytes has appended. It is an error if the bytes are not whole, or of another
// pipeline.
func ReadPast(pipeline *scheduler.Pipeline, b []byte) (*Past, error) {
	if len(b) == 0 || b[0] != pastVersion {
		return nil, fmt.Errorf("the past of a run: it does not begin with version %d, which this program reads", pastVersion)
	}
	p := NewPast(pipeline)
	c := coder{buf: b[1:], reading: true}
	p.fields(&c)
	if c.err == nil && len(c.buf) > 0 {
		c.fail(fmt.Errorf("%d bytes too many", len(c.buf)))
	}
	if c.err != nil {
		return nil, fmt.Errorf("the past of a run: %w", c.err)
	}
	return p, nil
}

// fields visits all of a past in the order in which it is written. Appending and reading are the same walk, as with records.
func (p *Past) fields(c *coder) {
	list(c, &p.epochs, func(e *PastEpoch) {
		c.uint64(&e.Epoch)
		c.int64(&e.Began)
		c.duration(&e.Lasted)
	})
	c.duration(&p.before)
	tags := int64(p.tags)
	c.int64(&tags)
	p.tags = int(tags)
	list(c, &p.subs, func(s **pastSubmission) {
		if c.reading {
			*s = new(pastSubmission)
		}
		(*s).fields(c)
	})
	c.byte((*uint8)(&p.state))
	c.string(&p.why)
	c.int64(&p.patient)
	list(c, &p.sets, p.setting(c))
	var excluded []*Exclusion
	for _, node := range slices.Sorted(maps.Keys(p.exclude)) {
		excluded = append(excluded, p.exclude[node])
	}
	list(c, &excluded, func(at **Exclusion) {
		r := Record{Kind: RecordExclude, Final: true}
		if !c.reading {
			r.ID, r.Text, r.Tail = (*at).Node, (*at).Reason, (*at).By
		}
		c.string(&r.ID)
		c.string(&r.Text)
		c.string(&r.Tail)
		if c.reading && c.err == nil {
			p.excludes(&r)
		}
	})
	was := make([]TaskRecord, 0, len(p.tasks))
	for i := range p.tasks {
		was = append(was, TaskRecord{p.tasks[i].id, p.tasks[i].blocks, p.tasks[i].hash})
	}
	if c.reading {
		was = nil
	}
	list(c, &was, c.taskRecord)
	if c.err == nil {
		if err := p.sameTasks(was); err != nil {
			c.fail(err)
		}
	}
	for i := range p.tasks {
		p.tasks[i].fields(c, int32(i))
	}
	list(c, &p.order, func(w **pastWorker) { p.worker(c, w) })
	if c.reading && len(c.buf) > 0 || len(p.unheard) > 0 { // hardly ever
		p.unheards(c)
	}
}

// unheards visits the workers that the latest coordinator has not heard.
func (p *Past) unheards(c *coder) {
	numbers := slices.Sorted(maps.Keys(p.unheard))
	list(c, &numbers, func(n *uint32) {
		c.uint32(n)
		until := p.unheard[*n]
		c.int64(&until)
		p.unheard[*n] = until
	})
	if len(numbers) == 0 {
		c.fail(errors.New("bytes too many"))
	}
}

// setting is a setting as its record.
func (p *Past) setting(c *coder) func(s *Setting) {
	return func(s *Setting) {
		var r Record
		if !c.reading {
			r = s.records()[0]
		}
		r.Kind = RecordSet
		r.fields(c)
		if c.reading && c.err == nil {
			var err error
			if *s, err = setting(&r); err != nil {
				c.fail(err)
			} else if r.Task < 0 || int(r.Task) >= len(p.tasks) {
				c.fail(fmt.Errorf("a setting of task %d of %d", r.Task, len(p.tasks)))
			}
		}
	}
}

func (t *pastTask) fields(c *coder, task int32) {
	for _, n := range []*int64{&t.mark, &t.most, &t.checked, &t.failed, &t.wave} {
		c.int64(n)
	}
	list(c, &t.failures, func(b *FailedBlock) {
		b.Task = task
		c.int64(&b.Block)
		c.int32(&b.Attempts)
		c.byte((*uint8)(&b.Outcome))
		for _, s := range []*string{&b.Worker, &b.Node, &b.Message, &b.Tail} {
			c.string(s)
		}
		if b.Block < 0 || b.Block >= t.blocks {
			c.fail(fmt.Errorf("block %d failed, of %d", b.Block, t.blocks))
		}
	})
	t.counts(c, t.times, "has failed before")
	t.counts(c, t.cuts, "was cut before")
	if !c.reading {
		c.buf = t.ends.AppendBytes(c.buf)
		return
	}
	if c.err != nil {
		return
	}
	ends, rest, err := scheduler.ReadPast(t.blocks, c.buf)
	if err != nil {
		c.fail(err)
		return
	}
	t.ends, c.buf = ends, rest
}

// counts visits how often something befell blocks.
func (t *pastTask) counts(c *coder, of map[int64]uint32, what string) {
	blocks := slices.Sorted(maps.Keys(of))
	before := int64(0)
	list(c, &blocks, func(b *int64) {
		delta, n := *b-before, of[*b]
		c.int64(&delta)
		c.uint32(&n)
		*b = before + delta
		if delta < 0 || *b >= t.blocks || *b < 0 {
			c.fail(fmt.Errorf("block %d of %d %s", *b, t.blocks, what))
			return
		}
		of[*b], before = n, *b
	})
}

// worker is one that had joined, with its rows.
func (p *Past) worker(c *coder, at **pastWorker) {
	if *at == nil {
		*at = new(pastWorker)
	}
	w := *at
	c.uint32(&w.number)
	c.string(&w.ID)
	c.fixed(&w.Nonce)
	c.string(&w.Node)
	pid := int64(w.PID)
	c.int64(&pid)
	w.PID = int(pid)
	c.bool(&w.Launched)
	c.int32(&w.slots)
	w.grant.fields(c)
	c.bool(&w.gone)
	list(c, &w.rows, func(at **row) {
		if *at == nil {
			*at = new(row)
		}
		r := *at
		c.int32(&r.task)
		c.int32(&r.slots)
		c.duration(&r.since)
		for _, n := range []*int64{&r.processed, &r.failed, &r.peak} {
			c.int64(n)
		}
		c.duration(&r.busy)
		c.duration(&r.served)
		c.bool(&r.over)
		c.string(&r.end)
		if r.task < 0 || int(r.task) >= len(p.tasks) {
			c.fail(fmt.Errorf("a worker has served task %d of %d", r.task, len(p.tasks)))
		}
	})
	present := uint32(slices.Index(w.rows, w.row) + 1)
	c.uint32(&present)
	switch {
	case !c.reading || c.err != nil:
		return
	case int64(present) > int64(len(w.rows)):
		c.fail(fmt.Errorf("row %d of a worker, which has %d", present, len(w.rows)))
		return
	case p.workers[w.number] != nil:
		c.fail(fmt.Errorf("worker %d is there a second time", w.number))
		return
	case present > 0:
		w.row = w.rows[present-1]
	}
	p.add(w)
}

func (c *coder) duration(d *time.Duration) { c.int64((*int64)(d)) }

// list visits the elements of a list, with their number before them. Reading, each begins as its zero value.
func list[T any](c *coder, of *[]T, each func(*T)) {
	n := uint64(len(*of))
	c.uint64(&n)
	if c.reading {
		*of = nil
	}
	for i := uint64(0); i < n && c.err == nil; i++ { // one at a time: a false length ends with the bytes
		if c.reading {
			var zero T
			*of = append(*of, zero)
		}
		each(&(*of)[i])
	}
}
