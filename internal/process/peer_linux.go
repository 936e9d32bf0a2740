package process

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
)

// CheckPeer says why the other end of a TCP connection within this machine is none of the process's: it is held neither by the process
// nor by a descendant nor by what carries its markers. It is nil where that cannot be told for certain, as long as the
// user is this one.
func (p *Process) CheckPeer(conn net.Conn) error { return checkPeer(conn, p.PID(), p.owns) }

// CheckPeerOf is Process.CheckPeer for a living child that something else has started.
func CheckPeerOf(pid int, conn net.Conn) error {
	return checkPeer(conn, pid, func([]entry) func(entry) bool { return func(e entry) bool { return e.pid == pid } })
}

func checkPeer(conn net.Conn, pid int, owns func([]entry) func(entry) bool) error {
	here, there, err := ends(conn)
	if err != nil {
		return err
	}
	uid, inode, err := socketOf(there, here)
	switch {
	case errors.Is(err, errNoSocket):
		return fmt.Errorf("no socket of this machine is at %v, where the connection comes from", there)
	case err != nil:
		return nil // the system does not tell
	case uid != os.Geteuid():
		return fmt.Errorf("it is a connection of user %d, and this is user %d", uid, os.Geteuid())
	}
	all, err := processes()
	if err != nil {
		return nil // likewise
	}
	link := fmt.Sprintf("socket:[%d]", inode)
	own := living(all, owns(all))
	for _, t := range own {
		if holds(t.pid, link) {
			return nil
		}
	}
	for _, e := range all {
		if holds(e.pid, link) && !slices.ContainsFunc(own, func(t target) bool { return t.pid == e.pid }) {
			return fmt.Errorf("it is a connection of process %d, which process %d has not started", e.pid, pid)
		}
	}
	return nil
}

func ends(conn net.Conn) (here, there netip.AddrPort, err error) {
	local, isTCP := conn.LocalAddr().(*net.TCPAddr)
	remote, too := conn.RemoteAddr().(*net.TCPAddr)
	if !isTCP || !too {
		return here, there, fmt.Errorf("%v is no TCP connection", conn.RemoteAddr())
	}
	unmapped := func(a *net.TCPAddr) netip.AddrPort {
		ap := a.AddrPort()
		return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
	}
	return unmapped(local), unmapped(remote), nil
}

var errNoSocket = errors.New("no such socket")

// socketOf finds a socket of the network that this process sees, by its two ends (proc_net(5)).
func socketOf(local, remote netip.AddrPort) (uid int, inode uint64, err error) {
	table := "/proc/self/net/tcp"
	if local.Addr().Is6() {
		table += "6"
	}
	text, err := os.ReadFile(table)
	if err != nil {
		return 0, 0, err
	}
	want := [2][]byte{kernelAddress(local), kernelAddress(remote)}
	for line := range bytes.Lines(text) {
		f := bytes.Fields(line)
		if len(f) < 10 || !bytes.Equal(f[1], want[0]) || !bytes.Equal(f[2], want[1]) {
			continue
		}
		uid, err := strconv.Atoi(string(f[7]))
		if err != nil {
			return 0, 0, err
		}
		inode, err := strconv.ParseUint(string(f[9]), 10, 64)
		return uid, inode, err
	}
	return 0, 0, errNoSocket
}

// kernelAddress is an address as the kernel prints it: words of four bytes in the machine's own order, which is little endian wherever
// this is run.
func kernelAddress(a netip.AddrPort) []byte {
	raw := a.Addr().AsSlice()
	for i := 0; i < len(raw); i += 4 {
		slices.Reverse(raw[i : i+4])
	}
	return fmt.Appendf(nil, "%s:%04X", bytes.ToUpper([]byte(hex.EncodeToString(raw))), a.Port())
}

// holds: one of the descriptors of the process leads there. It can be read for one's own processes.
func holds(pid int, link string) bool {
	folder := "/proc/" + strconv.Itoa(pid) + "/fd"
	dir, err := os.Open(folder)
	if err != nil {
		return false
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	return slices.ContainsFunc(names, func(name string) bool {
		to, err := os.Readlink(folder + "/" + name)
		return err == nil && to == link
	})
}
