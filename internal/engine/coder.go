package engine

import (
	"encoding/binary"
	"errors"
	"math"
)

// A coder writes fields to the end of buf or, reading, takes them from its beginning.
type coder struct {
	buf     []byte
	reading bool
	err     error
}

var errShort = errors.New("it ends too early")

func (c *coder) uint64(v *uint64) {
	if !c.reading {
		c.buf = binary.AppendUvarint(c.buf, *v)
		return
	}
	if len(c.buf) > 0 && c.buf[0] < 0x80 { // most numbers are small: one byte
		*v, c.buf = uint64(c.buf[0]), c.buf[1:]
		return
	}
	n, size := binary.Uvarint(c.buf)
	if size <= 0 {
		c.fail(errShort)
		return
	}
	*v, c.buf = n, c.buf[size:]
}

func (c *coder) int64(v *int64) {
	n := uint64(*v)
	c.uint64(&n)
	*v = int64(n)
}

func (c *coder) uint32(v *uint32) {
	n := uint64(*v)
	c.uint64(&n)
	if n > math.MaxUint32 {
		c.fail(errors.New("a number is too large"))
		return
	}
	*v = uint32(n)
}

func (c *coder) int32(v *int32) {
	n := uint32(*v)
	c.uint32(&n)
	*v = int32(n)
}

func (c *coder) byte(v *uint8) {
	if !c.reading {
		c.buf = append(c.buf, *v)
		return
	}
	if len(c.buf) == 0 {
		c.fail(errShort)
		return
	}
	*v, c.buf = c.buf[0], c.buf[1:]
}

func (c *coder) bool(v *bool) {
	var b uint8
	if *v {
		b = 1
	}
	c.byte(&b)
	*v = b != 0
}

func (c *coder) fixed(v *uint64) {
	if !c.reading {
		c.buf = binary.BigEndian.AppendUint64(c.buf, *v)
		return
	}
	if len(c.buf) < 8 {
		c.fail(errShort)
		return
	}
	*v, c.buf = binary.BigEndian.Uint64(c.buf), c.buf[8:]
}

func (c *coder) string(v *string) {
	n := uint64(len(*v))
	c.uint64(&n)
	if !c.reading {
		c.buf = append(c.buf, *v...)
		return
	}
	if n > uint64(len(c.buf)) {
		c.fail(errShort)
		return
	}
	*v, c.buf = string(c.buf[:n]), c.buf[n:]
}

// fail keeps the first error; nothing is read after it.
func (c *coder) fail(err error) {
	if c.err == nil {
		c.err = err
	}
	c.buf = nil
}
