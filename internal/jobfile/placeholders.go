package jobfile

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"example.org/daisy/internal/job"
)

// placeholders are what a worker replaces in arguments. Of those that begin alike the likeliest comes first.
var placeholders = []string{
	"block_id", "index", "read_offset", "read_shape", "read_end", "write_offset", "write_shape", "write_end", "attempt", "lease",
	"task_id", "worker_id", "slot", "run_id", "run_dir",
}

// braced is a name in braces; one with a dollar before it belongs to a shell.
var braced = regexp.MustCompile(`\$?\{([A-Za-z_][A-Za-z0-9_]*)\}`)

// warnOfPlaceholders warns of names in braces that were probably meant as placeholders. It is no error, as they are right in
// JSON, awk and the like.
func (t table) warnOfPlaceholders(key string, argv []string) {
	var said []string
	for _, arg := range argv {
		for _, m := range braced.FindAllStringSubmatch(arg, -1) {
			near := meant(m[1])
			if m[0][0] == '$' || near == "" || slices.Contains(said, m[1]) {
				continue
			}
			said = append(said, m[1])
			t.warn(key, fmt.Sprintf("{%s} is no placeholder and stays as it is; did you mean {%s}?", m[1], near))
		}
	}
}

// meant is the placeholder that a name was probably meant to be: a misspelt one, or one without its end, as {read}. It is ""
// if the name is one, or none is near.
func meant(name string) string {
	if slices.Contains(placeholders, name) {
		return ""
	}
	lower := strings.ToLower(name)
	nearest, at := "", 0
	for _, p := range placeholders {
		d := job.Distance(lower, p)
		if d <= max(1, len(p)/4) && (nearest == "" || d < at) {
			nearest, at = p, d
		}
	}
	if nearest != "" {
		return nearest
	}
	for _, p := range placeholders {
		if first, _, more := strings.Cut(p, "_"); more && sameLetters(lower, first) {
			return p
		}
	}
	return ""
}

// sameLetters tells whether two words differ at most in the order of their letters. Short words that differ in one letter are
// too often both right, as "mask" and "task".
func sameLetters(a, b string) bool {
	x, y := []byte(a), []byte(b)
	slices.Sort(x)
	slices.Sort(y)
	return slices.Equal(x, y)
}
