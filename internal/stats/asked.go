package stats

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"example.org/daisy/internal/api"
	"example.org/daisy/internal/units"
	"example.org/daisy/scheduler"
)

const (
	// enough blocks must have been measured before a change is suggested.
	enough = 5
	// enoughSeconds of block time as well: the system counts CPU time in ticks, which say nothing about a few short blocks.
	enoughSeconds = 10
	// enoughSlotSeconds of slots before it is said that they were idle: a run that has just begun is.
	enoughSlotSeconds = 60
	// cpuRoom, memoryRoom and workerRoom are what a suggestion leaves above what was used: memory that is short ends a block,
	// cores that are short only slow it down.
	cpuRoom    = 1.1
	memoryRoom = 1.25
	workerRoom = 1.25
	// A timeout that hardly ever matters may be that much longer than the longest block, and that long anyway: machines have bad days.
	timeoutRoom  = 5
	leastTimeout = 2 * time.Minute
	// muchMemory is what a block may use without having asked for any before that is worth a word.
	muchMemory = gib
	mib        = 1 << 20
	gib        = 1 << 30
)

// Resources of api.AskedUsage, which are keys of the job file.
const (
	cpu        = "cpu"
	memory     = "memory"
	timeout    = "timeout"
	maxWorkers = "max_workers"
)

// askedAgainstUsed compares what the task asked for with what it used. A row of which neither is known is none.
func (t *taskRecord) askedAgainstUsed(in Task, slots slotTime) []api.AskedUsage {
	var rows []api.AskedUsage
	add := func(resource string, asked, atStart, used float64, suggest func() (better float64, why string)) {
		if asked <= 0 && used <= 0 {
			return
		}
		row := api.AskedUsage{Task: t.info.ID, Resource: resource, Asked: above0(asked), Used: above0(used)}
		if atStart != asked {
			row.AskedAtStart = &atStart
		}
		if better, why := suggest(); better > 0 {
			key, value := setting(resource, better)
			row.Suggested, row.Suggestion = &better, text(fmt.Sprintf("%s: --set task.%s.%s=%s", why, t.info.ID, key, value))
		}
		rows = append(rows, row)
	}
	measured := t.times != nil && t.times.n >= enough

	cores, busy := float64(t.info.Requires.Get("cpu"))/1000, 0.0
	if t.cpuWall > 0 {
		busy = t.cpuSeconds / t.cpuWall
	}
	add(cpu, cores, cores, busy, func() (float64, string) {
		if !measured || t.cpuWall < enoughSeconds || cores == 0 || busy == 0 {
			return 0, ""
		}
		return suggestCPU(cores, busy)
	})

	bytes := t.info.Requires.Get("memory")
	add(memory, float64(bytes), float64(bytes), float64(t.peakRSS), func() (float64, string) {
		switch {
		case in.Tally.OutOfMemory > 0 && bytes > 0:
			return 2 * float64(bytes), units.Plural(in.Tally.OutOfMemory, "attempt") + " ran out of memory"
		case !measured || t.peakRSS == 0:
			return 0, ""
		}
		// What a limit counts is not what was measured: it counts address space, or files in memory, or all processes together.
		return suggestMemory(bytes, t.peakRSS, t.info.MemoryEnforced)
	})

	limit, longest := in.Timeout.Seconds(), 0.0
	if t.times != nil {
		longest = time.Duration(t.times.max).Seconds()
	}
	add(timeout, limit, t.info.Timeout.Seconds(), longest, func() (float64, string) {
		if !measured || limit == 0 {
			return 0, ""
		}
		return suggestTimeout(in.Timeout, time.Duration(t.times.max), in.Tally.TimedOut)
	})

	add(maxWorkers, float64(in.MaxWorkers), float64(t.info.MaxWorkers), float64(in.MaxConcurrency), func() (float64, string) {
		if !measured || !t.seen {
			return 0, ""
		}
		return suggestWorkers(slots, (t.ended - t.began).Seconds(), in.MaxConcurrency)
	})
	return rows
}

// suggestCPU proposes whole cores, at least one: fewer where at least a quarter would be saved, more where the blocks kept
// more busy than they had asked for.
func suggestCPU(asked, used float64) (float64, string) {
	better := max(1, math.Ceil(used*cpuRoom))
	switch {
	case better <= asked*0.75 && better == 1:
		return better, "1 core is enough"
	case better <= asked*0.75:
		return better, fmt.Sprintf("%g cores are enough", better)
	case used > asked*cpuRoom && better > asked:
		return better, "blocks keep more cores busy than they ask for"
	}
	return 0, ""
}

