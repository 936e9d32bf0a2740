package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestWhatWholeChunksHoldIsReadBackInAnyRegion(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		shape, chunks := drawShape(t, "shape", 7), drawShape(t, "chunks", 4)
		dir, err := os.MkdirTemp("", "nuclei-*")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		makeArray[int32](t, dir, shape, chunks)
		a, err := openArray[int32](dir)
		if err != nil {
			t.Fatal(err)
		}
		whole := newVoxels[int32](shape)
		for i := range whole.data {
			whole.data[i] = int32(i) - 1000
		}
		for _, b := range gridBlocks(shape, chunks, 0) {
			part := newVoxels[int32](b.Write.Shape)
			copyBox(part, b.Write, whole, a.extent(), b.Write)
			if err := a.write(b.Write, part); err != nil {
				t.Fatal(err)
			}
		}
		var region box
		for axis := range region.Offset {
			region.Offset[axis] = rapid.IntRange(0, shape[axis]).Draw(t, "offset")
			region.Shape[axis] = rapid.IntRange(0, shape[axis]-region.Offset[axis]).Draw(t, "extent")
		}
		want := newVoxels[int32](region.Shape)
		copyBox(want, region, whole, a.extent(), region)
		got, err := a.read(region)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want.data, got.data); diff != "" {
			t.Fatalf("region %v of %v in chunks of %v (-want +got):\n%s", region, shape, chunks, diff)
		}
	})
}

func TestMetadataThatThisProgramCannotReadIsRefused(t *testing.T) {
	good := string(encodeMetadata[uint8](point{60, 256, 256}, point{32, 32, 32}))
	for _, test := range []struct{ old, new, want string }{
		{`"zarr_format": 2`, `"zarr_format": 3`, "zarr_format is 3, want 2"},
		{`|u1`, `<u2`, `dtype is "<u2", want "|u1"`},
		{`"order": "C"`, `"order": "F"`, `order is "F", want "C"`},
		{`"/"`, `"."`, `dimension_separator is ".", want "/"`},
		{`"compressor": null`, `"compressor": {"id": "zlib"}`, "compressed or filtered"},
		{`256,`, `-256,`, "is not positive"},
		{`32,`, `32000000000,`, "larger than 1 GiB"},
		{`256,`, `9223372036854775807,`, "or too large"},
		{`256,`, `256, 2,`, "has 4 numbers, want 3"},
		{`{`, ``, "invalid character"},
	} {
		_, _, err := decodeMetadata[uint8]([]byte(strings.Replace(good, test.old, test.new, 1)))
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s -> %s: got %v, want %s", test.old, test.new, err, test.want)
		}
	}
}

func TestAChunkThatWasCutOffIsRefused(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, metadataFile), string(encodeMetadata[uint8](point{2, 2, 2}, point{2, 2, 2})))
	chunk := filepath.Join(dir, "0", "0", "0")
	write(t, chunk, "1234567")
	a, err := openArray[uint8](dir)
	if err != nil {
		t.Fatal(err)
	}
	_, err = a.read(a.extent())
	if want := "chunk " + chunk + " has 7 bytes, want 8"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestRegionsOutsideTheArrayAreRefused(t *testing.T) {
	a := array[uint8]{path: t.TempDir(), shape: point{5, 5, 5}, chunks: point{2, 2, 2}}
	for _, region := range []box{
		{Offset: point{-1, 0, 0}, Shape: point{2, 2, 2}},
		{Offset: point{4, 4, 4}, Shape: point{2, 2, 2}},
		{Offset: point{0, 0, 0}, Shape: point{1, 2, 2}},
		{Offset: point{-40, 0, 0}, Shape: point{2, 2, 2}},
		{Offset: point{6, 6, 6}, Shape: point{0, 0, 0}},
	} {
		if err := a.write(region, newVoxels[uint8](region.Shape)); err == nil {
			t.Errorf("%v is written", region)
		}
		if _, err := a.read(region); err == nil {
			t.Errorf("%v is read", region)
		}
	}
}

func FuzzDecodeMetadata(f *testing.F) {
	f.Add(encodeMetadata[uint8](point{60, 256, 256}, point{32, 32, 32}))
	f.Add([]byte(`{"shape":[1,1,1],"chunks":[0,1,1]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		shape, chunks, err := decodeMetadata[uint8](text)
		if err != nil {
			return
		}
		again, cut, err := decodeMetadata[uint8](encodeMetadata[uint8](shape, chunks))
		if err != nil || again != shape || cut != chunks {
			t.Errorf("%v %v became %v %v, %v", shape, chunks, again, cut, err)
		}
	})
}
