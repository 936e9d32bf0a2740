package process

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// LimitMemory gives a process that has just been started, and whatever it may have started since, so much address space. The process
// comes first: what it starts from then on has the limit from the start.
func LimitMemory(pid int, bytes int64) error {
	seen := map[int]bool{}
	for queue := []int{pid}; len(queue) > 0; queue = queue[1:] {
		if seen[queue[0]] {
			continue
		}
		seen[queue[0]] = true
		if err := limitOne(queue[0], bytes); err != nil && !errors.Is(err, unix.ESRCH) { // that has ended
			return fmt.Errorf("limit its memory to %d bytes: %w", bytes, err)
		}
		queue = append(queue, childrenOf(queue[0])...)
	}
	return nil
}

func limitOne(pid int, bytes int64) error {
	var was unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_AS, nil, &was); err != nil {
		return err
	}
	most := min(uint64(bytes), was.Max)
	return unix.Prlimit(pid, unix.RLIMIT_AS, &unix.Rlimit{Cur: min(most, was.Cur), Max: most}, nil)
}
