package worker

import (
	"fmt"
	"strings"
	"testing"
)

func newTestOutput(t *testing.T, limit int64) (*output, *lockedBuffer) {
	log := &lockedBuffer{}
	o, err := newOutput(&blockLog{to: log, limit: limit})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.close)
	return o, log
}

func TestALongLineIsCutAndSaysSo(t *testing.T) {
	o, log := newTestOutput(t, maxLogBytes)
	o.begin("t 1 #1")
	go func() { // more than a pipe holds
		fmt.Fprintf(o.file, "%s\nnext\n", strings.Repeat("x", 3*maxLine))
		fmt.Fprint(o.file, "end")
	}()
	want := "[t 1 #1] " + strings.Repeat("x", maxLine) + "… [line cut at 16 KiB]\n[t 1 #1] next\n"
	for !strings.HasPrefix(log.String(), want) && len(log.String()) < len(want) {
		pauseBriefly()
	}
	o.end()
	if got := log.String(); !strings.HasPrefix(got, want) {
		t.Errorf("got %d bytes: …%q", len(got), got[max(0, len(got)-100):])
	}
}

func TestAFullLogSaysSoOnceAndTheTailIsStillKept(t *testing.T) {
	o, log := newTestOutput(t, 100)
	o.begin("t 1 #1")
	for range 20 {
		fmt.Fprintln(o.file, "0123456789")
	}
	if got := o.end(); strings.Count(got, "0123456789") != 20 {
		t.Errorf("the tail: got %q", got)
	}
	o.begin("t 2 #1")
	fmt.Fprintln(o.file, "more")
	if got := o.end(); got != "more" {
		t.Errorf("the tail: got %q", got)
	}
	if got := log.String(); strings.Count(got, "further output of user code is dropped") != 1 || strings.Contains(got, "more") {
		t.Errorf("got %q", got)
	}
}

func TestATailIsTheLastWholeLines(t *testing.T) {
	var many, wide tail
	for i := range 200 {
		many.add(fmt.Appendf(nil, "line %d", i))
		wide.add(fmt.Appendf(nil, "%d %s", i, strings.Repeat("y", 1000)))
	}
	got := strings.Split(many.text(), "\n")
	if len(got) != maxTailLines+1 || got[0] != "…" || got[1] != "line 150" || got[maxTailLines] != "line 199" {
		t.Errorf("got %d lines, %q to %q", len(got), got[1], got[len(got)-1])
	}
	if got := wide.text(); len(got) > maxTail+len("…\n") || !strings.HasPrefix(got, "…\n192 y") {
		t.Errorf("got %d bytes: %.20q", len(got), got)
	}
	var none tail
	if got := none.text(); got != "" {
		t.Errorf("got %q, want nothing", got)
	}
}
