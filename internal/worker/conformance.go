package worker

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"strings"
	"time"

	"example.org/daisy/internal/process"
	"example.org/daisy/internal/units"
)

// A Conformance tests a stream program, in whatever language, against the protocol of docs/programs.md. How it answers a block is its
// own affair; that it answers, and how it ends, is the protocol's.
type Conformance struct {
	// Argv is the program with its arguments; it runs in the working directory.
	Argv []string
	// Block is the block that is sent, as JSON, for a program that can do no other; nil = one of three axes. Its lease is replaced.
	Block json.RawMessage
	// Patience is how long an answer, and the end of the program, may take.
	Patience time.Duration
	// Out gets a line for each rule.
	Out io.Writer

	spawner *process.Spawner
	base    map[string]any
	leases  int
}

// conformanceRules are in the order in which a program is best made to keep them.
var conformanceRules = []struct {
	name string
	test func(*trial) error
}{
	{"one block is answered, once, with its lease", func(t *trial) error {
		return t.ask(nil)
	}},
	{"three blocks, one after another, are answered each with its own lease", func(t *trial) error {
		return t.inTurn(nil, nil, nil)
	}},
	{"the same block again, as the second attempt, is answered with its new lease", func(t *trial) error {
		return t.inTurn(nil, fields{"attempt": 2})
	}},
	{"a block that it cannot do is answered, as failed or not, and so is the next", func(t *trial) error {
		far := fields{"offset": t.along(1 << 40), "shape": t.along(1)}
		return t.inTurn(fields{"task": "another", "index": t.along(1 << 38), "read": far, "write": far}, nil)
	}},
	{"a block with a negative offset, as context at the border has, is answered", func(t *trial) error {
		return t.ask(fields{"read": fields{"offset": t.along(-8), "shape": t.along(1)}})
	}},
	{"numbers of 64 bits are understood, and a long lease comes back as it was", func(t *trial) error {
		const beyond = 1<<53 + 1 // no float64
		return t.ask(fields{"block": uint64(1<<64 - 1), "index": t.along(beyond), "lease": "18446744073709551615.18446744073709551614"})
	}},
	{"a block without an id (null) is answered", func(t *trial) error {
		return t.ask(fields{"block": nil})
	}},
	{"fields that it does not know, and any character in them, are let be", func(t *trial) error {
		return t.ask(fields{"note": "ä 核 🧬 \" \\ \n \u2028", "future": fields{"lease": "0.0", "list": []any{1, nil, true, "x"}}})
	}},
	{"a block that comes in two pieces is answered", (*trial).inPieces},
	{"standard input that ends behind a block: the block is answered, then it ends", func(t *trial) error {
		lease, line := t.line(nil)
		t.write(line)
		t.closeInput()
		return t.answer(lease)
	}},
	{"standard input that ends at once: it ends and says nothing", func(*trial) error { return nil }},
}

type fields = map[string]any

// Run tests all rules, each on a new process. The error says that nothing could be tested.
func (c Conformance) Run(ctx context.Context) (passed, failed int, err error) {
	zeros := []int64{0, 0, 0}
	c.base = fields{
		"task": "conformance", "block": 0, "index": zeros, "attempt": 1,
		"read": fields{"offset": zeros, "shape": []int64{1, 1, 1}}, "write": fields{"offset": zeros, "shape": []int64{1, 1, 1}},
	}
	if c.Block != nil {
		given := json.NewDecoder(strings.NewReader(string(c.Block)))
		given.UseNumber()
		clear(c.base)
		if err := given.Decode(&c.base); err != nil {
			return 0, 0, fmt.Errorf("the block is no JSON object: %w", err)
		}
		for _, name := range []string{"task", "block", "index", "read", "write", "attempt"} {
			if _, ok := c.base[name]; !ok {
				return 0, 0, fmt.Errorf("the block has no %q; a whole one looks like those of docs/programs.md", name)
			}
		}
	}
	argv := append([]string(nil), c.Argv...)
	dir, err := os.Getwd()
	if err != nil {
		return 0, 0, err
	}
	if argv[0], err = process.LookPath(argv[0], dir, os.Getenv("PATH")); err != nil {
		return 0, 0, err
	}
	c.Argv = argv
	if c.spawner, err = process.NewSpawner(); err != nil {
		return 0, 0, err
	}
	defer func() {
		ending, cancel := context.WithTimeout(context.Background(), longestKillGrace)
		defer cancel()
		err = errors.Join(err, c.spawner.Close(ending))
	}()
	for _, rule := range conformanceRules {
		t := &trial{c: &c, ctx: ctx}
		if err := t.start(); err != nil {
			return passed, failed, err
		}
		wrong := rule.test(t)
		if wrong == nil {
			wrong = t.end()
		}
		output := t.stop()
		if ctx.Err() != nil {
			return passed, failed, context.Cause(ctx)
		}
		if wrong == nil {
			passed++
			fmt.Fprintf(c.Out, "pass  %s\n", rule.name)
			continue
		}
		failed++
		fmt.Fprintf(c.Out, "FAIL  %s\n      %v\n", rule.name, wrong)
		if strings.Contains(output, `"lease"`) && !t.answered {
			fmt.Fprintf(c.Out, "      something like an answer came on its standard output, which is its log; answers go to descriptor DAISY_ANSWER_FD\n")
		}
		for line := range strings.Lines(output) {
			fmt.Fprintf(c.Out, "      | %s\n", strings.TrimRight(line, "\n"))
		}
	}
	return passed, failed, nil
}

