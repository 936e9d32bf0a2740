package process

import (
	"bytes"
	"os"
	"strconv"
	"time"
)

// Live measures the process and its living descendants now. ok is false when it has ended.
func (p *Process) Live() (u Usage, ok bool) {
	ok = p.visit(u.add)
	return u, ok
}

// rss is what the process and its living descendants have in memory now, added up.
func (p *Process) rss() (bytes int64, ok bool) {
	ok = p.visit(func(e entry) { bytes += e.rss() })
	return bytes, ok
}

// LiveIO is what the process, its living descendants, and those that they waited for have read and written so far. ok is false when
// it has ended.
func (p *Process) LiveIO() (u IO, ok bool) {
	ok = p.visit(func(e entry) {
		one := readIO(e.pid)
		u.ReadBytes += one.ReadBytes
		u.WrittenBytes += one.WrittenBytes
	})
	return u, ok
}

// readIO reads proc_pid_io(5), also of a zombie. It is empty if it is not known: the kernel may not count.
func readIO(pid int) (u IO) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/io")
	if err != nil {
		return IO{}
	}
	for line := range bytes.Lines(text) {
		name, value, _ := bytes.Cut(line, []byte(":"))
		n, _ := strconv.ParseInt(string(bytes.TrimSpace(value)), 10, 64)
		switch string(name) {
		case "rchar":
			u.ReadBytes = n
		case "wchar":
			u.WrittenBytes = n
		}
	}
	return u
}

// visit shows the process and its living descendants. It is false when the process has ended.
func (p *Process) visit(see func(entry)) bool {
	p.reap.Lock() // the pid stays ours meanwhile
	defer p.reap.Unlock()
	if p.reaped {
		return false
	}
	root, ok := readStat(p.PID())
	if !ok || root.dead() {
		return false
	}
	see(root)
	seen := map[int]bool{root.pid: true}
	for queue := []int{root.pid}; len(queue) > 0; queue = queue[1:] {
		for _, child := range childrenOf(queue[0]) {
			e, ok := readStat(child)
			if !ok || e.dead() || seen[child] {
				continue
			}
			seen[child] = true
			see(e)
			queue = append(queue, child)
		}
	}
	return true
}

func (e entry) rss() int64 { return e.rssPages * int64(os.Getpagesize()) }

func (u *Usage) add(e entry) {
	u.CPU += time.Duration(e.ticks) * (time.Second / ticksPerSecond)
	u.PeakRSSBytes = max(u.PeakRSSBytes, peakRSSBytes(e.pid), e.rss())
}

// ResetPeak makes PeakRSSBytes of Live count from now (clear_refs, proc_pid_clear_refs(5)), for a process that serves one
// block after another. Where the system does not allow it the peak stays that of the process's life.
func (p *Process) ResetPeak() {
	p.reap.Lock()
	defer p.reap.Unlock()
	if p.reaped {
		return
	}
	if f, err := os.OpenFile("/proc/"+strconv.Itoa(p.PID())+"/clear_refs", os.O_WRONLY, 0); err == nil {
		_, _ = f.WriteString("5")
		f.Close()
	}
}

// peakRSSBytes is VmHWM, 0 if not known.
func peakRSSBytes(pid int) int64 {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return 0
	}
	_, rest, _ := bytes.Cut(text, []byte("\nVmHWM:"))
	fields := bytes.Fields(rest)
	if len(fields) == 0 {
		return 0
	}
	kib, _ := strconv.ParseInt(string(fields[0]), 10, 64)
	return kib * 1024
}
