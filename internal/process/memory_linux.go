package process

import (
	"os"
	"path"
	"strings"
)

// OpenMemoryKills looks for the cgroup (version 2) of this process below root, which is "/" but for tests. Where it says nothing the
// count stays 0.
func OpenMemoryKills(root string) *MemoryKills {
	cgroups, _ := os.ReadFile(path.Join(root, "proc/self/cgroup"))
	for line := range strings.Lines(string(cgroups)) {
		own, ok := strings.CutPrefix(strings.TrimSpace(line), "0::")
		if !ok {
			continue
		}
		for _, dir := range upwards(path.Join(root, "sys/fs/cgroup"), own) {
			if file, err := os.Open(path.Join(dir, "memory.events")); err == nil {
				return &MemoryKills{file}
			}
		}
	}
	return &MemoryKills{}
}

// Count is how many it has been so far.
func (m *MemoryKills) Count() int64 {
	if m == nil || m.file == nil {
		return 0
	}
	var buf [1024]byte
	n, _ := m.file.ReadAt(buf[:], 0)
	return oomKills(buf[:n])
}
