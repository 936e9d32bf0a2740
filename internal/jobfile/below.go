package jobfile

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"example.org/daisy/internal/job"
	"example.org/daisy/internal/units"
	"example.org/daisy/scheduler"
)

// Below is a file of defaults that stands below the job file: the user's own, or that of the site, which has caps too.
type Below struct {
	Path, Text string
	Site       bool
}

// Where the files are. SiteVariable names another one in place of SiteFile.
const (
	SiteFile     = "/etc/daisy/site.toml"
	SiteVariable = "DAISY_SITE_FILE"
	userFile     = ".config/daisy.toml" // below the home directory
)

// ReadBelow reads the files of defaults that this user has here, the user's own first; there may be none.
func ReadBelow() ([]Below, error) {
	var files []Below
	if home, err := os.UserHomeDir(); err == nil {
		files = append(files, Below{Path: filepath.Join(home, userFile)})
	}
	site, named := os.LookupEnv(SiteVariable)
	if site == "" {
		site, named = SiteFile, false
	}
	files = append(files, Below{Path: site, Site: true})
	var found []Below
	for _, b := range files {
		_, err := os.Stat(b.Path)
		if isAbsent(err) && !(b.Site && named) {
			continue
		}
		if isAbsent(err) {
			return nil, failure(b.Path, 0, "there is no such file; correct or unset %s, which names the defaults of the site", SiteVariable)
		}
		text, err := read(b.Path)
		if err != nil {
			return nil, failure(b.Path, 0, "%v", err)
		}
		if len(text) > maxBelow {
			return nil, failure(b.Path, 0, "larger than %d KiB; that is no file of defaults", maxBelow>>10)
		}
		b.Text = string(text)
		found = append(found, b)
	}
	return found, nil
}

// maxBelow bounds a file of defaults, which each run keeps.
const maxBelow = 64 << 10

