package wire

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// A form is one kind of message: an example, and its way through decoder and encoder.
type form struct {
	kind    Kind
	frame   []byte // of the example
	golden  string // payload of the example, in hexadecimal
	reshape func(payload []byte) (frame []byte, err error)
}

func reshape[M any](decode func([]byte) (M, error), encode func([]byte, M) []byte) func([]byte) ([]byte, error) {
	return func(payload []byte) ([]byte, error) {
		m, err := decode(payload)
		if err != nil {
			return nil, err
		}
		return encode(nil, m), nil
	}
}

func decodeBlocks(p []byte) (Blocks, error) {
	var m Blocks
	err := DecodeBlocks(p, &m)
	return m, err
}

func decodeSuccesses(p []byte) (Successes, error) {
	var m Successes
	err := DecodeSuccesses(p, &m)
	return m, err
}

func forms() []form {
	return []form{
		{KindHello, AppendHello(nil, Hello{"3.0", 300, 2, []Held{{1, 7, 0, 300, 1}, {2, 128, 2, 5, 3}}}), "03332e30ac020202010700ac020102" + "8001020503", reshape(DecodeHello, AppendHello)},
		{KindAcquire, AppendAcquire(nil, Acquire{1, 16}), "0110", reshape(DecodeAcquire, AppendAcquire)},
		{
			KindRelease,
			AppendRelease(nil, Release{Seq: 5, Epoch: 1, Lease: 812, Outcome: Failed, WallNanos: 64, CPUNanos: -1, PeakRSSBytes: 3, Message: "no", Tail: "é"}),
			"0501ac0602800101" + "06" + "026e6f" + "02c3a9", reshape(DecodeRelease, AppendRelease),
		},
		{KindHeartbeat, AppendHeartbeat(nil), "", func(p []byte) ([]byte, error) { return AppendHeartbeat(nil), DecodeHeartbeat(p) }},
		{KindLeaving, AppendLeaving(nil, Leaving{LeaveSignal, "x"}), "010178", reshape(DecodeLeaving, AppendLeaving)},
		{KindEnding, AppendEnding(nil, Ending{300}), "d804", reshape(DecodeEnding, AppendEnding)},
		{KindSuccesses, AppendSuccesses(nil, Successes{5, 2, []Ended{{812, 22}, {7, 64}}}), "050202ac062c078001", reshape(decodeSuccesses, AppendSuccesses)},
		{KindWelcome, AppendWelcome(nil, Welcome{2, []uint64{9, 1000}, []Kept{{1, 7, 300, 1}}}), "020209e807010107ac0201", reshape(DecodeWelcome, AppendWelcome)},
		{KindBlocks, AppendBlocks(nil, Blocks{1, 2, []Grant{{300, 0, 1}, {301, 1 << 40, 2}}}), "010202ac020001ad0280808080802002", reshape(decodeBlocks, AppendBlocks)},
		{KindAcknowledged, AppendAcknowledged(nil, Acknowledged{6}), "06", reshape(DecodeAcknowledged, AppendAcknowledged)},
		{KindRefused, AppendRefused(nil, Refused{812, "late"}), "ac06046c617465", reshape(DecodeRefused, AppendRefused)},
		{KindRecall, AppendRecall(nil, Recall{[]uint64{1, 2}}), "020102", reshape(DecodeRecall, AppendRecall)},
		{KindReassign, AppendReassign(nil, Reassign{[]byte("{}")}), "027b7d", reshape(DecodeReassign, AppendReassign)},
		{KindDrain, AppendDrain(nil, Drain{"a"}), "0161", reshape(DecodeDrain, AppendDrain)},
		{KindStop, AppendStop(nil, Stop{""}), "00", reshape(DecodeStop, AppendStop)},
		{KindKillBlock, AppendKillBlock(nil, KillBlock{128}), "8001", reshape(DecodeKillBlock, AppendKillBlock)},
		{KindTimeLeft, AppendTimeLeft(nil, TimeLeft{150}), "ac02", reshape(DecodeTimeLeft, AppendTimeLeft)},
		{KindAway, AppendAway(nil, Away{150}), "ac02", reshape(DecodeAway, AppendAway)},
	}
}

