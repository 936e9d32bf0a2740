package worker

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"example.org/daisy/internal/api"
	"example.org/daisy/internal/process"
	"example.org/daisy/internal/wire"
)

// whatToDo ends the message about a process that ended without an answer.
const whatToDo = `; expected {"lease":"…","ok":true} or {"lease":"…","ok":false,"error":"…"} on descriptor DAISY_ANSWER_FD; its output may say why it ended`

// streamer is a stream process: for each block it runs body, with the block's line in $line and its lease in $lease; answer
// and say write to the answers and to a fifo.
func streamer(f *fifo, body string) []string {
	return script1(`say() { echo "$1" > %s; }
answer() { printf '%%s\n' "$1" >&3; }
say "started $DAISY_ANSWER_FD $$"
while read line; do lease=${line##*\"lease\":\"}; lease=${lease%%%%\"*}
%s
done
say ended`, f.path, body)
}

func TestAStreamProcessServesOneBlockAfterAnother(t *testing.T) {
	f := newFifo(t)
	c, cfg := overTCP(t, testTask("stream", streamer(f, `echo "at $lease"
case $line in *'"block":8'*) answer "{\"lease\":\"$lease\",\"ok\":false,\"error\":\"no good\"}";; *) answer "{\"lease\":\"$lease\",\"ok\":true}";; esac`)...))
	w := start(t, cfg)
	s := c.next()
	s.grant(s.acquire().Request, 7)
	if got := f.readLine(); !strings.HasPrefix(got, "started 3 ") {
		t.Errorf("got %q", got)
	}
	if r := s.release(); r.Outcome != wire.Success || r.Message != "" || r.Tail != "" || r.PeakRSSBytes <= 0 {
		t.Errorf("got %+v", r)
	}
	s.grant(s.acquire().Request, 8)
	if r := s.release(); r.Outcome != wire.Failed || r.Message != "no good" || r.Tail != "at 2.8" {
		t.Errorf("got %v %q %q", r.Outcome, r.Message, r.Tail)
	}
	s.acknowledge(2)
	s.acquire()
	s.drain()
	if got := f.readLine(); got != "ended" {
		t.Errorf("got %q, want the process to have ended with its input, not to have been started again", got)
	}
	if got := w.status(); got != 0 {
		t.Errorf("status: got %d, want 0", got)
	}
	for _, line := range []string{"[predict 7 #1] at 2.7\n", "[predict 8 #1] at 2.8\n"} {
		if !strings.Contains(w.log.String(), line) {
			t.Errorf("the log has no line %q", line)
		}
	}
}

func TestAStreamProcessThatBreaksTheRulesFailsItsBlockAndIsReplaced(t *testing.T) {
	for name, tc := range map[string]struct{ body, message string }{
		"wrong lease": {`answer '{"lease":"1.1","ok":true}'`, `the stream process answered for lease "1.1", but it has the block of lease "2.7"`},
		"malformed":   {`answer 'done'`, `the stream process gave a malformed answer: "done\n"; expected {"lease":"2.7","ok":true} or {"lease":"2.7","ok":false,"error":"…"}`},
		"incomplete":  {`answer "{\"lease\":\"$lease\"}"`, `the stream process gave a malformed answer: "{\"lease\":\"2.7\"}\n"; expected {"lease":"2.7","ok":true} or {"lease":"2.7","ok":false,"error":"…"}`},
		"exit":        {`exit 4`, "the stream process ended without an answer: exit status 4" + whatToDo},
		"exit 0":      {`exit 0`, "the stream process ended without an answer: exit status 0" + whatToDo},
		"closed":      {`exec 3>&-; read more`, "the stream process closed its answers (descriptor DAISY_ANSWER_FD) without answering"},
		"endless":     {`yes | tr -d '\n' >&3`, "the stream process gave an answer of more than 1 MiB"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFifo(t)
			c, cfg := overTCP(t, testTask("stream", streamer(f, `echo out; case $lease in 2.8) answer "{\"lease\":\"$lease\",\"ok\":true}";; *) `+tc.body+`;; esac`)...))
			start(t, cfg)
			s := c.next()
			s.grant(s.acquire().Request, 7)
			first := f.readLine()
			if r := s.release(); r.Outcome != wire.Failed || r.Message != tc.message || r.Tail != "out" {
				t.Errorf("got %v\n%q, want\n%q; tail %q", r.Outcome, r.Message, tc.message, r.Tail)
			}
			s.grant(s.acquire().Request, 8)
			if second := f.readLine(); second == first || !strings.HasPrefix(second, "started") {
				t.Errorf("got %q after %q, want a new process", second, first)
			}
			if r := s.release(); r.Outcome != wire.Success {
				t.Errorf("got %v %q", r.Outcome, r.Message)
			}
		})
	}
}

