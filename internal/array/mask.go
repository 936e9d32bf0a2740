package array

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"example.org/daisy/geom"
)

// OpenMask reads a mask of blocks: a NumPy .npy file (format 1.0, 2.0 or 3.0) of bool or uint8 in C or Fortran order, of exactly
// this shape. It returns one bit per block in C order: bit i%64 of word i/64, set where the value is not 0.
func OpenMask(path string, shape geom.Coordinate) ([]uint64, error) {
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("there is no file %s", path)
	}
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	bits, err := readMask(f, info.Size(), shape)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return bits, nil
}

// readMask reads a .npy of size bytes. Nothing is allocated before the size of the file agrees with the shape.
func readMask(f io.Reader, size int64, shape geom.Coordinate) ([]uint64, error) {
	r := bufio.NewReaderSize(f, 1<<16)
	h, headerSize, err := readNpyHeader(r)
	if err != nil {
		return nil, err
	}
	if len(h.shape) != shape.Dims() || h.shapeText() != shape.String() {
		return nil, fmt.Errorf("the mask has shape %s; the grid of blocks has %v", h.shapeText(), shape)
	}
	n, err := shape.Product()
	if err != nil {
		return nil, err
	}
	if size-headerSize != n {
		return nil, fmt.Errorf("the mask of shape %v needs %d bytes of data; the file has %d", shape, n, size-headerSize)
	}
	bits := make([]uint64, (n+63)/64)
	step := make([]int64, shape.Dims()) // flat index of a step on each axis
	for i, s := shape.Dims()-1, int64(1); i >= 0; i-- {
		step[i] = s
		s *= shape.At(i)
	}
	at, flat := make([]int64, shape.Dims()), int64(0)
	for i := range n {
		v, err := r.ReadByte()
		if err != nil {
			return nil, fmt.Errorf("the data ends after %d of %d bytes", i, n)
		}
		if v != 0 {
			bits[flat/64] |= 1 << (flat % 64)
		}
		if !h.fortran {
			flat++
			continue
		}
		for axis := range at { // the first axis is the fastest
			at[axis]++
			flat += step[axis]
			if at[axis] < shape.At(axis) {
				break
			}
			flat -= step[axis] * shape.At(axis)
			at[axis] = 0
		}
	}
	return bits, nil
}

type npyHeader struct {
	shape   []int64
	fortran bool
}

func (h npyHeader) shapeText() string {
	parts := make([]string, len(h.shape))
	for i, v := range h.shape {
		parts[i] = strconv.FormatInt(v, 10)
	}
	return "(" + strings.Join(parts, ", ") + ")"
}

// readNpyHeader reads magic, version, length and the dictionary, a Python literal such as
// {'descr': '|b1', 'fortran_order': False, 'shape': (2, 3), }. See numpy.lib.format.
func readNpyHeader(r io.Reader) (h npyHeader, size int64, err error) {
	const maxHeader = 1 << 16
	pre := make([]byte, 8)
	if _, err := io.ReadFull(r, pre); err != nil || string(pre[:6]) != "\x93NUMPY" {
		return h, 0, errors.New("not a .npy file")
	}
	length, size := int64(0), int64(0)
	switch pre[6] {
	case 1:
		b := make([]byte, 2)
		_, err = io.ReadFull(r, b)
		length, size = int64(binary.LittleEndian.Uint16(b)), 10
	case 2, 3:
		b := make([]byte, 4)
		_, err = io.ReadFull(r, b)
		length, size = int64(binary.LittleEndian.Uint32(b)), 12
	default:
		return h, 0, fmt.Errorf("the .npy format %d.%d is not known; 1.0 to 3.0 are", pre[6], pre[7])
	}
	if err != nil {
		return h, 0, errors.New("the .npy header is cut off")
	}
	if length > maxHeader {
		return h, 0, fmt.Errorf("the .npy header is %d bytes long; at most %d are sensible for bool or uint8", length, maxHeader)
	}
	text := make([]byte, length)
	if _, err := io.ReadFull(r, text); err != nil {
		return h, 0, errors.New("the .npy header is cut off")
	}
	h, err = parseNpyHeader(string(text))
	return h, size + length, err
}

func parseNpyHeader(text string) (h npyHeader, err error) {
	descr, err := npyField(text, "descr")
	if err != nil {
		return h, err
	}
	end := -1
	if descr != "" && (descr[0] == '\'' || descr[0] == '"') {
		end = strings.IndexByte(descr[1:], descr[0])
	}
	if end < 0 {
		return h, errors.New("the mask has a structured type")
	}
	kind := descr[1 : 1+end]
	switch strings.TrimLeft(kind, "|<>=") {
	case "b1", "?", "bool", "u1", "B", "uint8":
	default:
		return h, fmt.Errorf("the mask has type %q", kind)
	}
	order, err := npyField(text, "fortran_order")
	if err != nil {
		return h, err
	}
	switch {
	case strings.HasPrefix(order, "True"):
		h.fortran = true
	case !strings.HasPrefix(order, "False"):
		return h, errors.New("the .npy header has a fortran_order that is neither True nor False")
	}
	shape, err := npyField(text, "shape")
	if err != nil {
		return h, err
	}
	closing := strings.IndexByte(shape, ')')
	if !strings.HasPrefix(shape, "(") || closing < 0 {
		return h, errors.New("the .npy header has a shape that is no tuple")
	}
	for part := range strings.SplitSeq(shape[1:closing], ",") {
		part = strings.TrimSuffix(strings.TrimSpace(part), "L") // Python 2 wrote 3L
		if part == "" {
			continue
		}
		v, err := strconv.ParseInt(part, 10, 64)
		if err != nil || v < 0 {
			return h, fmt.Errorf("the .npy header has the extent %q", part)
		}
		if h.shape = append(h.shape, v); len(h.shape) > 32 {
			return h, errors.New("the .npy header has more than 32 axes")
		}
	}
	return h, nil
}

// npyField returns the text that follows a key of the dictionary.
func npyField(text, key string) (string, error) {
	for _, quote := range []string{"'", `"`} {
		if _, rest, found := strings.Cut(text, quote+key+quote); found {
			rest = strings.TrimLeft(rest, " ")
			if strings.HasPrefix(rest, ":") {
				return strings.TrimLeft(rest[1:], " "), nil
			}
		}
	}
	return "", fmt.Errorf("the .npy header has no %q", key)
}
