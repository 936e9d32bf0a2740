// Package array reads the metadata of chunked arrays on disk (Zarr v2 and v3, N5, levels of OME-Zarr images) and block masks
// in .npy files. It reads no pixels.
package array

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"example.org/daisy/geom"
)

// An Array is what the metadata says of one array. Lists have one entry per axis, in C order: the last axis is the one that
// is contiguous in a C array. N5 stores them the other way round; they are turned here, so that axes agree with Zarr.
type Array struct {
	// Path is that of the array itself: of the level where a group was opened.
	Path string
	// Format is "zarr v2", "zarr v3" or "n5".
	Format string
	Shape  geom.Coordinate
	// Chunks is the shape of what is written at once: of a shard where the array is sharded, else of a chunk.
	Chunks geom.Coordinate
	// InnerChunks is the shape of the chunks within a shard; equal to Chunks where the array is not sharded.
	InnerChunks geom.Coordinate
	Sharded     bool
	// Axes are names, nil if the metadata has none. Space tells which of them are spatial, nil if it does not say.
	Axes  []string
	Space []bool
	// VoxelSize and Translation (of the first voxel), in Units; nil if not known. They are for people and never applied.
	VoxelSize   []float64
	Translation []float64
	Units       []string
	// DType is the type of an element as the format names it.
	DType string
}

// maxMetadata bounds a metadata file; a consolidated group of thousands of arrays stays below it.
const maxMetadata = 64 << 20

// Open reads the metadata of the array at path: an array, or an OME-Zarr image, of which it takes the largest level (the first
// of its datasets). A level below an image gets the image's axes and voxel size. Errors say what was looked for and what is there.
func Open(path string) (*Array, error) {
	if strings.Contains(path, "://") {
		return nil, fmt.Errorf("%s: only arrays on a mounted file system can be read, not URLs", path)
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, notThere(path)
	case err != nil:
		return nil, err
	case !info.IsDir():
		return nil, fmt.Errorf("%s is a file: an array is a folder with zarr.json (Zarr v3), .zarray (Zarr v2) or attributes.json (N5)", path)
	}
	n, err := readNode(path)
	if err != nil {
		return nil, err
	}
	if n.array != nil {
		return n.array, n.array.describe(path)
	}
	if n.image == nil {
		return nil, notAnArray(path, n.group)
	}
	level := n.image.levels[0]
	at := filepath.Join(path, filepath.FromSlash(level.path))
	sub, err := readNode(at)
	if err != nil {
		return nil, fmt.Errorf("level %q of the image %s: %w", level.path, path, err)
	}
	if sub.array == nil {
		return nil, fmt.Errorf("level %q of the image %s: %w", level.path, path, notAnArray(at, sub.group))
	}
	return sub.array, n.image.describe(sub.array, level)
}

// node is what a folder holds: an array, an image, or another group (its format), or nothing.
type node struct {
	array *Array
	image *image
	group string
}

// readNode reads the metadata files of one folder.
func readNode(path string) (node, error) {
	for _, kind := range []struct {
		file  string
		parse func(path string, data []byte) (node, error)
	}{
		{"zarr.json", parseZarr3}, {".zarray", parseZarr2}, {".zgroup", parseZarr2Group}, {"attributes.json", parseN5},
	} {
		file := filepath.Join(path, kind.file)
		data, err := readMetadata(file)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return node{}, err
		}
		n, err := kind.parse(path, data)
		if err != nil {
			return node{}, fmt.Errorf("%s: %w", file, err)
		}
		return n, nil
	}
	return node{}, nil
}

// readMetadata reads a regular file of bounded size, so that a pipe or a volume in its place cannot hang or fill us.
func readMetadata(file string) ([]byte, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", file)
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxMetadata+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxMetadata {
		return nil, fmt.Errorf("%s is larger than 64 MiB: that is no metadata", file)
	}
	return data, nil
}

func notThere(path string) error {
	dir := filepath.Dir(path)
	if _, err := os.Stat(dir); err != nil {
		return fmt.Errorf("%s does not exist, nor does its folder", path)
	}
	if found := arraysIn(dir); len(found) > 0 {
		return fmt.Errorf("%s does not exist; beside it are the arrays or groups %s", path, strings.Join(found, ", "))
	}
	return fmt.Errorf("%s does not exist", path)
}

func notAnArray(path, group string) error {
	if group == "" {
		return fmt.Errorf("%s holds no array: looked for zarr.json (Zarr v3), .zarray and .zgroup (Zarr v2) and attributes.json (N5)", path)
	}
	if found := arraysIn(path); len(found) > 0 {
		return fmt.Errorf("%s is a %s group, not an array or an OME-Zarr image; in it are %s", path, group, strings.Join(found, ", "))
	}
	return fmt.Errorf("%s is a %s group, not an array or an OME-Zarr image, and holds none", path, group)
}

