package process

import (
	"net"
	"os"
	"strings"
	"testing"

	"example.org/daisy/internal/testenv"
	"golang.org/x/sys/unix"
)

// joined are the two ends of a connection within this machine.
func joined(t *testing.T, address string) (here, there net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		testenv.Unavailable(t, "this machine has no "+address+": "+err.Error())
	}
	defer l.Close()
	there, err = net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	here, err = l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = here.Close(), there.Close() })
	return here, there
}

func TestWhoseAConnectionIsBothWaysOfAskingTellAlike(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		t.Run(address, func(t *testing.T) {
			conn, _ := joined(t, address)
			here, there, err := ends(conn)
			if err != nil {
				t.Fatal(err)
			}
			asked, err := askUser(there, here)
			if err != nil {
				t.Logf("this kernel answers no questions about sockets: %v", err)
				asked = os.Geteuid()
			}
			read, _, err := socketOf(there, here)
			if err != nil || read != os.Geteuid() || asked != read {
				t.Errorf("asked, it is user %d, and in the table %d (%v); it is %d", asked, read, err, os.Geteuid())
			}
			if err := CheckPeerUser(conn); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestAConnectionWithinThisMachineOfAnotherUserIsRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		testenv.Unavailable(t, "only root can make a socket another user's")
	}
	conn, there := joined(t, "127.0.0.1:0")
	raw, err := there.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Control(func(fd uintptr) { err = unix.Fchown(int(fd), 12345, -1) }); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		testenv.Unavailable(t, "a socket cannot be given away here: "+err.Error())
	}
	if err := CheckPeerUser(conn); err == nil || !strings.Contains(err.Error(), "a connection of user 12345") {
		t.Errorf("%v, want that it is another user's", err)
	}
}

func TestAConnectionWhoseOtherEndIsNowhereIsRefused(t *testing.T) {
	conn, _ := joined(t, "127.0.0.1:0")
	if err := CheckPeerUser(elsewhere{conn}); err == nil || !strings.Contains(err.Error(), "no socket of this machine") {
		t.Error(err)
	}
}

// elsewhere is a connection from a port that nobody has.
type elsewhere struct{ net.Conn }

func (e elsewhere) RemoteAddr() net.Addr {
	return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}
}
