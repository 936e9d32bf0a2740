package process

import (
	"bytes"
	"os"
	"strconv"
)

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

// oomKills reads the line "oom_kill N" of a file memory.events; 0 if there is none.
func oomKills(events []byte) int64 {
	for line := range bytes.Lines(events) {
		if value, ok := bytes.CutPrefix(line, []byte("oom_kill ")); ok {
			count, _ := strconv.ParseInt(string(bytes.TrimSpace(value)), 10, 64)
			return count
		}
	}
	return 0
}
