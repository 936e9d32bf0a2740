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

	"example.org/daisy/internal/process"
	"example.org/daisy/internal/wire"
)

const maxStreamAnswer = 1 << 20

// A streamProcess gets a block as a line of JSON on its standard input, and answers with a line of JSON on descriptor 3.
type streamProcess struct {
	kept
	in      *os.File
	unread  *os.File // the other end of in, which shows what the process has not read when it has ended
	answers *os.File
	lines   chan answerLine
	quit    chan struct{}
	owned   sync.WaitGroup
	preface []byte // stands before the first block

	answered string // lease of the last block that it answered
	sent     int    // what went into in of the block that it has, in bytes
}

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

func (p *streamProcess) idle(s *slot) bool {
	select {
	case line := <-p.lines:
		if line.err == nil {
			s.crew.client.logf("slot %d: the %s answered without a block, it is replaced: %.200q", s.number, p.name, line.text)
		}
		return false
	default:
		return true
	}
}

// exchange sends the block and waits for its answer.
func (p *streamProcess) exchange(ctx context.Context, s *slot, b *Block) (Result, afterwards) {
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
	r := s.unanswered(&p.kept, "an answer")
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
		Markers: s.markers(),
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
		kept: kept{Process: started, name: processName(s.task.Spec.Runner), held: held},
		in:   in, unread: unread, answers: read, lines: make(chan answerLine), quit: make(chan struct{}), preface: preface,
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

func (p *streamProcess) finish() { p.in.Close() }

func (p *streamProcess) close() {
	close(p.quit)
	p.answers.Close()
	p.unread.Close()
	p.owned.Wait()
}
