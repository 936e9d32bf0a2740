package worker

import (
	"strings"
	"testing"

	"example.org/daisy/internal/wire"
)

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
		"exit":        {`exit 4`, "the stream process ended without an answer: exit status 4"},
		"exit 0":      {`exit 0`, "the stream process ended without an answer: exit status 0"},
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
