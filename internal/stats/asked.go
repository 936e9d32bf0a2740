package stats

import (
	"fmt"
	"math"

	"example.org/daisy/internal/api"
)

const (
	// enough blocks must have been measured before a change is suggested.
	enough = 5
	// enoughSeconds of block time as well: the system counts CPU time in ticks, which say nothing about a few short blocks.
	enoughSeconds = 10
	// cpuRoom and memoryRoom are what a suggestion leaves above what was used: memory that is short ends a block, cores
	// that are short only slow it down.
	cpuRoom    = 1.1
	memoryRoom = 1.25
	mib        = 1 << 20
	gib        = 1 << 30
)

// askedAgainstUsed compares what the task asked for with what it used.
func (t *taskRecord) askedAgainstUsed(in Task) []api.AskedUsage {
	var rows []api.AskedUsage
	measured := t.times != nil && t.times.n >= enough
	if t.info.CPUMilli > 0 {
		row := api.AskedUsage{Task: t.info.ID, Resource: "cpu", Asked: float64(t.info.CPUMilli) / 1000}
		if t.cpuSeconds > 0 {
			used := t.cpuSeconds / t.cpuWall
			row.Used = &used
			if measured && t.cpuWall >= enoughSeconds {
				row.Suggestion = suggestCPU(t.info.ID, row.Asked, used)
			}
		}
		rows = append(rows, row)
	}
	if t.info.MemoryBytes > 0 {
		row := api.AskedUsage{Task: t.info.ID, Resource: "memory", Asked: float64(t.info.MemoryBytes)}
		if t.peakRSS > 0 {
			used := float64(t.peakRSS)
			row.Used = &used
			if measured {
				row.Suggestion = suggestMemory(t.info.ID, t.info.MemoryBytes, t.peakRSS)
			}
		}
		rows = append(rows, row)
	}
	if in.MaxWorkers > 0 {
		row := api.AskedUsage{Task: t.info.ID, Resource: "max_workers", Asked: float64(in.MaxWorkers)}
		if used := float64(in.MaxConcurrency); used > 0 {
			row.Used = &used
		}
		rows = append(rows, row)
	}
	return rows
}

// suggestCPU proposes whole cores, at least one: fewer where at least a quarter would be saved, more where the blocks kept
// more busy than they had asked for.
func suggestCPU(task string, asked, used float64) *string {
	better := max(1, math.Ceil(used*cpuRoom))
	switch {
	case better <= asked*0.75:
		return text(fmt.Sprintf("%s enough: --set task.%s.requires.cpu=%g", cores(better), task, better))
	case used > asked*cpuRoom && better > asked:
		return text(fmt.Sprintf("blocks keep more cores busy than they ask for: --set task.%s.requires.cpu=%g", task, better))
	}
	return nil
}

func cores(n float64) string {
	if n == 1 {
		return "1 core is"
	}
	return fmt.Sprintf("%g cores are", n)
}

// suggestMemory proposes whole GiB, below 1 GiB steps of 64 MiB.
func suggestMemory(task string, asked, used int64) *string {
	better := int64(float64(used) * memoryRoom)
	size := ""
	if better >= gib {
		better = (better + gib - 1) / gib
		size, better = fmt.Sprintf("%dGiB", better), better*gib
	} else {
		better = (better + 64*mib - 1) / (64 * mib) * 64
		size, better = fmt.Sprintf("%dMiB", better), better*mib
	}
	switch {
	case used > asked:
		return text(fmt.Sprintf("a block used more than it asked for: --set task.%s.requires.memory=%s", task, size))
	case better <= asked/4*3:
		return text(fmt.Sprintf("%s is enough: --set task.%s.requires.memory=%s", size, task, size))
	}
	return nil
}