// arraysIn names up to ten folders in dir that hold metadata, for messages.
func arraysIn(dir string) []string {
	f, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer f.Close()
	names, _ := f.Readdirnames(1000)
	slices.Sort(names)
	var found []string
	for _, name := range names {
		for _, file := range []string{"zarr.json", ".zarray", ".zgroup", "attributes.json"} {
			if _, err := os.Stat(filepath.Join(dir, name, file)); err == nil {
				found = append(found, name)
				break
			}
		}
		if len(found) == 10 {
			return append(found, "…")
		}
	}
	return found
}

// describe gives a level of an image the axes and voxel size of the image, which stand in a folder above it.
func (a *Array) describe(path string) error {
	const above = 3 // a level may stand deeper than just below its image
	abs, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	dir := abs
	for range above {
		parent := filepath.Dir(dir)
		if parent == dir {
			return nil
		}
		dir = parent
		n, err := readNode(dir)
		if err != nil || n.image == nil {
			continue // what stands above an array is none of its business unless it describes it
		}
		rel, err := filepath.Rel(dir, abs)
		if err != nil {
			return nil
		}
		for _, level := range n.image.levels {
			if filepath.Clean(filepath.FromSlash(level.path)) == rel {
				return n.image.describe(a, level)
			}
		}
	}
	return nil
}

// SpaceAxes returns the names of the spatial axes; nil if the metadata does not tell them from others.
func (a *Array) SpaceAxes() []string {
	if a.Space == nil || a.Axes == nil {
		return nil
	}
	var names []string
	for i, space := range a.Space {
		if space {
			names = append(names, a.Axes[i])
		}
	}
	return names
}

// Select returns the array as seen along the named axes, in the order given.
func (a *Array) Select(axes []string) (*Array, error) {
	if a.Axes == nil {
		return nil, fmt.Errorf("the axes of %s have no names", a.Path)
	}
	if len(axes) == 0 {
		return nil, errors.New("no axis is named")
	}
	pick := make([]int, len(axes))
	for i, name := range axes {
		at := slices.Index(a.Axes, name)
		if at < 0 {
			return nil, fmt.Errorf("%s has no axis %q; its axes are %s", a.Path, name, strings.Join(a.Axes, ", "))
		}
		if slices.Contains(axes[:i], name) {
			return nil, fmt.Errorf("axis %q is named twice", name)
		}
		pick[i] = at
	}
	return a.pick(pick), nil
}

// Last returns the array as seen along its last n axes, 1 ≤ n ≤ dimensions.
func (a *Array) Last(n int) *Array {
	pick := make([]int, n)
	for i := range pick {
		pick[i] = a.Shape.Dims() - n + i
	}
	return a.pick(pick)
}

func (a *Array) pick(axes []int) *Array {
	b := *a
	b.Shape, b.Chunks, b.InnerChunks = pickCoordinate(a.Shape, axes), pickCoordinate(a.Chunks, axes), pickCoordinate(a.InnerChunks, axes)
	b.Axes, b.Units = pickList(a.Axes, axes), pickList(a.Units, axes)
	b.Space = pickList(a.Space, axes)
	b.VoxelSize, b.Translation = pickList(a.VoxelSize, axes), pickList(a.Translation, axes)
	return &b
}

func pickCoordinate(c geom.Coordinate, axes []int) geom.Coordinate {
	out := geom.Fill(len(axes), 0)
	for i, at := range axes {
		out = out.With(i, c.At(at))
	}
	return out
}

func pickList[T any](list []T, axes []int) []T {
	if list == nil {
		return nil
	}
	out := make([]T, len(axes))
	for i, at := range axes {
		out[i] = list[at]
	}
	return out
}

// decode is json.Unmarshal with an error that names the field.
func decode(data []byte, into any) error {
	err := json.Unmarshal(data, into)
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		return fmt.Errorf("%q is a %s, not what the format has there", wrong.Field, wrong.Value)
	}
	if err != nil {
		return fmt.Errorf("not JSON: %w", err)
	}
	return nil
}

// shapes checks the shape of an array and of its chunks: 1 to 6 axes, no negative extent, chunks of at least 1.
func shapes(shape, chunks []int64) (s, c geom.Coordinate, err error) {
	switch {
	case len(shape) == 0:
		return s, c, errors.New("the array has no axes; 1 to 6 are supported")
	case len(shape) > geom.MaxDims:
		return s, c, fmt.Errorf("the array has %d axes; at most %d are supported", len(shape), geom.MaxDims)
	case len(chunks) != len(shape):
		return s, c, fmt.Errorf("the array has %d axes but its chunks have %d", len(shape), len(chunks))
	}
	for i := range shape {
		if shape[i] < 0 {
			return s, c, fmt.Errorf("shape %v has a negative extent", shape)
		}
		if chunks[i] < 1 {
			return s, c, fmt.Errorf("chunk shape %v has an extent below 1", chunks)
		}
	}
	if s, err = geom.CoordOf(shape); err != nil {
		return s, c, err
	}
	c, err = geom.CoordOf(chunks)
	return s, c, err
}
