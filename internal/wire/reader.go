package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

const (
	// MaxFrame is the most that the length of a frame may say: 1 MiB.
	MaxFrame = 1 << 20

	header = 4
	// firstBuffer serves nearly every frame; a connection that was busy goes back to it, so that ten thousand idle ones
	// cost little.
	firstBuffer = 4 << 10
	keepBuffer  = 16 << 10
)

// ErrFrame is wrapped by every error about a frame itself, as against the connection that it came over.
var ErrFrame = errors.New("malformed frame")

// A Reader cuts a stream into frames. It is for one goroutine.
type Reader struct {
	from       io.Reader
	buf        []byte
	start, end int // buf[start:end] has been read and not used
	failure    error
}

// NewReader reads frames from r, with a buffer of its own.
func NewReader(r io.Reader) *Reader {
	return &Reader{from: r, buf: make([]byte, firstBuffer)}
}

// Next returns the next frame. The payload is valid until the next call. io.EOF means that the stream ended between two
// frames, io.ErrUnexpectedEOF that it ended inside one; errors of the stream come as they are; what is not a frame of this
// Version gives an error that wraps ErrFrame. After an error every call gives that error. No call allocates, but for frames
// larger than the buffer, which grows no faster than the bytes come.
func (r *Reader) Next() (Kind, []byte, error) {
	if r.failure != nil {
		return 0, nil, r.failure
	}
	if r.start == r.end && len(r.buf) > keepBuffer {
		r.buf, r.start, r.end = make([]byte, firstBuffer), 0, 0
	}
	if err := r.fill(header); err != nil {
		return r.fail(err)
	}
	length := binary.BigEndian.Uint32(r.buf[r.start:])
	if length > MaxFrame || length < 2 {
		return r.fail(fmt.Errorf("%w: its length is %d, allowed are 2 to %d", ErrFrame, length, MaxFrame))
	}
	if err := r.fill(header + 1); err != nil {
		return r.fail(err)
	}
	if v := r.buf[r.start+header]; v != Version {
		return r.fail(fmt.Errorf("%w: version %d, this program speaks version %d", ErrFrame, v, Version))
	}
	if err := r.fill(header + int(length)); err != nil {
		return r.fail(err)
	}
	frame := r.buf[r.start+header : r.start+header+int(length)]
	r.start += header + int(length)
	return Kind(frame[1]), frame[2:], nil
}

// Buffered says whether a whole frame has come already, so that Next will not wait.
func (r *Reader) Buffered() bool {
	if r.failure != nil {
		return true
	}
	have := r.end - r.start
	if have < header {
		return false
	}
	// A length that Next will refuse counts as whole: the error is there.
	length := binary.BigEndian.Uint32(r.buf[r.start:])
	return length > MaxFrame || have >= header+int(length)
}

func (r *Reader) fail(err error) (Kind, []byte, error) {
	r.failure = err
	return 0, nil, err
}

// fill reads until n bytes of the frame are there.
func (r *Reader) fill(n int) error {
	for empty := 0; r.end-r.start < n; {
		if r.start > 0 && (r.start == r.end || r.start+n > len(r.buf)) {
			r.end = copy(r.buf, r.buf[r.start:r.end])
			r.start = 0
		}
		if r.end == len(r.buf) {
			grown := make([]byte, min(2*len(r.buf), header+MaxFrame))
			copy(grown, r.buf)
			r.buf = grown
		}
		got, err := r.from.Read(r.buf[r.end:])
		r.end += got
		if r.end-r.start >= n {
			return nil
		}
		if err != nil {
			if err == io.EOF && r.end > r.start {
				return io.ErrUnexpectedEOF
			}
			return err
		}
		if got > 0 {
			empty = 0
		} else if empty++; empty == 100 {
			return io.ErrNoProgress
		}
	}
	return nil
}
