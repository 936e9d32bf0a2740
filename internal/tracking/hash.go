package tracking

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"

	"example.org/daisy/geom"
)

// Hash is the lower-case hexadecimal SHA-256 by which daisy 2.0.0 knows the
// layout of a task's blocks. It covers total read region, read and write
// region of the template block, and fit; not the task's id, context apart from these, conflicts or retries.
func Hash(g *geom.Grid) string { return hashOf(groupPrefix, g) }

// What is hashed begins with the kind of layout: a group, or the one array in its place that daisy wrote before 2.0.0.
const (
	groupPrefix = "daisy-tracking:v1\n"
	arrayPrefix = "daisy-done-marker:v1\n"
)

func hashOf(prefix string, g *geom.Grid) string {
	sum := sha256.Sum256(hashedBytes(prefix, g.Spec()))
	return hex.EncodeToString(sum[:])
}

func hashedBytes(prefix string, spec geom.GridSpec) []byte {
	b := []byte(prefix)
	numbers := func(label string, c geom.Coordinate) {
		b = append(b, label...)
		for axis := range c.Dims() {
			b = binary.LittleEndian.AppendUint64(b, uint64(c.At(axis)))
			b = append(b, ',')
		}
		b = append(b, ';')
	}
	region := func(name string, r geom.Roi) {
		numbers(name+":offset=", r.Offset)
		numbers("shape=", r.Shape)
	}
	region("total", spec.TotalRead)
	region("read", spec.Read)
	region("write", spec.Write)
	fit := map[geom.Fit]string{geom.Valid: "Valid", geom.Overhang: "Overhang", geom.Shrink: "Shrink"}[spec.Fit]
	return append(b, "fit="+fit...)
}
