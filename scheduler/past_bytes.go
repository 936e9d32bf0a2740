package scheduler

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
)

// The bytes of a Past are unsigned varints, but for literal words:
//
//	past    = blocks  succeeded  checked  tried  processed retries timed_out lost returned out_of_memory
//	bitmap  = run*                       of succeeded and of checked; as many words of 64 blocks as there are
//	run     = n<<2                       n words without a bit
//	        | n<<2 + 1                   n words with all bits
//	        | n<<2 + 2  word*            n words of 8 bytes, little endian; bits past the last block are clear
//	tried   = n  (block attempts spent lost flags)*    blocks in order, each less the one before it
//
// flags has 1 if the last attempt used up a retry, and 2 if the block has failed for good.

const (
	runClear = iota
	runFull
	runWords
)

const (
	triedFailure = 1 << iota
	triedFailed
)

// AppendBytes appends all that the past knows. It is to be called before New.
func (p *Past) AppendBytes(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(p.blocks))
	b = p.succeeded.appendRuns(b)
	b = p.checked.appendRuns(b)
	b = binary.AppendUvarint(b, uint64(len(p.tried)))
	before := int64(0)
	for _, block := range slices.Sorted(maps.Keys(p.tried)) {
		r, flags := p.tried[block], uint64(0)
		if r.failure {
			flags |= triedFailure
		}
		if p.failed[block] {
			flags |= triedFailed
		}
		for _, n := range []uint64{uint64(block - before), uint64(r.attempts), uint64(r.spent), uint64(r.lost), flags} {
			b = binary.AppendUvarint(b, n)
		}
		before = block
	}
	for _, n := range p.counted() {
		b = binary.AppendUvarint(b, uint64(*n))
	}
	return b
}

func (p *Past) counted() [6]*int64 {
	t := &p.tally
	return [...]*int64{&t.Processed, &t.Retries, &t.TimedOut, &t.Lost, &t.Returned, &t.OutOfMemory}
}

// ReadPast makes the past of a task of so many blocks from what AppendBytes has appended, and returns what stands behind it. It is an
// error if the bytes are not those of such a past.
func ReadPast(blocks int64, b []byte) (*Past, []byte, error) {
	r := pastReader{rest: b}
	p := NewPast(blocks)
	if n := r.number(math.MaxInt64); r.err == nil && int64(n) != blocks {
		return nil, nil, fmt.Errorf("the past of a task of %d blocks, which has %d", n, blocks)
	}
	r.bitmap(p.succeeded, blocks)
	r.bitmap(p.checked, blocks)
	r.tried(p)
	for _, n := range p.counted() {
		*n = int64(r.number(math.MaxInt64))
	}
	if r.err != nil {
		return nil, nil, fmt.Errorf("the past of a task: %w", r.err)
	}
	return p, r.rest, nil
}

func (b Bitmap) appendRuns(out []byte) []byte {
	kind := func(w uint64) uint64 {
		switch w {
		case 0:
			return runClear
		case ^uint64(0):
			return runFull
		}
		return runWords
	}
	for len(b) > 0 {
		of, n := kind(b[0]), 1
		for n < len(b) && kind(b[n]) == of {
			n++
		}
		out = binary.AppendUvarint(out, uint64(n)<<2|of)
		if of == runWords {
			for _, w := range b[:n] {
				out = binary.LittleEndian.AppendUint64(out, w)
			}
		}
		b = b[n:]
	}
	return out
}

// A pastReader takes what was written from the beginning of rest, until there is an error.
type pastReader struct {
	rest []byte
	err  error
}

var errPastShort = errors.New("it ends too early")

func (r *pastReader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
	r.rest = nil
}

func (r *pastReader) number(most uint64) uint64 {
	n, size := binary.Uvarint(r.rest)
	switch {
	case size <= 0:
		r.fail(errPastShort)
		return 0
	case n > most:
		r.fail(fmt.Errorf("%d is too large; expected is at most %d", n, most))
		return 0
	}
	r.rest = r.rest[size:]
	return n
}

func (r *pastReader) bitmap(into Bitmap, blocks int64) {
	for at := 0; at < len(into) && r.err == nil; {
		run := r.number(math.MaxUint64)
		n, of := run>>2, run&3
		switch {
		case r.err != nil:
			return
		case n == 0 || n > uint64(len(into)-at) || of > runWords:
			r.fail(fmt.Errorf("a run of %d words of the kind %d where %d are left", n, of, len(into)-at))
			return
		case of == runWords && n > uint64(len(r.rest)/8):
			r.fail(errPastShort)
			return
		}
		for i := range into[at : at+int(n)] {
			switch of {
			case runFull:
				into[at+i] = ^uint64(0)
			case runWords:
				into[at+i] = binary.LittleEndian.Uint64(r.rest)
				r.rest = r.rest[8:]
			}
		}
		at += int(n)
	}
	if last := blocks % 64; last > 0 && into[len(into)-1]>>last != 0 {
		r.fail(errors.New("a block past the last one is marked"))
	}
}

func (r *pastReader) tried(p *Past) {
	block := int64(-1)
	for n := r.number(math.MaxInt64); n > 0 && r.err == nil; n-- {
		next := int64(r.number(uint64(p.blocks)))
		if block >= 0 {
			next += block
		}
		if next <= block || next >= p.blocks {
			r.fail(fmt.Errorf("block %d was tried, after block %d of %d", next, block, p.blocks))
			return
		}
		block = next
		was := &record{block: uint32(block), attempts: uint32(r.number(math.MaxUint32)), spent: uint32(r.number(math.MaxUint32)), lost: uint16(r.number(maxMaxLost))}
		flags := r.number(triedFailure | triedFailed)
		if r.err != nil {
			return
		}
		if p.succeeded.Get(block) || p.checked.Get(block) {
			r.fail(fmt.Errorf("block %d has ended well, and is to be tried again", block))
			return
		}
		was.failure = flags&triedFailure != 0
		p.tried[block] = was
		if flags&triedFailed != 0 {
			p.failed[block] = true
		}
	}
}
