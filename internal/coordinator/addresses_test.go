package coordinator

import (
	"net"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func interfaceOf(name string, flags net.Flags, ips ...string) netInterface {
	i := netInterface{name: name, flags: flags}
	for _, ip := range ips {
		i.ips = append(i.ips, netip.MustParseAddr(ip))
	}
	return i
}

func TestPlausibleAddressesAreThoseThatOtherMachinesMayReach(t *testing.T) {
	const up = net.FlagUp
	got := []string{}
	for _, ip := range plausible([]netInterface{
		interfaceOf("lo", up|net.FlagLoopback, "127.0.0.1", "::1"),
		interfaceOf("eth0", up, "192.0.2.5", "2001:db8::5", "fe80::5"),
		interfaceOf("eth1", up, "10.1.0.5"),
		interfaceOf("ib0", up, "10.2.0.5", "fd00::5"),
		interfaceOf("eth2", 0, "10.3.0.5"), // down
		interfaceOf("docker0", up, "172.17.0.1"),
		interfaceOf("br-0f00ba", up, "172.18.0.1"),
		interfaceOf("virbr0", up, "192.168.122.1"),
		interfaceOf("vethc0ffee", up, "169.254.3.4"),
		interfaceOf("eth3", up, "169.254.1.1"),
		interfaceOf("br0", up, "192.168.1.5"), // of the whole machine
	}) {
		got = append(got, ip.String())
	}
	want := []string{"10.1.0.5", "10.2.0.5", "192.168.1.5", "192.0.2.5", "2001:db8::5", "fd00::5"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestAddressesOfTheJobFileComeFirstAndHaveThePortUnlessTheyGiveOne(t *testing.T) {
	bound := &net.TCPAddr{IP: net.ParseIP("10.0.0.5"), Port: 7000}
	got, reachable := addresses([]string{"gateway", "tunnel:22", "::5", "[::6]:23", "10.0.0.5"}, bound, "login1", []netInterface{interfaceOf("eth0", net.FlagUp, "10.9.9.9")})
	if !reachable {
		t.Error("it says that nobody can reach it")
	}
	want := []string{"gateway:7000", "tunnel:22", "[::5]:7000", "[::6]:23", "10.0.0.5:7000"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestACoordinatorThatListensOnAllInterfacesHasItsNameAndTheirAddresses(t *testing.T) {
	bound := &net.TCPAddr{IP: net.IPv6unspecified, Port: 7000}
	lo := interfaceOf("lo", net.FlagUp|net.FlagLoopback, "127.0.0.1", "::1")
	eth := interfaceOf("eth0", net.FlagUp, "10.1.0.5", "fd00::5")
	for name, tc := range map[string]struct {
		configured []string
		interfaces []netInterface
		want       []string
		reachable  bool
	}{
		"one interface":         {nil, []netInterface{lo, eth}, []string{"login1.example.org:7000", "10.1.0.5:7000", "[fd00::5]:7000"}, true},
		"and a gateway":         {[]string{"gateway"}, []netInterface{lo, eth}, []string{"gateway:7000", "login1.example.org:7000", "10.1.0.5:7000", "[fd00::5]:7000"}, true},
		"only a gateway":        {[]string{"gateway"}, []netInterface{lo}, []string{"gateway:7000", "127.0.0.1:7000"}, true},
		"nothing but this host": {nil, []netInterface{lo}, []string{"127.0.0.1:7000"}, false},
	} {
		got, reachable := addresses(tc.configured, bound, "login1.example.org", tc.interfaces)
		if diff := cmp.Diff(tc.want, got); diff != "" || reachable != tc.reachable {
			t.Errorf("%s: reachable %v, -want +got:\n%s", name, reachable, diff)
		}
	}
}

func TestNamesThatMeanTheMachineItselfAreNotGivenToOthers(t *testing.T) {
	for host, want := range map[string]string{"": "", "localhost": "", "localhost.localdomain": "", "login1.example.org": "login1.example.org"} {
		if got := qualified(host); got != want {
			t.Errorf("%q: got %q, want %q", host, got, want)
		}
	}
}
