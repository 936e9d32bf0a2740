package main

import (
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// floodFill numbers the components of the whole volume at once, by first voxel in C order.
func floodFill(v voxels[uint8]) []int32 {
	out := newVoxels[int32](v.shape)
	var fill func(p point, label int32) bool
	fill = func(p point, label int32) bool {
		for axis := range p {
			if p[axis] < 0 || p[axis] >= v.shape[axis] {
				return false
			}
		}
		voxel := &out.row(p[0], p[1])[p[2]]
		if v.row(p[0], p[1])[p[2]] <= threshold || *voxel != 0 {
			return false
		}
		*voxel = label
		for axis := range p {
			for _, step := range []int{-1, 1} {
				neighbour := p
				neighbour[axis] += step
				fill(neighbour, label)
			}
		}
		return true
	}
	next := int32(1)
	for z := range v.shape[0] {
		for y := range v.shape[1] {
			for x := range v.shape[2] {
				if fill(point{z, y, x}, next) {
					next++
				}
			}
		}
	}
	return out.data
}

func TestLabelsOfBlocksStitchedAreThoseOfAFloodFill(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// About half of the voxels are foreground: many components, many of them across borders.
		value := rapid.SampledFrom([]uint8{0, threshold, threshold + 1, 255})
		volume := drawVoxels(t, drawShape(t, "volume", 9), value)
		chunks := drawShape(t, "chunks", 5)

		dir, err := os.MkdirTemp("", "nuclei-*")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		p := project{dir: dir}
		makeArray[uint8](t, p.smoothed(), volume.shape, chunks)
		makeArray[int64](t, p.labelsBlocks(), volume.shape, chunks)
		makeArray[int32](t, p.labels(), volume.shape, chunks)
		smoothed, err := openArray[uint8](p.smoothed())
		if err != nil {
			t.Fatal(err)
		}
		blocks := rapid.Permutation(gridBlocks(volume.shape, chunks, 0)).Draw(t, "order")
		for _, b := range blocks {
			part := newVoxels[uint8](b.Write.Shape)
			copyBox(part, b.Write, volume, box{Shape: volume.shape}, b.Write)
			if err := smoothed.write(b.Write, part); err != nil {
				t.Fatal(err)
			}
		}
		do := func(do step, blocks []block) {
			for _, b := range blocks {
				if err := do(b); err != nil {
					t.Fatal(err)
				}
			}
		}
		do(p.label, blocks)
		do(p.stitch, gridBlocks(volume.shape, volume.shape, 0))
		do(p.relabel, blocks)

		labels, err := openArray[int32](p.labels())
		if err != nil {
			t.Fatal(err)
		}
		got, err := labels.read(labels.extent())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(floodFill(volume), got.data); diff != "" {
			t.Fatalf("volume %v in chunks of %v (-want +got):\n%s", volume.shape, chunks, diff)
		}
	})
}

func makeArray[T voxel](t *rapid.T, path string, shape, chunks point) {
	if err := writeFile(path+"/"+metadataFile, encodeMetadata[T](shape, chunks)); err != nil {
		t.Fatal(err)
	}
}

func TestJoinedIDsAreNumberedByTheirSmallest(t *testing.T) {
	j := newJoins([]int64{10, 20, 30, 40, 50})
	for _, pair := range [][2]int64{{50, 30}, {40, 50}, {0, 20}, {30, 30}} {
		if err := j.join(pair[0], pair[1]); err != nil {
			t.Fatal(err)
		}
	}
	got, components, err := j.numbers()
	if err != nil {
		t.Fatal(err)
	}
	want := map[int64]int32{10: 1, 20: 2, 30: 3, 40: 3, 50: 3}
	if !maps.Equal(got, want) || components != 3 {
		t.Errorf("got %v, %d components, want %v, 3", got, components, want)
	}
}

func TestAnIDThatNoBlockAnnouncedIsRefused(t *testing.T) {
	if err := newJoins([]int64{10}).join(10, 11); err == nil {
		t.Error("id 11 is accepted")
	}
}

func FuzzDecodeIDs(f *testing.F) {
	f.Add([]byte("1\n65537\n"))
	f.Add([]byte("1\n\n-2"))
	f.Fuzz(func(t *testing.T, text []byte) {
		ids, err := decodeIDs(text)
		if err != nil {
			return
		}
		again, err := decodeIDs(encodeIDs(ids))
		if err != nil || !slices.Equal(again, ids) {
			t.Errorf("%v became %v, %v", ids, again, err)
		}
	})
}

func FuzzDecodeNumbers(f *testing.F) {
	f.Add([]byte("1 1\n65537 1\n70000 2\n"))
	f.Add([]byte("1 1\n1 2\n"))
	f.Add([]byte("1 4294967296"))
	f.Fuzz(func(t *testing.T, text []byte) {
		of, err := decodeNumbers(text)
		if err != nil {
			return
		}
		again, err := decodeNumbers(encodeNumbers(of))
		if err != nil || !maps.Equal(again, of) {
			t.Errorf("%v became %v, %v", of, again, err)
		}
	})
}