func TestTheBytesOfEachMessageStayAsTheyAre(t *testing.T) {
	for _, f := range forms() {
		length := len(f.golden)/2 + 2
		want := fmt.Sprintf("%08x%02x%02x%s", length, Version, byte(f.kind), f.golden)
		if got := hex.EncodeToString(f.frame); got != want {
			t.Errorf("%v: got %s, want %s", f.kind, got, want)
		}
		again, err := f.reshape(f.frame[6:])
		if err != nil || !bytes.Equal(again, f.frame) {
			t.Errorf("%v: decoded and encoded again: got %x, %v, want %x", f.kind, again, err, f.frame)
		}
	}
}

func TestAReleaseSaysWhatWasReadAndWrittenWhereThatIsKnown(t *testing.T) {
	without := AppendRelease(nil, Release{Seq: 5, Epoch: 1, Lease: 2, WallNanos: 64})
	with := AppendRelease(nil, Release{Seq: 5, Epoch: 1, Lease: 2, WallNanos: 64, WrittenBytes: 3})
	if got, want := hex.EncodeToString(with[6:]), hex.EncodeToString(without[6:])+"0006"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for _, more := range [][]byte{{0}, {2}, {0, 0}, {2, 4, 0}} {
		if m, err := DecodeRelease(append(bytes.Clone(without[6:]), more...)); err == nil {
			t.Errorf("with %x behind it: accepted as %+v", more, m)
		}
	}
}

func TestAReleaseSaysWhatGPUsDidWhereThatIsKnown(t *testing.T) {
	without := AppendRelease(nil, Release{Seq: 5, Epoch: 1, Lease: 2, WallNanos: 64})
	release := Release{Seq: 5, Epoch: 1, Lease: 2, WallNanos: 64, GPU: GPU{Measured: true, Percent: 12.5, MemBytes: 150}}
	with := AppendRelease(nil, release)
	if got, want := hex.EncodeToString(with[6:]), hex.EncodeToString(without[6:])+"0000"+"8080a08a04"+"ac02"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for _, bits := range []uint64{0x7fc00000, 0x7f800000, 0xbf800000} { // not a number, infinity, -1
		if m, err := DecodeRelease(appendInt(appendUint(append(bytes.Clone(without[6:]), 0, 0), bits), 1)); err == nil {
			t.Errorf("with a share of %x: accepted as %+v", bits, m)
		}
	}
}

func TestKindsAreNumberedForGood(t *testing.T) {
	got := []Kind{KindHello, KindAcquire, KindRelease, KindHeartbeat, KindLeaving, KindEnding, KindSuccesses, KindWelcome, KindBlocks, KindAcknowledged, KindRefused, KindRecall, KindReassign, KindDrain, KindStop, KindKillBlock}
	want := []Kind{1, 2, 3, 4, 5, 6, 7, 32, 33, 34, 35, 36, 37, 38, 39, 40}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, k := range got {
		if k.String() == "unknown message" {
			t.Errorf("kind %d has no name", k)
		}
	}
}

func TestEveryCutMessageIsRefused(t *testing.T) {
	for _, f := range forms() {
		payload := f.frame[6:]
		for n := range payload {
			if _, err := f.reshape(payload[:n]); err == nil {
				t.Errorf("%v cut to %d of %d bytes was accepted", f.kind, n, len(payload))
			}
		}
		if _, err := f.reshape(append(bytes.Clone(payload), 0)); err == nil {
			t.Errorf("%v with a byte too many was accepted", f.kind)
		}
	}
}

