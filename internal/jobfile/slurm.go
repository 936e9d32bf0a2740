package jobfile

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"example.org/daisy/internal/job"
)

// An OptionFault is something wrong with one option of a launcher.
type OptionFault struct {
	Key string
	// Item is the place in a list, -1 where the key as a whole is meant.
	Item int
	// Text says what is wrong, then what is allowed.
	Text string
}

// spreadSlurm puts the keys of [slurm] into every [task.slurm] that does not have them.
func (l *loader) spreadSlurm() {
	v, there := l.doc["slurm"]
	if !there {
		return
	}
	n := l.root.key("slurm")
	shared, ok := v.(map[string]any)
	if !ok {
		l.report(n, -1, "", "slurm", fmt.Sprintf("found %s, wanted the table [slurm]", found(v)))
		return
	}
	n.share()
	list, _ := items(l.doc["task"])
	for i, item := range list {
		task, isTable := item.(map[string]any)
		if !isTable {
			continue
		}
		at := l.root.key("task").item(i)
		if _, there := task["slurm"]; !there {
			task["slurm"] = map[string]any{}
			if at != nil {
				at.set("slurm", &node{line: n.line, argument: n.argument, argumentAt: n.argumentAt})
			}
		}
		own, isTable := task["slurm"].(map[string]any)
		if !isTable {
			continue
		}
		for key, value := range shared {
			if key == coordinatorKey { // there is one, of the run
				continue
			}
			if _, there := own[key]; !there {
				own[key] = value
				if k := n.key(key); k != nil && at.key("slurm") != nil {
					at.key("slurm").set(key, k)
				}
			}
		}
	}
}

// share notes of a node and all below it that it stands in for every task.
func (n *node) share() {
	if n == nil {
		return
	}
	n.shared = true
	for _, c := range n.keys {
		c.share()
	}
	for _, c := range n.items {
		c.share()
	}
}

// readSlurm reads [task.slurm]. Its types are always checked; what the options mean is known to the launcher alone, and matters
// with that launcher only.
func (t table) readSlurm(task *job.Task) {
	s, ok := t.table("slurm", `a table such as { partition = "gpu", time = "12h" }`)
	if !ok {
		return
	}
	s.unknown("slurm")
	if _, there := s.m[coordinatorKey]; there {
		s.fail(coordinatorKey, "a run has one coordinator: write [slurm.coordinator], once for all tasks")
	}
	known := keysOf("slurm")
	options := map[string][]string{}
	for _, key := range slices.Sorted(maps.Keys(s.m)) {
		k, isKnown := known[key]
		if !isKnown || key == coordinatorKey {
			continue
		}
		if values, ok := s.option(k); ok {
			options[key] = values
		}
	}
	if t.load.job.Launcher != "slurm" {
		return
	}
	task.Options, task.Wrap = options, options["wrap"]
	if t.load.opts.CheckSlurm == nil {
		return
	}
	faults, warnings := t.load.opts.CheckSlurm(t.load.job.Dir, options)
	for _, f := range faults {
		if f.Item >= 0 {
			s.failItem(f.Key, f.Item, "%s", f.Text)
		} else {
			s.fail(f.Key, "%s", f.Text)
		}
	}
	for _, w := range warnings {
		s.warnOnce(w.Key, w.Text)
	}
}

// coordinatorKey is the table in [slurm] that is not of workers.
const coordinatorKey = "coordinator"

// readCoordinator reads [slurm.coordinator], as readSlurm does the options of a task.
func (l *loader) readCoordinator() {
	shared, _ := l.doc["slurm"].(map[string]any)
	if shared == nil || shared[coordinatorKey] == nil {
		return
	}
	in := table{load: l, at: -1, where: "slurm", m: shared, n: l.root.key("slurm")}
	t, ok := in.table(coordinatorKey, `a table such as { partition = "long", time = "2d" }`)
	if !ok {
		return
	}
	t.unknown("coordinator")
	known := keysOf("coordinator")
	options := map[string][]string{}
	for _, key := range slices.Sorted(maps.Keys(t.m)) {
		k, isKnown := known[key]
		if !isKnown {
			continue
		}
		if values, ok := t.option(k); ok {
			options[key] = values
		}
	}
	if l.job.Launcher != "slurm" {
		return
	}
	l.job.Coordinator = options
	if l.opts.CheckCoordinator == nil {
		return
	}
	faults, warnings := l.opts.CheckCoordinator(options)
	for _, f := range faults {
		if f.Item >= 0 {
			t.failItem(f.Key, f.Item, "%s", f.Text)
		} else {
			t.fail(f.Key, "%s", f.Text)
		}
	}
	for _, w := range warnings {
		l.job.Warnings = append(l.job.Warnings, "slurm: coordinator."+w.Key+": "+w.Text)
	}
}

// option is a value as a list of texts, by the type of its key.
func (t table) option(k Key) ([]string, bool) {
	switch v := t.m[k.Name].(type) {
	case string:
		switch {
		case k.Type == "boolean" || k.Type == "integer":
		case k.Name == "wrap":
			return t.wrapWords(v)
		default:
			return []string{v}, true
		}
	case bool:
		if k.Type == "boolean" {
			return []string{strconv.FormatBool(v)}, true
		}
	case int64:
		if k.Type == "integer" {
			return []string{strconv.FormatInt(v, 10)}, true
		}
	case []any, []map[string]any:
		if strings.Contains(k.Type, "list") {
			return t.strings(k.Name)
		}
	}
	if n := t.n.key(k.Name); n != nil && n.bare != "" && strings.Contains(k.Type, "string") {
		return []string{n.bare}, true // --set task.a.slurm.account=2026 means the text
	}
	wanted := map[string]string{"boolean": "true or false", "integer": "an integer", "string": "a string"}[k.Type]
	if wanted == "" {
		wanted = "a " + k.Type
	}
	t.want(k.Name, wanted)
	return nil, false
}

// wrapWords are the words of a wrap that is one text. It is not read by a shell, so what only a shell understands is refused.
func (t table) wrapWords(s string) ([]string, bool) {
	if strings.ContainsAny(s, "'\"\\$`|&;<>(){}*?~") {
		t.fail("wrap", "%q has characters of a shell, which does not read it; write a list of words, as in [\"apptainer\", \"exec\", \"my image.sif\"]", s)
		return nil, false
	}
	return strings.Fields(s), true
}

// warnOnce warns once of what stands in for all tasks.
func (t table) warnOnce(key, text string) {
	where := t.where + ": " + t.path + key
	if n := t.n.key(key); n != nil && n.shared {
		where = "slurm: " + key
	}
	if line := where + ": " + text; !slices.Contains(t.load.job.Warnings, line) {
		t.load.job.Warnings = append(t.load.job.Warnings, line)
	}
}

// wrapped puts the words of wrap before the commands of a task.
func wrapped(task *job.Task) {
	if len(task.Wrap) == 0 {
		return
	}
	for _, argv := range []*[]string{&task.Runner.Argv, &task.Check} {
		if len(*argv) > 0 {
			*argv = slices.Concat(task.Wrap, *argv)
		}
	}
}