// success answers the block well.
const success = `answer "{\"lease\":\"$lease\",\"ok\":true}"`

func TestAStreamProcessMayEndOnceItHasAnswered(t *testing.T) {
	for name, body := range map[string]string{
		"well":                   success + `; exit 0`,
		"badly":                  success + `; exit 5`,
		"by a signal":            success + `; kill -KILL $$`,
		"with a last word":       success + `; echo bye; exit 0`,
		"at the sight of a next": `test "$answered" && exit 0; ` + success + `; answered=1`,
		"slowly":                 `test "$answered" && { exec 3>&-; sleep 0.7; exit 0; }; ` + success + `; answered=1`,
	} {
		t.Run(name, func(t *testing.T) {
			f := newFifo(t)
			c, cfg := overTCP(t, testTask("stream", streamer(f, body)...))
			start(t, cfg)
			s := c.next()
			for _, block := range []uint64{7, 8, 9} {
				s.grant(s.acquire().Request, block)
				if got := f.readLine(); !strings.HasPrefix(got, "started ") {
					t.Errorf("block %d: got %q, want a new process", block, got)
				}
				if r := s.release(); r.Outcome != wire.Success {
					t.Errorf("block %d: got %v %q", block, r.Outcome, r.Message)
				}
			}
		})
	}
}

// The same, when the end is noticed only after the next block was sent.
func TestABlockThatAnEndedProcessDidNotReadIsSentAgain(t *testing.T) {
	for name, tc := range map[string]struct {
		body string
		want afterwards
	}{
		"well":                       {success + `; exit 0`, resend},
		"badly":                      {success + `; exit 5`, resend},
		"by a signal":                {success + `; kill -KILL $$`, resend},
		"with a last word":           {success + `; echo bye; exit 0`, resend},
		"and it had answered nobody": {`exit 0`, silent},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFifo(t)
			s, task := aSlot(t, testTask("stream", streamer(f, tc.body)...))
			first, _ := newBlock(task, 7, 2, 7, 1)
			p, err := s.startStream(&first)
			if err != nil {
				t.Fatal(err)
			}
			s.resident = p
			p.exchange(t.Context(), s, &first)
			p.Wait()
			p.written = s.out.total()
			next, _ := newBlock(task, 8, 2, 8, 1)
			if r, got := p.exchange(t.Context(), s, &next); got != tc.want {
				t.Errorf("got %d, want %d (%+v)", got, tc.want, r)
			}
		})
	}
}

func TestAFullPipeHoldsUpNoSlotWhoseProcessHasEnded(t *testing.T) {
	hold := newFifo(t)
	s, task := aSlot(t, testTask("stream", script1(`read x < %s`, hold.path)...))
	b, _ := newBlock(task, 7, 2, 7, 1)
	p, err := s.startStream(&b)
	if err != nil {
		t.Fatal(err)
	}
	s.resident = p
	wrote := make(chan error, 1)
	go func() {
		_, err := p.in.Write(make([]byte, 2<<20))
		wrote <- err
	}()
	hold.writeLine()
	select {
	case err := <-wrote:
		if err == nil {
			t.Error("more was written than a pipe holds")
		}
	case <-time.After(soon):
		t.Fatal("the slot still writes")
	}
}

