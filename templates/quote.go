package templates

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"mvdan.cc/sh/v3/syntax"
)

// Quote writes s as one word of bash that means exactly the bytes of s, whatever they are and whatever the locale of the shell is.
// The only error is a zero byte, which no word can hold.
func Quote(s string) (string, error) {
	if i := strings.IndexByte(s, 0); i >= 0 {
		return "", fmt.Errorf("%s has a zero byte (at %d), which no argument can hold", clip(s), i)
	}
	if s == "" {
		return "''", nil
	}
	var b strings.Builder
	for s != "" {
		n := plainPrefix(s)
		if n > 0 {
			word, err := syntax.Quote(s[:n], syntax.LangBash)
			if err != nil {
				return "", fmt.Errorf("%s: %w", clip(s), err)
			}
			b.WriteString(word)
			s = s[n:]
			continue
		}
		// syntax.Quote would write \u200b, which bash turns into other bytes in a locale that is not UTF-8.
		b.WriteString("$'")
		for s != "" && plainPrefix(s) == 0 {
			_, size := utf8.DecodeRuneInString(s)
			for _, c := range []byte(s[:size]) {
				fmt.Fprintf(&b, `\x%02x`, c)
			}
			s = s[size:]
		}
		b.WriteString("'")
	}
	return b.String(), nil
}

// plainPrefix is the length of what s begins with that syntax.Quote writes without naming code points.
func plainPrefix(s string) int {
	for i, r := range s {
		if r >= utf8.RuneSelf && (r == utf8.RuneError || !unicode.IsPrint(r)) {
			return i
		}
	}
	return len(s)
}

// clip shortens a value for a message.
func clip(s string) string {
	if len(s) > 60 {
		return fmt.Sprintf("%.57q…", s[:57])
	}
	return fmt.Sprintf("%q", s)
}
