package process

import (
	"bytes"
	"math"
	"os"
	"path"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

func machine() Machine { return machineAt("/", allowedCores()) }

func allowedCores() int {
	var set unix.CPUSet
	if unix.SchedGetaffinity(0, &set) != nil {
		return runtime.NumCPU()
	}
	return set.Count()
}

// machineAt reads below root, so that a test can lay out a system of its own.
func machineAt(root string, cores int) Machine {
	m := Machine{Cores: cores}
	if meminfo, err := os.ReadFile(path.Join(root, "proc/meminfo")); err == nil {
		m.MemoryBytes = memTotal(meminfo)
	}
	cgroups, _ := os.ReadFile(path.Join(root, "proc/self/cgroup"))
	for line := range strings.Lines(string(cgroups)) { // hierarchy:controllers:path (cgroups(7))
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) != 3 {
			continue
		}
		controllers := strings.Split(fields[1], ",")
		for _, c := range controllers {
			dir := path.Join(root, "sys/fs/cgroup", c) // version 2: one hierarchy, no controller named
			for _, d := range upwards(dir, fields[2]) {
				switch c {
				case "":
					m.limit(quotaV2(d), number(d, "memory.max"))
				case "cpu":
					m.limit(quotaV1(d), math.MaxInt64)
				case "memory":
					m.limit(math.Inf(1), number(d, "memory.limit_in_bytes"))
				}
			}
		}
	}
	return m
}

// limit applies the limits of one cgroup: cores of CPU quota, bytes of memory.
func (m *Machine) limit(cores float64, memory int64) {
	if cores < float64(m.Cores) {
		m.Cores = max(int(cores), 1)
	}
	if m.MemoryBytes > 0 && memory > 0 && memory < m.MemoryBytes {
		m.MemoryBytes = memory
	}
}

// upwards is the folder of a cgroup and all above it: each can limit. Inside a container the path may name folders of the
// host that are not there; its own is then the top.
func upwards(top, cgroup string) []string {
	var dirs []string
	for p := path.Clean("/" + cgroup); p != "/"; p = path.Dir(p) {
		dirs = append(dirs, top+p)
	}
	return append(dirs, top)
}

// quotaV2 reads "quota period" or "max period", in microseconds.
func quotaV2(dir string) float64 {
	text, _ := os.ReadFile(path.Join(dir, "cpu.max"))
	fields := strings.Fields(string(text))
	if len(fields) != 2 {
		return math.Inf(1)
	}
	return quota(fields[0], fields[1])
}

// quotaV1: a quota of -1 is none.
func quotaV1(dir string) float64 {
	q, _ := os.ReadFile(path.Join(dir, "cpu.cfs_quota_us"))
	p, _ := os.ReadFile(path.Join(dir, "cpu.cfs_period_us"))
	return quota(strings.TrimSpace(string(q)), strings.TrimSpace(string(p)))
}

func quota(quota, period string) float64 {
	q, err1 := strconv.ParseFloat(quota, 64)
	p, err2 := strconv.ParseFloat(period, 64)
	if err1 != nil || err2 != nil || q <= 0 || p <= 0 {
		return math.Inf(1)
	}
	return q / p
}

// number reads a file with one number; "max" and what cannot be read is no limit.
func number(dir, name string) int64 {
	text, _ := os.ReadFile(path.Join(dir, name))
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return math.MaxInt64
	}
	return n
}

// memTotal finds "MemTotal: n kB" (proc_meminfo(5)).
func memTotal(meminfo []byte) int64 {
	for line := range bytes.Lines(meminfo) {
		if rest, ok := bytes.CutPrefix(line, []byte("MemTotal:")); ok {
			if fields := bytes.Fields(rest); len(fields) > 0 {
				kib, _ := strconv.ParseInt(string(fields[0]), 10, 64)
				return kib * 1024
			}
		}
	}
	return 0
}
