package api

import (
	"errors"
	"net"
	"testing"
	"time"
)

func TestTheClosingOfAConnectionDuringTheHandshakeIsNoStranger(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() { // a coordinator that has no room for more
		conn, err := l.Accept()
		if err == nil {
			conn.Close()
		}
	}()
	_, err = Dial(t.Context(), l.Addr().String(), Fingerprint(nil), time.Minute)
	if err == nil || errors.As(err, new(*StrangerError)) {
		t.Errorf("got %v", err)
	}
}
