package array

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

// image is a multiscale image of OME-Zarr (0.3 to 0.5): the same picture at several sizes, the largest first.
type image struct {
	axes   []omeAxis
	levels []omeLevel
	// transforms hold for all levels, after those of the level.
	transforms []omeTransform
}

// omeAxis is {"name", "type", "unit"}; up to 0.3 it was the bare name.
type omeAxis struct {
	Name string `json:"name"`
	Type string `json:"type"`
	Unit string `json:"unit"`
}

func (x *omeAxis) UnmarshalJSON(data []byte) error {
	if json.Unmarshal(data, &x.Name) == nil {
		if strings.Contains("zyx", x.Name) {
			x.Type = "space"
		}
		return nil
	}
	type plain omeAxis
	return json.Unmarshal(data, (*plain)(x))
}

type omeLevel struct {
	path       string
	transforms []omeTransform
}

// omeTransform is one of coordinateTransformations; scale and translation are known, others (identity, and those of files) count as none.
type omeTransform struct {
	Type        string          `json:"type"`
	Scale       json.RawMessage `json:"scale"`
	Translation json.RawMessage `json:"translation"`
}

type multiscales []struct {
	Axes     []omeAxis `json:"axes"`
	Datasets []struct {
		Path       string         `json:"path"`
		Transforms []omeTransform `json:"coordinateTransformations"`
	} `json:"datasets"`
	Transforms []omeTransform `json:"coordinateTransformations"`
}

// parseOME2 reads the attributes of a Zarr v2 group: OME-Zarr up to 0.4 has "multiscales" at the top. nil if there is no image.
func parseOME2(attributes []byte) (*image, error) {
	var m struct {
		Multiscales multiscales `json:"multiscales"`
	}
	if err := decode(attributes, &m); err != nil {
		return nil, err
	}
	return m.Multiscales.image()
}

// parseOME3 reads the attributes of a Zarr v3 group: OME-Zarr 0.5 has "multiscales" below "ome". nil if there is no image.
func parseOME3(attributes json.RawMessage) (*image, error) {
	if len(attributes) == 0 {
		return nil, nil
	}
	var m struct {
		OME struct {
			Multiscales multiscales `json:"multiscales"`
		} `json:"ome"`
	}
	if err := decode(attributes, &m); err != nil {
		return nil, err
	}
	return m.OME.Multiscales.image()
}

func (m multiscales) image() (*image, error) {
	if len(m) == 0 {
		return nil, nil
	}
	first := m[0]
	im := &image{axes: first.Axes, transforms: first.Transforms}
	for _, d := range first.Datasets {
		if !filepath.IsLocal(filepath.FromSlash(d.Path)) {
			return nil, fmt.Errorf("multiscales: the dataset path %q leads out of the image", d.Path)
		}
		im.levels = append(im.levels, omeLevel{d.Path, d.Transforms})
	}
	if len(im.levels) == 0 {
		return nil, errors.New("multiscales: no datasets")
	}
	return im, nil
}

// describe gives an array that is a level of the image the image's axes and voxel size.
func (im *image) describe(a *Array, level omeLevel) error {
	n := a.Shape.Dims()
	if len(im.axes) == n {
		names, units := make([]string, n), make([]string, n)
		space, anySpace, anyUnit := make([]bool, n), false, false
		for i, x := range im.axes {
			names[i], units[i], space[i] = x.Name, x.Unit, x.Type == "space"
			anySpace, anyUnit = anySpace || space[i], anyUnit || x.Unit != ""
		}
		if !distinct(names) {
			return fmt.Errorf("%s: the image names its axes %q: names must be there and differ", a.Path, names)
		}
		a.Axes, a.Space, a.Units = names, nil, nil
		if anySpace {
			a.Space = space
		}
		if anyUnit {
			a.Units = units
		}
	} else if len(im.axes) != 0 {
		return fmt.Errorf("%s has %d axes, its image %d", a.Path, n, len(im.axes))
	}
	a.VoxelSize, a.Translation = nil, nil
	for _, t := range append(level.transforms[:len(level.transforms):len(level.transforms)], im.transforms...) {
		if err := a.transform(t); err != nil {
			return err
		}
	}
	return nil
}

// transform applies one more coordinate transformation to the voxel size and the place of the first voxel.
func (a *Array) transform(t omeTransform) error {
	n := a.Shape.Dims()
	switch t.Type {
	case "scale":
		if t.Scale == nil {
			return nil // the values are in a file of their own
		}
		scale := hint[float64](t.Scale, n)
		if scale == nil {
			return fmt.Errorf("%s: scale must have %d numbers", a.Path, n)
		}
		if a.VoxelSize == nil {
			a.VoxelSize = scale
		} else {
			for i := range scale {
				a.VoxelSize[i] *= scale[i]
			}
		}
		for i := range a.Translation {
			a.Translation[i] *= scale[i]
		}
	case "translation":
		if t.Translation == nil {
			return nil
		}
		move := hint[float64](t.Translation, n)
		if move == nil {
			return fmt.Errorf("%s: translation must have %d numbers", a.Path, n)
		}
		if a.Translation == nil {
			a.Translation = move
		} else {
			for i := range move {
				a.Translation[i] += move[i]
			}
		}
	}
	return nil
}