func TestLengthsThatTheFrameCannotHoldAreRefusedBeforeAllocation(t *testing.T) {
	huge := appendUint(nil, math.MaxUint64)
	for name, refuse := range map[string]func() error{
		"string": func() error { _, err := DecodeHello(huge); return err },
		"held":   func() error { _, err := DecodeHello(append([]byte{0, 1, 1}, huge...)); return err },
		"grants": func() error { return DecodeBlocks(append([]byte{1, 1}, huge...), &Blocks{}) },
		"ended":  func() error { return DecodeSuccesses(append([]byte{1, 1}, huge...), &Successes{}) },
		"leases": func() error { _, err := DecodeRecall(huge); return err },
		"spec":   func() error { _, err := DecodeReassign(huge); return err },
		"long number": func() error {
			_, err := DecodeAcknowledged([]byte{0x80, 0x00})
			return err
		},
		"nothing asked for": func() error { _, err := DecodeAcquire([]byte{1, 0}); return err },
		"unknown outcome":   func() error { _, err := DecodeRelease([]byte{1, 1, 1, 8, 0, 0, 0, 0, 0}); return err },
	} {
		if refuse() == nil {
			t.Errorf("%s: accepted", name)
		}
		if n := testing.AllocsPerRun(10, func() { _ = refuse() }); n > 8 {
			t.Errorf("%s: %v allocations, want those of the error only", name, n)
		}
	}
}

func TestAnyMessageComesBackAsItWas(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		number := rapid.Uint64()
		signed := rapid.Int64()
		text := rapid.String()
		release := Release{
			number.Draw(t, "seq"), number.Draw(t, "epoch"), number.Draw(t, "lease"), Outcome(rapid.IntRange(0, 7).Draw(t, "outcome")),
			signed.Draw(t, "wall"), signed.Draw(t, "cpu"), signed.Draw(t, "rss"), text.Draw(t, "message"), text.Draw(t, "tail"),
			signed.Draw(t, "read"), signed.Draw(t, "written"), GPU{},
		}
		if rapid.Bool().Draw(t, "has measured GPUs") {
			release.GPU = GPU{true, rapid.Float32Min(0).Draw(t, "percent"), signed.Draw(t, "memory of GPUs")}
		}
		gotRelease, err := DecodeRelease(AppendRelease(nil, release)[6:])
		if err != nil || gotRelease != release {
			t.Fatalf("got %+v, %v, want %+v", gotRelease, err, release)
		}
		blocks := Blocks{number.Draw(t, "request"), rapid.Uint32().Draw(t, "task"), rapid.SliceOf(rapid.Custom(func(t *rapid.T) Grant {
			return Grant{number.Draw(t, "lease"), number.Draw(t, "block"), rapid.Uint32().Draw(t, "attempt")}
		})).Draw(t, "grants")}
		gotBlocks, err := decodeBlocks(AppendBlocks(nil, blocks)[6:])
		if diff := cmp.Diff(blocks.Grants, gotBlocks.Grants); err != nil || (len(blocks.Grants) > 0 && diff != "") {
			t.Fatal(err, diff)
		}
		successes := Successes{number.Draw(t, "seq"), number.Draw(t, "epoch"), rapid.SliceOf(rapid.Custom(func(t *rapid.T) Ended {
			return Ended{number.Draw(t, "lease"), signed.Draw(t, "wall")}
		})).Draw(t, "ended")}
		gotSuccesses, err := decodeSuccesses(AppendSuccesses(nil, successes)[6:])
		if diff := cmp.Diff(successes.Ended, gotSuccesses.Ended); err != nil || gotSuccesses.Seq != successes.Seq || gotSuccesses.Epoch != successes.Epoch || (len(successes.Ended) > 0 && diff != "") {
			t.Fatal(err, diff)
		}
		hello := Hello{text.Draw(t, "worker"), number.Draw(t, "nonce"), number.Draw(t, "epoch"), rapid.SliceOf(rapid.Custom(func(t *rapid.T) Held {
			return Held{number.Draw(t, "epoch"), number.Draw(t, "lease"), rapid.Uint32().Draw(t, "task"), number.Draw(t, "block"), rapid.Uint32().Draw(t, "attempt")}
		})).Draw(t, "held")}
		gotHello, err := DecodeHello(AppendHello(nil, hello)[6:])
		if diff := cmp.Diff(hello.Held, gotHello.Held); err != nil || gotHello.Worker != hello.Worker || (len(hello.Held) > 0 && diff != "") {
			t.Fatal(err, diff)
		}
		welcome := Welcome{number.Draw(t, "epoch"), nil, rapid.SliceOf(rapid.Custom(func(t *rapid.T) Kept {
			return Kept{number.Draw(t, "epoch"), number.Draw(t, "lease"), number.Draw(t, "now"), rapid.Uint32().Draw(t, "attempt")}
		})).Draw(t, "kept")}
		gotWelcome, err := DecodeWelcome(AppendWelcome(nil, welcome)[6:])
		if diff := cmp.Diff(welcome.Kept, gotWelcome.Kept); err != nil || gotWelcome.Epoch != welcome.Epoch || (len(welcome.Kept) > 0 && diff != "") {
			t.Fatal(err, diff)
		}
	})
}

