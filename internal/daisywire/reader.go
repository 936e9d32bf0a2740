package daisywire

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// ErrDaisy1 is what a client of daisy 1.x gets: it sends pickled objects, and nothing here unpickles anything.
var ErrDaisy1 = fmt.Errorf("%w: it is a client of daisy 1.x, which sends pickled Python objects: let it use daisy 2 (pip install 'daisy>=2')", ErrMalformed)

// IsDaisy1 reports whether the first bytes of a connection, five or more, are those of a client of daisy 1.x: a length below 65536, little
// endian, and a pickle, which begins with 0x80.
func IsDaisy1(first []byte) bool {
	return len(first) >= 5 && first[2] == 0 && first[3] == 0 && first[4] == pickle
}

const pickle = 0x80

const (
	readBuffer = 1 << 10
	// growth is how much of a frame is allocated before any of it has come.
	growth = 64 << 10
)

// A frameReader reads frames.
type frameReader struct {
	r   *bufio.Reader
	buf []byte
	// begun, if not nil, is called with true when a frame has begun, and with false when all of it is there.
	begun func(bool)
}

func newFrameReader(r io.Reader) *frameReader {
	return &frameReader{r: bufio.NewReaderSize(r, readBuffer)}
}

// next returns what stands behind the length of the next frame, good until the call after it. io.EOF: the connection has ended between
// two frames.
func (f *frameReader) next() ([]byte, error) {
	if cap(f.buf) > growth {
		f.buf = nil // nobody keeps what one long text took
	}
	if _, err := f.r.Peek(1); err != nil {
		return nil, err
	}
	if f.begun != nil {
		f.begun(true)
		defer f.begun(false)
	}
	head, err := f.r.Peek(4)
	if err != nil {
		return nil, cut(err)
	}
	size := binary.BigEndian.Uint32(head)
	if size > MaxFrame {
		if head[2] == 0 && head[3] == 0 { // one byte more tells, which a client of daisy 1.x has sent
			if head, _ = f.r.Peek(5); IsDaisy1(head) {
				return nil, ErrDaisy1
			}
		}
		return nil, malformed("a frame of %d bytes; the most is %d", size, MaxFrame)
	}
	n := int(size)
	_, _ = f.r.Discard(4) // they are in the buffer
	f.buf = f.buf[:0]
	for len(f.buf) < n {
		have := len(f.buf)
		more := min(n-have, max(have, growth))
		if have+more > cap(f.buf) {
			f.buf = append(make([]byte, 0, have+more), f.buf...)
		}
		f.buf = f.buf[:have+more]
		got, err := io.ReadFull(f.r, f.buf[have:])
		f.buf = f.buf[:have+got]
		if err != nil {
			return nil, cut(err)
		}
	}
	return f.buf, nil
}

// cut is the error for an end in the middle of a frame.
func cut(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return malformed("the connection ended in the middle of a frame")
	}
	return err
}
