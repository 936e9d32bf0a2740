package daisywire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
)

// A malformedRow is what daisy's server does with what no worker should send.
type malformedRow struct {
	Name  string
	Steps []struct {
		Do, Hex, Then string
		Reply         []string
	}
	Same *struct{ Reply []string } `json:"valid acquire afterwards on the same connection"`
	Run  struct {
		Done      bool
		Exception string
	}
}

// otherwise are the rows in which a session does not do what daisy's server does, and what it does: for each step what it answers and
// whether the connection is open then.
var otherwise = map[string][]string{
	// These end the run of daisy, or its process.
	"unknown task id":                                      {"BlockFailed, closed"},
	"empty task id":                                        {"BlockFailed, closed"},
	"string length 2^40":                                   {"closed"},
	"release with status created":                          {"SendBlock id 0, open", "closed"},
	"release with empty rois":                              {"SendBlock id 0, open", "closed"},
	"release with extreme coordinates":                     {"SendBlock id 0, open", "closed"},
	"release with rois of another dimension":               {"SendBlock id 0, open", "closed"},
	"release with offset and shape of different dimension": {"SendBlock id 0, open", "closed"},
	"release with a list of 2^40 coordinates":              {"SendBlock id 0, open", "closed"},
	// A client of an older source is served.
	"no version byte (older protocol)": {"SendBlock id 0, open"},
	// Who says that it goes away is gone.
	"disconnect, then acquire on the same connection": {"closed", "closed"},
	"disconnect while holding a block":                {"SendBlock id 0, open", "closed"},
}

// unrecorded are the frames of the rows without steps: those whose lengths daisy believes before it looks, and dies of.
func unrecorded(name string) [][]byte {
	length := binary.LittleEndian.AppendUint64([]byte{253}, 1<<40)
	acquire := Append(nil, Released, &Message{Kind: AcquireBlock, TaskID: "mal"})
	switch name {
	case "string length 2^40":
		return [][]byte{frame(append(append([]byte{2, 0}, length...), "mal\x00"...)...)}
	case "release with a list of 2^40 coordinates":
		return [][]byte{acquire, frame(append([]byte{2, 2}, length...)...)}
	}
	return nil
}

func TestGoldenMalformedFramesCostTheirSenderTheConnectionAndNobodyElseAnything(t *testing.T) {
	seen := 0
	for _, row := range goldenRows[malformedRow](t, "malformed.jsonl") {
		t.Run(row.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				shelf := newShelf("mal", 5)
				var steps [][]byte
				var want []string
				for _, step := range row.Steps {
					replies := append([]string{}, step.Reply...)
					then := "open"
					if step.Then == "closed" {
						then = "closed"
					}
					want = append(want, strings.Join(append(replies, then), ", "))
					if step.Do == "send" {
						text, _, isCut := strings.Cut(step.Hex, ".")
						b := unhex(t, text)
						if isCut {
							b = pad(b)
						}
						steps = append(steps, b)
					} else {
						steps = append(steps, nil)
					}
				}
				if len(steps) == 0 {
					steps = unrecorded(row.Name)
				}
				if ours := otherwise[row.Name]; ours != nil {
					want = ours
					seen++
				} else if row.Run.Exception != "" {
					t.Error("daisy's whole run dies of this, and nothing says what happens here")
				}
				p := connect(t, shelf)
				replies, closed := p.listen()
				for i, step := range steps {
					if step == nil {
						_ = p.conn.Close()
					} else {
						p.send(step)
					}
					synctest.Wait()
					got := strings.Join(append(replies(), map[bool]string{true: "closed", false: "open"}[closed()]), ", ")
					if got != want[i] {
						t.Errorf("step %d: %s; want %s", i, got, want[i])
					}
				}
				if row.Same != nil && otherwise[row.Name] == nil {
					p.acquire("mal")
					synctest.Wait()
					if got := replies(); fmt.Sprint(got) != fmt.Sprint(row.Same.Reply) {
						t.Errorf("a valid acquire afterwards gets %s, want %s", got, row.Same.Reply)
					}
				}
				next := connect(t, shelf)
				next.block("mal")
				_ = p.conn.Close()
				_ = next.close()
				synctest.Wait()
				if shelf.left != len(shelf.joined) {
					t.Errorf("%d clients have joined, and %d left", len(shelf.joined), shelf.left)
				}
			})
		})
	}
	if seen != len(otherwise) {
		t.Errorf("%d rows differ from daisy, the table has %d", seen, len(otherwise))
	}
}

