package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// MemoryCgroups is a part of the cgroup tree (version 2) in which this process may make cgroups that limit memory.
type MemoryCgroups struct{ base string }

// FindMemoryCgroups says, and changes nothing, where OpenMemoryCgroups would make them, or why nowhere.
func FindMemoryCgroups(root string) (base string, err error) {
	base, _, err = findMemoryCgroups(root)
	return base, err
}

// OpenMemoryCgroups finds the part of the tree below root, which is "/" but for tests. Only those cgroups may limit memory for others
// below them which have no process themselves: if this process is alone in its own, it moves into one below.
func OpenMemoryCgroups(root string) (*MemoryCgroups, error) {
	base, alone, err := findMemoryCgroups(root)
	if err != nil {
		return nil, err
	}
	if alone {
		if err := moveBelow(base); err != nil {
			return nil, fmt.Errorf("the cgroup %s cannot be divided: %w", base, err)
		}
	}
	return &MemoryCgroups{base}, nil
}

func findMemoryCgroups(root string) (base string, alone bool, err error) {
	cgroups, _ := os.ReadFile(path.Join(root, "proc/self/cgroup"))
	own, is2 := "", false
	for line := range strings.Lines(string(cgroups)) {
		if p, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			own, is2 = path.Clean("/"+p), true
		}
	}
	top := path.Join(root, "sys/fs/cgroup")
	dir := path.Join(top, own)
	if !is2 || !names(path.Join(dir, "cgroup.controllers"), "memory") {
		return "", false, errors.New("this process is in no cgroup of version 2 with the memory controller")
	}
	members, _ := os.ReadFile(path.Join(dir, "cgroup.procs"))
	fields := strings.Fields(string(members))
	alone = len(fields) == 1 && fields[0] == fmt.Sprint(os.Getpid())
	parent := path.Dir(dir)
	switch {
	case writable(dir) && names(path.Join(dir, "cgroup.subtree_control"), "memory"):
		return dir, false, nil
	case writable(dir) && alone:
		return dir, true, nil
	case own != "/" && writable(parent) && names(path.Join(parent, "cgroup.subtree_control"), "memory"):
		if limit := limitOf(dir); limit != "" {
			return "", false, fmt.Errorf("the cgroup %s has a limit of its own (%s), which blocks beside it would not keep, and other processes are in it too, so that it cannot be divided", own, limit)
		}
		return parent, false, nil
	case !writable(dir):
		return "", false, fmt.Errorf("the cgroup %s, in which this process is, was not delegated to this user", own)
	default:
		return "", false, fmt.Errorf("other processes are in the cgroup %s too, so that it cannot be divided", own)
	}
}

// limitOf is a file of a cgroup that limits memory or CPU, "" if none does.
func limitOf(dir string) string {
	for _, file := range []string{"memory.max", "memory.high", "cpu.max"} {
		if text, err := os.ReadFile(path.Join(dir, file)); err == nil && !strings.HasPrefix(string(text), "max") {
			return file
		}
	}
	return ""
}

// names reports whether a file of names has one.
func names(file, name string) bool {
	text, _ := os.ReadFile(file)
	for _, field := range strings.Fields(string(text)) {
		if field == name {
			return true
		}
	}
	return false
}

// writable: cgroups can be made there, and processes moved to them.
func writable(dir string) bool {
	const write = 2 // W_OK
	return syscall.Access(dir, write) == nil && syscall.Access(path.Join(dir, "cgroup.procs"), write) == nil
}

func moveBelow(base string) error {
	leaf := path.Join(base, fmt.Sprintf("daisy-%d", os.Getpid()))
	if err := os.Mkdir(leaf, 0o700); err != nil {
		return err
	}
	self := []byte(fmt.Sprint(os.Getpid()))
	err := os.WriteFile(path.Join(leaf, "cgroup.procs"), self, 0o600)
	if err == nil {
		if err = os.WriteFile(path.Join(base, "cgroup.subtree_control"), []byte("+memory"), 0o600); err == nil {
			return nil
		}
		err = errors.Join(err, os.WriteFile(path.Join(base, "cgroup.procs"), self, 0o600))
	}
	return errors.Join(err, os.Remove(leaf))
}

// A MemoryCgroup holds the processes of one program that was started with it in MemoryLimit.Cgroup.
type MemoryCgroup struct{ dir string }

var lastCgroup atomic.Int64

// New makes a cgroup whose processes may use so many bytes together, without swap. If they need more the system kills all of them.
func (m *MemoryCgroups) New(bytes int64) (*MemoryCgroup, error) {
	c := new(MemoryCgroup)
	err := fs.ErrExist
	for errors.Is(err, fs.ErrExist) { // left by a process that was killed and had the number of this one
		c.dir = path.Join(m.base, fmt.Sprintf("daisy-%d-%d", os.Getpid(), lastCgroup.Add(1)))
		err = os.Mkdir(c.dir, 0o700)
	}
	if err == nil {
		if err = os.WriteFile(path.Join(c.dir, "memory.max"), []byte(fmt.Sprint(bytes)), 0o600); err != nil {
			_ = os.Remove(c.dir)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("make a cgroup that limits memory: %w", err)
	}
	for file, text := range map[string]string{"memory.swap.max": "0", "memory.oom.group": "1"} {
		// Old kernels have no oom.group, and machines without swap no swap.max.
		if f, err := os.OpenFile(path.Join(c.dir, file), os.O_WRONLY, 0); err == nil {
			_, _ = f.WriteString(text)
			f.Close()
		}
	}
	return c, nil
}

// Kills is how many of its processes the system has killed for lack of memory.
func (c *MemoryCgroup) Kills() int64 {
	text, _ := os.ReadFile(path.Join(c.dir, "memory.events"))
	return oomKills(text)
}

// How often, and how long in between, it is tried to remove a cgroup whose processes have been killed.
const (
	removals     = 20
	removalPause = 10 * time.Millisecond
)

// Remove ends what is left in it, and removes it.
func (c *MemoryCgroup) Remove() error {
	err := os.Remove(c.dir)
	for range removals {
		if !errors.Is(err, syscall.EBUSY) {
			break
		}
		_ = os.WriteFile(path.Join(c.dir, "cgroup.kill"), []byte("1"), 0o600) // Linux 5.14 and later
		time.Sleep(removalPause)
		err = os.Remove(c.dir)
	}
	return err
}