// suggestMemory proposes whole GiB, below 1 GiB steps of 64 MiB; less only where nothing enforces it.
func suggestMemory(asked, used int64, enforced bool) (float64, string) {
	better, step := int64(float64(used)*memoryRoom), int64(64*mib)
	if better >= gib {
		step = gib
	}
	better = (better + step - 1) / step * step
	switch {
	case asked == 0 && used >= muchMemory:
		return float64(better), "blocks ask for no memory, so that nothing keeps more of them from running at once than fit"
	case asked == 0:
	case used > asked:
		return float64(better), "a block used more than it asked for"
	case better <= asked/4*3 && !enforced:
		return float64(better), units.Size(better) + " is enough"
	}
	return 0, ""
}

// suggestTimeout proposes twice the limit where it is close to what blocks need, and less where a block that hangs would be found much
// later than it could be.
func suggestTimeout(limit, longest time.Duration, timedOut int64) (float64, string) {
	better := max(leastTimeout, timeoutRoom*longest).Round(time.Minute)
	switch {
	case longest > limit/5*4:
		return 2 * limit.Seconds(), "the longest block came close to it"
	case timedOut > 0 && longest > limit/4:
		return 2 * limit.Seconds(), units.Plural(timedOut, "attempt") + " timed out, and others were not much faster"
	case better <= limit/10 && timedOut == 0:
		return better.Seconds(), units.WriteDuration(better) + " is enough, and finds a block that hangs sooner"
	}
	return 0, ""
}

// A slotTime is what slots of a task's workers had in seconds.
type slotTime struct{ busy, idle float64 }

// suggestWorkers proposes as many slots as were busy on average, and some, if they were idle for most of their time.
func suggestWorkers(slots slotTime, wall float64, most int64) (float64, string) {
	if slots.busy+slots.idle < enoughSlotSeconds || slots.idle <= slots.busy || wall <= 0 {
		return 0, ""
	}
	better := max(1, math.Ceil(slots.busy/wall*workerRoom))
	if better >= float64(most) {
		return 0, ""
	}
	return better, fmt.Sprintf("slots were idle for %.0f%% of their time", 100*slots.idle/(slots.busy+slots.idle))
}

// setting is how the job file has a value of a resource.
func setting(resource string, v float64) (key, value string) {
	switch resource {
	case cpu:
		return "requires.cpu", strconv.FormatFloat(v, 'f', -1, 64)
	case memory:
		return "requires.memory", amount("memory", int64(v))
	case timeout:
		return timeout, units.WriteDuration(time.Duration(v * float64(time.Second)).Round(time.Millisecond))
	default:
		return maxWorkers, strconv.FormatInt(int64(v), 10)
	}
}

// amount prints one amount exactly: "4", "0.5", "16GiB".
func amount(name string, n int64) string {
	_, value, _ := strings.Cut(scheduler.NewResources(map[string]int64{name: n}).String(), "=")
	return value
}

// suggested are the lines of the task's table in the job file with all that is suggested, nil if nothing is. What it requires is
// on one line, which has the rest of that too.
func (t *taskRecord) suggested(rows []api.AskedUsage) *string {
	better := map[string]float64{}
	for _, r := range rows {
		if r.Suggested != nil {
			better[r.Resource] = *r.Suggested
		}
	}
	var lines []string
	_, moreCPU := better[cpu]
	_, moreMemory := better[memory]
	if moreCPU || moreMemory {
		amounts := map[string]int64{}
		for _, name := range t.info.Requires.Names() {
			amounts[name] = t.info.Requires.Get(name)
		}
		if moreCPU {
			amounts[cpu] = int64(better[cpu] * 1000)
		}
		if moreMemory {
			amounts[memory] = int64(better[memory])
		}
		var parts []string
		for _, name := range scheduler.NewResources(amounts).Names() {
			value := amount(name, amounts[name])
			if name == memory {
				value = strconv.Quote(value)
			}
			parts = append(parts, tomlKey(name)+" = "+value)
		}
		lines = append(lines, "requires = { "+strings.Join(parts, ", ")+" }")
	}
	if v, ok := better[timeout]; ok {
		_, value := setting(timeout, v)
		lines = append(lines, "timeout = "+strconv.Quote(value))
	}
	if v, ok := better[maxWorkers]; ok {
		_, value := setting(maxWorkers, v)
		lines = append(lines, "max_workers = "+value)
	}
	return text(strings.Join(lines, "\n"))
}

// tomlKey quotes a name that TOML would not take bare.
func tomlKey(name string) string {
	for _, r := range name {
		if !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-') {
			return strconv.Quote(name)
		}
	}
	return name
}

func above0(v float64) *float64 {
	if v <= 0 {
		return nil
	}
	return &v
}
