package worker

import (
	"bytes"
	"io/fs"
	"strings"
	"syscall"
	"testing"
)

// A smallDisk has room for so many bytes.
type smallDisk struct {
	bytes.Buffer
	room int
}

func (d *smallDisk) Write(b []byte) (int, error) {
	n := min(len(b), d.room)
	d.room -= n
	d.Buffer.Write(b[:n])
	if n < len(b) {
		return n, &fs.PathError{Op: "write", Path: "/dev/stderr", Err: syscall.ENOSPC}
	}
	return n, nil
}

func TestALogSaysWhatAFullDiskHasCostIt(t *testing.T) {
	disk := &smallDisk{room: 20}
	log := &blockLog{to: disk, limit: maxLogBytes}
	log.output([]byte("[a 1] the first\n"))  // 16 bytes
	log.output([]byte("[a 1] the second\n")) // 17, of which 4 find room
	log.Write([]byte("a line of the worker\n"))
	log.output(nil)
	if got, want := disk.String(), "[a 1] the first\n[a 1"; got != want {
		t.Fatalf("got %q, want %q", got, want)
	}
	disk.room = 10 // not enough even to say so
	log.output(nil)
	disk.room = 1 << 20
	log.output(nil) // a block begins, and nothing was printed
	if want := "[worker] 34 bytes lost: no space left on device\n"; !strings.HasSuffix(disk.String(), "\n"+want) {
		t.Errorf("got %q, want %q at its end", disk.String(), want)
	}
	log.output([]byte("[a 2] on\n"))
	if got := disk.String(); !strings.HasSuffix(got, "device\n[a 2] on\n") || strings.Count(got, "bytes lost") != 1 {
		t.Errorf("got %q", got)
	}
}

func TestOutputThatFoundNoSpaceDoesNotUseUpTheLimitOfALog(t *testing.T) {
	disk := &smallDisk{}
	log := &blockLog{to: disk, limit: 100}
	for range 20 {
		log.output([]byte("0123456789\n"))
	}
	disk.room = 1 << 20
	log.output([]byte("more\n"))
	if got, want := disk.String(), "[worker] 220 bytes lost: no space left on device\nmore\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
