package units_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"example.org/daisy/internal/units"
)

func TestSizesAreReadWithTheirUnit(t *testing.T) {
	for text, want := range map[string]int64{
		"16GiB": 16 << 30, "512MiB": 512 << 20, "1.5TiB": 3 << 39, "100MB": 100e6, "1kB": 1000, "0B": 0, "7b": 7,
		"4G": 4 << 30, "4GB": 4e9, "4GiB": 4 << 30, "1.5G": 3 << 29, "1500M": 1500 << 20, "16 GB": 16e9, "0G": 0, "4g": 4 << 30, "1T": 1 << 40,
		" 2 MiB ": 2 << 20, ".5KiB": 512, "1.KiB": 1024, "0.1KiB": 103, "0.1TiB": 109951162778, "8191PiB": 8191 << 50,
	} {
		if got, err := units.ParseSize(text); err != nil || got != want {
			t.Errorf("%q: got %d, %v; want %d", text, got, err, want)
		}
	}
}

func TestWhatIsNoSizeIsRefusedWithAReason(t *testing.T) {
	const form = `; write a number with a unit, such as "512MiB", "16GiB" or "100MB"`
	for text, want := range map[string]string{
		"4096":    `"4096" has no unit` + form,
		"0":       `"0" has no unit` + form,
		"":        `"" is not a size` + form,
		"-1":      `"-1" is not a size` + form,
		"-1GiB":   `"-1GiB" is not a size` + form,
		"GiB":     `"GiB" is not a size` + form,
		"nan":     `"nan" is not a size` + form,
		"4e9":     `"4e9" has the unknown unit "e9"; units are B, KiB, MiB, GiB, TiB, PiB (powers of 1024) and KB, MB, GB, TB, PB (powers of 1000)`,
		"1.2.3G":  `"1.2.3G" has the unknown unit ".3G"; units are B, KiB, MiB, GiB, TiB, PiB (powers of 1024) and KB, MB, GB, TB, PB (powers of 1000)`,
		"8192PiB": `"8192PiB" is above the largest size, 8191PiB`,
	} {
		if _, err := units.ParseSize(text); err == nil || err.Error() != want {
			t.Errorf("%q: got %v, want %s", text, err, want)
		}
	}
}

func TestSizesArePrintedShort(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0B", 1: "1B", 1023: "1023B", 1024: "1KiB", 1536: "1.5KiB", 16 << 30: "16GiB", 1<<30 - 1: "1.0GiB", 1<<40 + 1: "1.0TiB",
		1000: "1000B", 100e6: "95.4MiB", -2048: "-2KiB", 1<<63 - 1: "8192.0PiB", -1 << 63: "-8192PiB",
	} {
		if got := units.Size(n); got != want {
			t.Errorf("%d: got %s, want %s", n, got, want)
		}
	}
}

func TestDurationsAreReadWithTheirUnits(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"10m": 10 * time.Minute, "1h30m": 90 * time.Minute, "2d": 48 * time.Hour, "250ms": 250 * time.Millisecond, "0s": 0,
		"1.5s": 1500 * time.Millisecond, "1h 30m": 90 * time.Minute, " 1 d 2h ": 26 * time.Hour, "1m5s": 65 * time.Second, "3us": 3000, "7ns": 7,
	} {
		if got, err := units.ParseDuration(text); err != nil || got != want {
			t.Errorf("%q: got %v, %v; want %v", text, got, err, want)
		}
	}
}

func TestWhatIsNoDurationIsRefusedWithAReason(t *testing.T) {
	const form = `; write numbers with units, such as "30s", "10m", "1h30m" or "2d"`
	for text, want := range map[string]string{
		"":        `"" is not a duration` + form,
		"10":      `"10" has a number without a unit` + form,
		"1h30":    `"1h30" has a number without a unit` + form,
		"-1s":     `"-1s" is not a duration` + form,
		"soon":    `"soon" is not a duration` + form,
		"5min":    `"5min" has the unknown unit "min"; units are d, h, m, s, ms, us, ns`,
		"1e3s":    `"1e3s" has the unknown unit "e"; units are d, h, m, s, ms, us, ns`,
		"30m1h":   `"30m1h" has its units out of order; write them from large to small and each once, such as "30s", "10m", "1h30m" or "2d"`,
		"1s1s":    `"1s1s" has its units out of order; write them from large to small and each once, such as "30s", "10m", "1h30m" or "2d"`,
		"200000d": `"200000d" is above the largest duration, 106751d`,
	} {
		if _, err := units.ParseDuration(text); err == nil || err.Error() != want {
			t.Errorf("%q: got %v, want %s", text, err, want)
		}
	}
}

func TestDurationsArePrintedForPeople(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 5: "5ns", 1500: "2us", 250 * time.Millisecond: "250ms", 999600 * time.Microsecond: "1s", 1500 * time.Millisecond: "1.5s", 2 * time.Second: "2s",
		9960 * time.Millisecond: "10s", 42 * time.Second: "42s", 59600 * time.Millisecond: "1m00s", 125 * time.Second: "2m05s", 3*time.Hour + 4*time.Minute: "3h04m",
		24*time.Hour - time.Second: "1d00h", 51 * time.Hour: "2d03h", -3 * time.Second: "-3s", -1 << 63: "-106751d23h",
	} {
		if got := units.Duration(d); got != want {
			t.Errorf("%d: got %s, want %s", d, got, want)
		}
	}
	if got, want := units.Count(1234567), "1,234,567"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := units.Count(-999), "-999"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestAWrittenDurationIsReadBackExactly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := time.Duration(rapid.Int64Min(0).Draw(t, "d"))
		text := units.WriteDuration(want)
		if got, err := units.ParseDuration(text); err != nil || got != want {
			t.Fatalf("%s: got %v, %v; want %v", text, got, err, want)
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"16GiB", "1.5T", "4096", "", "1h30m", "2d", "250ms", "1e9s", "9999999999999999999d", ".", "1. 5s"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if n, err := units.ParseSize(s); err == nil && n < 0 {
			t.Errorf("%q is the size %d", s, n)
		}
		if d, err := units.ParseDuration(s); err == nil && d < 0 {
			t.Errorf("%q is the duration %v", s, d)
		}
	})
}
