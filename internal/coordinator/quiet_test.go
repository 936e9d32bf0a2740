package coordinator

import (
	"errors"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"example.org/daisy/internal/engine"
)

func TestConnectionsThatSayNothingDoNotKeepClientsOut(t *testing.T) {
	var mu sync.Mutex
	var lines []string
	c, results := clientsHere(t, 200, func(line string) { mu.Lock(); lines = append(lines, line); mu.Unlock() })
	early := called(t, c) // it says nothing for now, and others after it do neither
	var silent []net.Conn
	for range 10_000 {
		conn, err := net.Dial("tcp", c.Addr().String())
		if err != nil {
			t.Fatalf("connection %d: %v", len(silent), err)
		}
		silent = append(silent, conn)
		if len(silent) > mostQuiet+100 {
			_ = silent[0].Close()
			silent = silent[1:]
		}
	}
	_ = early.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := early.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the oldest of too many is still there: %v", err)
	}
	half := called(t, c)
	if _, err := half.Write([]byte{0, 0, 0, 9, 2}); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if n := doAll(t, c, called(t, c)); n != 200 {
		t.Errorf("a client among them did %d blocks", n)
	}
	t.Logf("200 blocks took %s beside them", time.Since(began))
	if r := <-results; r.State != engine.RunDone {
		t.Errorf("the run is %v: %s", r.State, r.Reason)
	}
	for _, conn := range silent {
		_ = conn.Close()
	}
	mu.Lock()
	defer mu.Unlock()
	if len(lines) != 1 || !strings.HasPrefix(lines[0], "task a waits for clients of daisy on this machine: export DAISY_CONTEXT=hostname=127.0.0.1:port=") {
		t.Errorf("people were told %q", lines)
	}
}

func TestAClientThatSaysNothingAtFirstIsStillThere(t *testing.T) {
	c, results := clientsHere(t, 3, nil)
	quiet := called(t, c)
	for range maxStrangers + 10 {
		called(t, c)
	}
	time.Sleep(2 * roomWithin)
	if n := doAll(t, c, quiet); n != 3 {
		t.Errorf("it did %d blocks", n)
	}
	<-results
}
