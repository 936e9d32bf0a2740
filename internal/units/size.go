// Package units parses and prints the sizes, durations and counts that people write and read.
package units

import (
	"fmt"
	"math/big"
	"strconv"
	"strings"
)

// longest bounds the text of a size or duration: nobody writes more, and arithmetic on it stays small.
const longest = 40

// sizeUnits are in the order in which Size prefers them; the single letters are binary, as in batch systems.
var sizeUnits = []struct {
	name  string
	bytes int64
}{
	{"pib", 1 << 50}, {"tib", 1 << 40}, {"gib", 1 << 30}, {"mib", 1 << 20}, {"kib", 1 << 10},
	{"pb", 1e15}, {"tb", 1e12}, {"gb", 1e9}, {"mb", 1e6}, {"kb", 1e3},
	{"p", 1 << 50}, {"t", 1 << 40}, {"g", 1 << 30}, {"m", 1 << 20}, {"k", 1 << 10},
	{"b", 1},
}

// ParseSize reads a size with a unit in bytes: "16GiB", "1.5TiB", "100MB" (10^6), "4G" (binary, as Slurm reads it), "512 B".
// Letter case does not matter; part bytes are rounded up. A bare number, a sign, an exponent and anything above 2^63-1
// bytes are errors.
func ParseSize(s string) (int64, error) {
	const allowed = `a number with a unit, such as "512MiB", "16GiB" or "100MB"`
	number, rest := splitNumber(s)
	unit := strings.ToLower(strings.TrimSpace(rest))
	if number == "" || len(s) > longest {
		return 0, fmt.Errorf("%q is not a size; write %s", clip(s), allowed)
	}
	if unit == "" {
		return 0, fmt.Errorf("%q has no unit; write %s", s, allowed)
	}
	for _, u := range sizeUnits {
		if u.name != unit {
			continue
		}
		n, ok := times(number, u.bytes)
		if !ok {
			return 0, fmt.Errorf("%q is above the largest size, 8191PiB", s)
		}
		return n, nil
	}
	return 0, fmt.Errorf("%q has the unknown unit %q; units are B, KiB, MiB, GiB, TiB, PiB (powers of 1024) and KB, MB, GB, TB, PB (powers of 1000)",
		s, strings.TrimSpace(rest))
}

// Size prints bytes in the largest binary unit: exactly where whole ("16GiB"), else with one decimal ("1.5GiB").
func Size(n int64) string {
	if n < 0 {
		return "-" + sizeOf(uint64(-n))
	}
	return sizeOf(uint64(n))
}

func sizeOf(n uint64) string {
	for _, u := range []struct {
		name  string
		shift uint
	}{{"PiB", 50}, {"TiB", 40}, {"GiB", 30}, {"MiB", 20}, {"KiB", 10}} {
		one := uint64(1) << u.shift
		// What rounds to 1024.0 of the smaller unit is 1.0 of this one.
		if n < one-one/20480 {
			continue
		}
		if n%one == 0 {
			return strconv.FormatUint(n>>u.shift, 10) + u.name
		}
		return strconv.FormatFloat(float64(n)/float64(one), 'f', 1, 64) + u.name
	}
	return strconv.FormatUint(n, 10) + "B"
}

// Plural prints a count of something with a regular plural: "1 block", "1,234 blocks".
func Plural(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return Count(n) + " " + what + "s"
}

// Count prints a whole number with commas: "1,234,567".
func Count(n int64) string {
	digits := strconv.FormatInt(n, 10)
	sign := ""
	if n < 0 {
		sign, digits = "-", digits[1:]
	}
	var b strings.Builder
	b.WriteString(sign)
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(d)
	}
	return b.String()
}

// AtEnd says in words what is left at the end of axes: "the last 5 on axis 0, the last 3 on axis 2"; "" where nothing is.
func AtEnd(rest []int64) string {
	var ends []string
	for axis, n := range rest {
		if n > 0 {
			ends = append(ends, fmt.Sprintf("the last %s on axis %d", Count(n), axis))
		}
	}
	return strings.Join(ends, ", ")
}

// splitNumber cuts a leading decimal number ("1", "1.5", ".5") off s; number is "" if there is none.
func splitNumber(s string) (number, rest string) {
	s = strings.TrimSpace(s)
	end, digits, dots := 0, 0, 0
	for end < len(s) {
		switch c := s[end]; {
		case c >= '0' && c <= '9':
			digits++
		case c == '.' && dots == 0:
			dots++
		default:
			goto done
		}
		end++
	}
done:
	if digits == 0 {
		return "", s
	}
	return s[:end], s[end:]
}

// times is number × unit rounded up; false if it does not fit int64. Exact, so that 0.1TiB is not off by a byte.
func times(number string, unit int64) (int64, bool) {
	r, ok := new(big.Rat).SetString(number)
	if !ok {
		return 0, false
	}
	r.Mul(r, new(big.Rat).SetInt64(unit))
	n, rem := new(big.Int).QuoRem(r.Num(), r.Denom(), new(big.Int))
	if rem.Sign() > 0 {
		n.Add(n, big.NewInt(1))
	}
	return n.Int64(), n.IsInt64()
}

func clip(s string) string {
	if len(s) > longest {
		return s[:longest] + "…"
	}
	return s
}
