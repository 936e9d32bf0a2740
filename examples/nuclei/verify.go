package main

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// reference.json holds what numpy and scipy computed from the whole volume at once (data/README.md).
//
//go:embed reference.json
var referenceJSON []byte

// digest describes a volume: the SHA-256 is of its voxels in C order, little endian, without padding.
type digest struct {
	DType  string `json:"dtype"`
	Shape  point  `json:"shape"`
	SHA256 string `json:"sha256"`
}

type reference struct {
	Volume     digest `json:"volume"`
	Smoothed   digest `json:"int_gauss"`
	Labels     digest `json:"labels_by_first_voxel"`
	Components int    `json:"components"`
}

func readReference() (reference, error) {
	var r reference
	if err := json.Unmarshal(referenceJSON, &r); err != nil {
		return r, fmt.Errorf("reference.json: %w", err)
	}
	return r, nil
}

// verify reads the arrays back from disk, compares them with the reference, says what it found, and draws a slice of
// those that could be read. All differences are reported, not the first alone.
func verify(p project, log io.Writer) error {
	if err := p.check(); err != nil {
		return err
	}
	want, err := readReference()
	if err != nil {
		return err
	}
	image, err1 := compare[uint8](log, "nuclei", p.source(), want.Volume)
	smoothed, err2 := compare[uint8](log, "smoothed", p.smoothed(), want.Smoothed)
	labels, err3 := compare[int32](log, "labels", p.labels(), want.Labels)
	wrong := errors.Join(err1, err2, err3)

	if labels.data != nil {
		components := countLabels(labels)
		fmt.Fprintf(log, "%d components\n", components)
		if components != want.Components {
			wrong = errors.Join(wrong, fmt.Errorf("%s: %d components, expected %d", p.labels(), components, want.Components))
		}
	}
	if image.data != nil && smoothed.data != nil && labels.data != nil {
		if err := drawSlice(p.slice(), image, smoothed, labels); err != nil {
			return errors.Join(wrong, err)
		}
		fmt.Fprintf(log, "%s\n", p.slice())
	}
	if wrong != nil {
		return fmt.Errorf("THE RESULT IS WRONG\n%w\nstart over with `make demo ARGS=--fresh`; if it stays wrong, the program is", wrong)
	}
	return nil
}

// compare returns the voxels if the array could be read and has the right shape, whether or not they are right.
func compare[T voxel](log io.Writer, name, path string, want digest) (voxels[T], error) {
	a, err := openArray[T](path)
	if err != nil {
		return voxels[T]{}, err
	}
	if kind, _ := dtype[T](); kind != want.DType || a.shape != want.Shape {
		return voxels[T]{}, fmt.Errorf("%s: %s of shape %v, expected %s of shape %v", path, kind, a.shape, want.DType, want.Shape)
	}
	v, err := a.read(a.extent())
	if err != nil {
		return voxels[T]{}, fmt.Errorf("%s: %w", name, err)
	}
	sum := sha256.Sum256(littleEndian(v.data))
	got := hex.EncodeToString(sum[:])
	if got != want.SHA256 {
		fmt.Fprintf(log, "%-9s %.8s…  WRONG\n", name, got)
		return v, fmt.Errorf("%s: wrong bytes\n  expected sha256 %s\n  got      sha256 %s", path, want.SHA256, got)
	}
	fmt.Fprintf(log, "%-9s %.8s…  ok\n", name, got)
	return v, nil
}

// countLabels is the number of different labels but 0.
func countLabels(labels voxels[int32]) int {
	seen := make(map[int32]struct{})
	last := int32(0)
	for _, label := range labels.data {
		if label != last && label != 0 {
			seen[label] = struct{}{}
		}
		last = label
	}
	return len(seen)
}
