package worker

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"strings"
	"testing"

	"example.org/daisy/internal/wire"
)

// A stream process is a program of somebody else's, and its answers may be anything.
func FuzzAnAnswerCountsOnlyForItsOwnBlock(f *testing.F) {
	for _, line := range []string{
		`{"lease":"2.7","ok":true}`, `{"lease":"2.7","ok":false,"error":"no good"}`, `{"lease":"2.7","ok":false}`,
		`{"lease":"2.7","ok":true,"error":"yet good"}`, `{"lease":"2.8","ok":true}`, `{"lease":2.7,"ok":true}`, `{"lease":"2.7","ok":"yes"}`,
		`{"lease":"2.7"}`, `{"ok":true}`, `{"LEASE":"2.7","Ok":true}`, `{"lease":"2.7","ok":true}{}`, `{"lease":null,"ok":null}`,
		`{"lease":"2.7","ok":false,"error":"\u0000\ud800"}`, `[]`, `null`, "done", "\xff\xfe",
	} {
		f.Add([]byte(line + "\n"))
	}
	task, err := NewTask(testTask("stream"))
	if err != nil {
		f.Fatal(err)
	}
	b, _ := newBlock(task, 7, 2, 7, 1)
	f.Fuzz(func(t *testing.T, line []byte) {
		p := &streamProcess{}
		r, after := (&slot{}).understood(t.Context(), &b, p, answerLine{text: line})
		named := false
		var said map[string]any
		if json.Unmarshal(line, &said) == nil {
			for key, value := range said {
				named = named || strings.EqualFold(key, "lease") && value == b.LeaseText()
			}
		}
		switch {
		case after == reuse && !named:
			t.Errorf("%q counts for lease %s", line, b.LeaseText())
		case (p.answered != "") != (after == reuse):
			t.Errorf("%q: answered %v, afterwards %d", line, p.answered, after)
		case r.Outcome == wire.Success && (after != reuse || r.Message != ""):
			t.Errorf("%q: a success with %q, afterwards %d", line, r.Message, after)
		case r.Outcome != wire.Success && (r.Outcome != wire.Failed || r.Message == ""):
			t.Errorf("%q: %v without a message", line, r.Outcome)
		case after != reuse && after != replace:
			t.Errorf("%q: afterwards %d", line, after)
		}
	})
}

// What is read is what was written, line by line, whatever the pieces in which it comes. A rest without an end of line is a
// line.
func FuzzEveryLineThatIsNotBlankIsRead(f *testing.F) {
	f.Add([]byte("one\ntwo\n"), uint16(1))
	f.Add([]byte("\n \r\n\tone\n\n"), uint16(2))
	f.Add([]byte("without an end"), uint16(5))
	f.Add([]byte("one\n \t"), uint16(3))
	f.Add([]byte("\x00\xff\n\n\n"), uint16(3))
	f.Add(append(bytes.Repeat([]byte("long"), 3000), "\nshort"...), uint16(4096))
	f.Add([]byte(nil), uint16(0))
	f.Fuzz(func(t *testing.T, text []byte, piece uint16) {
		read, write, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer read.Close()
		p := &streamProcess{answers: read, lines: make(chan answerLine), quit: make(chan struct{})}
		p.owned.Go(p.listen)
		p.owned.Go(func() {
			defer write.Close()
			for rest := text; len(rest) > 0; {
				n := min(max(int(piece), 1), len(rest))
				if _, err := write.Write(rest[:n]); err != nil {
					return // the test has failed, or the line is too long
				}
				rest = rest[n:]
			}
		})
		var want []string
		for line := range strings.Lines(string(text)) {
			if strings.TrimSpace(line) != "" {
				want = append(want, line)
			}
		}
		for i := 0; ; i++ {
			got := <-p.lines
			if got.err != nil {
				if i != len(want) || got.err != io.EOF {
					t.Errorf("%d of %d lines came, then %v", i, len(want), got.err)
				}
				break
			}
			if i >= len(want) || string(got.text) != want[i] {
				t.Errorf("line %d is %q", i, got.text)
				break
			}
		}
		close(p.quit)
		_ = read.Close()
		p.owned.Wait()
	})
}
