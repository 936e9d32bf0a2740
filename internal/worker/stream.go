package worker

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"example.org/daisy/internal/api"
	"example.org/daisy/internal/process"
	"example.org/daisy/internal/wire"
)

const (
	maxStreamAnswer = 1 << 20
	// lateAnswer is how long the last answer of a process that has ended may take to come out of the pipe. Without
	// grandchildren that keep it open it takes no time at all.
	lateAnswer = 500 * time.Millisecond
)

// A streamProcess serves the blocks of one slot, one after another: a block as a line of JSON on its standard input, an answer
// as a line of JSON on descriptor 3.
type streamProcess struct {
	*process.Process
	in      *os.File
	unread  *os.File // the other end of in, which shows what the process has not read when it has ended
	answers *os.File
	lines   chan answerLine
	quit    chan struct{}
	owned   sync.WaitGroup
	cpu     time.Duration // measured at the end of the block before
	io      process.IO    // likewise, with resource tracking
	name    string        // "stream process", for messages
	preface []byte        // stands before the first block
	held    *hold

	answered string // lease of the last block that it answered
	sent     int    // what went into in of the block that it has, in bytes
	written  int64  // output of the slot before that block
}

// afterwards is what becomes of the process after a block.
type afterwards int

const (
	reuse   afterwards = iota // it can have another
	replace                   // it broke the rules, or we ended it
	silent                    // it ended without an answer
	resend                    // another process gets the block: it ended before it had begun it, or answered for the one before
)

// expectedAnswer has no lease: a process that ends at every block has one message.
const expectedAnswer = `{"lease":"…","ok":true} or {"lease":"…","ok":false,"error":"…"}`

type answerLine struct {
	text []byte
	err  error
}

// An answer is what a stream process says of a block.
type answer struct {
	Lease *string `json:"lease"`
	OK    *bool   `json:"ok"`
	Error string  `json:"error"`

	Import string `json:"import"` // in place of the rest, of our own Python program: why the function cannot be imported
}

// streamed runs the block with the slot's process, which is started if there is none.
func (s *slot) streamed(ctx context.Context, b *Block) Result {
	if s.stream != nil {
		select {
		case line := <-s.stream.lines:
			if line.err == nil {
				s.crew.client.logf("slot %d: the %s answered without a block, it is replaced: %.200q", s.number, s.stream.name, line.text)
			}
			s.replaceStream()
		case <-s.stream.Done():
			s.replaceStream()
		default:
		}
	}
	r, after := s.serveStream(ctx, b)
	if after != resend {
		return r
	}
	if r, ended := endedByUs(ctx, b); ended {
		return r
	}
	if r, after = s.serveStream(ctx, b); after == silent {
		r.Message += "; the process before it, which had answered other blocks, ended at this one too"
	}
	return r
}

// serveStream gives the block to the slot's process, once.
func (s *slot) serveStream(ctx context.Context, b *Block) (Result, afterwards) {
	if s.stream == nil {
		p, err := s.startStream(b)
		if err != nil {
			return s.cannotStart(b, err), replace
		}
		s.stream = p
		if b.Task.Spec.Runner != runnerPython { // there the import belongs to the start
			s.hasStarted(b)
		}
	}
	p := s.stream
	p.ResetPeak()
	p.held.begin()
	var meter *process.Meter
	if b.Task.Spec.ResourceTracking {
		meter = p.Meter()
	}
	r, after := s.exchange(ctx, b, p)
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
		end := s.replaceStream()
		if r.CPU == 0 && end.CPU > before {
			r.CPU = end.CPU - before
		}
		r.PeakRSSBytes = max(r.PeakRSSBytes, end.PeakRSSBytes)
		io := end.IO.Since(ioBefore) // without children that lived on
		r.IO = process.IO{ReadBytes: max(r.IO.ReadBytes, io.ReadBytes), WrittenBytes: max(r.IO.WrittenBytes, io.WrittenBytes)}
	}
	return r, after
}

