package array

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// parseZarr3 reads zarr.json of an array or a group (Zarr core specification 3.1; sharding: codec sharding_indexed 1.0).
func parseZarr3(path string, data []byte) (node, error) {
	var m struct {
		Format     int             `json:"zarr_format"`
		Type       string          `json:"node_type"`
		Shape      []int64         `json:"shape"`
		DataType   json.RawMessage `json:"data_type"`
		Attributes json.RawMessage `json:"attributes"`
		Grid       struct {
			Name          string `json:"name"`
			Configuration struct {
				ChunkShape json.RawMessage `json:"chunk_shape"`
			} `json:"configuration"`
		} `json:"chunk_grid"`
		Codecs     []json.RawMessage `json:"codecs"`
		Dimensions []*string         `json:"dimension_names"`
	}
	if err := decode(data, &m); err != nil {
		return node{}, err
	}
	if m.Format != 3 {
		return node{}, fmt.Errorf("zarr_format is %d; zarr.json belongs to format 3", m.Format)
	}
	switch m.Type {
	case "group":
		im, err := parseOME3(m.Attributes)
		return node{image: im, group: "zarr v3"}, err
	case "array":
	default:
		return node{}, fmt.Errorf("node_type is %q; it must be \"array\" or \"group\"", m.Type)
	}
	if m.Grid.Name != "regular" {
		return node{}, fmt.Errorf("chunk_grid is %q; only \"regular\" is supported", m.Grid.Name)
	}
	var chunks []int64
	if err := json.Unmarshal(m.Grid.Configuration.ChunkShape, &chunks); err != nil {
		return node{}, errors.New("chunk_grid has no chunk_shape of integers")
	}
	a := &Array{Path: path, Format: "zarr v3", DType: typeName(m.DataType)}
	var err error
	if a.Shape, a.Chunks, err = shapes(m.Shape, chunks); err != nil {
		return node{}, err
	}
	a.InnerChunks = a.Chunks
	if err := a.readCodecs(m.Codecs); err != nil {
		return node{}, err
	}
	if len(m.Dimensions) == a.Shape.Dims() {
		a.Axes = namesOf(m.Dimensions)
	}
	a.readHints(m.Attributes)
	return node{array: a}, nil
}

// readCodecs looks for shards. A transpose before the sharding codec turns the axes of the inner chunks.
func (a *Array) readCodecs(codecs []json.RawMessage) error {
	n := a.Shape.Dims()
	order := make([]int, n) // order[i]: the axis of the array that axis i of the codec's input is
	for i := range order {
		order[i] = i
	}
	for _, raw := range codecs {
		var c struct {
			Name          string `json:"name"`
			Configuration struct {
				ChunkShape []int64         `json:"chunk_shape"`
				Order      json.RawMessage `json:"order"`
			} `json:"configuration"`
		}
		if json.Unmarshal(raw, &c) != nil {
			continue // a codec of another form, a bare name for one, is neither of these two
		}
		switch c.Name {
		case "transpose":
			var turn []int
			if json.Unmarshal(c.Configuration.Order, &turn) != nil || !isPermutation(turn, n) {
				return errors.New("codec transpose: order must be a permutation of the axes")
			}
			next := make([]int, n)
			for i, from := range turn {
				next[i] = order[from]
			}
			order = next
		case "sharding_indexed":
			_, inner, err := shapes(a.Chunks.Slice(), c.Configuration.ChunkShape)
			if err != nil {
				return fmt.Errorf("codec sharding_indexed: %w", err)
			}
			for i, axis := range order {
				a.InnerChunks = a.InnerChunks.With(axis, inner.At(i))
			}
			a.Sharded = true
			return nil
		}
	}
	return nil
}

