package process

import (
	"bytes"
	"os"
	"strconv"
	"time"
)

// Live measures the process and its living descendants now. ok is false when it has ended.
func (p *Process) Live() (u Usage, ok bool) {
	p.reap.Lock() // the pid stays ours meanwhile
	defer p.reap.Unlock()
	if p.reaped {
		return Usage{}, false
	}
	root, ok := readStat(p.PID())
	if !ok || root.dead() {
		return Usage{}, false
	}
	u.add(root)
	seen := map[int]bool{root.pid: true}
	for queue := []int{root.pid}; len(queue) > 0; queue = queue[1:] {
		for _, child := range childrenOf(queue[0]) {
			e, ok := readStat(child)
			if !ok || e.dead() || seen[child] {
				continue
			}
			seen[child] = true
			u.add(e)
			queue = append(queue, child)
		}
	}
	return u, true
}

func (u *Usage) add(e entry) {
	u.CPU += time.Duration(e.ticks) * (time.Second / ticksPerSecond)
	rss := e.rssPages * int64(os.Getpagesize())
	u.PeakRSSBytes = max(u.PeakRSSBytes, peakRSSBytes(e.pid), rss)
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
