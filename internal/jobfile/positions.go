package jobfile

import (
	"strconv"
	"strings"
)

// node is the place of a value in the file. The tree has the form of the decoded document: keys of tables, items of arrays (those
// of [[headers]] too).
type node struct {
	line  int    // of the key, from 1
	file  string // of defaults, "" if it is the job file
	keys  map[string]*node
	items []*node
	// argument is the command-line argument that gave the value, "" if the file did.
	argument   string
	argumentAt int // its place on the command line
	// bare is the text of a --set value that was not quoted.
	bare string
	// shared: it stands in [slurm], for every task.
	shared bool
	// header marks the array of a [[header]]: later headers with its name lead into its last item.
	header bool
}

func (n *node) key(name string) *node {
	if n == nil {
		return nil
	}
	return n.keys[name]
}

func (n *node) item(i int) *node {
	if n == nil || i >= len(n.items) {
		return nil
	}
	return n.items[i]
}

// child is the node of a key, made if it is not there; below the array of a [[header]] that of its last item.
func (n *node) child(name string, line int) *node {
	c := n.keys[name]
	if c == nil {
		c = &node{line: line}
		n.set(name, c)
	}
	if c.header && len(c.items) > 0 {
		return c.items[len(c.items)-1]
	}
	return c
}

func (n *node) set(name string, c *node) {
	if n.keys == nil {
		n.keys = map[string]*node{}
	}
	n.keys[name] = c
}

// deepest bounds how deep values nest and how many parts a dotted key has. The TOML library needs stack for the first and time
// that grows with the square of the second.
const deepest = 100

// positions finds the lines of all keys and items of a TOML document that the TOML library accepts; of any other text the result
// means nothing, but there is one. deepAt is the first line that nests deeper than deepest, 0 if none does.
func positions(text string) (root *node, deepAt int) {
	s := &scanner{text: text, line: 1}
	root = &node{line: 1}
	table := root
	for s.space(true); s.at < len(s.text) && s.deepAt == 0; s.space(true) {
		before, line := s.at, s.line
		switch {
		case s.skip("[["):
			path := s.key()
			s.skip("]]")
			parent := root
			for _, k := range path[:len(path)-1] {
				parent = parent.child(k, line)
			}
			list := parent.keys[path[len(path)-1]]
			if list == nil {
				list = &node{line: line, header: true}
				parent.set(path[len(path)-1], list)
			}
			table = &node{line: line}
			list.items = append(list.items, table)
		case s.skip("["):
			path := s.key()
			s.skip("]")
			table = root
			for _, k := range path {
				table = table.child(k, line)
			}
		default:
			s.pair(table)
		}
		if s.at == before {
			s.at++ // not TOML
		}
	}
	return root, s.deepAt
}

// scanner walks over the text; it knows where strings, comments and brackets begin and end, and nothing of values.
type scanner struct {
	text     string
	at, line int
	depth    int
	deepAt   int
}

func (s *scanner) skip(prefix string) bool {
	if strings.HasPrefix(s.text[s.at:], prefix) {
		s.at += len(prefix)
		return true
	}
	return false
}

// space skips blanks, with newlines also those and comments.
func (s *scanner) space(newlines bool) {
	for s.at < len(s.text) {
		switch c := s.text[s.at]; {
		case c == ' ' || c == '\t' || c == '\r' || s.at == 0 && strings.HasPrefix(s.text, "\ufeff"):
			if c != ' ' && c != '\t' && c != '\r' {
				s.at += len("\ufeff") - 1
			}
		case newlines && c == '\n':
			s.line++
		case newlines && c == '#':
			for s.at < len(s.text) && s.text[s.at] != '\n' {
				s.at++
			}
			continue
		default:
			return
		}
		s.at++
	}
}

// pair reads key = value into a table.
func (s *scanner) pair(table *node) {
	line := s.line
	path := s.key()
	s.space(false)
	s.skip("=")
	s.space(true)
	v := s.value()
	v.line = line
	for _, k := range path[:len(path)-1] {
		table = table.child(k, line)
	}
	table.set(path[len(path)-1], v)
}