// exchange sends the block and waits for its answer.
func (s *slot) exchange(ctx context.Context, b *Block, p *streamProcess) (Result, afterwards) {
	p.written = s.out.total()
	stop := context.AfterFunc(ctx, func() { p.in.SetWriteDeadline(time.Now()) })
	// A process that does not read is judged by its answer and its end.
	p.sent, _ = p.in.Write(append(b.appendJSON(p.preface), '\n'))
	p.preface = nil
	stop()
	select {
	case got := <-p.lines:
		return s.understood(ctx, b, p, got)
	case <-p.Done():
	case <-ctx.Done():
		s.crew.kill(p.Process, context.Cause(ctx))
		r, _ := endedByUs(ctx, b)
		return r, replace
	}
	timer := time.NewTimer(lateAnswer)
	defer timer.Stop()
	select {
	case got := <-p.lines:
		return s.understood(ctx, b, p, got)
	case <-timer.C:
		return s.endedWithoutAnswer(p)
	}
}

// understood makes a result of a line.
func (s *slot) understood(ctx context.Context, b *Block, p *streamProcess, got answerLine) (Result, afterwards) {
	switch {
	case errors.Is(got.err, errLongAnswer):
		return Result{Outcome: wire.Failed, Message: fmt.Sprintf("the %s gave %v", p.name, errLongAnswer)}, replace
	case got.err != nil:
		// The descriptor is closed: the process has ended, or it never answers again.
		patience := lateAnswer
		if p.answered != "" {
			patience = s.crew.killGrace(nil) // it may be ending for good, and be some time about it
		}
		timer := time.NewTimer(patience)
		defer timer.Stop()
		select {
		case <-p.Done():
			return s.endedWithoutAnswer(p)
		case <-ctx.Done():
			r, _ := endedByUs(ctx, b)
			return r, replace
		case <-timer.C:
		}
		return Result{Outcome: wire.Failed, Message: "the " + p.name + " closed its answers (descriptor DAISY_ANSWER_FD) without answering"}, replace
	}
	var a answer
	err := json.Unmarshal(got.text, &a)
	if err == nil && a.Import != "" && b.Task.Spec.Runner == runnerPython {
		return s.cannotStart(b, errors.New(a.Import)), replace
	}
	if err != nil || a.Lease == nil || a.OK == nil {
		return Result{Outcome: wire.Failed, Message: fmt.Sprintf(
			`the %s gave a malformed answer: %.200q; expected {"lease":%q,"ok":true} or {"lease":%q,"ok":false,"error":"…"}`, p.name, got.text, b.LeaseText(), b.LeaseText())}, replace
	}
	if p.answered != "" && *a.Lease == p.answered {
		// It answered the block before twice, and this one came in between.
		s.crew.client.logf("slot %d: the %s answered for lease %s twice, it is replaced: %.200q", s.number, p.name, p.answered, got.text)
		return Result{}, resend
	}
	if *a.Lease != b.LeaseText() {
		return Result{Outcome: wire.Failed, Message: fmt.Sprintf("the %s answered for lease %.100q, but it has the block of lease %q", p.name, *a.Lease, b.LeaseText())}, replace
	}
	if p.answered == "" && b.Task.Spec.Runner == runnerPython {
		s.hasStarted(b)
	}
	p.answered = b.LeaseText()
	if *a.OK {
		return Result{Outcome: wire.Success}, reuse
	}
	message := strings.TrimSpace(a.Error)
	if message == "" {
		message = "failed without an error message"
	}
	return Result{Outcome: wire.Failed, Message: message}, reuse
}

// endedWithoutAnswer judges the end of a process that had a block.
func (s *slot) endedWithoutAnswer(p *streamProcess) (Result, afterwards) {
	// Whoever has answered may end, and a block can come at that very moment.
	if p.answered != "" && !s.crew.isStopping() && (p.leftBlock() || p.Wait().Success() && s.out.total() == p.written) {
		return Result{}, resend
	}
	r := s.judge(p.Wait(), p.held.outOfMemory())
	if r.Outcome == wire.Success {
		r = Result{Outcome: wire.Failed, Message: p.Wait().String()}
		if s.crew.isStopping() {
			r.Outcome = wire.Returned
		}
	}
	r.Message = "the " + p.name + " ended without an answer: " + r.Message
	if r.Outcome == wire.Failed {
		if s.task.Spec.Runner == runnerStream {
			r.Message += "; expected " + expectedAnswer + " on descriptor DAISY_ANSWER_FD"
		}
		r.Message += "; its output may say why it ended"
	}
	return r, silent
}

// leftBlock: the process, which has ended, read nothing of the block that it had.
func (p *streamProcess) leftBlock() bool {
	p.in.Close() // ends what there is to read
	left, err := io.Copy(io.Discard, p.unread)
	return err == nil && left >= int64(p.sent)
}

