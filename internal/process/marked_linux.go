package process

import (
	"context"
	"time"
)

// EndMarked ends every process that carries all the markers ("K=V") in the environment that it was started with, and its
// descendants: SIGTERM, and SIGKILL after grace (at once if grace is 0). It returns when none is left, with the pids of those that it
// found. It searches all processes of this machine; this one and its ancestors are spared.
func EndMarked(ctx context.Context, markers []string, grace time.Duration) (PIDs, error) {
	if len(markers) == 0 {
		return nil, nil
	}
	return end(ctx, grace, nil, func() ([]target, error) {
		all, err := processes()
		if err != nil {
			return nil, err
		}
		return living(all, func(e entry) bool { return carries(e.pid, markers) }), nil
	})
}
