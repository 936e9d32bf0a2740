package worker

import (
	"context"
	"fmt"
	"time"

	"example.org/daisy/internal/api"
	"example.org/daisy/internal/process"
	"example.org/daisy/internal/wire"
)

// lateAnswer is how long what a process said last, before it ended, may take to come out of the kernel. Without grandchildren that keep
// the way open it takes no time at all.
const lateAnswer = 500 * time.Millisecond

// A resident is a process that serves the blocks of one slot, one after another. How it gets them, and how it says what became of
// them, is the kind's own.
type resident interface {
	common() *kept
	// idle is false if the process cannot be given a block any more: it spoke out of turn.
	idle(s *slot) bool
	// exchange gives it the block and waits for the end of that.
	exchange(ctx context.Context, s *slot, b *Block) (Result, afterwards)
	// finish tells it that there are no more blocks.
	finish()
	// close comes when it has ended, with all that it had started.
	close()
}

// kept is what all kinds of residents have.
type kept struct {
	*process.Process
	name    string        // "stream process", for messages
	cpu     time.Duration // measured at the end of the block before
	io      process.IO    // likewise, with resource tracking
	held    *hold
	written int64 // output of the slot before the block that it has
}

func (k *kept) common() *kept { return k }

// afterwards is what becomes of the process after a block.
type afterwards int

const (
	reuse   afterwards = iota // it can have another
	replace                   // it broke the rules, or we ended it
	silent                    // it ended without an answer
	resend                    // another process gets the block: it ended before it had begun it, or answered for the one before
)

// residence runs the block with the slot's process, which is started if there is none.
func (s *slot) residence(ctx context.Context, b *Block) Result {
	if s.resident != nil {
		select {
		case <-s.resident.common().Done():
			s.replaceResident()
		default:
			if !s.resident.idle(s) {
				s.replaceResident()
			}
		}
	}
	r, after := s.serveResident(ctx, b)
	if after != resend {
		return r
	}
	if r, ended := endedByUs(ctx, b); ended {
		return r
	}
	if r, after = s.serveResident(ctx, b); after == silent {
		r.Message += "; the process before it, which had answered other blocks, ended at this one too"
	}
	return r
}

// serveResident gives the block to the slot's process, once.
func (s *slot) serveResident(ctx context.Context, b *Block) (Result, afterwards) {
	if s.resident == nil {
		var err error
		if s.resident, err = s.startResident(b); err != nil {
			s.resident = nil
			return s.cannotStart(b, err), replace
		}
		if b.Task.Spec.Runner == runnerStream { // the others have more to do before they have started
			s.hasStarted(b)
		}
	}
	p := s.resident.common()
	p.ResetPeak()
	p.held.begin()
	p.written = s.out.total()
	var meter *process.Meter
	if b.Task.Spec.ResourceTracking {
		meter = p.Meter()
	}
	r, after := s.resident.exchange(ctx, s, b)
	said := r // what the process itself says that it used
	if use, alive := p.Live(); alive {
		r.CPU, r.PeakRSSBytes = max(use.CPU-p.cpu, 0), use.PeakRSSBytes
		p.cpu = use.CPU
	}
	ioBefore := p.io
	if meter != nil {
		r.PeakRSSBytes = max(r.PeakRSSBytes, meter.Stop())
		if io, alive := p.LiveIO(); alive {
			r.IO, p.io = io.Since(p.io), io
		}
	}
	if after != reuse {
		before := p.cpu
		end := s.replaceResident()
		if r.CPU == 0 && end.CPU > before {
			r.CPU = end.CPU - before
		}
		r.PeakRSSBytes = max(r.PeakRSSBytes, end.PeakRSSBytes)
		io := end.IO.Since(ioBefore) // without children that lived on
		r.IO = process.IO{ReadBytes: max(r.IO.ReadBytes, io.ReadBytes), WrittenBytes: max(r.IO.WrittenBytes, io.WrittenBytes)}
	}
	if said.measured {
		r.CPU, r.PeakRSSBytes, r.IO = said.CPU, said.PeakRSSBytes, said.IO
	}
	return r, after
}

func (s *slot) startResident(b *Block) (resident, error) {
	if b.Task.Spec.Runner == runnerDaisy {
		return s.startDaisy(b)
	}
	return s.startStream(b)
}

// markers are what the processes of the slot carry in their environment, and no others.
func (s *slot) markers() []string {
	return []string{"DAISY_RUN_ID=" + s.at.runID, "DAISY_WORKER_ID=" + s.at.workerID, fmt.Sprintf("DAISY_SLOT=%d", s.number)}
}

// unanswered judges the end of a process that ended while it had a block; without says what of.
func (s *slot) unanswered(p *kept, without string) Result {
	r := s.judge(p.Wait(), p.held.outOfMemory())
	if r.Outcome == wire.Success {
		r = Result{Outcome: wire.Failed, Message: p.Wait().String()}
		if s.crew.isStopping() {
			r.Outcome = wire.Returned
		}
	}
	r.Message = "the " + p.name + " ended without " + without + ": " + r.Message
	return r
}

// replaceResident ends the process at once; the next block starts another.
func (s *slot) replaceResident() process.Result {
	p := s.resident
	s.resident = nil
	if err := p.common().Kill(context.Background()); err != nil {
		s.crew.client.logf("%s", api.OneLine(err.Error()))
	}
	p.finish()
	return s.buryResident(p)
}

// endResident tells the process that there is no more, and ends it if it does not end.
func (s *slot) endResident() {
	p := s.resident
	if p == nil {
		return
	}
	s.resident = nil
	p.finish()
	timer := time.NewTimer(s.crew.killGrace(nil))
	defer timer.Stop()
	select {
	case <-p.common().Done():
	case <-timer.C:
		s.crew.client.logf("slot %d: the %s did not end when there was no more to do for it; it is ended", s.number, p.common().name)
		s.crew.kill(p.common().Process, errStopped)
	case <-s.crew.stopping:
		s.crew.kill(p.common().Process, errStopped)
	}
	s.buryResident(p)
}

// buryResident waits for the process and ends what it left behind.
func (s *slot) buryResident(p resident) process.Result {
	result := p.common().Wait()
	s.endStrays(p.common().Process)
	s.endHold(p.common().held)
	p.close()
	return result
}
