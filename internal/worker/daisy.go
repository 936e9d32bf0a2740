package worker

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.org/daisy/geom"
	"example.org/daisy/internal/daisywire"
	"example.org/daisy/internal/process"
	"example.org/daisy/internal/wire"
)

// A daisyProcess is a worker script of daisy 2. It asks for blocks itself, by daisy's client, over a relay of its own.
type daisyProcess struct {
	kept
	relay *relay
	had   bool // it has had a block
}

func (s *slot) startDaisy(b *Block) (resident, error) {
	spec := &s.task.Spec
	if !b.IDFits {
		return nil, errNoID
	}
	argv := append([]string(nil), spec.Argv...)
	if err := s.find(argv); err != nil {
		return nil, err
	}
	held, err := s.hold(spec)
	if err != nil {
		return nil, err
	}
	relay, err := newRelay(spec.ID)
	if err != nil {
		s.endHold(held)
		return nil, err
	}
	started, err := s.crew.spawner.Start(process.Config{
		Argv: argv, Env: append(daisyEnvironment(s.env), relay.variable(daisyNumber(s.at), spec.ResourceTracking)), Dir: spec.Dir,
		Stdout: s.out.file, Stderr: s.out.file, Markers: s.markers(), CountIO: spec.ResourceTracking, Memory: held.limit(),
	})
	if err != nil {
		relay.close()
		s.endHold(held)
		return nil, err
	}
	relay.serve(started.CheckPeer, s.crew.client.logf)
	return &daisyProcess{kept: kept{Process: started, name: daisyName, held: held}, relay: relay}, nil
}

const daisyName = "daisy worker"

// daisyEnvironment adds what a script needs whose lines are to stand in the log while its block runs.
func daisyEnvironment(slot []string) []string {
	const unbuffered = "PYTHONUNBUFFERED="
	env := append(make([]string, 0, len(slot)+2), slot...)
	if !slices.ContainsFunc(slot, func(entry string) bool { return strings.HasPrefix(entry, unbuffered) }) {
		env = append(env, unbuffered+"1")
	}
	return env
}

// daisyNumber is the worker_id of a slot, which is a number in daisy's eyes: that of no other slot of the run.
func daisyNumber(at place) string {
	tag, element, _ := strings.Cut(at.workerID, ".")
	t, err := strconv.ParseInt(tag, 10, 32)
	e, err2 := strconv.ParseInt(element, 10, 32)
	if n, fits := geom.Cantor(geom.Coord(t, e, int64(at.slot))); err == nil && err2 == nil && fits {
		return strconv.FormatUint(n, 10)
	}
	h := fnv.New32a() // of one that nobody numbered
	fmt.Fprintf(h, "%s %d", at.workerID, at.slot)
	return strconv.FormatUint(uint64(h.Sum32()), 10)
}

func (p *daisyProcess) idle(s *slot) bool {
	select {
	case why := <-p.relay.dropped:
		s.crew.client.logf("slot %d: a connection of the %s was dropped, it is replaced: %v", s.number, p.name, why)
		return false
	default:
		return true
	}
}

// exchange waits until a client of the process asks, gives it the block, and waits until it gives that back.
func (p *daisyProcess) exchange(ctx context.Context, s *slot, b *Block) (Result, afterwards) {
	if !b.IDFits {
		return Result{Outcome: wire.Failed, Message: errNoID.Error()}, reuse
	}
	select {
	case p.relay.offers <- grantOf(b):
	case <-p.Done():
		return p.endedUnasked(s, b)
	case why := <-p.relay.dropped:
		return p.misspoke(s, b, why), replace
	case <-ctx.Done():
		return p.endedFor(ctx, s, b, "it had not asked for the block")
	}
	first := !p.had
	if first {
		p.had = true
		s.hasStarted(b)
	}
	select {
	case end := <-p.relay.ends:
		return p.understood(ctx, s, b, end, first)
	case <-p.Done():
	case <-ctx.Done():
		return p.endedFor(ctx, s, b, "")
	}
	timer := time.NewTimer(lateAnswer)
	defer timer.Stop()
	select {
	case end := <-p.relay.ends:
		return p.understood(ctx, s, b, end, first)
	case <-timer.C:
		return p.endedWithBlock(s)
	}
}

// endedFor ends the process because the block is to end; hint is added where its time was up.
func (p *daisyProcess) endedFor(ctx context.Context, s *slot, b *Block, hint string) (Result, afterwards) {
	s.crew.kill(p.Process, context.Cause(ctx))
	r, _ := endedByUs(ctx, b)
	if r.Outcome == wire.TimedOut && hint != "" {
		r.Message += "; " + hint
	}
	return r, replace
}

