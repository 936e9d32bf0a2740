package process

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"example.org/daisy/internal/testenv"
)

// called is a listener on the loopback interface, and the next connection to it.
func called(t *testing.T, network string) (address string, next func() net.Conn) {
	t.Helper()
	host := map[string]string{"tcp4": "127.0.0.1:0", "tcp6": "[::1]:0"}[network]
	l, err := net.Listen(network, host)
	if err != nil {
		testenv.Unavailable(t, err.Error())
	}
	t.Cleanup(func() { l.Close() })
	return l.Addr().String(), func() net.Conn {
		conn, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
}

func TestAConnectionOfAProcessIsTold(t *testing.T) {
	for _, network := range []string{"tcp4", "tcp6"} {
		for _, role := range []string{"call", "have call"} {
			t.Run(role+" "+network, func(t *testing.T) {
				s := newStage(t)
				address, next := called(t, network)
				p := s.start(s.config(role, address))
				if err := p.CheckPeer(next()); err != nil {
					t.Error(err)
				}
				s.stdin.Close()
				p.Wait()
			})
		}
	}
}

func TestAConnectionOfAnybodyElseIsRefused(t *testing.T) {
	s := newStage(t)
	address, next := called(t, "tcp4")
	p, other := s.start(s.config("hold")), s.start(s.config("call", address))
	wants := func(conn net.Conn, pid int) {
		t.Helper()
		want := fmt.Sprintf("it is a connection of process %d, which process %d has not started", pid, p.PID())
		if err := p.CheckPeer(conn); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	wants(next(), other.PID())
	mine, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	conn := next()
	wants(conn, os.Getpid())
	mine.(*net.TCPConn).SetLinger(0) // gone at once
	mine.Close()
	if err := p.CheckPeer(conn); err == nil || !strings.HasPrefix(err.Error(), "no socket of this machine is at ") {
		t.Errorf("got %v", err)
	}
	s.stdin.Close()
	p.Wait()
	other.Wait()
}

func TestAConnectionOfAnotherUserIsRefused(t *testing.T) {
	if os.Getuid() != 0 {
		testenv.Unavailable(t, "only root can be two users")
	}
	s := newStage(t)
	address, next := called(t, "tcp4")
	p := s.start(s.config("hold"))
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("bash", "-c", `exec 3<>"/dev/tcp/127.0.0.1/$0"; read -u 3 end`, port)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if err := cmd.Start(); err != nil {
		testenv.Unavailable(t, err.Error())
	}
	conn := next()
	if err := p.CheckPeer(conn); err == nil || err.Error() != "it is a connection of user 65534, and this is user 0" {
		t.Errorf("got %v", err)
	}
	conn.Close()
	_ = cmd.Wait() // its status says nothing
	s.stdin.Close()
	p.Wait()
}
