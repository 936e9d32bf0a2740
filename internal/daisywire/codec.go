package daisywire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"unicode/utf8"
)

const (
	// Version is the version byte of daisy 2.0.0.
	Version = 2
	// MaxFrame is how many bytes a frame may have behind its length, as in daisy.
	MaxFrame = 64 << 20
	// maxAxes bounds the axes of a region: each byte of a frame can stand for one, which takes eight in memory.
	maxAxes = 32
)

// ErrMalformed is wrapped by every error about what a peer has sent.
var ErrMalformed = errors.New("not a message of daisy 2")

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, args...))
}

// A Dialect is a form of the protocol; see the package's documentation.
type Dialect uint8

const (
	// Released is that of daisy 2.0.0.
	Released Dialect = iota
	// Older is that of the sources before it.
	Older
)

// DialectOf tells the dialect of a client by what stands behind the length of its first frame. It fails for what no client begins with.
func DialectOf(first []byte) (Dialect, error) {
	if len(first) == 0 {
		return 0, malformed("a frame of length zero")
	}
	switch first[0] {
	case Version:
		return Released, nil
	case byte(AcquireBlock), byte(Register):
		return Older, nil
	case byte(Disconnect):
		if len(first) == 1 {
			return Older, nil
		}
	case pickle:
		return 0, ErrDaisy1
	}
	return 0, malformed("its protocol has version %d, and this is version %d of daisy 2.0.0: let the client use a released daisy 2 (pip install 'daisy>=2')", first[0], Version)
}

// Append appends a message as a whole frame.
func Append(dst []byte, d Dialect, m *Message) []byte {
	at := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	if d == Released {
		dst = append(dst, Version)
	}
	dst = append(dst, byte(m.Kind))
	switch m.Kind {
	case AcquireBlock:
		dst = appendString(dst, m.TaskID)
		dst = appendOption(dst, m.HasWorker)
		if m.HasWorker {
			dst = appendUint(dst, m.Worker)
		}
	case SendBlock:
		dst = appendBlock(dst, &m.Block)
		dst = appendOption(dst, m.HasTimeout)
		if m.HasTimeout {
			dst = binary.LittleEndian.AppendUint64(dst, math.Float64bits(m.Timeout))
		}
	case ReleaseBlock:
		dst = appendBlock(dst, &m.Block)
	case BlockFailed:
		dst = appendBlock(dst, &m.Block)
		dst = appendString(dst, m.Error)
	case Register:
		dst = appendString(dst, m.TaskID)
		dst = appendUint(dst, m.Worker)
	}
	binary.BigEndian.PutUint32(dst[at:], uint32(len(dst)-at-4))
	return dst
}

func appendUint(dst []byte, v uint64) []byte {
	switch {
	case v <= 250:
		return append(dst, byte(v))
	case v <= math.MaxUint16:
		return binary.LittleEndian.AppendUint16(append(dst, 251), uint16(v))
	case v <= math.MaxUint32:
		return binary.LittleEndian.AppendUint32(append(dst, 252), uint32(v))
	default:
		return binary.LittleEndian.AppendUint64(append(dst, 253), v)
	}
}

func appendInt(dst []byte, v int64) []byte { return appendUint(dst, uint64(v<<1)^uint64(v>>63)) }

func appendString(dst []byte, s string) []byte { return append(appendUint(dst, uint64(len(s))), s...) }

func appendOption(dst []byte, there bool) []byte {
	if there {
		return append(dst, 1)
	}
	return append(dst, 0)
}

func appendBlock(dst []byte, b *Block) []byte {
	for _, list := range [...][]int64{b.Read.Offset, b.Read.Shape, b.Write.Offset, b.Write.Shape} {
		dst = appendUint(dst, uint64(len(list)))
		for _, v := range list {
			dst = appendInt(dst, v)
		}
	}
	dst = appendString(dst, b.TaskID)
	dst = appendUint(dst, b.SpatialID)
	dst = append(dst, byte(b.Status))
	dst = appendOption(dst, b.Stats != nil)
	if s := b.Stats; s != nil {
		dst = binary.LittleEndian.AppendUint64(dst, math.Float64bits(s.WallSeconds))
		dst = binary.LittleEndian.AppendUint64(dst, math.Float64bits(s.CPUSeconds))
		dst = appendUint(dst, s.PeakRSSBytes)
		dst = appendUint(dst, s.IOReadBytes)
		dst = appendUint(dst, s.IOWriteBytes)
		dst = binary.LittleEndian.AppendUint32(dst, math.Float32bits(s.GPUUtilPercent))
		dst = appendUint(dst, s.GPUMemBytes)
	}
	return dst
}

