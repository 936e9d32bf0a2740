package worker

import (
	"bytes"
	"strings"
)

const (
	// maxTail and maxTailLines limit what a failed attempt tells of its output.
	maxTail      = 8 << 10
	maxTailLines = 50
)

// A tail keeps the end of an attempt's output.
type tail struct {
	kept []byte
	lost bool // there was more
}

func (t *tail) reset() { t.kept, t.lost = t.kept[:0], false }

// add appends one line without its end.
func (t *tail) add(line []byte) {
	t.kept = append(append(t.kept, line...), '\n')
	if len(t.kept) > 4*maxTail {
		t.lost = true
		t.kept = t.kept[:copy(t.kept, t.kept[len(t.kept)-maxTail:])]
	}
}

// text is at most maxTailLines whole lines and maxTail bytes; "…" stands first if there was more.
func (t *tail) text() string {
	end := bytes.TrimRight(t.kept, "\n")
	lost := t.lost
	if len(end) > maxTail {
		lost = true
		end = end[len(end)-maxTail:]
		if i := bytes.IndexByte(end, '\n'); i >= 0 {
			end = end[i+1:]
		}
	}
	at := len(end)
	for range maxTailLines {
		if at = bytes.LastIndexByte(end[:at], '\n'); at < 0 {
			break
		}
	}
	if at >= 0 {
		lost = true
		end = end[at+1:]
	}
	text := strings.ToValidUTF8(string(end), "\uFFFD")
	if lost {
		return "…\n" + text
	}
	return text
}