// aSlot is a slot without its loop.
func aSlot(t *testing.T, spec api.TaskSpec) (*slot, *Task) {
	t.Helper()
	c, cfg := overTCP(t, spec)
	client, _ := connectTo(t, c, cfg)
	spawner, err := process.NewSpawner()
	if err != nil {
		t.Fatal(err)
	}
	s := &slot{crew: &crew{cfg: cfg, log: &blockLog{to: io.Discard, limit: maxLogBytes}, client: client, spawner: spawner, stopping: make(chan struct{})}}
	if s.out, err = newOutput(s.crew.log); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.endResident()
		s.out.close()
		if err := spawner.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	s.serve(client.Task())
	return s, s.task
}

func TestAStreamProcessThatBeganABlockHasFailedIt(t *testing.T) {
	for name, tc := range map[string]struct{ body, message, tail string }{
		"exit":        {`exit 4`, "exit status 4" + whatToDo, ""},
		"signal":      {`kill -KILL $$`, "signal 9 (killed)" + whatToDo, ""},
		"output":      {`echo half; exit 0`, "exit status 0" + whatToDo, "half"},
		"both silent": {`exit 0`, "exit status 0" + whatToDo + "; the process before it, which had answered other blocks, ended at this one too", ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFifo(t)
			c, cfg := overTCP(t, testTask("stream", streamer(f, fmt.Sprintf(`case $lease in 2.8) %s;; *) %s;; esac`, tc.body, success))...))
			start(t, cfg)
			s := c.next()
			for _, block := range []uint64{7, 8, 9} {
				s.grant(s.acquire().Request, block)
				r := s.release()
				switch {
				case block != 8 && r.Outcome != wire.Success:
					t.Errorf("block %d: got %v %q", block, r.Outcome, r.Message)
				case block == 8 && (r.Outcome != wire.Failed || r.Message != "the stream process ended without an answer: "+tc.message || r.Tail != tc.tail):
					t.Errorf("got %v\n%q, want\n%q; tail %q", r.Outcome, r.Message, tc.message, r.Tail)
				}
			}
		})
	}
}

func TestAStoppedWorkerStartsNoOtherStreamProcess(t *testing.T) {
	f, hold := newFifo(t), newFifo(t)
	c, cfg := overTCP(t, testTask("stream", streamer(f, fmt.Sprintf(`case $lease in 2.8) say two; read x < %s; exit 0;; *) %s;; esac`, hold.path, success))...))
	w := start(t, cfg)
	s := c.next()
	s.grant(s.acquire().Request, 7)
	f.readLine() // started
	s.release()
	s.grant(s.acquire().Request, 8)
	f.readLine() // two
	w.cancel()
	s.leaving()
	hold.writeLine()
	if r := s.release(); r.Outcome != wire.Returned || r.Message != "the stream process ended without an answer: exit status 0" {
		t.Errorf("got %v %q", r.Outcome, r.Message)
	}
	s.acknowledge(2)
	w.wait()
}

func TestWhatUserCodeSaysIsPrintable(t *testing.T) {
	f := newFifo(t)
	c, cfg := overTCP(t, testTask("stream", streamer(f, `printf 'a\tb\n\033[31mred\r\nc\302\233d \377é\n'
answer "{\"lease\":\"$lease\",\"ok\":false,\"error\":\"\\u001b[2Jno\\n\\tgood\\u0007\\u009b\"}"`)...))
	w := start(t, cfg)
	s := c.next()
	s.grant(s.acquire().Request, 7)
	r := s.release()
	if want := "�[2Jno\n\tgood��"; r.Message != want {
		t.Errorf("message: got %q, want %q", r.Message, want)
	}
	if want := "a\tb\n�[31mred\nc�d �é"; r.Tail != want {
		t.Errorf("tail: got %q, want %q", r.Tail, want)
	}
	if log := w.log.String(); !strings.Contains(log, "[predict 7 #1] \x1b[31mred\r\n[predict 7 #1] c\u009bd \xffé\n") {
		t.Errorf("the log is not what the program wrote: %q", log)
	} else if strings.Contains(log, "\x1b[2J") {
		t.Errorf("the worker's own lines have control characters: %q", log)
	}
}

