package main

import (
	"strconv"
	"strings"
	"testing"
)

func TestTheProgramEndsWithTheRightSum(t *testing.T) {
	var out strings.Builder
	if err := run(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	// Each block counts once for each block that touches it, itself included.
	var want int64
	const n = side / edge
	for z := range int64(side) {
		for y := range int64(side) {
			for x := range int64(side) {
				want += voxel(z, y, x) * touches(z/edge, n) * touches(y/edge, n) * touches(x/edge, n)
			}
		}
	}
	for _, line := range []string{
		"sum    done: 64 of 64 blocks, 0 retried",
		"smooth done: 64 of 64 blocks, 1 retried",
		"the run is done; the neighbourhoods add up to " + strconv.FormatInt(want, 10),
	} {
		if !strings.Contains(out.String(), line) {
			t.Errorf("output lacks %q:\n%s", line, out.String())
		}
	}
}

// touches is how many blocks of an axis of n touch block i.
func touches(i, n int64) int64 { return min(i+1, n-1) - max(i-1, 0) + 1 }