// Decode reads a message from what stands behind the length of a frame. Nothing of the message points into payload.
func Decode(payload []byte, d Dialect) (Message, error) {
	r := decoder{rest: payload}
	if d == Released {
		switch v, ok := r.byte(); {
		case !ok:
			return Message{}, malformed("a frame of length zero")
		case v != Version:
			return Message{}, malformed("a frame of version %d on a connection of version %d", v, Version)
		}
	}
	m := Message{Kind: Kind(r.variant("message", uint64(kinds)))}
	switch m.Kind {
	case AcquireBlock:
		m.TaskID = r.string()
		if d == Released || len(r.rest) > 0 {
			if m.HasWorker = r.option(); m.HasWorker {
				m.Worker = r.uint()
			}
		}
	case SendBlock:
		m.Block = r.block()
		m.Block.Stats = r.stats(d, 0)
		if d == Released || len(r.rest) > 0 {
			if m.HasTimeout = r.option(); m.HasTimeout {
				m.Timeout = r.float64()
			}
		}
	case ReleaseBlock:
		m.Block = r.block()
		m.Block.Stats = r.stats(d, 0)
	case BlockFailed:
		m.Block = r.block()
		m.Block.Stats = r.stats(d, 1)
		m.Error = r.string()
	case Register:
		m.TaskID = r.string()
		m.Worker, m.HasWorker = r.uint(), true
	}
	if r.err != nil {
		return Message{}, r.err
	}
	return m, nil
}

// A decoder reads a message. The first fault sticks; later reads give zeros.
type decoder struct {
	rest []byte
	err  error
}

func (r *decoder) fail(format string, args ...any) {
	if r.err == nil {
		r.err = malformed(format, args...)
	}
	r.rest = nil
}

func (r *decoder) take(n int) []byte {
	if r.err != nil || n > len(r.rest) {
		r.fail("a frame that ends in the middle of a message")
		return make([]byte, 8)[:n]
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

func (r *decoder) byte() (byte, bool) {
	b := r.take(1)[0]
	return b, r.err == nil
}

func (r *decoder) uint() uint64 {
	switch tag := r.take(1)[0]; tag {
	case 251:
		return uint64(binary.LittleEndian.Uint16(r.take(2)))
	case 252:
		return uint64(binary.LittleEndian.Uint32(r.take(4)))
	case 253:
		return binary.LittleEndian.Uint64(r.take(8))
	case 254, 255:
		r.fail("a number of more than 64 bits")
		return 0
	default:
		return uint64(tag)
	}
}

func (r *decoder) int() int64 {
	u := r.uint()
	return int64(u>>1) ^ -int64(u&1)
}

func (r *decoder) float64() float64 {
	return math.Float64frombits(binary.LittleEndian.Uint64(r.take(8)))
}

func (r *decoder) float32() float32 {
	return math.Float32frombits(binary.LittleEndian.Uint32(r.take(4)))
}

// variant reads the number of a variant of an enumeration of n.
func (r *decoder) variant(what string, n uint64) uint64 {
	v := r.uint()
	if v >= n {
		r.fail("%s number %d", what, v)
		return 0
	}
	return v
}

func (r *decoder) option() bool {
	b := r.take(1)[0]
	if b > 1 {
		r.fail("an option that is neither there nor not")
	}
	return b == 1
}

func (r *decoder) string() string {
	n := r.uint()
	if n > uint64(len(r.rest)) {
		r.fail("a text of %d bytes in a frame with %d left", n, len(r.rest))
		return ""
	}
	b := r.take(int(n))
	if !utf8.Valid(b) {
		r.fail("a text that is not UTF-8")
	}
	return string(b)
}

func (r *decoder) ints() []int64 {
	n := r.uint()
	if n > maxAxes || n > uint64(len(r.rest)) {
		r.fail("a region of %d axes in a frame with %d bytes left", n, len(r.rest))
		return nil
	}
	list := make([]int64, n)
	for i := range list {
		list[i] = r.int()
	}
	return list
}

// block reads a block up to its statistics.
func (r *decoder) block() (b Block) {
	b.Read = Region{r.ints(), r.ints()}
	b.Write = Region{r.ints(), r.ints()}
	b.TaskID, b.SpatialID = r.string(), r.uint()
	b.Status = Status(r.variant("status", uint64(statuses)))
	return b
}

// leastStats is the fewest bytes that statistics take.
const leastStats = 8 + 8 + 1 + 1 + 1 + 4 + 1

// stats reads the statistics of a block, where there are any: some older clients do not know them. behind is how many bytes come behind
// them at least. With 1, a text comes: its length says whether it is all that is left.
func (r *decoder) stats(d Dialect, behind int) *Stats {
	if d == Older {
		unknown := len(r.rest) == 0
		if behind == 1 && len(r.rest) > 0 {
			text := decoder{rest: r.rest}
			n := text.uint()
			unknown = text.err == nil && n == uint64(len(text.rest))
		}
		if unknown {
			return nil
		}
	}
	if !r.option() {
		return nil
	}
	if len(r.rest) < leastStats {
		r.fail("a frame that ends in the middle of statistics")
		return nil
	}
	return &Stats{
		WallSeconds: r.float64(), CPUSeconds: r.float64(),
		PeakRSSBytes: r.uint(), IOReadBytes: r.uint(), IOWriteBytes: r.uint(),
		GPUUtilPercent: r.float32(), GPUMemBytes: r.uint(),
	}
}
