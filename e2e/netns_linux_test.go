package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"example.org/daisy/internal/testenv"
)

// Two machines are two network namespaces on one cable: what one of them reaches of the other is what the test says.
type machines struct {
	t           *testing.T
	login, node string
}

var pairs atomic.Int32

// apart makes a login node and a compute node; setup are commands of ip, of "login" or "node", and "cable", which
// lays the cable. Interfaces are known in the order in which they were made.
func apart(t *testing.T, setup string) *machines {
	t.Helper()
	if os.Geteuid() != 0 {
		testenv.Unavailable(t, "networks of their own need root")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		testenv.Unavailable(t, "the command ip is missing (apt-get install iproute2)")
	}
	name := fmt.Sprintf("daisy-%d-%d-", os.Getpid(), pairs.Add(1))
	m := &machines{t: t, login: name + "login", node: name + "node"}
	for _, ns := range []string{m.login, m.node} {
		if out, err := exec.Command("ip", "netns", "add", ns).CombinedOutput(); err != nil {
			testenv.Unavailable(t, fmt.Sprintf("this system gives no networks of their own: ip netns add: %v: %s", err, out))
		}
		t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", ns).Run() })
	}
	m.ip("login link set lo up")
	m.ip("node link set lo up")
	for line := range strings.Lines(setup) {
		switch line = strings.TrimSpace(line); line {
		case "":
		case "cable":
			m.ip("login link add cable type veth peer name cable netns " + m.node)
			m.ip("login link set cable up")
			m.ip("node link set cable up")
		default:
			m.ip(line)
		}
	}
	return m
}

func (m *machines) ip(line string) {
	m.t.Helper()
	where, rest, _ := strings.Cut(line, " ")
	ns := map[string]string{"login": m.login, "node": m.node}[where]
	if out, err := exec.Command("ip", append([]string{"-n", ns}, strings.Fields(rest)...)...).CombinedOutput(); err != nil {
		m.t.Fatalf("ip on %s: %v: %s", line, err, out)
	}
}

// on has a command run on a machine.
func on(ns string, cmd *exec.Cmd) {
	path, _ := exec.LookPath("ip")
	cmd.Args = append([]string{"ip", "netns", "exec", ns, cmd.Path}, cmd.Args[1:]...)
	cmd.Path = path
}

// TestAWorkerOnAnotherMachineFindsTheAddressThatLeadsToItsCoordinator: the coordinator gives all that it has, and cannot know which.
func TestAWorkerOnAnotherMachineFindsTheAddressThatLeadsToItsCoordinator(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ network, leads string }{
		"several interfaces, of which one leads there": {`
			login link add docker0 type veth peer name docker0.x
			login addr add 172.17.0.1/16 dev docker0
			login link set docker0 up
			login link set docker0.x up
			login link add ib0 type veth peer name ib0.x
			login addr add 10.66.0.1/24 dev ib0
			login link set ib0 up
			login link set ib0.x up
			node route add unreachable 10.66.0.0/24
			login link add campus type veth peer name campus.x
			login addr add 203.0.113.5/24 dev campus
			login link set campus up
			login link set campus.x up
			cable
			login addr add 10.77.0.1/24 dev cable
			node addr add 10.77.0.2/24 dev cable
		`, "10.77.0.1:"},
		"a firewall that drops what goes to the others": {`
			login link add aaa type veth peer name aaa.x
			login addr add 10.65.0.1/24 dev aaa
			login link set aaa up
			login link set aaa.x up
			login rule add from 10.65.0.1 blackhole
			cable
			login addr add 10.77.0.1/24 dev cable
			node addr add 10.77.0.2/24 dev cable
			node route add 10.65.0.0/24 via 10.77.0.1
		`, "10.77.0.1:"},
		"IPv6 alone": {`
			cable
			login addr add fd77::1/64 dev cable nodad
			node addr add fd77::2/64 dev cable nodad
		`, "[fd77::1]:"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := apart(t, c.network)
			d := newDirector(t)
			dir, path := writeJob(t, jobOfTwo(d, "listen = \"0.0.0.0\""))
			s := prepare(t, dir, "run", path, "--run-dir", "out")
			on(m.login, s.cmd)
			s.begin()
			first := d.next()
			began := time.Now()
			helper := aHelper(t, dir, func(cmd *exec.Cmd) { on(m.node, cmd) })
			t.Logf("it was there after %v:\n%s", time.Since(began).Round(time.Millisecond), helper.said)
			look, says := prepare(t, dir, "attach", "out"), prepare(t, dir, "status", "out") // people on that machine
			for _, people := range []*submit{look, says} {
				on(m.node, people.cmd)
				people.begin()
			}
			if r := says.wait(); r.status != 0 || !strings.Contains(r.stdout, "first") {
				t.Errorf("status ends with %d there", r.status)
			}
			one, other := helper.share(t, d, first)
			one.ok()
			other.ok()
			if r := s.wait(); r.status != 0 {
				t.Errorf("exit status %d", r.status)
			}
			if r := look.wait(); r.status != 0 || !strings.Contains(r.stdout, "The run ") {
				t.Errorf("attach ends with %d there", r.status)
			}
			if err := helper.Wait(); err != nil {
				t.Errorf("the worker ended with %v: %s", err, helper.said)
			}
			wantText(t, helper.said.String(), "reached the coordinator at "+c.leads)
		})
	}
}
