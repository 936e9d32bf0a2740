package daisywire

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"testing"
)

// seeds are the recorded frames, without their lengths, and what was made for the tests of malformed ones.
func seeds(f *testing.F) {
	f.Helper()
	for _, name := range []string{"frames.jsonl", "client_side.jsonl", "malformed.jsonl"} {
		for _, b := range recorded(f, name) {
			f.Add(b, false)
			if len(b) > 1 {
				f.Add(b[1:], true)
			}
		}
	}
}

// recorded finds every frame in a file of rows, without its length.
func recorded(t testing.TB, name string) (frames [][]byte) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "golden", name))
	if err != nil {
		t.Fatal(err)
	}
	for _, found := range regexp.MustCompile(`hex":"([0-9a-f]{10,})`).FindAllSubmatch(text, -1) {
		frames = append(frames, unhex(t, string(found[1]))[4:])
	}
	return frames
}

// FuzzDecode: whatever comes is either refused, or a message that is written and read again the same; and what it takes in memory is bounded
// by what has come.
func FuzzDecode(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, payload []byte, old bool) {
		d := Released
		if old {
			d = Older
		}
		_, _ = DialectOf(payload)
		m, err := Decode(payload, d)
		if err != nil {
			if !errors.Is(err, ErrMalformed) || !reflect.DeepEqual(m, Message{}) {
				t.Fatalf("%+v, %v", m, err)
			}
			return
		}
		b := &m.Block
		axes := len(b.Read.Offset) + len(b.Read.Shape) + len(b.Write.Offset) + len(b.Write.Shape)
		if took := 8*axes + len(m.TaskID) + len(b.TaskID) + len(m.Error); took > 8*len(payload) || axes > 4*maxAxes {
			t.Fatalf("%d bytes of a frame take %d", len(payload), took)
		}
		once := Append(nil, d, &m)
		again, err := Decode(once[4:], d)
		if err != nil {
			t.Fatalf("%x of %+v: %v", once, m, err)
		}
		if twice := Append(nil, d, &again); !bytes.Equal(once, twice) {
			t.Fatalf("written is %x, and then %x", once, twice)
		}
	})
}

// FuzzFrames: a stream of bytes is cut into frames without taking more memory than has come.
func FuzzFrames(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x07\x02\x00\x03mal\x00\x00\x00\x00\x02\x02\x05"))
	f.Add([]byte("\x04\x00\x00\x00\x02\x00"))
	f.Add([]byte("\x9a\x00\x00\x00\x80\x04\x95"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		r := newFrameReader(bytes.NewReader(stream))
		read := 0
		for {
			payload, err := r.next()
			if cap(r.buf) > 2*len(stream)+growth {
				t.Fatalf("%d bytes have come, %d are allocated", len(stream), cap(r.buf))
			}
			if err != nil {
				break
			}
			read += 4 + len(payload)
		}
		if read > len(stream) {
			t.Fatalf("%d bytes read of %d", read, len(stream))
		}
	})
}

// FuzzContext: what is read is written and read again the same.
func FuzzContext(f *testing.F) {
	for _, row := range contexts(f) {
		f.Add(row.Raw)
	}
	f.Fuzz(func(t *testing.T, s string) {
		c, err := ParseContext(s)
		if err != nil {
			return
		}
		again, err := ParseContext(c.String())
		if err != nil || !reflect.DeepEqual(c, again) {
			t.Fatalf("%q is %q, and then %q, %v", s, c, again, err)
		}
	})
}
