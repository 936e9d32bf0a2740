package report

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// printable makes text from user code or the outside harmless: control characters (but tab and newline) could move a
// terminal's cursor or change its colours, so they become "�", as does what is not UTF-8.
func printable(s string) string {
	s = strings.ReplaceAll(s, "\r\n", "\n")
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return r
		case unicode.IsControl(r), unicode.Is(unicode.Bidi_Control, r), r == utf8.RuneError:
			return utf8.RuneError
		}
		return r
	}, s)
}

// oneLine replaces line breaks and runs of space by single spaces.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// clip shortens s to at most n runes, the last being "…" if something was cut off.
func clip(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	runes := []rune(s)
	return string(runes[:n-1]) + "…"
}
