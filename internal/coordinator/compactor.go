package coordinator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"example.org/daisy/internal/engine"
	"example.org/daisy/internal/journal"
	"example.org/daisy/internal/rundir"
	"example.org/daisy/internal/tracking"
	"example.org/daisy/scheduler"
)

// A compactor keeps the journal small while the run goes on: it folds the closed segments, as a resume would, and puts a
// snapshot in their place. It needs nothing of the engine, and holds up neither it nor a commit. What it takes while it is at it: a quarter
// of a byte for each block, as much again for the snapshot, some hundred bytes for each block that was tried, and one segment; and little of a
// core (see share).

const (
	// foldAtOnce is how many records are folded before the others get their time: less than a millisecond's work.
	foldAtOnce = 1 << 10
	// gentle is the share of a core that a compaction takes while the closed segments are no more than gentleSegments full ones (1 GiB).
	gentle         = 1.0 / 64
	gentleSegments = 64
	// urgentSegments is how many full ones there are (4 GiB) when it takes a whole core.
	urgentSegments = 256
	// compactAgain is how long nothing is tried after a compaction that failed.
	compactAgain = time.Minute
)

// compactWhenDue compacts the journal, one time after another, whenever it has grown enough, until ctx ends.
func (c *Coordinator) compactWhenDue(ctx context.Context) {
	said := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.flusher.grown:
		}
		err := c.compact(ctx, c.restAfter)
		var taken *rundir.TakenOverError
		if err == nil || ctx.Err() != nil || errors.As(err, &taken) { // whoever renews the lock ends the run
			continue
		}
		if !said {
			said = true
			c.inbox.call(func() { c.cfg.Notice(fmt.Sprintf("%v; the run goes on, and its journal grows meanwhile", err)) })
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(compactAgain):
		}
	}
}

// restAfter is how long a compaction rests after it has worked for so long, as the journal is now.
func (c *Coordinator) restAfter(worked time.Duration) time.Duration {
	return time.Duration(float64(worked) * (1/share(c.journal.Closed().Bytes(), c.journal.SegmentBytes()) - 1))
}

// share is the part of a core that a compaction may take when the closed segments have so many bytes, and a full one so many. A small part,
// since the run is worth more than a small journal; but more and more of a core as the journal grows all the same, and in the end all
// of one: an attempt is folded faster than it can be handed out, so that this is where the growth ends.
func share(closed, segment int64) float64 {
	above := float64(closed)/float64(segment) - gentleSegments
	return min(max(gentle+(1-gentle)*above/(urgentSegments-gentleSegments), gentle), 1)
}

// compact puts a snapshot in the place of the segments that are closed now. What their blocks have used is in tracking before they go. rest
// says how long it rests after some work.
func (c *Coordinator) compact(ctx context.Context, rest func(worked time.Duration) time.Duration) error {
	at := c.journal.Closed()
	f := newFold(c.cfg.Job, c.pipeline)
	use := usage{stores: c.flusher.stores}
	turn := pace{rest: rest, began: time.Now()}
	_, err := f.read(c.cfg.RunDir.JournalDir(), func(a *engine.Attempt) error {
		if err := turn.next(ctx); err != nil {
			return err
		}
		return use.add(a)
	}, journal.Until(at))
	if err == nil {
		err = use.sync()
	}
	var state []byte
	if err == nil {
		state, err = f.snapshot()
	}
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("compact the journal: %w", err)
	}
	return c.journal.Compact(at, state)
}

// pace lets others work in between.
type pace struct {
	rest  func(worked time.Duration) time.Duration
	n     int
	began time.Time
}

func (p *pace) next(ctx context.Context) error {
	if p.n++; p.n%foldAtOnce != 0 {
		return nil
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(p.rest(time.Since(p.began))):
	}
	p.began = time.Now()
	return nil
}

// usage takes what blocks have used from the journal to tracking, which may not have got all of it when the coordinator ended.
type usage struct {
	stores  []*tracking.Store // by task; nil without tracking
	waiting int
}

// usageAtOnce is of how many blocks it is kept in memory.
const usageAtOnce = 1 << 16

func (u *usage) add(a *engine.Attempt) error {
	s := u.stores[a.Handout.Task]
	if s == nil || !s.HasResources() || a.Verdict != scheduler.Succeeded {
		return nil
	}
	s.SetResources(a.Handout.Block, resources(&a.Use))
	if u.waiting++; u.waiting%usageAtOnce == 0 {
		return s.Flush()
	}
	return nil
}

// sync makes it durable.
func (u *usage) sync() error {
	for _, s := range u.stores {
		if s != nil && s.HasResources() {
			if err := s.Sync(); err != nil {
				return err
			}
		}
	}
	return nil
}
