package coordinator

import (
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
)

// listenHere is a port of this machine without TLS.
func listenHere(t *testing.T) *listener {
	t.Helper()
	tcp, err := bind("127.0.0.1", 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	l := listenOn(tcp, nil)
	l.start()
	return l
}

func TestOnlyHTTPIsLetInByItsFirstByte(t *testing.T) {
	l := listenHere(t)
	defer l.Close()
	for name, first := range map[string]string{"a frame of another protocol": "\x00\x00\x00\x05", "TLS": "\x16\x03\x01"} {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, first); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Read(make([]byte, 1)); err == nil {
			t.Errorf("%s was answered", name)
		}
		conn.Close()
	}
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\n"); err != nil {
		t.Fatal(err)
	}
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer accepted.Close()
	got := make([]byte, 4)
	if _, err := io.ReadFull(accepted, got); err != nil || string(got) != "GET " {
		t.Errorf("the first bytes are %q (%v), want them given back", got, err)
	}
}

func TestCloseEndsConnectionsThatSayNothing(t *testing.T) {
	l := listenHere(t)
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := l.Close(); err != nil { // returns: its goroutines are gone
		t.Fatal(err)
	}
	if _, err := l.Accept(); err == nil {
		t.Error("a closed listener accepts")
	}
	if _, err := l.dial(t.Context()); err == nil {
		t.Error("a closed listener can be reached from inside")
	}
}

func TestARangeOfPortsIsTriedInOrderAndItsEndIsAnError(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	_, text, _ := net.SplitHostPort(taken.Addr().String())
	port, _ := strconv.Atoi(text)
	if _, err := bind("127.0.0.1", port, port); err == nil || !strings.Contains(err.Error(), "give other ports with the key port of [run]") {
		t.Errorf("error %v, want one that says what to do", err)
	}
	if next, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port+1))); err == nil {
		defer next.Close() // else it is somebody else's, and as good
	}
	want := fmt.Sprintf("cannot listen on 127.0.0.1, any port from %d to %d (give other ports with the key port of [run]): listen tcp 127.0.0.1:%d: bind: address already in use", port, port+1, port)
	if _, err := bind("127.0.0.1", port, port+1); err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	l, err := bind("127.0.0.1", port, port+20)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if l.Addr().String() == taken.Addr().String() {
		t.Error("it listens on a port that was taken")
	}
}
