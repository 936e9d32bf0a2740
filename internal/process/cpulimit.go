package process

import (
	"math"
	"time"

	"golang.org/x/sys/unix"
)

// CPULimit is how much time of the processor this process may have before the system ends it (RLIMIT_CPU); 0 = as much as it likes.
func CPULimit() time.Duration {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CPU, &limit); err != nil || limit.Cur > math.MaxInt64/uint64(time.Second) {
		return 0 // above that it is infinity
	}
	return time.Duration(limit.Cur) * time.Second
}
