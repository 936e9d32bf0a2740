package process

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
)

// An entry is what /proc/<pid>/stat says (proc_pid_stat(5)).
type entry struct {
	pid, parent, group int
	state              byte
	ticks              int64 // user and system time, its own and of waited-for children
	start              int64 // ticks since boot
	rssPages           int64
}

// dead: a zombie holds nothing but its pid.
func (e entry) dead() bool { return e.state == 'Z' || e.state == 'X' }

// ticksPerSecond is USER_HZ, which is 100 on every architecture that Go runs on.
const ticksPerSecond = 100

func readStat(pid int) (entry, bool) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return entry{}, false
	}
	return parseStat(pid, text)
}

// parseStat: the second field is the program's name in parentheses, which may hold blanks and parentheses itself.
func parseStat(pid int, text []byte) (entry, bool) {
	end := bytes.LastIndexByte(text, ')')
	if end < 0 {
		return entry{}, false
	}
	f := bytes.Fields(text[end+1:]) // f[0] is field 3
	if len(f) < 22 || len(f[0]) != 1 {
		return entry{}, false
	}
	number := func(field int) int64 {
		n, _ := strconv.ParseInt(string(f[field-3]), 10, 64)
		return n
	}
	e := entry{
		pid: pid, state: f[0][0],
		parent: int(number(4)), group: int(number(5)),
		ticks: number(14) + number(15) + number(16) + number(17), start: number(22), rssPages: number(24),
	}
	return e, true
}

// processes are all that the system shows, the dead ones too.
func processes() ([]entry, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, fmt.Errorf("search for processes: %w", err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("search for processes: %w", err)
	}
	var all []entry
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			if e, ok := readStat(pid); ok {
				all = append(all, e)
			}
		}
	}
	return all, nil
}

// A family is a set of processes with all their descendants among all.
func family(all []entry, in func(entry) bool) []entry {
	children := make(map[int][]entry, len(all))
	for _, e := range all {
		children[e.parent] = append(children[e.parent], e)
	}
	taken := map[int]bool{}
	var members []entry
	var take func(e entry)
	take = func(e entry) {
		if taken[e.pid] {
			return
		}
		taken[e.pid] = true
		members = append(members, e)
		for _, child := range children[e.pid] {
			take(child)
		}
	}
	for _, e := range all {
		if in(e) {
			take(e)
		}
	}
	return members
}

// childrenOf reads the children of every thread of a process: cheap, without a search.
func childrenOf(pid int) []int {
	tasks := "/proc/" + strconv.Itoa(pid) + "/task"
	dir, err := os.Open(tasks)
	if err != nil {
		return nil
	}
	defer dir.Close()
	threads, _ := dir.Readdirnames(-1)
	var children []int
	for _, thread := range threads {
		text, _ := os.ReadFile(tasks + "/" + thread + "/children")
		for _, field := range bytes.Fields(text) {
			if child, err := strconv.Atoi(string(field)); err == nil {
				children = append(children, child)
			}
		}
	}
	return children
}

// carries: the environment that the process was started with has all the markers. It can be read for one's own processes.
func carries(pid int, markers []string) bool {
	if len(markers) == 0 {
		return false
	}
	environ, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil || len(environ) == 0 {
		return false
	}
	return hasEntries(environ, markers)
}

// hasEntries: every wanted "K=V" is a whole entry of the zero-separated block.
func hasEntries(environ []byte, wanted []string) bool {
	for _, w := range wanted {
		found := false
		for entry := range bytes.SplitSeq(environ, []byte{0}) {
			if string(entry) == w {
				found = true
				break
			}
		}
		if !found {
			return false
		}
	}
	return true
}
