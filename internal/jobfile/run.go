package jobfile

import (
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"example.org/daisy/internal/job"
	"example.org/daisy/internal/units"
	"example.org/daisy/scheduler"
)

// readRun reads [run]; t is empty where the file has none.
func (l *loader) readRun(t table) {
	j, d := l.job, job.Defaults
	t.unknown("run")
	j.Name = nameOf(l.file)
	if s, ok := t.text("name"); ok {
		j.Name = s
	}
	j.Launcher = d.Launcher
	if s, ok := t.text("launcher"); ok {
		j.Launcher = s
	}
	if l.opts.Launcher != "" {
		j.Launcher = l.opts.Launcher
	}
	l.checkLauncher(t)
	j.Directory = l.absolute(d.Directory)
	if s, ok := t.file("directory"); ok {
		j.Directory = s
	}
	j.Tracking, _ = t.file("tracking")
	if r, ok := t.table("resources", "a table of amounts such as { cpu = 8, memory = \"32GiB\" }"); ok {
		j.Resources, j.HasResources = r.amounts(nil), true
	}
	j.Grace, j.ReconnectGrace, j.HeartbeatTimeout, j.HintAfter = d.Grace, d.ReconnectGrace, d.HeartbeatTimeout, d.HintAfter
	j.IdleTimeout = -1
	t.duration("grace", false, &j.Grace)
	t.duration("reconnect_grace", false, &j.ReconnectGrace)
	t.duration("heartbeat_timeout", true, &j.HeartbeatTimeout)
	t.duration("hint_after", true, &j.HintAfter)
	t.duration("abandon_after", true, &j.AbandonAfter)
	t.duration("pending_patience", true, &j.PendingPatience)
	t.duration("idle_timeout", false, &j.IdleTimeout)
	j.MaxSubmitted, _ = t.integer("max_submitted", 1, math.MaxInt64)
	j.MaxFailures, _ = t.integer("max_failures", 1, math.MaxInt64)
	if end, ok := t.table("on_end", "a table: { command = [..] }"); ok {
		end.unknown("command")
		if !end.has("command") {
			t.fail("on_end", "no command; wanted { command = [..] }")
		} else {
			j.OnEnd, _ = end.program("command", nil)
		}
	}
	j.Listen = d.Listen
	if j.Launcher == "slurm" {
		j.Listen = d.ListenToNodes
	}
	if s, ok := t.text("listen"); ok {
		if j.Listen = s; s == "" {
			t.fail("listen", "empty; allowed are \"localhost\", an IP address of this machine, and \"0.0.0.0\" for all that it has")
		}
	}
	j.Addresses, _ = t.strings("addresses")
	t.port()
}

// checkLauncher reports an unknown launcher.
func (l *loader) checkLauncher(t table) {
	name := l.job.Launcher
	if slices.Contains(job.Launchers, name) {
		return
	}
	text := fmt.Sprintf("unknown launcher %q%s", name, job.Nearest(name, job.Launchers))
	if l.opts.Launcher != "" {
		l.add(&node{argument: "--launcher " + l.opts.Launcher}, "", "", text)
		l.wrong = append(l.wrong, wrongKey{-1, "launcher"})
		return
	}
	t.fail("launcher", "%s", text)
}

// nameOf makes the name of a run out of that of its file.
func nameOf(file string) string {
	base := filepath.Base(file)
	base = strings.TrimSuffix(base, filepath.Ext(base))
	name := strings.Map(func(r rune) rune {
		if job.CheckName("a"+string(r)) != nil {
			return '_'
		}
		return r
	}, base)
	if len(name) > 64 {
		name = name[:64]
	}
	if job.CheckName(name) != nil {
		return "job"
	}
	return name
}

func (t table) port() {
	j := t.load.job
	switch v := t.m["port"].(type) {
	case nil:
	case int64:
		if n, ok := t.integer("port", 0, 65535); ok {
			j.PortLow, j.PortHigh = int(n), int(n)
		}
	case string:
		low, high, isRange := strings.Cut(v, "-")
		if !isRange {
			high = low
		}
		a, errA := strconv.Atoi(strings.TrimSpace(low))
		b, errB := strconv.Atoi(strings.TrimSpace(high))
		if errA != nil || errB != nil || a < 1 || b > 65535 || a > b {
			t.fail("port", "%q is no range of ports; allowed are 1 to 65535, the lower one first, as in \"7000-7100\"", v)
			return
		}
		j.PortLow, j.PortHigh = a, b
	default:
		t.want("port", `an integer or a range such as "7000-7100"`)
	}
}

// amounts reads a table of resources on top of those given; wrong ones are left out.
func (t table) amounts(base map[string]int64) scheduler.Resources {
	all := maps.Clone(base)
	if all == nil {
		all = map[string]int64{}
	}
	for _, name := range slices.Sorted(maps.Keys(t.m)) {
		if meant, ok := map[string]string{"cpus": "cpu", "cores": "cpu", "core": "cpu", "mem": "memory", "ram": "memory", "gpus": "gpu"}[strings.ToLower(name)]; ok {
			t.fail(name, "unknown amount %q; did you mean %q?", name, meant)
			continue
		}
		if err := job.CheckName(name); err != nil {
			t.fail(name, "as the name of an amount: %v", err)
			continue
		}
		if n, ok := t.amount(name); ok {
			all[name] = n
		}
	}
	return scheduler.NewResources(all)
}

// amount is memory in bytes, everything else in thousandths.
func (t table) amount(name string) (int64, bool) {
	v := t.m[name]
	if name == "memory" {
		s, ok := v.(string)
		if !ok {
			switch v.(type) {
			case int64, float64:
				t.fail(name, "found the bare number %v, which has no unit; wanted a size such as \"16GiB\" or \"512MiB\"", v)
			default:
				t.want(name, `a size such as "16GiB" or "512MiB"`)
			}
			return 0, false
		}
		n, err := units.ParseSize(s)
		if err != nil {
			t.fail(name, "%v", err)
			return 0, false
		}
		return n, true
	}
	const most = 1e12
	switch v := v.(type) {
	case int64:
		if v < 0 || v > most {
			t.fail(name, "%d is out of range; allowed is 0 to %d", v, int64(most))
			return 0, false
		}
		return v * 1000, true
	case float64:
		n := math.Round(v * 1000)
		switch {
		case math.IsNaN(v) || v < 0 || v > most:
			t.fail(name, "%v is out of range; allowed is 0 to %d", v, int64(most))
			return 0, false
		case math.Abs(v*1000-n) > 1e-6:
			t.fail(name, "%v is finer than thousandths; allowed are steps of 0.001", v)
			return 0, false
		}
		return int64(n), true
	case outOfRange:
		t.fail(name, "%v is out of range; allowed is 0 to %d", v, int64(most))
		return 0, false
	}
	t.want(name, "a number")
	return 0, false
}
