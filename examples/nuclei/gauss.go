package main

// gaussWeights are round(256 * exp(-x^2 / 8)) for x = -7 .. 7: a Gaussian of sigma 2 in whole numbers.
var gaussWeights = [...]int64{1, 3, 11, 35, 83, 155, 226, 256, 226, 155, 83, 35, 11, 3, 1}

const (
	// gaussContext is how many voxels beyond the written ones the filter reads on each side.
	gaussContext = len(gaussWeights) / 2
	// gaussSum is the sum of the weights.
	gaussSum = 1284
)

// intGauss smooths the inner part of a volume: the result is smaller by gaussContext on all six sides.
//
// The weighted sums along z, y and x are exact; one division at the end, by 1284^3, rounds half up. So the result of a
// voxel does not depend on how the volume was cut into blocks. The largest sum is 255 * 1284^3 < 2^39.
func intGauss(a voxels[uint8]) voxels[uint8] {
	sums := newVoxels[int64](a.shape)
	for i, value := range a.data {
		sums.data[i] = int64(value)
	}
	for _, axis := range []int{2, 1, 0} {
		sums = weightedSum(sums, axis)
	}
	const total = gaussSum * gaussSum * gaussSum
	out := newVoxels[uint8](sums.shape)
	for i, sum := range sums.data {
		out.data[i] = uint8((2*sum + total) / (2 * total))
	}
	return out
}

// weightedSum adds the neighbours along one axis times the weights; the result is shorter along that axis.
func weightedSum(a voxels[int64], axis int) voxels[int64] {
	shape := a.shape
	shape[axis] -= 2 * gaussContext
	out := newVoxels[int64](shape)
	stride := [3]int{a.shape[1] * a.shape[2], a.shape[2], 1}[axis]
	for z := range shape[0] {
		for y := range shape[1] {
			sums := out.row(z, y)
			begin := (z*a.shape[1] + y) * a.shape[2]
			for k, weight := range gaussWeights {
				values := a.data[begin+k*stride:][:len(sums)]
				for x, value := range values {
					sums[x] += weight * value
				}
			}
		}
	}
	return out
}

// extend returns the voxels of a region that may stick out of what is there: outside, the value of the nearest voxel
// inside. The voxels v cover the region inside.
func extend[T voxel](v voxels[T], inside, region box) voxels[T] {
	out := newVoxels[T](region.Shape)
	nearest := func(axis, i int) int {
		return min(max(region.Offset[axis]+i-inside.Offset[axis], 0), inside.Shape[axis]-1)
	}
	for z := range region.Shape[0] {
		for y := range region.Shape[1] {
			from, to := v.row(nearest(0, z), nearest(1, y)), out.row(z, y)
			for x := range to {
				to[x] = from[nearest(2, x)]
			}
		}
	}
	return out
}
