package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
)

// array is a 3-D Zarr v2 array on disk: C order, uncompressed, little endian, one file a chunk, named z/y/x.
// Chunks at the upper edges are stored whole, padded. Format: https://zarr-specs.readthedocs.io/en/latest/v2/v2.0.html
type array[T voxel] struct {
	path   string
	shape  point
	chunks point
}

// metadata is the file .zarray.
type metadata struct {
	Shape      point           `json:"shape"`
	Chunks     point           `json:"chunks"`
	DType      string          `json:"dtype"`
	FillValue  int             `json:"fill_value"`
	Order      string          `json:"order"`
	Filters    json.RawMessage `json:"filters"`
	Separator  string          `json:"dimension_separator"`
	Compressor json.RawMessage `json:"compressor"`
	Format     int             `json:"zarr_format"`
}

const (
	metadataFile  = ".zarray"
	maxChunkBytes = 1 << 30
)

// dtype is numpy's name of a voxel type, and its size in bytes.
func dtype[T voxel]() (name string, size int) {
	switch any(T(0)).(type) {
	case uint8:
		return "|u1", 1
	case int32:
		return "<i4", 4
	default:
		return "<i8", 8
	}
}

// encodeMetadata returns the .zarray of an array of T.
func encodeMetadata[T voxel](shape, chunks point) []byte {
	name, _ := dtype[T]()
	null := json.RawMessage("null")
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false) // "<i4", not "\u003ci4"
	encoder.SetIndent("", "  ")
	err := encoder.Encode(metadata{Shape: shape, Chunks: chunks, DType: name, Order: "C", Filters: null,
		Separator: "/", Compressor: null, Format: 2})
	if err != nil {
		panic(err) // cannot happen: integers, strings and null into memory
	}
	return text.Bytes()
}

// decodeMetadata accepts only what this example can read: see array.
func decodeMetadata[T voxel](text []byte) (shape, chunks point, err error) {
	var m metadata
	if err := json.Unmarshal(text, &m); err != nil {
		return shape, chunks, err
	}
	name, size := dtype[T]()
	isNull := func(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }
	switch {
	case m.Format != 2:
		err = fmt.Errorf("zarr_format is %d, want 2", m.Format)
	case m.DType != name:
		err = fmt.Errorf("dtype is %q, want %q", m.DType, name)
	case m.Order != "C":
		err = fmt.Errorf("order is %q, want \"C\"", m.Order)
	case m.Separator != "/":
		err = fmt.Errorf("dimension_separator is %q, want \"/\"", m.Separator)
	case !isNull(m.Compressor) || !isNull(m.Filters):
		err = errors.New("compressed or filtered, want raw chunks (compressor and filters null)")
	case !fits(m.Shape, math.MaxInt64/8):
		err = fmt.Errorf("shape %v is not positive, or too large", m.Shape)
	case !fits(m.Chunks, maxChunkBytes/size):
		err = fmt.Errorf("chunks %v are not positive, or larger than 1 GiB", m.Chunks)
	}
	return m.Shape, m.Chunks, err
}

// fits says whether all extents are positive and their product is at most limit, without overflow.
func fits(shape point, limit int) bool {
	for _, n := range shape {
		if n <= 0 || n > limit {
			return false
		}
		limit /= n
	}
	return true
}

// openArray reads the metadata only.
func openArray[T voxel](path string) (array[T], error) {
	text, err := os.ReadFile(filepath.Join(path, metadataFile))
	if errors.Is(err, fs.ErrNotExist) {
		return array[T]{}, fmt.Errorf("no array at %s (no %s there): run `nuclei prepare` first", path, metadataFile)
	}
	if err != nil {
		return array[T]{}, err
	}
	shape, chunks, err := decodeMetadata[T](text)
	if err != nil {
		return array[T]{}, fmt.Errorf("%s: %w", filepath.Join(path, metadataFile), err)
	}
	return array[T]{path: path, shape: shape, chunks: chunks}, nil
}

func (a array[T]) extent() box { return box{Shape: a.shape} }