// processName is what messages call the process of a stream or python task.
func processName(runner string) string {
	if runner == runnerPython {
		return "Python process"
	}
	return "stream process"
}

func (s *slot) startStream(b *Block) (*streamProcess, error) {
	argv, preface := append([]string(nil), s.task.Spec.Argv...), []byte(nil)
	if s.task.Spec.Runner == runnerPython {
		argv, preface = pythonArgv(&s.task.Spec, pythonRuns), []byte(pythonProgram)
	}
	if err := s.find(argv); err != nil {
		return nil, err
	}
	unread, in, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make a pipe for the blocks: %w", err)
	}
	read, write, err := os.Pipe()
	if err != nil {
		unread.Close()
		in.Close()
		return nil, fmt.Errorf("make a pipe for the answers: %w", err)
	}
	defer write.Close()
	held, err := s.hold(&b.Task.Spec)
	if err != nil {
		unread.Close()
		in.Close()
		read.Close()
		return nil, err
	}
	env := append(append(make([]string, 0, len(s.env)+1), s.env...), "DAISY_ANSWER_FD=3")
	started, err := s.crew.spawner.Start(process.Config{
		Argv: argv, Env: env, Dir: b.Task.Spec.Dir, Stdin: unread, Stdout: s.out.file, Stderr: s.out.file, ExtraFiles: []*os.File{write},
		Markers: []string{"DAISY_RUN_ID=" + s.at.runID, "DAISY_WORKER_ID=" + s.at.workerID, fmt.Sprintf("DAISY_SLOT=%d", s.number)},
		CountIO: b.Task.Spec.ResourceTracking, Memory: held.limit(),
	})
	if err != nil {
		s.endHold(held)
		unread.Close()
		in.Close()
		read.Close()
		return nil, err
	}
	p := &streamProcess{
		Process: started, in: in, unread: unread, answers: read, lines: make(chan answerLine), quit: make(chan struct{}),
		name: processName(s.task.Spec.Runner), preface: preface, held: held,
	}
	p.owned.Go(p.listen)
	p.owned.Go(func() { // our own reading end keeps a full pipe from breaking
		<-p.Done()
		p.in.SetWriteDeadline(time.Now())
	})
	return p, nil
}

var errLongAnswer = fmt.Errorf("an answer of more than %d MiB", maxStreamAnswer>>20)

// listen reads answers until there are no more.
func (p *streamProcess) listen() {
	from := bufio.NewReader(io.Reader(p.answers))
	for {
		var text []byte
		var err error
		for {
			var part []byte
			part, err = from.ReadSlice('\n')
			text = append(text, part...)
			if len(text) > maxStreamAnswer {
				err = errLongAnswer
			}
			if !errors.Is(err, bufio.ErrBufferFull) {
				break
			}
		}
		if errors.Is(err, io.EOF) && len(text) > 0 {
			// A last line without its end is a line: the next round gives the end of the file.
			err = nil
		}
		if err == nil && len(strings.TrimSpace(string(text))) == 0 {
			continue
		}
		select {
		case p.lines <- answerLine{text, err}:
		case <-p.quit:
			return
		}
		if err != nil {
			return
		}
	}
}

// replaceStream ends the process at once; the next block starts another.
func (s *slot) replaceStream() process.Result {
	p := s.stream
	s.stream = nil
	if err := p.Kill(context.Background()); err != nil {
		s.crew.client.logf("%s", api.OneLine(err.Error()))
	}
	p.in.Close()
	return s.buryStream(p)
}

// endStream tells the process that there is no more, and ends it if it does not end.
func (s *slot) endStream() {
	p := s.stream
	if p == nil {
		return
	}
	s.stream = nil
	p.in.Close()
	timer := time.NewTimer(s.crew.killGrace(nil))
	defer timer.Stop()
	select {
	case <-p.Done():
	case <-timer.C:
		s.crew.client.logf("slot %d: the %s did not end when its input did; it is ended", s.number, p.name)
		s.crew.kill(p.Process, errStopped)
	case <-s.crew.stopping:
		s.crew.kill(p.Process, errStopped)
	}
	s.buryStream(p)
}

// buryStream waits for the process and ends what it left behind.
func (s *slot) buryStream(p *streamProcess) process.Result {
	result := p.Wait()
	s.endStrays(p.Process)
	s.endHold(p.held)
	close(p.quit)
	p.answers.Close()
	p.unread.Close()
	p.owned.Wait()
	return result
}
