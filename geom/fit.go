package geom

import "fmt"

// Fit says what happens to blocks at the end of the total write region.
type Fit uint8

const (
	// Valid keeps only blocks that lie wholly inside the total write region.
	Valid Fit = iota
	// Overhang keeps every block that begins inside; the last ones may stick out.
	Overhang
	// Shrink keeps every block that begins inside and clips it: what it writes to the total write region, what it reads
	// to the total read region.
	Shrink
)

var fitNames = [...]string{Valid: "valid", Overhang: "overhang", Shrink: "shrink"}

// String returns "valid", "overhang" or "shrink".
func (f Fit) String() string {
	if int(f) < len(fitNames) {
		return fitNames[f]
	}
	return fmt.Sprintf("Fit(%d)", uint8(f))
}

// ParseFit is the inverse of String. Case counts.
func ParseFit(s string) (Fit, error) {
	for f, name := range fitNames {
		if s == name {
			return Fit(f), nil
		}
	}
	return 0, fmt.Errorf("geom: fit %q: must be \"valid\", \"overhang\" or \"shrink\"", s)
}
