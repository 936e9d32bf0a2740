package units

import (
	"fmt"
	"strings"
	"time"
)

// durationUnits from large to small, the order in which they are written.
var durationUnits = []struct {
	name string
	unit time.Duration
}{
	{"d", 24 * time.Hour}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}, {"ms", time.Millisecond},
	{"us", time.Microsecond}, {"ns", time.Nanosecond},
}

// ParseDuration reads a duration with units, from large to small and each at most once: "10m", "1h30m", "2d", "1.5s", "250ms".
// A bare number (seconds? minutes?), a sign and anything above 292 years are errors. "0s" is a duration.
func ParseDuration(s string) (time.Duration, error) {
	const allowed = `such as "30s", "10m", "1h30m" or "2d"`
	rest := strings.TrimSpace(s)
	if rest == "" || len(s) > longest {
		return 0, fmt.Errorf("%q is not a duration; write numbers with units, %s", clip(s), allowed)
	}
	var total time.Duration
	next := 0
	for rest != "" {
		number, tail := splitNumber(rest)
		if number == "" {
			return 0, fmt.Errorf("%q is not a duration; write numbers with units, %s", s, allowed)
		}
		tail = strings.TrimLeft(tail, " ")
		end := strings.IndexFunc(tail, func(r rune) bool { return r == ' ' || r == '.' || r >= '0' && r <= '9' })
		if end < 0 {
			end = len(tail)
		}
		name := tail[:end]
		if name == "" {
			return 0, fmt.Errorf("%q has a number without a unit; write numbers with units, %s", s, allowed)
		}
		at := -1
		for i, u := range durationUnits {
			if u.name == name {
				at = i
			}
		}
		if at < 0 {
			return 0, fmt.Errorf("%q has the unknown unit %q; units are d, h, m, s, ms, us, ns", s, name)
		}
		if at < next {
			return 0, fmt.Errorf("%q has its units out of order; write them from large to small and each once, %s", s, allowed)
		}
		n, ok := times(number, int64(durationUnits[at].unit))
		total += time.Duration(n)
		if !ok || total < 0 {
			return 0, fmt.Errorf("%q is above the largest duration, 106751d", s)
		}
		next = at + 1
		rest = strings.TrimLeft(tail[end:], " ")
	}
	return total, nil
}

// Duration prints a duration for people, in two units at most: "250ms", "1.5s", "42s", "2m05s", "3h04m", "2d03h".
// It is rounded to what is shown.
func Duration(d time.Duration) string {
	if d < 0 {
		if d == -1<<63 {
			d++
		}
		return "-" + Duration(-d)
	}
	switch {
	case d == 0:
		return "0s"
	case d < time.Microsecond:
		return fmt.Sprintf("%dns", d)
	case d < 999500*time.Nanosecond:
		return fmt.Sprintf("%dus", d.Round(time.Microsecond)/time.Microsecond)
	case d < 999500*time.Microsecond:
		return fmt.Sprintf("%dms", d.Round(time.Millisecond)/time.Millisecond)
	case d < 9950*time.Millisecond:
		s := fmt.Sprintf("%.1f", d.Seconds())
		return strings.TrimSuffix(s, ".0") + "s"
	}
	switch s := d.Round(time.Second) / time.Second; {
	case s < 60:
		return fmt.Sprintf("%ds", s)
	case s < 3600:
		return fmt.Sprintf("%dm%02ds", s/60, s%60)
	}
	switch m := d.Round(time.Minute) / time.Minute; {
	case m < 24*60:
		return fmt.Sprintf("%dh%02dm", m/60, m%60)
	default:
		h := d.Round(time.Hour) / time.Hour
		return fmt.Sprintf("%dd%02dh", h/24, h%24)
	}
}

// WriteDuration prints a duration as a job file has it, exactly: "10m", "1h30m", "250ms", "0s". ParseDuration reads it back.
func WriteDuration(d time.Duration) string {
	if d <= 0 {
		return "0s"
	}
	var b strings.Builder
	for _, u := range durationUnits {
		if n := d / u.unit; n > 0 {
			fmt.Fprintf(&b, "%d%s", n, u.name)
			d -= n * u.unit
		}
	}
	return b.String()
}
