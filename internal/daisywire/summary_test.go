package daisywire

import (
	"strings"
	"testing"
	"unicode/utf8"
	"unsafe"
)

func TestTheSummaryDoesNotKeepAllThatWasSaid(t *testing.T) {
	for _, text := range []string{strings.Repeat("x", 1<<20), "x" + strings.Repeat("\n", 1<<20)} {
		line, tail := Summary(text)
		for _, kept := range []string{line, tail} {
			if at := uintptr(unsafe.Pointer(unsafe.StringData(kept))) - uintptr(unsafe.Pointer(unsafe.StringData(text))); at < uintptr(len(text)) {
				t.Errorf("%d bytes keep %d", len(kept), len(text))
			}
		}
	}
}

func TestTheSummaryOfATracebackIsItsLastLine(t *testing.T) {
	for text, want := range map[string][2]string{
		"":     {"its client gave it back as failed", ""},
		" \n ": {"its client gave it back as failed", ""},
		"no":   {"no", "no"},
		"Traceback (most recent call last):\n  File \"x.py\"\nValueError: größer\n": {"ValueError: größer", "Traceback (most recent call last):\n  File \"x.py\"\nValueError: größer"},
	} {
		if line, tail := Summary(text); line != want[0] || tail != want[1] {
			t.Errorf("%q: %q, %q", text, line, tail)
		}
	}
	line, tail := Summary(strings.Repeat("ü", 10_000) + "\nlast")
	if line != "last" || len(tail) > mostTail || len(tail) < mostTail-2 || !utf8.ValidString(tail) {
		t.Errorf("%q, %d bytes of tail, valid %v", line, len(tail), utf8.ValidString(tail))
	}
	if line, _ := Summary(strings.Repeat("x", 100_000)); len(line) > mostTail {
		t.Errorf("a line of %d bytes", len(line))
	}
}
