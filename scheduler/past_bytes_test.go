package scheduler

import (
	"encoding/hex"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// reread is a past that was written and read.
func reread(t rapid.TB, p *Past) *Past {
	b := p.AppendBytes(nil)
	got, rest, err := ReadPast(p.blocks, append(b, "rest"...))
	if err != nil || string(rest) != "rest" {
		t.Fatalf("read %x: %v, %q is left", b, err, rest)
	}
	if !reflect.DeepEqual(p, got) {
		t.Fatalf("read %+v, written %+v", got, p)
	}
	return got
}

func TestAPastIsReadAsItWasWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		blocks := rapid.SampledFrom([]int64{0, 1, 63, 64, 65, 128, 1000}).Draw(t, "blocks")
		p := NewPast(blocks)
		for range rapid.IntRange(0, 60).Draw(t, "ends") {
			if blocks == 0 {
				break
			}
			from := rapid.Int64Range(0, blocks-1).Draw(t, "block")
			e := PastEnding{Outcome: Outcome(rapid.IntRange(0, int(Recalled)-1).Draw(t, "outcome")), Blameless: rapid.Bool().Draw(t, "blameless"), Failed: rapid.IntRange(0, 3).Draw(t, "failed") == 0}
			for block := from; block < min(from+rapid.SampledFrom([]int64{1, 1, 200}).Draw(t, "run"), blocks); block++ {
				p.Ended(block, e)
			}
		}
		reread(t, p)
	})
}

func TestGoldenBytesOfAPast(t *testing.T) {
	p := NewPast(200)
	for block := range int64(128) {
		p.Ended(block, PastEnding{Outcome: Success})
	}
	p.Ended(130, PastEnding{Outcome: Success})
	p.Ended(199, PastEnding{Outcome: Skipped})
	p.Ended(131, PastEnding{Outcome: Lost})
	p.Ended(131, PastEnding{Outcome: TimedOut})
	p.Ended(135, PastEnding{Outcome: Failed, Failed: true})
	want := "c8 01" + // 200 blocks
		"09 06 0400000000000000 04" + // succeeded: 2 words full, 1 of its own, 1 clear
		"0c 06 8000000000000000" + // checked
		"02  8301 02 01 01 01  04 01 01 00 03" + // tried
		"82 01  00 01 01 00 00"
	if got := hex.EncodeToString(p.AppendBytes(nil)); got != strings.ReplaceAll(want, " ", "") {
		t.Errorf("got %s, want %s", got, want)
	}
	reread(t, p)
}

func TestBytesThatAreNoPastAreRefused(t *testing.T) {
	for what, c := range map[string]struct{ bytes, want string }{
		"another task":                {"c701", "the past of a task of 199 blocks, which has 200"},
		"nothing":                     {"", "it ends too early"},
		"a run that is too long":      {"c801 14", "a run of 5 words of the kind 0 where 4 are left"},
		"a run of nothing":            {"c801 00", "a run of 0 words of the kind 0 where 4 are left"},
		"a run of an unknown kind":    {"c801 07", "a run of 1 words of the kind 3 where 4 are left"},
		"words that are missing":      {"c801 12 ff", "it ends too early"},
		"a block past the end":        {"c801 0c 05", "a block past the last one is marked"},
		"a tried block past the end":  {"c801 10 10 01 c801 01 00 00 00", "block 200 was tried, after block -1 of 200"},
		"a block that was tried once": {"c801 10 10 02 05 01 00 00 00 00 01 00 00 00", "block 5 was tried, after block 5 of 200"},
		"a block that has ended well": {"c801 05 0c 10 01 05 01 00 00 00", "block 5 has ended well, and is to be tried again"},
		"an unknown flag":             {"c801 10 10 01 05 01 00 00 04", "4 is too large; expected is at most 3"},
	} {
		b, err := hex.DecodeString(strings.ReplaceAll(c.bytes, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := ReadPast(200, b); err == nil || !strings.HasSuffix(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", what, err, c.want)
		}
	}
}

func FuzzReadPast(f *testing.F) {
	const blocks = 200
	p := NewPast(blocks)
	p.Ended(3, PastEnding{Outcome: Success})
	p.Ended(5, PastEnding{Outcome: Lost})
	f.Add(p.AppendBytes(nil))
	f.Add(NewPast(blocks).AppendBytes(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, rest, err := ReadPast(blocks, b)
		if err != nil {
			return
		}
		again := p.AppendBytes(nil)
		q, _, err := ReadPast(blocks, again)
		if err != nil || !reflect.DeepEqual(p, q) || len(again) > len(b)-len(rest) {
			t.Fatalf("what was read cannot be read again, or is longer: %v", err)
		}
	})
}