// A trial is one rule's process, or the processes that took its place after an answer.
type trial struct {
	c        *Conformance
	ctx      context.Context
	p        *streamProcess
	closed   bool
	answered bool
	printed  []<-chan string
	outputs  []*os.File
}

func (t *trial) start() error {
	unread, in, err := os.Pipe()
	if err != nil {
		return err
	}
	answers, answersEnd, err := os.Pipe()
	if err != nil {
		unread.Close()
		in.Close()
		return err
	}
	defer answersEnd.Close()
	output, outputEnd, err := os.Pipe()
	if err != nil {
		for _, f := range []*os.File{unread, in, answers} {
			f.Close()
		}
		return err
	}
	defer outputEnd.Close()
	task := &Task{}
	task.Spec.ID, task.Spec.CPUMilli = "conformance", 1000
	at := place{runID: "conformance-" + rand.Text(), workerID: "conformance"}
	started, err := t.c.spawner.Start(process.Config{
		Argv: t.c.Argv, Env: append(slotEnvironment(inheritedEnvironment(), task, at), "DAISY_ANSWER_FD=3"),
		Stdin: unread, Stdout: outputEnd, Stderr: outputEnd, ExtraFiles: []*os.File{answersEnd},
		Markers: []string{"DAISY_RUN_ID=" + at.runID, "DAISY_WORKER_ID=" + at.workerID},
	})
	if err != nil {
		for _, f := range []*os.File{unread, in, answers, output} {
			f.Close()
		}
		return err
	}
	t.p = &streamProcess{kept: kept{Process: started}, in: in, unread: unread, answers: answers, lines: make(chan answerLine), quit: make(chan struct{})}
	t.p.owned.Go(t.p.listen)
	t.outputs, t.printed = append(t.outputs, output), append(t.printed, readEnd(output))
	t.closed = false
	return nil
}

// stop ends the process, if it has not ended, and gives the end of the output.
func (t *trial) stop() string {
	t.bury()
	var all []string
	for i, printed := range t.printed {
		_ = t.outputs[i].SetReadDeadline(time.Now().Add(lateAnswer))
		if text := <-printed; text != "" {
			all = append(all, text)
		}
		t.outputs[i].Close()
	}
	return strings.Join(all, "\n")
}

func (t *trial) bury() {
	p := t.p
	_ = p.Kill(t.ctx) // what cannot be killed ends with the spawner, or is reported there
	p.Wait()
	close(p.quit)
	p.in.Close()
	p.answers.Close()
	p.unread.Close()
	p.owned.Wait()
}

// along is a list of n for each axis of the block.
func (t *trial) along(n int64) []int64 {
	axes := 3
	if index, ok := t.c.base["index"].([]any); ok {
		axes = len(index)
	}
	list := make([]int64, axes)
	for i := range list {
		list[i] = n
	}
	return list
}

// line is a block with some fields changed.
func (t *trial) line(changed fields) (lease string, line []byte) {
	t.c.leases++
	block := maps.Clone(t.c.base)
	block["lease"] = fmt.Sprintf("3.%d", 811+t.c.leases)
	maps.Copy(block, changed)
	var text strings.Builder
	to := json.NewEncoder(&text)
	to.SetEscapeHTML(false)
	if err := to.Encode(block); err != nil {
		panic(err) // all of it was made here, or decoded
	}
	return block["lease"].(string), []byte(text.String())
}

// write sends to the process; one that does not read is judged by its answer.
func (t *trial) write(text []byte) {
	_ = t.p.in.SetWriteDeadline(time.Now().Add(t.c.Patience))
	t.p.sent, _ = t.p.in.Write(text)
}

func (t *trial) closeInput() {
	if !t.closed {
		t.p.in.Close()
		t.closed = true
	}
}

