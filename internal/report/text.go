package report

import "unicode/utf8"

// clip shortens s to at most n runes, the last being "…" if something was cut off.
func clip(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	runes := []rune(s)
	return string(runes[:n-1]) + "…"
}
