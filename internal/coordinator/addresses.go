package coordinator

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// addresses are where workers try to reach a coordinator that listens on bound, best first: those of the job file, then, if it
// listens on all interfaces, the name of this machine and the address of each interface. It is for the workers to find out
// which of them leads here; that this machine reaches itself would prove nothing. reachable is false if it listens for other
// machines and all there is to be said is a loopback address.
func addresses(configured []string, bound *net.TCPAddr, host string, interfaces []netInterface) (found []string, reachable bool) {
	port := strconv.Itoa(bound.Port)
	for _, a := range configured {
		if _, _, err := net.SplitHostPort(a); err != nil {
			a = net.JoinHostPort(a, port)
		}
		found = append(found, a)
	}
	if !bound.IP.IsUnspecified() {
		return distinct(append(found, bound.String())), true
	}
	ips := plausible(interfaces)
	if len(ips) > 0 {
		if name := qualified(host); name != "" {
			found = append(found, net.JoinHostPort(name, port))
		}
	}
	for _, ip := range ips {
		found = append(found, net.JoinHostPort(ip.String(), port))
	}
	if len(ips) == 0 { // workers of this machine have a way all the same
		return append(found, net.JoinHostPort("127.0.0.1", port)), len(configured) > 0
	}
	return distinct(found), true
}

func distinct(list []string) []string {
	var out []string
	for _, s := range list {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// qualified is the name of this machine as others may know it, "" if it has none. Asking for it takes no longer than a second.
func qualified(host string) string {
	if host == "" || local(host) {
		return ""
	}
	if strings.Contains(host, ".") {
		return host
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	full, err := net.DefaultResolver.LookupCNAME(ctx, host)
	if full = strings.TrimSuffix(full, "."); err != nil || full == "" || local(full) {
		return host
	}
	return full
}

func local(name string) bool { return name == "localhost" || strings.HasPrefix(name, "localhost.") }

// A netInterface is what is to be known of a network interface.
type netInterface struct {
	name  string
	flags net.Flags
	ips   []netip.Addr
}

func netInterfaces() ([]netInterface, error) {
	list, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("find the addresses of this machine: %w", err)
	}
	var all []netInterface
	for _, i := range list {
		addrs, err := i.Addrs()
		if err != nil {
			continue // it is gone by now
		}
		one := netInterface{name: i.Name, flags: i.Flags}
		for _, a := range addrs {
			if prefix, err := netip.ParsePrefix(a.String()); err == nil {
				one.ips = append(one.ips, prefix.Addr().Unmap())
			}
		}
		all = append(all, one)
	}
	return all, nil
}

// inner are how the names of interfaces begin which lead to containers and virtual machines of this one, and to nobody else.
var inner = []string{"docker", "veth", "br-", "virbr", "cni", "flannel", "cali", "cilium", "kube", "podman", "lxc", "lxdbr", "vnet", "vmnet", "vboxnet"}

// plausible are the addresses under which other machines may reach this one: private ones of IPv4 first, which are those
// inside a cluster, then other ones of IPv4, then IPv6. Link-local ones are good on one cable only.
func plausible(interfaces []netInterface) []netip.Addr {
	var private, public, six []netip.Addr
	for _, i := range interfaces {
		if i.flags&net.FlagUp == 0 || i.flags&net.FlagLoopback != 0 || slices.ContainsFunc(inner, func(p string) bool { return strings.HasPrefix(i.name, p) }) {
			continue
		}
		for _, ip := range i.ips {
			switch {
			case !ip.IsGlobalUnicast():
			case ip.Is6():
				six = append(six, ip)
			case ip.IsPrivate():
				private = append(private, ip)
			default:
				public = append(public, ip)
			}
		}
	}
	return slices.Concat(private, public, six)
}
