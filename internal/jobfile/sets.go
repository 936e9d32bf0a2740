package jobfile

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"example.org/daisy/internal/job"
)

// applySets lays the --set arguments over the decoded file, in their order.
func (l *loader) applySets(sets []string) {
	for i, set := range sets {
		if err := l.applySet(set, i); err != nil {
			l.errs.List = append(l.errs.List, &Error{File: l.file, Argument: "--set " + set, argumentAt: i, Text: err.Error()})
		}
	}
}

const setForm = `write --set task.ID.KEY=VALUE or --set run.KEY=VALUE`

func (l *loader) applySet(set string, at int) error {
	path, text, ok := strings.Cut(set, "=")
	if !ok {
		return fmt.Errorf("no \"=\"; %s", setForm)
	}
	path = strings.TrimSpace(path)
	var m map[string]any
	var n *node
	switch first, rest, _ := strings.Cut(path, "."); first {
	case "run", "slurm":
		path = rest
		table, ok := l.doc[first]
		if !ok {
			table = map[string]any{}
			l.doc[first] = table
			l.root.set(first, &node{argument: "--set " + set, argumentAt: at})
		}
		if m, ok = table.(map[string]any); !ok {
			return fmt.Errorf("[%s] in the file is %s, not a table", first, found(table))
		}
		n = l.root.key(first)
	case "task":
		var err error
		if m, n, path, err = l.taskOfSet(rest); err != nil {
			return err
		}
		if path == "id" {
			return fmt.Errorf("id: the id of a task can only be changed in the file")
		}
	default:
		return fmt.Errorf("%q begins with none of \"run.\", \"task.\" and \"slurm.\"; %s", path, setForm)
	}
	keys := strings.Split(path, ".")
	if slices.Contains(keys, "") {
		return fmt.Errorf("a part of the key is empty; %s", setForm)
	}
	for _, k := range keys[:len(keys)-1] {
		below, ok := m[k]
		if !ok {
			below = map[string]any{}
			m[k] = below
			n.set(k, &node{argument: "--set " + set, argumentAt: at})
		}
		if m, ok = below.(map[string]any); !ok {
			return fmt.Errorf("%s is %s in the file, so nothing can be set in it", k, found(below))
		}
		if n.key(k) == nil {
			n.set(k, &node{argument: "--set " + set, argumentAt: at})
		}
		n = n.key(k)
	}
	last := keys[len(keys)-1]
	value, bare := setValue(text)
	m[last] = value
	n.set(last, &node{argument: "--set " + set, argumentAt: at, bare: bare})
	return nil
}

// taskOfSet finds the task that "ID.KEY" begins with; ids may have dots, and the longest that fits is meant.
func (l *loader) taskOfSet(path string) (map[string]any, *node, string, error) {
	list, _ := items(l.doc["task"])
	best, at := "", -1
	ids := map[string]bool{}
	for i, item := range list {
		m, _ := item.(map[string]any)
		id, _ := m["id"].(string)
		if id == "" {
			continue
		}
		ids[id] = true
		for _, form := range []string{id, `"` + id + `"`} {
			if strings.HasPrefix(path, form+".") && len(form) > len(best) {
				best, at = form, i
			}
		}
	}
	if at < 0 {
		id, _, _ := strings.Cut(path, ".")
		if ids[id] {
			return nil, nil, "", fmt.Errorf("no key after the task; %s", setForm)
		}
		return nil, nil, "", fmt.Errorf("there is no task %q%s", id, job.Nearest(id, slices.Sorted(maps.Keys(ids))))
	}
	n := l.root.key("task").item(at)
	if n == nil {
		n = &node{argument: "--set"}
	}
	return list[at].(map[string]any), n, path[len(best)+1:], nil
}

// setValue is the TOML value that a text is, else the text itself. bare is the text where it was not quoted. Dates count as text:
// no key takes one.
func setValue(text string) (value any, bare string) {
	if _, deepAt := positions("v = " + text); deepAt > 0 {
		return text, text
	}
	doc, err := decodeTOML("v = " + text)
	if err != nil || len(doc) != 1 {
		return text, text
	}
	switch v := doc["v"].(type) {
	case time.Time:
		return text, text
	case string:
		return v, ""
	default:
		return v, strings.TrimSpace(text)
	}
}
