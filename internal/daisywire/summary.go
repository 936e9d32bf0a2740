package daisywire

import (
	"strings"
	"unicode/utf8"
)

// mostTail is how many bytes of a text are kept.
const mostTail = 8 << 10

// Summary makes of what a client says of a failed block, usually a traceback, one line for lists, its last one, and the end of it. They
// are copies: whoever keeps them does not keep all that was said.
func Summary(text string) (line, tail string) {
	tail = strings.TrimRight(text, " \t\r\n")
	if len(tail) > mostTail {
		tail = tail[len(tail)-mostTail:]
		for len(tail) > 0 && !utf8.RuneStart(tail[0]) {
			tail = tail[1:]
		}
	}
	tail = strings.Clone(tail)
	line = strings.TrimSpace(tail[strings.LastIndexByte(tail, '\n')+1:])
	if line == "" {
		return "its client gave it back as failed", ""
	}
	return line, tail
}