// parseZarr2 reads .zarray (Zarr storage specification 2); axes and voxel size come from .zattrs beside it.
func parseZarr2(path string, data []byte) (node, error) {
	var m struct {
		Format int             `json:"zarr_format"`
		Shape  []int64         `json:"shape"`
		Chunks []int64         `json:"chunks"`
		DType  json.RawMessage `json:"dtype"`
	}
	if err := decode(data, &m); err != nil {
		return node{}, err
	}
	if m.Format != 2 {
		return node{}, fmt.Errorf("zarr_format is %d; .zarray belongs to format 2", m.Format)
	}
	a := &Array{Path: path, Format: "zarr v2", DType: typeName(m.DType)}
	var err error
	if a.Shape, a.Chunks, err = shapes(m.Shape, m.Chunks); err != nil {
		return node{}, err
	}
	a.InnerChunks = a.Chunks
	attributes, err := readMetadata(filepath.Join(path, ".zattrs"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return node{}, err
	}
	a.readHints(attributes)
	return node{array: a}, nil
}

// parseZarr2Group reads .zgroup, and .zattrs beside it.
func parseZarr2Group(path string, data []byte) (node, error) {
	var m struct {
		Format int `json:"zarr_format"`
	}
	if err := decode(data, &m); err != nil {
		return node{}, err
	}
	if m.Format != 2 {
		return node{}, fmt.Errorf("zarr_format is %d; .zgroup belongs to format 2", m.Format)
	}
	attributes, err := readMetadata(filepath.Join(path, ".zattrs"))
	if errors.Is(err, os.ErrNotExist) {
		return node{group: "zarr v2"}, nil
	}
	if err != nil {
		return node{}, err
	}
	im, err := parseOME2(attributes)
	if err != nil {
		return node{}, fmt.Errorf(".zattrs: %w", err)
	}
	return node{image: im, group: "zarr v2"}, nil
}

// readHints takes axis names and voxel sizes from attributes that common programs write (xarray; funlib). They are for people:
// what is absent or of another form is left out.
func (a *Array) readHints(attributes json.RawMessage) {
	var fields map[string]json.RawMessage
	if json.Unmarshal(attributes, &fields) != nil {
		return
	}
	n := a.Shape.Dims()
	for _, key := range []string{"axis_names", "_ARRAY_DIMENSIONS"} {
		if names := hint[string](fields[key], n); a.Axes == nil && distinct(names) {
			a.Axes = names
		}
	}
	for _, key := range []string{"voxel_size", "resolution"} {
		if a.VoxelSize == nil {
			a.VoxelSize = hint[float64](fields[key], n)
		}
	}
	a.Translation = hint[float64](fields["offset"], n)
	a.Units = hint[string](fields["units"], n)
}

// hint is a JSON list of n values of one type, nil if it is something else.
func hint[T any](raw json.RawMessage, n int) []T {
	var list []*T
	if len(raw) == 0 || json.Unmarshal(raw, &list) != nil || len(list) != n {
		return nil
	}
	out := make([]T, n)
	for i, v := range list {
		if v == nil {
			return nil
		}
		out[i] = *v
	}
	return out
}

// namesOf turns dimension names into axis names; nil unless all are there and differ, as an axis could not be told by its name.
func namesOf(list []*string) []string {
	names := make([]string, len(list))
	for i, p := range list {
		if p == nil {
			return nil
		}
		names[i] = *p
	}
	if !distinct(names) {
		return nil
	}
	return names
}

func distinct(names []string) bool {
	seen := map[string]bool{}
	for _, name := range names {
		if name == "" || seen[name] {
			return false
		}
		seen[name] = true
	}
	return len(names) > 0
}

// typeName is a data type as text: a plain name, the name of an extension, or "structured".
func typeName(raw json.RawMessage) string {
	var name string
	if json.Unmarshal(raw, &name) == nil {
		return name
	}
	var extension struct {
		Name string `json:"name"`
	}
	if json.Unmarshal(raw, &extension) == nil && extension.Name != "" {
		return extension.Name
	}
	return "structured"
}

func isPermutation(list []int, n int) bool {
	if len(list) != n {
		return false
	}
	seen := make([]bool, n)
	for _, v := range list {
		if v < 0 || v >= n || seen[v] {
			return false
		}
		seen[v] = true
	}
	return true
}
