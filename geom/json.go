package geom

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
)

// MarshalJSON writes a list of integers: [1,2,3].
func (c Coordinate) MarshalJSON() ([]byte, error) {
	b := append(make([]byte, 0, 32), '[')
	for i := range int(c.n) {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, c.v[i], 10)
	}
	return append(b, ']'), nil
}

// UnmarshalJSON reads a list of at most MaxDims integers. Fractions, null and anything else are refused.
func (c *Coordinate) UnmarshalJSON(data []byte) error {
	if bytes.Equal(bytes.TrimSpace(data), []byte("null")) {
		return fmt.Errorf("geom: a coordinate is a list of integers, not null")
	}
	var parts []json.RawMessage
	if err := json.Unmarshal(data, &parts); err != nil {
		return fmt.Errorf("geom: a coordinate is a list of integers: %w", err)
	}
	v := make([]int64, 0, MaxDims)
	for i, p := range parts {
		if i == MaxDims {
			return fmt.Errorf("geom: a coordinate of %d dimensions: at most %d are supported", len(parts), MaxDims)
		}
		x, err := strconv.ParseInt(string(p), 10, 64)
		if err != nil {
			return fmt.Errorf("geom: %s on axis %d is no 64-bit integer", p, i)
		}
		v = append(v, x)
	}
	read, err := CoordOf(v)
	if err == nil {
		*c = read
	}
	return err
}

type roiJSON struct {
	Offset *Coordinate `json:"offset"`
	Shape  *Coordinate `json:"shape"`
}

// MarshalJSON writes {"offset":[..],"shape":[..]}.
func (r Roi) MarshalJSON() ([]byte, error) {
	return json.Marshal(roiJSON{&r.Offset, &r.Shape})
}

// UnmarshalJSON reads {"offset":[..],"shape":[..]}: both must be there, with the same number of axes, and nothing else.
func (r *Roi) UnmarshalJSON(data []byte) error {
	var in roiJSON
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&in); err != nil {
		return fmt.Errorf("geom: a region is {\"offset\":[..],\"shape\":[..]}: %w", err)
	}
	if in.Offset == nil || in.Shape == nil {
		return fmt.Errorf("geom: a region needs both offset and shape")
	}
	if in.Offset.n != in.Shape.n {
		return fmt.Errorf("geom: offset %v has %d dimensions, shape %v has %d", in.Offset, in.Offset.n, in.Shape, in.Shape.n)
	}
	*r = Roi{Offset: *in.Offset, Shape: *in.Shape}
	return nil
}