func TestAnAnswerWithoutABlockReplacesTheProcessAndBlamesNoBlock(t *testing.T) {
	f := newFifo(t)
	c, cfg := overTCP(t, testTask("stream", streamer(f, `answer "{\"lease\":\"$lease\",\"ok\":true}"; answer "{\"lease\":\"$lease\",\"ok\":true}"; say both`)...))
	start(t, cfg)
	s := c.next()
	for _, block := range []uint64{7, 8} {
		s.grant(s.acquire().Request, block)
		f.readLine() // started
		if r := s.release(); r.Outcome != wire.Success {
			t.Errorf("got %v %q", r.Outcome, r.Message)
		}
		f.readLine() // both
	}
}

func TestASecondAnswerThatComesLateBlamesNoBlockEither(t *testing.T) {
	f := newFifo(t)
	// The first process answers for block 7 again when it has block 8, which another process then gets.
	c, cfg := overTCP(t, testTask("stream", streamer(f, `answer "{\"lease\":\"${before:-$lease}\",\"ok\":true}"; before=$lease`)...))
	w := start(t, cfg)
	s := c.next()
	s.grant(s.acquire().Request, 7)
	first := f.readLine()
	s.release()
	s.grant(s.acquire().Request, 8)
	if second := f.readLine(); second == first || !strings.HasPrefix(second, "started") {
		t.Errorf("got %q after %q, want a new process", second, first)
	}
	if r := s.release(); r.Outcome != wire.Success {
		t.Errorf("got %v %q", r.Outcome, r.Message)
	}
	if !strings.Contains(w.log.String(), "answered for lease 2.7 twice") {
		t.Error("the log does not say why the process was replaced")
	}
}

func TestATimeoutReplacesTheStreamProcess(t *testing.T) {
	f := newFifo(t)
	task := testTask("stream", streamer(f, `case $lease in 2.8) answer "{\"lease\":\"$lease\",\"ok\":true}";; *) exec sleep 1000;; esac`)...)
	task.TimeoutSeconds = 0.3
	c, cfg := overTCP(t, task)
	start(t, cfg)
	s := c.next()
	s.grant(s.acquire().Request, 7)
	f.readLine()
	if r := s.release(); r.Outcome != wire.TimedOut || r.Message != "timed out after 300ms" {
		t.Errorf("got %v %q", r.Outcome, r.Message)
	}
	s.grant(s.acquire().Request, 8)
	f.readLine()
	if r := s.release(); r.Outcome != wire.Success {
		t.Errorf("got %v %q", r.Outcome, r.Message)
	}
}

func TestAReassignedWorkerServesTheOtherTask(t *testing.T) {
	f := newFifo(t)
	c, cfg := overTCP(t, testTask("stream", streamer(f, `answer "{\"lease\":\"$lease\",\"ok\":true}"`)...))
	start(t, cfg)
	s := c.next()
	s.grant(s.acquire().Request, 7)
	f.readLine()
	s.release()
	request := s.acquire().Request
	other := testTask("command", script1("echo $DAISY_TASK_ID > %s; exit 3", f.path)...)
	other.Index, other.ID = 4, "other"
	spec := marshal(t, other)
	s.send(func(dst []byte) []byte { return wire.AppendReassign(dst, wire.Reassign{Spec: spec}) })
	s.send(func(dst []byte) []byte {
		return wire.AppendBlocks(dst, wire.Blocks{Request: request, Task: 4, Grants: []wire.Grant{{Lease: 9, Block: 1, Attempt: 2}}})
	})
	if got := f.readLine(); got != "ended" {
		t.Errorf("got %q, want the end of the old task's process", got)
	}
	if got := f.readLine(); got != "other" {
		t.Errorf("got %q, want the other task", got)
	}
	if r := s.release(); r.Outcome != wire.Failed || r.Lease != 9 || r.Message != "exit status 3" {
		t.Errorf("got %+v", r)
	}
}
