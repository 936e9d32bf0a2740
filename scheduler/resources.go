package scheduler

import (
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// Resources is a set of named integer amounts: memory in bytes, everything else (cpu, gpu, any name) in thousandths, so that half a
// gpu is 500. The zero value is nothing. Values are immutable; sums stop at the ends of int64 instead of wrapping around.
type Resources struct {
	amounts []amount // by name ascending; a zero amount stays, because it says that the name is known
}

type amount struct {
	name string
	n    int64
}

// NewResources returns the given amounts.
func NewResources(amounts map[string]int64) Resources {
	r := Resources{amounts: make([]amount, 0, len(amounts))}
	for name, n := range amounts {
		r.amounts = append(r.amounts, amount{name, n})
	}
	sort.Slice(r.amounts, func(i, j int) bool { return r.amounts[i].name < r.amounts[j].name })
	return r
}

func (r Resources) find(name string) (int, bool) {
	return slices.BinarySearchFunc(r.amounts, name, func(a amount, name string) int { return strings.Compare(a.name, name) })
}

// Get returns the amount of a name, 0 if it is not there.
func (r Resources) Get(name string) int64 {
	if i, ok := r.find(name); ok {
		return r.amounts[i].n
	}
	return 0
}

// Has reports whether a name is there, be its amount 0.
func (r Resources) Has(name string) bool {
	_, ok := r.find(name)
	return ok
}

// Names returns the names, ascending, in a new slice.
func (r Resources) Names() []string {
	names := make([]string, len(r.amounts))
	for i, a := range r.amounts {
		names[i] = a.name
	}
	return names
}

// Add returns the sum, with the names of both.
func (r Resources) Add(s Resources) Resources { return r.combine(s, 1) }

// Sub returns the difference, with the names of both; amounts may become negative.
func (r Resources) Sub(s Resources) Resources { return r.combine(s, -1) }

func (r Resources) combine(s Resources, sign int64) Resources {
	out := make([]amount, 0, len(r.amounts)+len(s.amounts))
	i, j := 0, 0
	for i < len(r.amounts) || j < len(s.amounts) {
		switch {
		case j == len(s.amounts) || i < len(r.amounts) && r.amounts[i].name < s.amounts[j].name:
			out = append(out, r.amounts[i])
			i++
		case i == len(r.amounts) || s.amounts[j].name < r.amounts[i].name:
			out = append(out, amount{s.amounts[j].name, clampedSum(0, s.amounts[j].n, sign)})
			j++
		default:
			out = append(out, amount{r.amounts[i].name, clampedSum(r.amounts[i].n, s.amounts[j].n, sign)})
			i, j = i+1, j+1
		}
	}
	return Resources{out}
}

// clampedSum returns a + sign*b, sign being 1 or -1, stopping at the ends of int64.
func clampedSum(a, b, sign int64) int64 {
	if sign < 0 {
		if b == math.MinInt64 {
			b++
		}
		b = -b
	}
	switch {
	case b > 0 && a > math.MaxInt64-b:
		return math.MaxInt64
	case b < 0 && a < math.MinInt64-b:
		return math.MinInt64
	}
	return a + b
}

// Times returns n times the amounts.
func (r Resources) Times(n int64) Resources {
	out := make([]amount, len(r.amounts))
	for i, a := range r.amounts {
		p := a.n * n
		if a.n != 0 && (p/a.n != n || a.n == -1 && n == math.MinInt64) {
			p = math.MaxInt64
			if (a.n < 0) != (n < 0) {
				p = math.MinInt64
			}
		}
		out[i] = amount{a.name, p}
	}
	return Resources{out}
}

// Fits reports whether all of r is in the other: every name of r is there, with at least as much. A name that the other lacks does
// not fit, even with the amount 0.
func (r Resources) Fits(in Resources) bool {
	for _, a := range r.amounts {
		i, ok := in.find(a.name)
		if !ok || a.n > in.amounts[i].n {
			return false
		}
	}
	return true
}

// IsZero reports whether every amount is 0.
func (r Resources) IsZero() bool {
	for _, a := range r.amounts {
		if a.n != 0 {
			return false
		}
	}
	return true
}

// String returns "cpu=4 gpu=0.5 memory=16GiB", by name.
func (r Resources) String() string {
	parts := make([]string, len(r.amounts))
	for i, a := range r.amounts {
		if a.name == "memory" {
			parts[i] = a.name + "=" + bytesString(a.n)
		} else {
			parts[i] = a.name + "=" + strconv.FormatFloat(float64(a.n)/1000, 'f', -1, 64)
		}
	}
	return strings.Join(parts, " ")
}

// bytesString writes a number of bytes exactly, as people would: in the largest binary unit in which it has at most three decimals,
// or in the largest decimal one that divides it where that has fewer digits.
func bytesString(n int64) string {
	binary, decimal := binaryBytes(n), decimalBytes(n)
	if digits(decimal) < digits(binary) {
		return decimal
	}
	return binary
}

func binaryBytes(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	u := 0
	for ; n != 0 && n%1024 == 0; u++ {
		n /= 1024
	}
	if u > 0 && n > 1024 && n*1000%1024 == 0 { // u > 0: thousands of it fit
		return strconv.FormatFloat(float64(n*1000/1024)/1000, 'f', -1, 64) + units[u+1]
	}
	return strconv.FormatInt(n, 10) + units[u]
}

func decimalBytes(n int64) string {
	units := []string{"B", "KB", "MB", "GB", "TB", "PB", "EB"}
	u := 0
	for ; n != 0 && n%1000 == 0; u++ {
		n /= 1000
	}
	return strconv.FormatInt(n, 10) + units[u]
}

func digits(size string) int { return len(strings.TrimRight(size, "BEGKMPTi")) }
