package process

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// adopted is open once this process adopts orphans: the list of the main thread's children. It is a property of the whole
// process, like the system's own flag.
var adopted struct {
	sync.Mutex
	list *os.File
}

// Adopt makes this process the parent of every descendant that loses its own (PR_SET_CHILD_SUBREAPER), so that what a block
// leaves behind is seen by one cheap read instead of a search through all processes; and reaps them. For the main function
// of a program that starts processes with a Spawner: a child started by other means in a process group of its own would be
// taken for an orphan when it ends. Where the system cannot do it, strays are found by search; that is no error.
// There is no way back; calling it again changes nothing.
func Adopt() error {
	adopted.Lock()
	defer adopted.Unlock()
	if adopted.list != nil {
		return nil
	}
	// Orphans become children of the first living thread, which is the main thread: a Go program never ends it.
	list, err := os.Open(fmt.Sprintf("/proc/self/task/%d/children", os.Getpid()))
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("adopt orphaned processes: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		list.Close()
		return nil
	}
	adopted.list = list
	return nil
}

// orphans are the living adopted processes; those that have ended are reaped on the way. ok is false if this process does not
// adopt, or the list cannot be read, and a search is needed.
//
// Our own children hang on the Spawner's threads, never on the main thread; what somebody else forked there is in our own
// process group. So nobody's exit status is taken away.
func orphans() (living []entry, ok bool) {
	adopted.Lock()
	defer adopted.Unlock()
	if adopted.list == nil {
		return nil, false
	}
	var buffer [4096]byte
	text := buffer[:0]
	for {
		n, err := adopted.list.ReadAt(buffer[len(text):], int64(len(text)))
		text = buffer[:len(text)+n]
		if err != nil || len(text) == len(buffer) {
			break // what does not fit comes when these are gone
		}
	}
	if len(text) == 0 {
		return nil, true
	}
	own := unix.Getpgrp()
	for _, field := range strings.Fields(string(text)) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			continue
		}
		e, ok := readStat(pid)
		if !ok || e.group == own {
			continue
		}
		if e.dead() {
			_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
			continue
		}
		living = append(living, e)
	}
	return living, true
}