func (t *trial) ask(changed fields) error {
	lease, line := t.line(changed)
	t.write(line)
	err := t.answer(lease)
	if errors.Is(err, errNotBegun) {
		// It had answered another block and may end then.
		t.bury()
		if err := t.start(); err != nil {
			return err
		}
		t.write(line)
		err = t.answer(lease)
	}
	return err
}

func (t *trial) inTurn(blocks ...fields) error {
	for i, changed := range blocks {
		if err := t.ask(changed); err != nil {
			return fmt.Errorf("block %d of %d: %w", i+1, len(blocks), err)
		}
	}
	return nil
}

func (t *trial) inPieces() error {
	lease, line := t.line(nil)
	t.write(line[:len(line)/2])
	select {
	case got := <-t.p.lines:
		if got.err == nil {
			return fmt.Errorf("it answered before the line had ended: %.200q", got.text)
		}
		return t.judge(lease, got)
	case <-time.After(100 * time.Millisecond): // so that it reads the first piece alone
	}
	t.write(line[len(line)/2:])
	return t.answer(lease)
}

var errNotBegun = errors.New("it ended before it had read the block")

// answer waits for the answer to a block.
func (t *trial) answer(lease string) error {
	late := time.NewTimer(t.c.Patience)
	defer late.Stop()
	select {
	case got := <-t.p.lines:
		return t.judge(lease, got)
	case <-late.C:
		return fmt.Errorf("no answer within %s; %s", units.Duration(t.c.Patience), expected(lease))
	case <-t.ctx.Done():
		return context.Cause(t.ctx)
	}
}

func expected(lease string) string {
	return fmt.Sprintf(`expected {"lease":%q,"ok":true} or {"lease":%q,"ok":false,"error":"…"} on descriptor DAISY_ANSWER_FD`, lease, lease)
}

// judge says what is wrong with an answer, or with the end that came in its place.
func (t *trial) judge(lease string, got answerLine) error {
	want := expected(lease)
	if got.err != nil {
		if !errors.Is(got.err, io.EOF) {
			return fmt.Errorf("its answer cannot be read: %w", got.err)
		}
		late := time.NewTimer(t.c.Patience)
		defer late.Stop()
		select {
		case <-t.p.Done():
		case <-late.C:
			return errors.New("it closed descriptor DAISY_ANSWER_FD without answering")
		}
		if t.p.answered != "" && t.p.leftBlock() {
			return errNotBegun
		}
		return fmt.Errorf("it ended without an answer: %v; %s", t.p.Wait(), want)
	}
	t.answered = true
	var a struct {
		Lease any `json:"lease"`
		OK    any `json:"ok"`
		Error any `json:"error"`
	}
	if err := json.Unmarshal(got.text, &a); err != nil {
		return fmt.Errorf("its answer is no JSON object in one line: %.200q; %s", got.text, want)
	}
	text, isText := a.Lease.(string)
	switch {
	case a.Lease == nil:
		return fmt.Errorf("its answer has no lease: %.200q; %s", got.text, want)
	case !isText:
		return fmt.Errorf("the lease of its answer is not a string: %.200q; %s", got.text, want)
	case text != lease:
		return fmt.Errorf("it answered with the lease %q: that of the block comes back as it is; %s", text, want)
	}
	ok, isBool := a.OK.(bool)
	if !isBool {
		return fmt.Errorf("\"ok\" of its answer is neither true nor false: %.200q; %s", got.text, want)
	}
	if message, isText := a.Error.(string); !ok && (!isText || strings.TrimSpace(message) == "") {
		return fmt.Errorf("its answer says that the block failed, and not why (\"error\"): %.200q; %s", got.text, want)
	}
	t.p.answered = lease
	return nil
}

// end closes standard input, after which the program ends by itself and says nothing more.
func (t *trial) end() error {
	t.closeInput()
	late := time.NewTimer(t.c.Patience)
	defer late.Stop()
	extra := func(got answerLine) error {
		return fmt.Errorf("it answered without a block, or twice: %.200q", got.text)
	}
	lines, ended := t.p.lines, t.p.Done()
	for lines != nil || ended != nil {
		select {
		case got := <-lines:
			if got.err == nil {
				return extra(got)
			}
			lines = nil
		case <-ended:
			ended = nil
			late.Reset(lateAnswer) // for what somebody else, who has the descriptor, may still say
		case <-late.C:
			if ended != nil {
				return fmt.Errorf("its standard input ended, and it did not end within %s", units.Duration(t.c.Patience))
			}
			lines = nil
		case <-t.ctx.Done():
			return context.Cause(t.ctx)
		}
	}
	if r := t.p.Wait(); !r.Success() {
		return fmt.Errorf("its standard input ended, and it ended with %v; expected exit status 0", r)
	}
	return nil
}
