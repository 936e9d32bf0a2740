package process

import (
	"context"
	"os"
	"slices"
	"syscall"
	"time"
)

// alive: a zombie is gone, all but its number.
func (t target) alive() bool {
	e, ok := readStat(t.pid)
	return ok && !e.dead() && e.start == t.start
}

// living gives those that match and of their descendants. This process and its ancestors are never among them.
func living(all []entry, match func(entry) bool) []target {
	spared := map[int]bool{}
	for pid := os.Getpid(); pid > 1 && !spared[pid]; {
		spared[pid] = true
		if i := slices.IndexFunc(all, func(e entry) bool { return e.pid == pid }); i >= 0 {
			pid = all[i].parent
		}
	}
	var found []target
	for _, e := range family(all, func(e entry) bool { return !spared[e.pid] && !e.dead() && match(e) }) {
		if !spared[e.pid] && !e.dead() {
			found = append(found, target{e.pid, e.start})
		}
	}
	return found
}

// EndStrays ends what the process, which has ended, left behind: those of its group, those that carry its markers,
// and their descendants. SIGTERM, and SIGKILL after grace. It returns when none is left, with the pids of those that it
// found. Where this process adopts orphans (Adopt) and there are none it costs one read.
func (p *Process) EndStrays(ctx context.Context, grace time.Duration) (PIDs, error) {
	left, adopting := orphans()
	if adopting && len(left) == 0 && p.taken == nil { // the orphans of others go to others
		return nil, nil
	}
	return end(ctx, grace, nil, p.strays)
}

// strays searches among the orphans if this process adopts them, else among all processes.
func (p *Process) strays() ([]target, error) {
	all, adopting := orphans()
	if !adopting || p.taken != nil {
		var err error
		if all, err = processes(); err != nil {
			return nil, err
		}
		return living(all, p.owns(all)), nil
	}
	// Reading the list while one of them ends may miss another (proc_pid_children(5)); a second look does not.
	again, _ := orphans()
	all = withDescendants(append(all, again...))
	return living(all, p.owns(all)), nil
}

// withDescendants adds all that hang below the roots.
func withDescendants(roots []entry) []entry {
	seen := map[int]bool{}
	var all []entry
	for queue := roots; len(queue) > 0; queue = queue[1:] {
		e := queue[0]
		if seen[e.pid] {
			continue
		}
		seen[e.pid] = true
		all = append(all, e)
		for _, pid := range childrenOf(e.pid) {
			// Its parent may have ended meanwhile, so that it is ours, or itself, so that the number is another's.
			if child, ok := readStat(pid); ok && (child.parent == e.pid || child.parent == os.Getpid()) {
				queue = append(queue, child)
			}
		}
	}
	return all
}

// owns tells the processes that p started from others. Once p is reaped and somebody else has its pid, group numbers
// say nothing any more.
func (p *Process) owns(all []entry) func(entry) bool {
	pid := p.PID()
	if p.taken != nil { // the number may be another's at any time
		return func(e entry) bool { return carries(e.pid, p.markers) }
	}
	reused := p.isReaped() && slices.ContainsFunc(all, func(e entry) bool { return e.pid == pid })
	return func(e entry) bool {
		return !reused && (e.pid == pid || e.group == pid) || carries(e.pid, p.markers)
	}
}

// Kill ends the process with SIGKILL, its group, every descendant, and everything that carries its markers, sessions of their
// own included. First all are stopped, so that none can start another meanwhile or lose its parent. It returns when none is
// left or ctx ends, and does not replace Wait. After the end of the process it ends what is left of the rest.
func (p *Process) Kill(ctx context.Context) error {
	find := func() ([]target, error) {
		orphans() // reaps
		all, err := processes()
		if err != nil {
			return nil, err
		}
		return living(all, p.owns(all)), nil
	}
	var stopped []target
	for range 20 { // each round finds what started before its parent was stopped
		found, err := find()
		if err != nil {
			return err
		}
		fresh := false
		for _, t := range found {
			if !slices.Contains(stopped, t) {
				stopped, fresh = append(stopped, t), true
				_ = syscall.Kill(t.pid, syscall.SIGSTOP)
			}
		}
		if !fresh {
			break
		}
	}
	_, err := end(ctx, 0, stopped, find)
	orphans()
	return err
}

// EndOrphans kills every orphan that this process has adopted, whoever started it: for the last act of a program that
// called Adopt. It returns the pids of those that it found.
func EndOrphans(ctx context.Context) (PIDs, error) {
	return end(ctx, 0, nil, func() ([]target, error) {
		roots, _ := orphans()
		all := withDescendants(roots)
		return living(all, func(entry) bool { return true }), nil
	})
}
