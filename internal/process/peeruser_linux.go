package process

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// CheckPeerUser says why the other end of a TCP connection within this machine is not this user's. It is nil where the system does not tell:
// where it answers no question about sockets and /proc/net cannot be read.
func CheckPeerUser(conn net.Conn) error {
	here, there, err := ends(conn)
	if err != nil {
		return err
	}
	uid, err := askUser(there, here)
	if err != nil && !errors.Is(err, errNoSocket) {
		uid, _, err = socketOf(there, here)
	}
	switch {
	case errors.Is(err, errNoSocket):
		return fmt.Errorf("no socket of this machine is at %v, where the connection comes from", there)
	case err != nil:
		return nil //nolint:nilerr // the system does not tell
	case uid != os.Geteuid():
		return fmt.Errorf("it is a connection of user %d, and this is user %d", uid, os.Geteuid())
	}
	return nil
}

// askUser asks the kernel whose a socket is, by its two ends (sock_diag(7)). That costs the same however many sockets there are; the table in
// /proc/net is as long as they are many.
func askUser(local, remote netip.AddrPort) (int, error) {
	s, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return 0, err
	}
	defer unix.Close(s)
	if err := unix.SetsockoptTimeval(s, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 1}); err != nil {
		return 0, err
	}
	if err := unix.Sendto(s, userQuestion(local, remote), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0, err
	}
	answer := make([]byte, 4096)
	n, _, err := unix.Recvfrom(s, answer, 0)
	if err != nil {
		return 0, err
	}
	return userOf(answer[:n])
}

const (
	sockDiagByFamily = 20 // linux/sock_diag.h
	questionLength   = unix.NLMSG_HDRLEN + 56
	// uidAt is where an inet_diag_msg has the user.
	uidAt = unix.NLMSG_HDRLEN + 64
)

// userQuestion is a request for one socket: a nlmsghdr and an inet_diag_req_v2.
func userQuestion(local, remote netip.AddrPort) []byte {
	q := make([]byte, questionLength)
	binary.NativeEndian.PutUint32(q, questionLength)
	binary.NativeEndian.PutUint16(q[4:], sockDiagByFamily)
	binary.NativeEndian.PutUint16(q[6:], unix.NLM_F_REQUEST)
	r := q[unix.NLMSG_HDRLEN:]
	r[0], r[1] = unix.AF_INET, unix.IPPROTO_TCP
	if local.Addr().Is6() {
		r[0] = unix.AF_INET6
	}
	binary.NativeEndian.PutUint32(r[4:], ^uint32(0)) // in whatever state
	binary.BigEndian.PutUint16(r[8:], local.Port())
	binary.BigEndian.PutUint16(r[10:], remote.Port())
	copy(r[12:28], local.Addr().AsSlice())
	copy(r[28:44], remote.Addr().AsSlice())
	binary.NativeEndian.PutUint64(r[48:], ^uint64(0)) // no cookie
	return q
}

// userOf reads the answer.
func userOf(answer []byte) (int, error) {
	if len(answer) < unix.NLMSG_HDRLEN+4 {
		return 0, unix.EBADMSG
	}
	switch binary.NativeEndian.Uint16(answer[4:]) {
	case sockDiagByFamily:
		if len(answer) < uidAt+4 {
			return 0, unix.EBADMSG
		}
		return int(binary.NativeEndian.Uint32(answer[uidAt:])), nil
	case unix.NLMSG_ERROR:
		errno := unix.Errno(-int32(binary.NativeEndian.Uint32(answer[unix.NLMSG_HDRLEN:])))
		if errno == unix.ENOENT {
			// Where the kernel has no part for such questions it says the same; the table knows.
			return 0, unix.EOPNOTSUPP
		}
		return 0, errno
	default:
		return 0, unix.EBADMSG
	}
}
