package process

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// adopted is a property of the whole process, like the system's own flag.
var adopted struct {
	sync.Mutex
	list *os.File // of the main thread's children; open once this process adopts orphans
	// inherited are the processes that hung on this one before: whoever became this program by exec had started them.
	inherited map[target]bool
}

// Adopt makes this process the parent of every descendant that loses its own (PR_SET_CHILD_SUBREAPER), so that what a block
// leaves behind is seen by one cheap read instead of a search through all processes; and reaps them. For the main function
// of a program that starts processes with a Spawner: a child started by other means in a process group of its own would be
// taken for an orphan when it ends. Children that it has already are left alone, with their descendants of now: a shell that
// ran this program by exec may have started them. Where the system cannot adopt, strays are found by search; that is no error.
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
	inherited, err := children(list)
	if err == nil {
		err = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	}
	if err != nil {
		list.Close()
		return nil
	}
	adopted.list, adopted.inherited = list, map[target]bool{}
	for _, e := range withDescendants(inherited) {
		adopted.inherited[target{e.pid, e.start}] = true
	}
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
	all, err := children(adopted.list)
	if err != nil {
		return nil, false
	}
	own := unix.Getpgrp()
	for _, e := range all {
		switch {
		case e.group == own:
		case e.dead():
			_, _ = unix.Wait4(e.pid, nil, unix.WNOHANG, nil)
		case !adopted.inherited[target{e.pid, e.start}]:
			living = append(living, e)
		}
	}
	return living, true
}

// children reads a list of this process's children, to its end: half a list could end within a number, which is then another
// process's. For the same reason whoever is no child of ours by its own account is left out.
func children(list *os.File) ([]entry, error) {
	var buffer [4096]byte
	text := buffer[:0]
	for {
		n, err := list.ReadAt(text[len(text):cap(text)], int64(len(text)))
		text = text[:len(text)+n]
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		text = slices.Grow(text, len(text))
	}
	var found []entry
	for _, field := range bytes.Fields(text) {
		pid, err := strconv.Atoi(string(field))
		if err != nil {
			continue
		}
		if e, ok := readStat(pid); ok && e.parent == os.Getpid() {
			found = append(found, e)
		}
	}
	return found, nil
}