// listen reads what comes in a goroutine of its own: replies are those since the last call.
func (p *peer) listen() (replies func() []string, closed func() bool) {
	var got []string
	var over bool
	go func() {
		for r := newFrameReader(p.conn); ; {
			payload, err := r.next()
			if err != nil {
				over = true
				return
			}
			m, err := Decode(payload, Released)
			switch {
			case err != nil && payload[0] == byte(SendBlock): // to an older client
				m, err = Decode(payload, Older)
			}
			word := m.Kind.String()
			if m.Kind == SendBlock {
				word += fmt.Sprintf(" id %d", m.Block.SpatialID)
			}
			if err != nil {
				word = err.Error()
			}
			got = append(got, word)
		}
	}()
	return func() []string { defer func() { got = nil }(); return got }, func() bool { return over }
}

func TestAPeerThatIsNoClientOfDaisy2IsToldApart(t *testing.T) {
	cases := map[string]struct {
		sends string
		why   string
	}{
		"daisy 1.x":                              {"\x9a\x00\x00\x00\x80\x04\x95\x8f\x00", "daisy 1.x"},
		"daisy 1.x, a length that could be ours": {"\x00\x01\x00\x00\x80\x03" + strings.Repeat("c", 65534), "daisy 1.x"},
		"HTTP":                                   {"GET / HTTP/1.1\r\n\r\n", "a frame of 1195725856 bytes"},
		"TLS":                                    {"\x16\x03\x01\x00\xc4", "a frame of 369295616 bytes"},
		"an unreleased version":                  {"\x00\x00\x00\x06\x01\x00\x03mal", "version 1"},
		"a version to come":                      {"\x00\x00\x00\x07\x03\x00\x03mal\x00", "version 3"},
		"a server":                               {"\x00\x00\x00\x02\x02\x04", "RequestShutdown, which only servers do"},
		"a change of version":                    {"\x00\x00\x00\x07\x02\x00\x03mal\x00\x00\x00\x00\x05\x00\x03mal", "a frame of version 0"},
		"more than 2^64":                         {"\x00\x00\x00\x04\x02\x00\xfe\x00", "a number of more than 64 bits"},
		"text that is none":                      {"\x00\x00\x00\x06\x02\x00\x02\xff\xfe\x00", "not UTF-8"},
		"a region of 33 axes":                    {"\x00\x00\x00\x24\x02\x02\x21" + strings.Repeat("\x00", 33), "a region of 33 axes"},
		"an end in a header":                     {"\x00\x00", "ended in the middle of a frame"},
		"an end in a frame":                      {"\x00\x00\x00\x07\x02\x00", "ended in the middle of a frame"},
		"an end in its statistics":               {"\x00\x00\x00\x0b\x02\x02\x00\x00\x00\x00\x00\x00\x02\x01\x00", "in the middle of statistics"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			p := connect(t, newShelf("mal", 1))
			go func() {
				_, _ = p.conn.Write([]byte(c.sends))
				if strings.HasPrefix(name, "an end") {
					_ = p.conn.Close()
				}
			}()
			if err := p.dropped(); !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), c.why) {
				t.Errorf("the session ends with %v, want %q", err, c.why)
			}
			if want := strings.Contains(name, "1.x"); errors.Is(p.err, ErrDaisy1) != want || want && !strings.Contains(p.err.Error(), "pip install 'daisy>=2'") {
				t.Errorf("taken for daisy 1.x: %v, want %v", p.err, want)
			}
		})
	}
}

// endless is a frame that never ends: what it says, and then as much as is asked for.
type endless struct {
	head []byte
	read int
}

func (e *endless) Read(p []byte) (int, error) {
	if len(e.head) > 0 {
		n := copy(p, e.head)
		e.head = e.head[n:]
		return n, nil
	}
	e.read += len(p)
	if e.read > 1<<20 {
		return 0, io.ErrUnexpectedEOF
	}
	return len(p), nil
}

func TestALargeFrameTakesAsMuchMemoryAsHasComeOfIt(t *testing.T) {
	r := newFrameReader(&endless{head: []byte{0x04, 0, 0, 0}}) // 64 MiB
	if _, err := r.next(); !errors.Is(err, ErrMalformed) {
		t.Errorf("the frame is cut: %v", err)
	}
	if got := cap(r.buf); got > 4<<20 {
		t.Errorf("1 MiB of a frame has come, and %d bytes are allocated for it", got)
	}
}

func TestAFrameOf64MiBIsReadAndItsMemoryGivenBack(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 200 MB")
	}
	text := strings.Repeat("x", MaxFrame-20)
	m := Message{Kind: BlockFailed, Error: text}
	long := Append(nil, Released, &m)
	r := newFrameReader(io.MultiReader(strings.NewReader(string(long)), strings.NewReader("\x00\x00\x00\x02\x02\x05")))
	payload, err := r.next()
	if err != nil || len(payload) != len(long)-4 {
		t.Fatalf("%d bytes, %v", len(payload), err)
	}
	if got, err := Decode(payload, Released); err != nil || got.Error != text {
		t.Errorf("the text is not the same: %v", err)
	}
	if _, err := r.next(); err != nil || cap(r.buf) > growth {
		t.Errorf("%v; %d bytes are kept", err, cap(r.buf))
	}
}
