package journal

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"
)

// Version is the format that this package writes, and the newest that it reads.
const Version = 1

// MaxRecord is the largest record in bytes.
const MaxRecord = 64 << 20

const (
	segmentHeaderSize = 52
	batchHeaderSize   = 28
	frameHeaderSize   = 8
)

var (
	segmentMagic = [8]byte{'D', 'A', 'I', 'S', 'Y', 'J', 'N', 'L'}
	batchMagic   = [4]byte{0xda, 'B', 0xa7, 0x01}
	castagnoli   = crc32.MakeTable(crc32.Castagnoli)
	little       = binary.LittleEndian
)

// Position names a record: its epoch and its number within the epoch. The
// zero Position names none.
type Position struct {
	Epoch  uint64
	Record uint64
}

func (p Position) String() string {
	return fmt.Sprintf("record %d of epoch %d", p.Record, p.Epoch)
}

type segmentHeader struct {
	segment uint32
	epoch   uint64
	first   uint64
	after   Position
}

func (h segmentHeader) append(b []byte) []byte {
	start := len(b)
	b = append(b, segmentMagic[:]...)
	b = little.AppendUint32(b, Version)
	b = little.AppendUint32(b, h.segment)
	b = little.AppendUint64(b, h.epoch)
	b = little.AppendUint64(b, h.first)
	b = little.AppendUint64(b, h.after.Epoch)
	b = little.AppendUint64(b, h.after.Record)
	return little.AppendUint32(b, crc32.Checksum(b[start:], castagnoli))
}

// errVersion is the version of a segment that this package cannot read.
type errVersion uint32

func (v errVersion) Error() string {
	return fmt.Sprintf("it has format version %d, and this program reads version %d: use the version of daisy that wrote it, or a newer one", uint32(v), Version)
}

func parseSegmentHeader(b []byte) (segmentHeader, error) {
	if len(b) < segmentHeaderSize {
		return segmentHeader{}, fmt.Errorf("the segment header is cut short: %d of %d bytes", len(b), segmentHeaderSize)
	}
	if [8]byte(b) != segmentMagic {
		return segmentHeader{}, fmt.Errorf("it does not begin like a journal segment")
	}
	// The version comes before the checksum: a later format may have another header.
	if v := little.Uint32(b[8:]); v > Version {
		return segmentHeader{}, errVersion(v)
	}
	const body = segmentHeaderSize - 4
	if little.Uint32(b[8:]) != Version || crc32.Checksum(b[:body], castagnoli) != little.Uint32(b[body:]) {
		return segmentHeader{}, fmt.Errorf("the checksum of the segment header is wrong")
	}
	return segmentHeader{
		segment: little.Uint32(b[12:]),
		epoch:   little.Uint64(b[16:]),
		first:   little.Uint64(b[24:]),
		after:   Position{little.Uint64(b[32:]), little.Uint64(b[40:])},
	}, nil
}

type batchHeader struct {
	records uint32
	bytes   uint64
	first   uint64
}

// put writes the header to the first batchHeaderSize bytes of b.
func (h batchHeader) put(b []byte, epoch uint64) {
	copy(b, batchMagic[:])
	little.PutUint32(b[4:], h.records)
	little.PutUint64(b[8:], h.bytes)
	little.PutUint64(b[16:], h.first)
	little.PutUint32(b[24:], batchCRC(b, epoch))
}

func batchCRC(b []byte, epoch uint64) uint32 {
	var e [8]byte
	little.PutUint64(e[:], epoch)
	return crc32.Update(crc32.Checksum(e[:], castagnoli), castagnoli, b[:batchHeaderSize-4])
}

// parseBatchHeader reports whether b begins with a batch header of the epoch.
func parseBatchHeader(b []byte, epoch uint64) (batchHeader, bool) {
	if len(b) < batchHeaderSize || [4]byte(b) != batchMagic || batchCRC(b, epoch) != little.Uint32(b[24:]) {
		return batchHeader{}, false
	}
	return batchHeader{little.Uint32(b[4:]), little.Uint64(b[8:]), little.Uint64(b[16:])}, true
}

func appendFrame(b []byte, epoch, seq uint64, record []byte) []byte {
	size := uint32(4 + len(record))
	b = slices.Grow(b, frameHeaderSize+len(record)+frameHeadSize)
	crc := frameCRC(b[len(b):], epoch, seq, size, record)
	b = little.AppendUint32(b, size)
	b = little.AppendUint32(b, crc)
	return append(b, record...)
}

// frameHeadSize is how many bytes are in the checksum of a frame, and not in it.
const frameHeadSize = 20

// frameCRC needs memory for these: an array of its own would be allocated for each record.
func frameCRC(memory []byte, epoch, seq uint64, size uint32, record []byte) uint32 {
	head := little.AppendUint64(memory[:0], epoch)
	head = little.AppendUint64(head, seq)
	head = little.AppendUint32(head, size)
	return crc32.Update(crc32.Checksum(head, castagnoli), castagnoli, record)
}

// parseFrame gives the record at the start of b and the frame's length.
func parseFrame(b []byte, epoch, seq uint64) (record []byte, n int, err error) {
	if len(b) < frameHeaderSize {
		return nil, 0, fmt.Errorf("the frame of record %d is cut short", seq)
	}
	size := little.Uint32(b)
	if size < 4 || uint64(size)+4 > uint64(len(b)) {
		return nil, 0, fmt.Errorf("record %d has the impossible size %d", seq, size)
	}
	record = b[frameHeaderSize : 4+size]
	if frameCRC(nil, epoch, seq, size, record) != little.Uint32(b[4:]) {
		return nil, 0, fmt.Errorf("the checksum of record %d is wrong", seq)
	}
	return record, int(size) + 4, nil
}
