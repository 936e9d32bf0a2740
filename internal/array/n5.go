package array

import (
	"encoding/json"
	"slices"
)

// parseN5 reads attributes.json of an N5 dataset or group (N5 specification 4). N5 lists the fastest axis first; everything is
// turned into C order here.
func parseN5(path string, data []byte) (node, error) {
	var m struct {
		Dimensions *[]int64        `json:"dimensions"`
		BlockSize  []int64         `json:"blockSize"`
		DataType   json.RawMessage `json:"dataType"`
		Pixel      struct {
			Unit       string          `json:"unit"`
			Dimensions json.RawMessage `json:"dimensions"`
		} `json:"pixelResolution"`
		Axes       json.RawMessage `json:"axes"`
		Resolution json.RawMessage `json:"resolution"`
		Offset     json.RawMessage `json:"offset"`
		Units      json.RawMessage `json:"units"`
	}
	// Attributes other than the first three are free, so one of another form must not make the array unreadable.
	if err := decode(data, &struct {
		Dimensions **[]int64        `json:"dimensions"`
		BlockSize  *[]int64         `json:"blockSize"`
		DataType   *json.RawMessage `json:"dataType"`
	}{&m.Dimensions, &m.BlockSize, &m.DataType}); err != nil {
		return node{}, err
	}
	if m.Dimensions == nil {
		return node{group: "n5"}, nil
	}
	_ = json.Unmarshal(data, &m) // hints only: what decodes is taken
	slices.Reverse(*m.Dimensions)
	slices.Reverse(m.BlockSize)
	a := &Array{Path: path, Format: "n5", DType: typeName(m.DataType)}
	var err error
	if a.Shape, a.Chunks, err = shapes(*m.Dimensions, m.BlockSize); err != nil {
		return node{}, err
	}
	a.InnerChunks = a.Chunks
	n := a.Shape.Dims()
	if names := hint[string](m.Axes, n); distinct(names) {
		a.Axes = names
	}
	if a.VoxelSize = hint[float64](m.Resolution, n); a.VoxelSize == nil {
		a.VoxelSize = hint[float64](m.Pixel.Dimensions, n)
	}
	a.Translation = hint[float64](m.Offset, n)
	if a.Units = hint[string](m.Units, n); a.Units == nil && m.Pixel.Unit != "" {
		a.Units = slices.Repeat([]string{m.Pixel.Unit}, n)
	}
	slices.Reverse(a.Axes)
	slices.Reverse(a.VoxelSize)
	slices.Reverse(a.Translation)
	slices.Reverse(a.Units)
	return node{array: a}, nil
}
