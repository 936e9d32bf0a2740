package process

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// FileLimit is how many files this process may have open. The Go runtime has raised the soft limit to the hard one (less one)
// when the program started, and gives children the limit that it found, since some programs walk through all possible
// descriptors or select(2) on them; so nothing is left to raise here.
func FileLimit() (files uint64, err error) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0, fmt.Errorf("limit of open files: %w", err)
	}
	return uint64(limit.Cur), nil
}