// key reads a dotted key of bare and quoted parts; it has at least one.
func (s *scanner) key() []string {
	var path []string
	for {
		s.space(false)
		path = append(path, s.part())
		s.space(false)
		if !s.skip(".") {
			return path
		}
		if len(path) == deepest {
			s.tooDeep()
			return path
		}
	}
}

func (s *scanner) part() string {
	if s.at < len(s.text) && (s.text[s.at] == '"' || s.text[s.at] == '\'') {
		return s.quoted()
	}
	start := s.at
	for s.at < len(s.text) && !strings.ContainsRune(" \t\r\n.=[]{},#\"'", rune(s.text[s.at])) {
		s.at++
	}
	return s.text[start:s.at]
}

// value reads any value and returns the places inside it.
func (s *scanner) value() *node {
	n := &node{line: s.line}
	if s.depth == deepest {
		s.tooDeep()
	}
	if s.at >= len(s.text) {
		return n
	}
	s.depth++
	defer func() { s.depth-- }()
	switch s.text[s.at] {
	case '[', '{':
		table := s.text[s.at] == '{'
		for s.at++; ; {
			s.space(true)
			before := s.at
			switch {
			case s.at >= len(s.text) || s.skip("]") || s.skip("}"):
				return n
			case s.skip(","):
				continue
			case table:
				s.pair(n)
			default:
				n.items = append(n.items, s.value())
			}
			if s.at == before {
				s.at++ // not TOML
			}
		}
	case '"', '\'':
		s.quoted()
	default:
		for s.at < len(s.text) && !strings.ContainsRune(",]}#\n", rune(s.text[s.at])) {
			s.at++
		}
	}
	return n
}

// quoted reads a string of any of the four forms and returns what a key of that form names.
func (s *scanner) quoted() string {
	quote := s.text[s.at : s.at+1]
	end := quote
	if strings.HasPrefix(s.text[s.at:], strings.Repeat(quote, 3)) {
		end = strings.Repeat(quote, 3)
	}
	s.at += len(end)
	start := s.at
	for s.at < len(s.text) && !strings.HasPrefix(s.text[s.at:], end) {
		if s.text[s.at] == '\\' && quote == `"` && s.at+1 < len(s.text) {
			s.at++
		}
		if s.text[s.at] == '\n' {
			s.line++
		}
		s.at++
	}
	raw := s.text[start:min(s.at, len(s.text))]
	s.skip(end)
	if len(end) == 3 { // up to two quotes may stand before the closing three
		for range 2 {
			s.skip(quote)
		}
	}
	if quote == `"` && len(end) == 1 {
		return unescape(raw)
	}
	return raw
}

// tooDeep ends the scan here.
func (s *scanner) tooDeep() {
	if s.deepAt == 0 {
		s.deepAt = s.line
	}
	s.at = len(s.text)
}

// unescape resolves the escapes of a basic string (TOML 1.1).
func unescape(raw string) string {
	var b strings.Builder
	for i := 0; i < len(raw); i++ {
		if raw[i] != '\\' || i+1 == len(raw) {
			b.WriteByte(raw[i])
			continue
		}
		i++
		digits := map[byte]int{'x': 2, 'u': 4, 'U': 8}[raw[i]]
		if digits > 0 && i+digits < len(raw) {
			if r, err := strconv.ParseUint(raw[i+1:i+1+digits], 16, 32); err == nil {
				b.WriteRune(rune(r))
			}
			i += digits
			continue
		}
		if plain, ok := map[byte]byte{'b': '\b', 't': '\t', 'n': '\n', 'f': '\f', 'r': '\r', 'e': 0x1b}[raw[i]]; ok {
			b.WriteByte(plain)
		} else {
			b.WriteByte(raw[i])
		}
	}
	return b.String()
}