// grid is the number of chunks along each axis.
func (a array[T]) grid() point {
	var n point
	for axis := range n {
		n[axis] = (a.shape[axis]-1)/a.chunks[axis] + 1
	}
	return n
}

func (a array[T]) chunkPath(index point) string {
	return filepath.Join(a.path, strconv.Itoa(index[0]), strconv.Itoa(index[1]), strconv.Itoa(index[2]))
}

// chunkBox is the region of a chunk with its padding.
func (a array[T]) chunkBox(index point) box {
	return box{Offset: point{index[0] * a.chunks[0], index[1] * a.chunks[1], index[2] * a.chunks[2]}, Shape: a.chunks}
}

// read returns the voxels of a region inside the array. A chunk that is not there is an error, not zeros: the steps
// write every chunk, so a missing one means that its block did not run.
func (a array[T]) read(region box) (voxels[T], error) {
	if !a.extent().contains(region) {
		return voxels[T]{}, fmt.Errorf("%s: region %v is not inside the array %v", a.path, region, a.extent())
	}
	out := newVoxels[T](region.Shape)
	var first, last point
	for axis := range first {
		if region.Shape[axis] == 0 {
			return out, nil
		}
		first[axis] = region.Offset[axis] / a.chunks[axis]
		last[axis] = (region.end()[axis] - 1) / a.chunks[axis]
	}
	for z := first[0]; z <= last[0]; z++ {
		for y := first[1]; y <= last[1]; y++ {
			for x := first[2]; x <= last[2]; x++ {
				if err := a.readChunk(point{z, y, x}, out, region); err != nil {
					return voxels[T]{}, err
				}
			}
		}
	}
	return out, nil
}

// readChunk copies what a chunk holds of the region into out. It reads from disk only the planes of the chunk that the
// region needs: of a face perpendicular to z, one plane.
func (a array[T]) readChunk(index point, out voxels[T], region box) error {
	path := a.chunkPath(index)
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("chunk %s is missing: the block that writes it has not run", path)
	}
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	_, size := dtype[T]()
	if want := int64(a.chunks.volume() * size); info.Size() != want {
		return fmt.Errorf("chunk %s has %d bytes, want %d", path, info.Size(), want)
	}

	whole := a.chunkBox(index)
	part := whole.intersect(region)
	planes := box{Offset: whole.Offset, Shape: whole.Shape}
	planes.Offset[0], planes.Shape[0] = part.Offset[0], part.Shape[0]
	raw := make([]byte, planes.Shape.volume()*size)
	skipped := (planes.Offset[0] - whole.Offset[0]) * a.chunks[1] * a.chunks[2] * size
	if _, err := file.ReadAt(raw, int64(skipped)); err != nil {
		return fmt.Errorf("chunk %s: %w", path, err)
	}
	chunk := newVoxels[T](planes.Shape)
	if _, err := binary.Decode(raw, binary.LittleEndian, chunk.data); err != nil {
		return fmt.Errorf("chunk %s: %w", path, err)
	}
	copyBox(out, region, chunk, planes, part)
	return nil
}

// write stores the voxels of a region, which must be one chunk of the array, cut off at the array's upper edges.
func (a array[T]) write(region box, v voxels[T]) error {
	var index point
	for axis := range index {
		// Negative offsets fail the comparison with the chunk below.
		index[axis] = region.Offset[axis] / a.chunks[axis]
	}
	whole := a.chunkBox(index)
	if part := whole.intersect(a.extent()); part != region || part.Shape.volume() == 0 {
		return fmt.Errorf("%s: region %v is not a whole chunk of the array %v in chunks of %v", a.path, region, a.extent(), a.chunks)
	}
	chunk := newVoxels[T](a.chunks)
	copyBox(chunk, whole, v, region, region)
	return writeFile(a.chunkPath(index), littleEndian(chunk.data))
}

func littleEndian[T voxel](data []T) []byte {
	_, size := dtype[T]()
	raw := bytes.NewBuffer(make([]byte, 0, len(data)*size))
	if err := binary.Write(raw, binary.LittleEndian, data); err != nil {
		panic(err) // cannot happen: a slice of integers of fixed size into memory
	}
	return raw.Bytes()
}
