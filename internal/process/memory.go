package process

import "os"

// MemoryKills counts the processes of a cgroup that the system has killed for lack of memory.
type MemoryKills struct {
	file *os.File // nil: nobody says
}

// Close ends the watch.
func (m *MemoryKills) Close() {
	if m.file != nil {
		m.file.Close()
	}
}
