package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
)

// ErrMalformed is wrapped by every error of a Decode function.
var ErrMalformed = errors.New("malformed message")

// begin appends the header of a frame whose length is not known yet; end fills it in. at is where the frame begins.
func begin(dst []byte, k Kind) ([]byte, int) {
	at := len(dst)
	return append(dst, 0, 0, 0, 0, Version, byte(k)), at
}

func end(dst []byte, at int) []byte {
	binary.BigEndian.PutUint32(dst[at:], uint32(len(dst)-at-4))
	return dst
}

func appendUint(dst []byte, v uint64) []byte { return binary.AppendUvarint(dst, v) }
func appendInt(dst []byte, v int64) []byte   { return binary.AppendVarint(dst, v) }

func appendString(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

// cut shortens s to at most n bytes, at the start of a rune, so that a frame can never grow past its limit.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && s[n]&0xC0 == 0x80 {
		n--
	}
	return s[:n]
}

// decoder reads a payload. The first fault sticks; later reads give zeros.
type decoder struct {
	rest []byte
	err  error
}

func (d *decoder) fail(what string) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: %s", ErrMalformed, what)
	}
	d.rest = nil
}

func (d *decoder) uint() uint64 {
	// Most numbers are small: one byte.
	if len(d.rest) > 0 && d.rest[0] < 0x80 {
		v := d.rest[0]
		d.rest = d.rest[1:]
		return uint64(v)
	}
	v, n := binary.Uvarint(d.rest)
	if n <= 0 {
		d.fail("a number is cut off or does not fit 64 bits")
		return 0
	}
	if n > 1 && d.rest[n-1] == 0 {
		d.fail("a number is not in its shortest form")
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

func (d *decoder) int() int64 {
	u := d.uint()
	return int64(u>>1) ^ -int64(u&1)
}

func (d *decoder) uint32() uint32 {
	v := d.uint()
	if v > math.MaxUint32 {
		d.fail("a number does not fit 32 bits")
		return 0
	}
	return uint32(v)
}

func (d *decoder) byte(max byte, what string) byte {
	if len(d.rest) == 0 {
		d.fail(what + " is missing")
		return 0
	}
	v := d.rest[0]
	if v > max {
		d.fail(what + " is unknown")
		return 0
	}
	d.rest = d.rest[1:]
	return v
}

// bytes returns a part of the payload, not a copy.
func (d *decoder) bytes() []byte {
	n := d.uint()
	if n > uint64(len(d.rest)) {
		d.fail("a string is longer than the frame")
		return nil
	}
	b := d.rest[:n]
	d.rest = d.rest[n:]
	return b
}

func (d *decoder) string() string { return string(d.bytes()) }

// count reads the length of a list whose elements take at least size bytes each, and refuses one that cannot fit.
func (d *decoder) count(size int) int {
	n := d.uint()
	if n > uint64(len(d.rest)/size) {
		d.fail("a list is longer than the frame")
		return 0
	}
	return int(n)
}

func (d *decoder) end() error {
	if d.err == nil && len(d.rest) > 0 {
		d.fail("bytes are left over")
	}
	return d.err
}

// MaxText is the most bytes that Append functions keep of a text for people; what is longer is cut.
const MaxText = 64 << 10

// AppendHello appends the frame of m to dst.
func AppendHello(dst []byte, m Hello) []byte {
	dst, at := begin(dst, KindHello)
	dst = appendString(dst, m.Worker)
	dst = appendUint(dst, m.Nonce)
	dst = appendUint(dst, m.Epoch)
	dst = appendUint(dst, uint64(len(m.Held)))
	for _, h := range m.Held {
		dst = appendUint(dst, h.Epoch)
		dst = appendUint(dst, h.Lease)
		dst = appendUint(dst, uint64(h.Task))
		dst = appendUint(dst, h.Block)
		dst = appendUint(dst, uint64(h.Attempt))
	}
	return end(dst, at)
}

// DecodeHello reads the payload of a Hello.
func DecodeHello(payload []byte) (Hello, error) {
	d := decoder{rest: payload}
	m := Hello{Worker: d.string(), Nonce: d.uint(), Epoch: d.uint()}
	if n := d.count(5); n > 0 {
		m.Held = make([]Held, n)
		for i := range m.Held {
			m.Held[i] = Held{Epoch: d.uint(), Lease: d.uint(), Task: d.uint32(), Block: d.uint(), Attempt: d.uint32()}
		}
	}
	return m, d.end()
}

// AppendAcquire appends the frame of m to dst.
func AppendAcquire(dst []byte, m Acquire) []byte {
	dst, at := begin(dst, KindAcquire)
	dst = appendUint(dst, m.Request)
	dst = appendUint(dst, uint64(m.Max))
	return end(dst, at)
}

// DecodeAcquire reads the payload of an Acquire.
func DecodeAcquire(payload []byte) (Acquire, error) {
	d := decoder{rest: payload}
	m := Acquire{Request: d.uint(), Max: d.uint32()}
	if d.err == nil && m.Max == 0 {
		d.fail("Acquire asks for no block")
	}
	return m, d.end()
}

// AppendRelease appends the frame of m to dst.
func AppendRelease(dst []byte, m Release) []byte {
	dst, at := begin(dst, KindRelease)
	dst = appendUint(dst, m.Seq)
	dst = appendUint(dst, m.Epoch)
	dst = appendUint(dst, m.Lease)
	dst = append(dst, byte(m.Outcome))
	dst = appendInt(dst, m.WallNanos)
	dst = appendInt(dst, m.CPUNanos)
	dst = appendInt(dst, m.PeakRSSBytes)
	dst = appendString(dst, cut(m.Message, MaxText))
	dst = appendString(dst, cut(m.Tail, MaxText))
	if m.ReadBytes != 0 || m.WrittenBytes != 0 || m.GPU.Measured {
		dst = appendInt(dst, m.ReadBytes)
		dst = appendInt(dst, m.WrittenBytes)
	}
	if m.GPU.Measured {
		dst = appendUint(dst, uint64(math.Float32bits(m.GPU.Percent)))
		dst = appendInt(dst, m.GPU.MemBytes)
	}
	return end(dst, at)
}

// DecodeRelease reads the payload of a Release. It allocates only for texts that are not empty.
func DecodeRelease(payload []byte) (Release, error) {
	d := decoder{rest: payload}
	m := Release{
		Seq: d.uint(), Epoch: d.uint(), Lease: d.uint(), Outcome: Outcome(d.byte(byte(Recalled), "the outcome")),
		WallNanos: d.int(), CPUNanos: d.int(), PeakRSSBytes: d.int(),
		Message: d.string(), Tail: d.string(),
	}
	if len(d.rest) > 0 {
		m.ReadBytes, m.WrittenBytes = d.int(), d.int()
		if len(d.rest) > 0 {
			m.GPU = d.gpu()
		} else if d.err == nil && m.ReadBytes == 0 && m.WrittenBytes == 0 {
			d.fail("what is not known is said")
		}
	}
	return m, d.end()
}

// AppendSuccesses appends the frame of m to dst.
func AppendSuccesses(dst []byte, m Successes) []byte {
	dst, at := begin(dst, KindSuccesses)
	dst = appendUint(dst, m.Seq)
	dst = appendUint(dst, m.Epoch)
	dst = appendUint(dst, uint64(len(m.Ended)))
	for i := range m.Ended {
		dst = appendUint(dst, m.Ended[i].Lease)
		dst = appendInt(dst, m.Ended[i].WallNanos)
	}
	return end(dst, at)
}

// DecodeSuccesses reads the payload of Successes into m, whose memory it uses again.
func DecodeSuccesses(payload []byte, m *Successes) error {
	d := decoder{rest: payload}
	m.Seq, m.Epoch, m.Ended = d.uint(), d.uint(), m.Ended[:0]
	n := d.count(2)
	m.Ended = slices.Grow(m.Ended, n)
	for range n {
		m.Ended = append(m.Ended, Ended{d.uint(), d.int()})
	}
	return d.end()
}

func (d *decoder) gpu() GPU {
	g := GPU{true, math.Float32frombits(d.uint32()), d.int()}
	if d.err == nil && !(g.Percent >= 0 && g.Percent <= math.MaxFloat32) {
		d.fail("a share of a GPU that is none")
	}
	return g
}

// AppendHeartbeat appends the frame of a heartbeat to dst.
func AppendHeartbeat(dst []byte) []byte {
	dst, at := begin(dst, KindHeartbeat)
	return end(dst, at)
}

// DecodeHeartbeat checks the payload of a heartbeat, which is empty.
func DecodeHeartbeat(payload []byte) error {
	d := decoder{rest: payload}
	return d.end()
}

// AppendLeaving appends the frame of m to dst.
func AppendLeaving(dst []byte, m Leaving) []byte {
	dst, at := begin(dst, KindLeaving)
	dst = append(dst, byte(m.Reason))
	dst = appendString(dst, cut(m.Message, MaxText))
	return end(dst, at)
}

// DecodeLeaving reads the payload of a Leaving.
func DecodeLeaving(payload []byte) (Leaving, error) {
	d := decoder{rest: payload}
	m := Leaving{Reason: LeaveReason(d.byte(byte(LeaveBroken), "the reason")), Message: d.string()}
	return m, d.end()
}

// AppendEnding appends the frame of m to dst.
func AppendEnding(dst []byte, m Ending) []byte {
	dst, at := begin(dst, KindEnding)
	dst = appendInt(dst, m.LeftNanos)
	return end(dst, at)
}

// DecodeEnding reads the payload of an Ending.
func DecodeEnding(payload []byte) (Ending, error) {
	d := decoder{rest: payload}
	m := Ending{LeftNanos: d.int()}
	return m, d.end()
}

// AppendWelcome appends the frame of m to dst.
func AppendWelcome(dst []byte, m Welcome) []byte {
	dst, at := begin(dst, KindWelcome)
	dst = appendUint(dst, m.Epoch)
	dst = appendUints(dst, m.Gone)
	dst = appendUint(dst, uint64(len(m.Kept)))
	for _, k := range m.Kept {
		dst = appendUint(dst, k.Epoch)
		dst = appendUint(dst, k.Lease)
		dst = appendUint(dst, k.Now)
		dst = appendUint(dst, uint64(k.Attempt))
	}
	return end(dst, at)
}

// DecodeWelcome reads the payload of a Welcome.
func DecodeWelcome(payload []byte) (Welcome, error) {
	d := decoder{rest: payload}
	m := Welcome{Epoch: d.uint(), Gone: d.uints()}
	if n := d.count(4); n > 0 {
		m.Kept = make([]Kept, n)
		for i := range m.Kept {
			m.Kept[i] = Kept{Epoch: d.uint(), Lease: d.uint(), Now: d.uint(), Attempt: d.uint32()}
		}
	}
	return m, d.end()
}

// AppendBlocks appends the frame of m to dst.
func AppendBlocks(dst []byte, m Blocks) []byte {
	dst, at := begin(dst, KindBlocks)
	dst = appendUint(dst, m.Request)
	dst = appendUint(dst, uint64(m.Task))
	dst = appendUint(dst, uint64(len(m.Grants)))
	for i := range m.Grants {
		g := &m.Grants[i]
		dst = appendUint(dst, g.Lease)
		dst = appendUint(dst, g.Block)
		dst = appendUint(dst, uint64(g.Attempt))
	}
	return end(dst, at)
}

// DecodeBlocks reads the payload of a Blocks into m, reusing the memory of m.Grants.
func DecodeBlocks(payload []byte, m *Blocks) error {
	d := decoder{rest: payload}
	m.Request, m.Task = d.uint(), d.uint32()
	m.Grants = m.Grants[:0]
	for range d.count(3) {
		m.Grants = append(m.Grants, Grant{Lease: d.uint(), Block: d.uint(), Attempt: d.uint32()})
	}
	return d.end()
}

// AppendAcknowledged appends the frame of m to dst.
func AppendAcknowledged(dst []byte, m Acknowledged) []byte {
	dst, at := begin(dst, KindAcknowledged)
	dst = appendUint(dst, m.Seq)
	return end(dst, at)
}

// DecodeAcknowledged reads the payload of an Acknowledged.
func DecodeAcknowledged(payload []byte) (Acknowledged, error) {
	d := decoder{rest: payload}
	m := Acknowledged{Seq: d.uint()}
	return m, d.end()
}

// AppendRefused appends the frame of m to dst.
func AppendRefused(dst []byte, m Refused) []byte {
	dst, at := begin(dst, KindRefused)
	dst = appendUint(dst, m.Lease)
	dst = appendString(dst, cut(m.Message, MaxText))
	return end(dst, at)
}

// DecodeRefused reads the payload of a Refused.
func DecodeRefused(payload []byte) (Refused, error) {
	d := decoder{rest: payload}
	m := Refused{Lease: d.uint(), Message: d.string()}
	return m, d.end()
}

// AppendRecall appends the frame of m to dst.
func AppendRecall(dst []byte, m Recall) []byte {
	dst, at := begin(dst, KindRecall)
	dst = appendUints(dst, m.Leases)
	return end(dst, at)
}

// DecodeRecall reads the payload of a Recall.
func DecodeRecall(payload []byte) (Recall, error) {
	d := decoder{rest: payload}
	m := Recall{Leases: d.uints()}
	return m, d.end()
}

// AppendReassign appends the frame of m to dst. The specification must leave room in a frame: see MaxFrame.
func AppendReassign(dst []byte, m Reassign) []byte {
	dst, at := begin(dst, KindReassign)
	dst = appendUint(dst, uint64(len(m.Spec)))
	dst = append(dst, m.Spec...)
	return end(dst, at)
}

// DecodeReassign reads the payload of a Reassign; Spec is a copy.
func DecodeReassign(payload []byte) (Reassign, error) {
	d := decoder{rest: payload}
	var m Reassign
	if b := d.bytes(); len(b) > 0 {
		m.Spec = append([]byte(nil), b...)
	}
	return m, d.end()
}

// AppendDrain appends the frame of m to dst.
func AppendDrain(dst []byte, m Drain) []byte {
	dst, at := begin(dst, KindDrain)
	dst = appendString(dst, cut(m.Message, MaxText))
	return end(dst, at)
}

// DecodeDrain reads the payload of a Drain.
func DecodeDrain(payload []byte) (Drain, error) {
	d := decoder{rest: payload}
	m := Drain{Message: d.string()}
	return m, d.end()
}

// AppendStop appends the frame of m to dst.
func AppendStop(dst []byte, m Stop) []byte {
	dst, at := begin(dst, KindStop)
	dst = appendString(dst, cut(m.Message, MaxText))
	return end(dst, at)
}

// DecodeStop reads the payload of a Stop.
func DecodeStop(payload []byte) (Stop, error) {
	d := decoder{rest: payload}
	m := Stop{Message: d.string()}
	return m, d.end()
}

// AppendKillBlock appends the frame of m to dst.
func AppendKillBlock(dst []byte, m KillBlock) []byte {
	dst, at := begin(dst, KindKillBlock)
	dst = appendUint(dst, m.Lease)
	return end(dst, at)
}

// DecodeKillBlock reads the payload of a KillBlock.
func DecodeKillBlock(payload []byte) (KillBlock, error) {
	d := decoder{rest: payload}
	m := KillBlock{Lease: d.uint()}
	return m, d.end()
}

// AppendTimeLeft appends the frame of m to dst.
func AppendTimeLeft(dst []byte, m TimeLeft) []byte {
	dst, at := begin(dst, KindTimeLeft)
	dst = appendInt(dst, m.LeftNanos)
	return end(dst, at)
}

// DecodeTimeLeft reads the payload of a TimeLeft.
func DecodeTimeLeft(payload []byte) (TimeLeft, error) {
	d := decoder{rest: payload}
	m := TimeLeft{LeftNanos: d.int()}
	return m, d.end()
}

// AppendAway appends the frame of m to dst.
func AppendAway(dst []byte, m Away) []byte {
	dst, at := begin(dst, KindAway)
	dst = appendInt(dst, m.ForNanos)
	return end(dst, at)
}

// DecodeAway reads the payload of an Away.
func DecodeAway(payload []byte) (Away, error) {
	d := decoder{rest: payload}
	m := Away{ForNanos: d.int()}
	return m, d.end()
}

func appendUints(dst []byte, list []uint64) []byte {
	dst = appendUint(dst, uint64(len(list)))
	for _, v := range list {
		dst = appendUint(dst, v)
	}
	return dst
}

func (d *decoder) uints() []uint64 {
	n := d.count(1)
	if n == 0 {
		return nil
	}
	list := make([]uint64, n)
	for i := range list {
		list[i] = d.uint()
	}
	return list
}
