package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// naiveGauss sums over the whole neighbourhood of 15^3 at once and clamps each position.
func naiveGauss(a voxels[uint8]) voxels[uint8] {
	at := func(z, y, x int) int64 {
		clamp := func(i, n int) int { return min(max(i, 0), n-1) }
		return int64(a.row(clamp(z, a.shape[0]), clamp(y, a.shape[1]))[clamp(x, a.shape[2])])
	}
	out := newVoxels[uint8](a.shape)
	for z := range a.shape[0] {
		for y := range a.shape[1] {
			for x := range a.shape[2] {
				sum, total := int64(0), int64(0)
				for dz := -7; dz <= 7; dz++ {
					for dy := -7; dy <= 7; dy++ {
						for dx := -7; dx <= 7; dx++ {
							weight := gaussWeights[dz+7] * gaussWeights[dy+7] * gaussWeights[dx+7]
							sum += weight * at(z+dz, y+dy, x+dx)
							total += weight
						}
					}
				}
				quotient := sum / total
				if rest := sum % total; 2*rest >= total {
					quotient++
				}
				out.row(z, y)[x] = uint8(quotient)
			}
		}
	}
	return out
}

func drawVoxels(t *rapid.T, shape point, value *rapid.Generator[uint8]) voxels[uint8] {
	return voxels[uint8]{shape: shape, data: rapid.SliceOfN(value, shape.volume(), shape.volume()).Draw(t, "data")}
}

func drawShape(t *rapid.T, name string, largest int) point {
	side := rapid.IntRange(1, largest)
	return point{side.Draw(t, name+" z"), side.Draw(t, name+" y"), side.Draw(t, name+" x")}
}

func TestIntGaussIsTheNaiveFormula(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := drawVoxels(t, drawShape(t, "shape", 4), rapid.Uint8())
		whole := box{Shape: a.shape}
		got := intGauss(extend(a, whole, whole.grow(gaussContext)))
		if diff := cmp.Diff(naiveGauss(a).data, got.data); diff != "" {
			t.Fatalf("shape %v (-want +got):\n%s", a.shape, diff)
		}
	})
}

func TestIntGaussOfABlockIsThatPartOfTheWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := drawVoxels(t, drawShape(t, "shape", 12), rapid.Uint8())
		whole := box{Shape: a.shape}
		all := intGauss(extend(a, whole, whole.grow(gaussContext)))

		var part box
		for axis := range part.Offset {
			part.Offset[axis] = rapid.IntRange(0, a.shape[axis]-1).Draw(t, "offset")
			part.Shape[axis] = rapid.IntRange(1, a.shape[axis]-part.Offset[axis]).Draw(t, "shape")
		}
		need := part.grow(gaussContext)
		inside := need.intersect(whole)
		values, want := newVoxels[uint8](inside.Shape), newVoxels[uint8](part.Shape)
		copyBox(values, inside, a, whole, inside)
		copyBox(want, part, all, whole, part)
		got := intGauss(extend(values, inside, need))
		if diff := cmp.Diff(want.data, got.data); diff != "" {
			t.Fatalf("block %v of %v (-want +got):\n%s", part, a.shape, diff)
		}
	})
}

func TestIntGaussKeepsAConstantAndItsWeightsAddUp(t *testing.T) {
	sum := int64(0)
	for _, weight := range gaussWeights {
		sum += weight
	}
	if sum != gaussSum {
		t.Errorf("the weights add up to %d, want %d", sum, gaussSum)
	}
	for _, value := range []uint8{0, 1, 40, 255} {
		a := newVoxels[uint8](point{15, 15, 15})
		for i := range a.data {
			a.data[i] = value
		}
		if got := intGauss(a); got.shape != (point{1, 1, 1}) || got.data[0] != value {
			t.Errorf("constant %d: got %v", value, got)
		}
	}
}
