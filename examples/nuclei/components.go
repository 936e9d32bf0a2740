package main

// threshold parts foreground (value > threshold) from background: Otsu's threshold of the volume.
const threshold = 40

// labelBlock finds the 6-connected components of value > threshold in one block. A component's id is 1 + the position
// in C order, in the whole volume of the given shape, of its first voxel. So ids are unique across blocks though no
// block knows of another, and the order of the ids is the order of the first voxels. ids come in rising order.
func labelBlock(values voxels[uint8], region box, volume point) (labels voxels[int64], ids []int64) {
	labels = newVoxels[int64](values.shape)
	plane, line := values.shape[1]*values.shape[2], values.shape[2]
	var open []int
	// The scan is in the block's C order, which is that of the volume too: the first voxel met is the first of all.
	for start, value := range values.data {
		if value <= threshold || labels.data[start] != 0 {
			continue
		}
		z, y, x := start/plane+region.Offset[0], start%plane/line+region.Offset[1], start%line+region.Offset[2]
		id := 1 + (int64(z)*int64(volume[1])+int64(y))*int64(volume[2]) + int64(x)
		ids = append(ids, id)

		visit := func(at int) {
			if values.data[at] > threshold && labels.data[at] == 0 {
				labels.data[at] = id
				open = append(open, at)
			}
		}
		visit(start)
		for len(open) > 0 {
			at := open[len(open)-1]
			open = open[:len(open)-1]
			z, y, x := at/plane, at%plane/line, at%line
			if z > 0 {
				visit(at - plane)
			}
			if z+1 < values.shape[0] {
				visit(at + plane)
			}
			if y > 0 {
				visit(at - line)
			}
			if y+1 < values.shape[1] {
				visit(at + line)
			}
			if x > 0 {
				visit(at - 1)
			}
			if x+1 < values.shape[2] {
				visit(at + 1)
			}
		}
	}
	return labels, ids
}