// understood makes a result of the end of the block, which is its first or not.
func (p *daisyProcess) understood(ctx context.Context, s *slot, b *Block, end relayEnd, first bool) (Result, afterwards) {
	switch end.Outcome {
	case daisywire.Succeeded:
		r := Result{Outcome: wire.Success}
		r.take(end.Stats)
		return r, reuse
	case daisywire.Broke:
		r := Result{Outcome: wire.Failed, Message: "the " + p.name + " said that the block failed, and not why"}
		if text := strings.TrimSpace(end.Error); text != "" {
			if r.Message = exceptionOf(text); r.Message != text {
				s.out.addUnless(r.Message, text)
			}
			r.Message = beginningOf(r.Message, wire.MaxText)
		}
		r.take(end.Stats)
		return r, reuse
	}
	// Its connection has ended: perhaps because it has ended itself, or the program of its that had the connection.
	timer := time.NewTimer(lateAnswer)
	defer timer.Stop()
	select {
	case <-p.Done():
		if end.unread && !first && !s.crew.isStopping() {
			return Result{}, resend // it was ending when the block came
		}
		return p.endedWithBlock(s)
	case <-ctx.Done():
		return p.endedFor(ctx, s, b, "")
	case <-timer.C:
	}
	r := Result{Outcome: wire.Failed, Message: "the " + p.name + " closed its connection without giving its block back"}
	select {
	case why := <-p.relay.dropped:
		r.Message = "the " + p.name + " was dropped with its block: " + why.Error()
	default:
	}
	return r, replace // it may still work on the block
}

// endedWithBlock judges the end of a process that had the block.
func (p *daisyProcess) endedWithBlock(s *slot) (Result, afterwards) {
	r := s.unanswered(&p.kept, "giving its block back")
	if r.Outcome == wire.Failed {
		r.Message += "; its output may say why it ended"
	}
	return r, silent
}

// endedUnasked judges the end of a process that had not asked for the block. One that has had others may end whenever it likes.
func (p *daisyProcess) endedUnasked(s *slot, b *Block) (Result, afterwards) {
	if p.had && !s.crew.isStopping() {
		return Result{}, resend
	}
	r := s.unanswered(&p.kept, "asking for a block")
	if r.Outcome != wire.Failed {
		return r, silent
	}
	select {
	case why := <-p.relay.dropped:
		r.Message += "; its connection was dropped: " + why.Error()
	default:
	}
	return s.cannotStart(b, errors.New(r.Message+lastWords(s.out.end()))), silent
}

// misspoke is the result of a block that the process had not asked for in a way that is understood.
func (p *daisyProcess) misspoke(s *slot, b *Block, why error) Result {
	err := fmt.Errorf("the connection of the %s was dropped: %w", p.name, why)
	if p.had {
		return Result{Outcome: wire.Failed, Message: err.Error()}
	}
	return s.cannotStart(b, err)
}

func (p *daisyProcess) finish() { p.relay.noMore() }
func (p *daisyProcess) close()  { p.relay.close() }

// mostSeconds is the longest time that anybody believes of a block.
const mostSeconds = 1e9

// take takes what a client has measured for what the block has used, if it can be true.
func (r *Result) take(s *daisywire.Stats) {
	if s == nil || !(s.WallSeconds >= 0 && s.WallSeconds <= mostSeconds) || !(s.CPUSeconds >= 0 && s.CPUSeconds <= mostSeconds) || s.PeakRSSBytes > math.MaxInt64 || s.IOReadBytes > math.MaxInt64 || s.IOWriteBytes > math.MaxInt64 {
		return
	}
	r.measured, r.GPU = true, wire.GPU(s.GPU())
	r.Wall = time.Duration(s.WallSeconds * float64(time.Second))
	r.CPU, r.PeakRSSBytes = time.Duration(s.CPUSeconds*float64(time.Second)), int64(s.PeakRSSBytes)
	r.IO = process.IO{ReadBytes: int64(s.IOReadBytes), WrittenBytes: int64(s.IOWriteBytes)}
}

// exceptionOf is what a traceback ends with: what comes after its last line that is indented. Of any other text it is all.
func exceptionOf(text string) string {
	lines := strings.Split(text, "\n")
	if len(lines) == 1 || !strings.Contains(text, "Traceback (most recent call last)") {
		return text
	}
	at := len(lines)
	for at > 0 && !strings.HasPrefix(lines[at-1], "  ") {
		at--
	}
	if at == len(lines) {
		return text
	}
	return strings.TrimSpace(strings.Join(lines[at:], "\n"))
}

// beginningOf is no more of a text than so many bytes; a copy, as a client can say a thousand times as much as ever leaves the worker.
func beginningOf(text string, most int) string {
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "")
	}
	return strings.Clone(text)
}
