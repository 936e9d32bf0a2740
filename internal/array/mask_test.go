package array_test

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"example.org/daisy/geom"
	"example.org/daisy/internal/array"
)

// npy is a .npy file with this header dictionary.
func npy(major byte, header string, data []byte) []byte {
	b := []byte{0x93, 'N', 'U', 'M', 'P', 'Y', major, 0}
	if major == 1 {
		b = binary.LittleEndian.AppendUint16(b, uint16(len(header)))
	} else {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(header)))
	}
	return append(append(b, header...), data...)
}

func maskFile(t interface {
	Fatal(...any)
	TempDir() string
}, data []byte) string {
	path := filepath.Join(t.TempDir(), "mask.npy")
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestMasksAreReadInEitherOrder(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		shape := geom.Fill(rapid.IntRange(1, 4).Draw(r, "dims"), 0)
		for axis := range shape.Dims() {
			shape = shape.With(axis, rapid.Int64Range(1, 7).Draw(r, "extent"))
		}
		n, err := shape.Product()
		if err != nil {
			r.Fatal(err)
		}
		values := rapid.SliceOfN(rapid.Byte(), int(n), int(n)).Draw(r, "values")
		fortran := rapid.Bool().Draw(r, "fortran")
		data, order := values, "False"
		if fortran {
			order = "True"
			data = make([]byte, n)
			for flat := range n { // the place of each value where the first axis is the fastest
				rest, place, step := flat, int64(0), n
				for axis := shape.Dims() - 1; axis >= 0; axis-- {
					step /= shape.At(axis)
					place += rest % shape.At(axis) * step
					rest /= shape.At(axis)
				}
				data[place] = values[flat]
			}
		}
		tuple := strings.TrimSuffix(shape.String(), ")") + ",)"
		header := fmt.Sprintf("{'descr': '%s', 'fortran_order': %s, 'shape': %s, }     \n", rapid.SampledFrom([]string{"|b1", "|u1", "<u1"}).Draw(r, "type"), order, tuple)
		bits, err := array.OpenMask(maskFile(t, npy(byte(rapid.IntRange(1, 3).Draw(r, "version")), header, data)), shape)
		if err != nil {
			r.Fatal(err)
		}
		for i, v := range values {
			if got, want := bits[i/64]>>(i%64)&1 != 0, v != 0; got != want {
				r.Fatalf("bit %d is %v, want %v", i, got, want)
			}
		}
	})
}

func TestWhatIsNoMaskOfTheGridIsRefusedWithAReason(t *testing.T) {
	header := func(descr, order, shape string) string {
		return fmt.Sprintf(`{"descr": %s, "fortran_order": %s, "shape": %s}`, descr, order, shape)
	}
	four := []byte{0, 1, 0, 1}
	for _, test := range []struct {
		data []byte
		want string
	}{
		{nil, "not a .npy file"},
		{[]byte("PK\x03\x04 an .npz file"), "not a .npy file"},
		{npy(4, "", nil), "the .npy format 4.0 is not known; 1.0 to 3.0 are"},
		{npy(1, "{}", nil), `the .npy header has no "descr"`},
		{npy(1, header("'<f8'", "False", "(2, 2)"), four), `the mask has type "<f8"`},
		{npy(1, header("[('a', '|u1')]", "False", "(2, 2)"), four), "the mask has a structured type"},
		{npy(1, header("'|u1'", "Perhaps", "(2, 2)"), four), "the .npy header has a fortran_order that is neither True nor False"},
		{npy(1, header("'|u1'", "False", "2"), four), "the .npy header has a shape that is no tuple"},
		{npy(1, header("'|u1'", "False", "(-2, 2)"), four), `the .npy header has the extent "-2"`},
		{npy(1, header("'|u1'", "False", "(4,)"), four), "the mask has shape (4); the grid of blocks has (2, 2)"},
		{npy(1, header("'|u1'", "False", "(2, 3)"), four), "the mask has shape (2, 3); the grid of blocks has (2, 2)"},
		{npy(1, header("'|u1'", "False", "(2, 2)"), four[:3]), "the mask of shape (2, 2) needs 4 bytes of data; the file has 3"},
		{npy(1, header("'|u1'", "False", "(2, 2)"), append(four, 0)), "the mask of shape (2, 2) needs 4 bytes of data; the file has 5"},
		{npy(2, "", nil)[:9], "the .npy header is cut off"},
		{append(npy(2, "", nil)[:8], 255, 255, 255, 255), "the .npy header is 4294967295 bytes long; at most 65536 are sensible for bool or uint8"},
	} {
		path := maskFile(t, test.data)
		_, err := array.OpenMask(path, geom.Coord(2, 2))
		if want := path + ": " + test.want; err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}

func FuzzMask(f *testing.F) {
	f.Add(npy(1, "{'descr': '|b1', 'fortran_order': False, 'shape': (2, 3), }", []byte{1, 0, 1, 0, 1, 0}))
	f.Add(npy(2, "{'descr': '|u1', 'fortran_order': True, 'shape': (2L, 3L), }", []byte{1, 0, 1, 0, 1, 0}))
	f.Add(npy(3, "{'shape': (", nil))
	f.Fuzz(func(t *testing.T, data []byte) {
		bits, err := array.OpenMask(maskFile(t, data), geom.Coord(2, 3))
		if err == nil && (len(bits) != 1 || bits[0]>>6 != 0) {
			t.Errorf("got %x", bits)
		}
	})
}