func TestLongTextsAreCutAtARune(t *testing.T) {
	m, err := DecodeRelease(AppendRelease(nil, Release{Message: "x" + strings.Repeat("é", MaxText)})[6:])
	if want := "x" + strings.Repeat("é", (MaxText-1)/2); err != nil || m.Message != want {
		t.Errorf("got %d bytes, %v, want %d", len(m.Message), err, len(want))
	}
}

func TestTheHotMessagesDoNotAllocate(t *testing.T) {
	var buf []byte
	blocks := Blocks{1, 2, make([]Grant, 64)}
	into := Blocks{}
	successes, back := Successes{1, 2, make([]Ended, 64)}, Successes{}
	n := testing.AllocsPerRun(100, func() {
		buf = AppendAcquire(buf[:0], Acquire{1, 1})
		_, _ = DecodeAcquire(buf[6:])
		buf = AppendRelease(buf[:0], Release{Seq: 1, WallNanos: 1 << 40})
		_, _ = DecodeRelease(buf[6:])
		buf = AppendBlocks(buf[:0], blocks)
		_ = DecodeBlocks(buf[6:], &into)
		buf = AppendSuccesses(buf[:0], successes)
		_ = DecodeSuccesses(buf[6:], &back)
		buf = AppendAcknowledged(buf[:0], Acknowledged{1})
		_, _ = DecodeAcknowledged(buf[6:])
	})
	if n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

// FuzzMessage: no payload of any kind panics, and whatever is accepted has exactly one encoding.
func FuzzMessage(f *testing.F) {
	all := forms()
	for i, m := range all {
		f.Add(uint8(i), m.frame[6:])
	}
	f.Add(uint8(0), []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01})
	f.Fuzz(func(t *testing.T, which uint8, payload []byte) {
		if len(payload) > MaxText {
			return // texts are cut there
		}
		m := all[int(which)%len(all)]
		again, err := m.reshape(payload)
		if err == nil && !bytes.Equal(again[6:], payload) {
			t.Errorf("%v: %x became %x", m.kind, payload, again[6:])
		}
	})
}

func TestAsManyBlocksAsAreGrantedAtOnceFitAFrame(t *testing.T) {
	m := Blocks{Request: math.MaxUint64, Task: math.MaxUint32, Grants: make([]Grant, MaxGrants)}
	for i := range m.Grants {
		m.Grants[i] = Grant{math.MaxUint64, math.MaxUint64, math.MaxUint32}
	}
	if n := len(AppendBlocks(nil, m)) - header; n > MaxFrame {
		t.Errorf("%d blocks take %d bytes, and a frame has %d", MaxGrants, n, MaxFrame)
	}
}