// isAbsent: a home directory that is a file has no file of defaults in it either.
func isAbsent(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// fixed are keys that have no defaults: they say what a job computes, or where its marks are, and that is the same for
// everybody who runs it.
var fixed = map[string][]string{
	"run": {"name", "tracking"},
	"task": {"id", "after", "array", "array_is", "axes", "total", "total_write", "block", "read_roi", "write_roi", "fit", "read_write_conflict",
		"run", "check", "output", "chunk_race", "skip_mask"},
}

// merged are the tables whose keys have defaults one by one.
var merged = []string{"resources", "requires", "env", "slurm"}

// fill puts the defaults of a file in the place of keys that the job, and files above, do not have. It gives the table of caps.
func (l *loader) fill(b Below) (caps table, ok bool) {
	doc, root, err := decode(b.Path, b.Text)
	if err != nil {
		l.errs.List = append(l.errs.List, err.List...)
		return table{}, false
	}
	root.mark(b.Path)
	for _, key := range slices.Sorted(maps.Keys(doc)) {
		m, isTable := doc[key].(map[string]any)
		n := root.key(key)
		switch allowed := key == "run" || key == "task" || key == "caps" && b.Site; {
		case key == "caps" && !b.Site:
			l.add(n, "", "caps", fmt.Sprintf("only the defaults of the site (%s) have caps; leave them out", SiteFile))
		case !allowed && b.Site:
			l.add(n, "", "", fmt.Sprintf("unknown key %q; allowed are the tables [run], [task] and [caps]", key))
		case !allowed:
			l.add(n, "", "", fmt.Sprintf("unknown key %q; allowed are the tables [run] and [task]", key))
		case !isTable:
			hint := ""
			if _, isList := items(doc[key]); isList {
				hint = fmt.Sprintf("; write [%s] with one bracket: defaults hold for every task", key)
			}
			l.add(n, "", key, fmt.Sprintf("found %s, wanted a table%s", found(doc[key]), hint))
		case key == "caps":
			caps, ok = table{load: l, at: -1, where: "caps", m: m, n: n}, true
		default:
			l.fillTables(key, m, n)
		}
	}
	return caps, ok
}

// fillTables puts defaults into [run], or into every task.
func (l *loader) fillTables(name string, defaults map[string]any, n *node) {
	defaults = l.usable(name, defaults, n)
	if name == "run" {
		if _, there := l.doc["run"]; !there {
			l.doc["run"] = map[string]any{}
			l.root.set("run", &node{})
		}
		if m, isTable := l.doc["run"].(map[string]any); isTable {
			l.fillTable("", "", m, l.root.key("run"), defaults, n)
		}
		return
	}
	list, _ := items(l.doc["task"])
	for i, item := range list {
		if m, isTable := item.(map[string]any); isTable {
			id, _ := m["id"].(string)
			l.fillTable(id, "", m, l.root.key("task").item(i), defaults, n)
		}
	}
}

// usable reports the keys that have no defaults, and leaves them out.
func (l *loader) usable(name string, defaults map[string]any, n *node) map[string]any {
	known := keysOf(name)
	var allowed []string
	for k := range known {
		if !slices.Contains(fixed[name], k) && known[k].Instead == "" {
			allowed = append(allowed, k)
		}
	}
	slices.Sort(allowed)
	use := map[string]any{}
	for _, k := range slices.Sorted(maps.Keys(defaults)) {
		switch key, isKnown := known[k]; {
		case slices.Contains(allowed, k):
			use[k] = defaults[k]
		case !isKnown:
			l.add(n.key(k), name, "", fmt.Sprintf("unknown key %q%s", k, job.Nearest(k, allowed)))
		case key.Instead != "":
			l.add(n.key(k), name, k, "not in this version; "+key.Instead)
		default:
			l.add(n.key(k), name, k, "has no default: it belongs into the job file, so that the job is the same for everybody who runs it")
		}
	}
	return use
}

func (l *loader) fillTable(task, path string, m map[string]any, n *node, defaults map[string]any, from *node) {
	for _, k := range slices.Sorted(maps.Keys(defaults)) {
		v := defaults[k]
		below, isTable := v.(map[string]any)
		if isTable && path == "" && slices.Contains(merged, k) {
			if _, there := m[k]; !there {
				m[k] = map[string]any{}
				if n != nil {
					n.set(k, &node{line: from.key(k).line, file: from.key(k).file})
				}
			}
			if own, isTable := m[k].(map[string]any); isTable {
				l.fillTable(task, k+".", own, n.key(k), below, from.key(k))
			}
			continue
		}
		if _, there := m[k]; there {
			continue
		}
		m[k] = v
		at := from.key(k)
		if n != nil {
			n.set(k, at)
		}
		l.job.Defaults = append(l.job.Defaults, job.Default{Task: task, Key: path + k, Value: valueText(v), File: at.file, Line: at.line})
	}
}

// valueText is a value as a file could have it.
func valueText(v any) string {
	if s, ok := v.(string); ok {
		return strconv.Quote(s)
	}
	if list, ok := items(v); ok {
		parts := make([]string, len(list))
		for i := range list {
			parts[i] = valueText(list[i])
		}
		return "[" + strings.Join(parts, ", ") + "]"
	}
	return fmt.Sprint(v)
}

// mark notes the file of a node and of all below it.
func (n *node) mark(file string) {
	n.file = file
	for _, c := range n.keys {
		c.mark(file)
	}
	for _, c := range n.items {
		c.mark(file)
	}
}

// limit holds the job to the caps of the site. What the job, or defaults, ask for beyond is an error; what nobody has said is
// lowered to the cap.
func (l *loader) limit(caps table) {
	names := []string{"max_workers", "resources", "timeout"}
	for _, k := range slices.Sorted(maps.Keys(caps.m)) {
		if !slices.Contains(names, k) {
			l.add(caps.n.key(k), "caps", "", fmt.Sprintf("unknown key %q%s", k, job.Nearest(k, names)))
		}
	}
	place := func(n *node) string { return fmt.Sprintf("%s:%d", n.file, n.line) }
	lowered := func(task, key, value string, n *node) {
		l.job.Defaults = append(l.job.Defaults, job.Default{Task: task, Key: key, Value: value, File: n.file, Line: n.line, Cap: true})
	}
	l.job.Caps.File = caps.n.file
	if most, ok := caps.integer("max_workers", 1, 1<<40); ok {
		l.job.Caps.MaxWorkers = most
		n := caps.n.key("max_workers")
		l.eachTask(func(t table, task *job.Task) {
			switch {
			case task.MaxWorkers == 0:
				task.MaxWorkers = most
				lowered(task.ID, "max_workers", strconv.FormatInt(most, 10), n)
			case task.MaxWorkers > most:
				t.fail("max_workers", "%d is more than this site allows (%s); allowed is %d or less", task.MaxWorkers, place(n), most)
			}
		})
	}
	most := job.Defaults.Timeout
	caps.duration("timeout", true, &most)
	if n := caps.n.key("timeout"); n != nil && !l.isWrong(-1, "timeout") {
		l.job.Caps.Timeout = most
		l.eachTask(func(t table, task *job.Task) {
			if task.Timeout > 0 && task.Timeout <= most {
				return
			}
			if t.has("timeout") {
				t.fail("timeout", "%v is more than this site allows (%s); allowed is more than 0 and at most %q", t.m["timeout"], place(n), units.WriteDuration(most))
				return
			}
			task.Timeout = most
			lowered(task.ID, "timeout", strconv.Quote(units.WriteDuration(most)), n)
		})
	}
	if r, ok := caps.table("resources", "a table of amounts such as { cpu = 8, memory = \"32GiB\" }"); ok {
		l.job.Caps.Resources = r.amounts(nil)
		l.limitResources(l.job.Caps.Resources, r.n)
	}
}

func (l *loader) limitResources(most scheduler.Resources, n *node) {
	j := l.job
	if j.HasResources {
		run := table{load: l, at: -1, where: "run", n: l.root.key("run")}
		run.m, _ = l.doc["run"].(map[string]any)
		given, _ := run.table("resources", "")
		for _, name := range most.Names() {
			if at := n.key(name); given.has(name) && j.Resources.Get(name) > most.Get(name) {
				given.fail(name, "%s is more than this site allows (%s:%d); allowed is %s or less", one(name, j.Resources.Get(name)), at.file, at.line, one(name, most.Get(name)))
			}
		}
		return
	}
	if j.Unlimited() {
		l.report(n, -1, "caps", "resources", fmt.Sprintf("this site allows %v, so with launcher \"slurm\" [run] has to say its resources", most))
		return
	}
	if l.opts.Machine.Cores <= 0 {
		return // nothing is known that could be lowered
	}
	budget := j.Budget(l.opts.Machine)
	amounts := map[string]int64{}
	for _, name := range budget.Names() {
		amounts[name] = budget.Get(name)
		if most.Has(name) && most.Get(name) < amounts[name] {
			amounts[name] = most.Get(name)
			at := n.key(name)
			j.Defaults = append(j.Defaults, job.Default{Key: "resources." + name, Value: one(name, amounts[name]), File: at.file, Line: at.line, Cap: true})
			j.HasResources = true
		}
	}
	if j.HasResources {
		j.Resources = scheduler.NewResources(amounts)
	}
}

// one is an amount as a job file has it: "4" cores, "16GiB" of memory.
func one(name string, n int64) string {
	_, value, _ := strings.Cut(scheduler.NewResources(map[string]int64{name: n}).String(), "=")
	return value
}

// eachTask visits the tasks with their tables.
func (l *loader) eachTask(f func(t table, task *job.Task)) {
	list, _ := items(l.doc["task"])
	for i := range l.job.Tasks {
		m, _ := list[i].(map[string]any)
		f(table{load: l, at: i, where: l.where(i), m: m, n: l.root.key("task").item(i)}, &l.job.Tasks[i])
	}
}
