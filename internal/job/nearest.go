package job

import (
	"fmt"
	"strings"
)

// Nearest is what follows the report of an unknown name: `; did you mean "max_workers"?` where one of the names is near, else
// `; allowed are "a" and "b"` where there are a few, else nothing.
func Nearest(name string, names []string) string {
	best, at := max(1, len(name)/3)+1, ""
	for _, n := range names {
		if strings.EqualFold(n, name) {
			return fmt.Sprintf("; did you mean %q?", n)
		}
		if d := Distance(strings.ToLower(name), strings.ToLower(n)); d < best && d < len(n) && d < len(name) {
			best, at = d, n
		}
	}
	switch {
	case at != "":
		return fmt.Sprintf("; did you mean %q?", at)
	case len(names) == 0 || len(names) > 12:
		return ""
	}
	quoted := make([]string, len(names))
	for i, n := range names {
		quoted[i] = fmt.Sprintf("%q", n)
	}
	if len(quoted) == 1 {
		return "; allowed is " + quoted[0]
	}
	return "; allowed are " + strings.Join(quoted[:len(quoted)-1], ", ") + " and " + quoted[len(quoted)-1]
}

// Distance is the number of letters to insert, delete, replace or swap with a neighbour (optimal string alignment) that
// make a into b. Long names count as far apart, so that the cost is bounded.
func Distance(a, b string) int {
	if len(a) > longestName || len(b) > longestName {
		return longestName
	}
	before, last := make([]int, len(b)+1), make([]int, len(b)+1)
	for k := range last {
		last[k] = k
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for k := 1; k <= len(b); k++ {
			cost := 1
			if a[i-1] == b[k-1] {
				cost = 0
			}
			row[k] = min(last[k]+1, row[k-1]+1, last[k-1]+cost)
			if i > 1 && k > 1 && a[i-1] == b[k-2] && a[i-2] == b[k-1] {
				row[k] = min(row[k], before[k-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}
