package worker

import (
	"fmt"
	"strings"

	"example.org/daisy/internal/api"
	"example.org/daisy/internal/process"
	"example.org/daisy/internal/units"
	"example.org/daisy/internal/wire"
)

// A hold is the memory limit of one process of user code, and of all that it starts. nil is none.
type hold struct {
	bytes  int64
	cgroup *process.MemoryCgroup // nil: RLIMIT_AS, of each process for itself
	before int64                 // kills in the cgroup before the block
}

// hold makes the limit for a process of the task.
func (s *slot) hold(spec *api.TaskSpec) (*hold, error) {
	if !spec.EnforceMemory {
		return nil, nil
	}
	h := &hold{bytes: spec.MemoryBytes}
	if all := s.crew.memoryCgroups(); all != nil {
		var err error
		h.cgroup, err = all.New(h.bytes)
		return h, err
	}
	return h, nil
}

// memoryCgroups is where this worker makes cgroups, nil if it cannot. Only a task that enforces memory asks, and moves the worker to
// another cgroup by that.
func (c *crew) memoryCgroups() *process.MemoryCgroups {
	c.cgroupsOnce.Do(func() {
		root := c.cfg.CgroupRoot
		if root == "" {
			root = "/"
		}
		var err error
		if c.cgroups, err = process.OpenMemoryCgroups(root); err != nil {
			c.client.logf("memory is limited for each process of a block by itself (RLIMIT_AS), not for all together: %v", err)
		}
	})
	return c.cgroups
}

func (h *hold) limit() process.MemoryLimit {
	switch {
	case h == nil:
		return process.MemoryLimit{}
	case h.cgroup != nil:
		return process.MemoryLimit{Cgroup: h.cgroup}
	default:
		return process.MemoryLimit{AddressSpace: h.bytes}
	}
}

// begin: what is killed from now on is so during the next block.
func (h *hold) begin() {
	if h != nil && h.cgroup != nil {
		h.before = h.cgroup.Kills()
	}
}

// outOfMemory says that the limit has ended a process since begin, "" if it is not known to have.
func (h *hold) outOfMemory() string {
	if h == nil || h.cgroup == nil || h.cgroup.Kills() <= h.before {
		return ""
	}
	return fmt.Sprintf("out of memory: its processes needed more together than the enforced limit of %s", units.Size(h.bytes))
}

// end comes when all its processes have ended.
func (s *slot) endHold(h *hold) {
	if h == nil || h.cgroup == nil {
		return
	}
	if err := h.cgroup.Remove(); err != nil {
		s.crew.client.logf("slot %d: a cgroup is left behind: %v", s.number, err)
	}
}

// wordsOfMemory are those by which programs say that they got no memory. Lower case.
var wordsOfMemory = []string{
	"memoryerror", "cannot allocate memory", "can't allocate memory", "failed to allocate memory", "unable to allocate", "bad_alloc", "outofmemoryerror",
	"out of memory", "memory exhausted", "memory allocation of",
}

// hintAtMemory adds to the message of a failure that the limit may be behind it, where nobody says for certain: RLIMIT_AS kills
// nobody, it only lets no process have more.
func (s *slot) hintAtMemory(r *Result, tail string) {
	spec := &s.task.Spec
	if r.Outcome != wire.Failed || !spec.EnforceMemory || s.crew.memoryCgroups() != nil {
		return
	}
	said := strings.ToLower(r.Message + "\n" + r.Tail + "\n" + tail)
	how := ""
	for _, words := range wordsOfMemory {
		if strings.Contains(said, words) {
			how = "it says so itself: it probably"
		}
	}
	switch {
	case how != "":
	case r.PeakRSSBytes >= spec.MemoryBytes-spec.MemoryBytes/10:
		how = fmt.Sprintf("a process of it had %s in memory: it probably", units.Size(r.PeakRSSBytes))
	case r.crashed: // as programs do that do not look whether they got any
		how = "perhaps it"
	default:
		return
	}
	r.Message += fmt.Sprintf("; %s reached the enforced limit of %s for each process (RLIMIT_AS)", how, units.Size(spec.MemoryBytes))
}
