package api

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Printable makes text from user code or the outside harmless: control characters (but tab and newline) could move a
// terminal's cursor or change its colours, so they become "�", as does what is not UTF-8.
func Printable(s string) string {
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

// OneLine is Printable in one line: runs of space, line breaks among it, become single spaces.
func OneLine(s string) string { return Printable(strings.Join(strings.Fields(s), " ")) }
