package jobfile

import (
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.org/daisy/internal/job"
	"example.org/daisy/internal/units"
)

// table reads the keys of one table. What is missing gives ok = false; what is wrong is reported and gives ok = false too.
type table struct {
	load  *loader
	at    int    // position of the task, -1 in [run]
	where string // `task "predict"`, "run"
	path  string // of the table within it: "" or "block."
	m     map[string]any
	n     *node
}

// fail reports what is wrong with a key, at its line, or at that of the table where the key is missing.
func (t table) fail(key, format string, args ...any) {
	n := t.n
	if k := t.n.key(key); k != nil {
		n = k
	}
	t.load.report(n, t.at, t.where, t.path+key, fmt.Sprintf(format, args...))
}

// want reports a value of a wrong type.
func (t table) want(key, wanted string) {
	v := t.m[key]
	hint := ""
	if s, ok := v.(string); ok && strings.HasPrefix(wanted, "a list of strings") {
		hint = asList(s)
	}
	t.fail(key, "found %s, wanted %s%s", found(v), wanted, hint)
}

// asList is the advice for a text where a list is wanted: its words, or the shell that its quotes and operators are for.
func asList(s string) string {
	words := strings.Fields(s)
	if len(words) == 0 {
		return ""
	}
	if len(words) > 1 && strings.ContainsAny(s, `'"|&;<>$\`) {
		words = []string{"sh", "-c", s}
	}
	for i, w := range words {
		words[i] = strconv.Quote(w)
	}
	return "; write [" + strings.Join(words, ", ") + "]"
}

// found describes a value of the wrong type.
func found(v any) string {
	switch v := v.(type) {
	case string:
		if len(v) > 40 {
			v = v[:40] + "…"
		}
		return fmt.Sprintf("the string %q", v)
	case int64:
		return fmt.Sprintf("the integer %d", v)
	case float64:
		text := strconv.FormatFloat(v, 'g', -1, 64)
		if v == math.Trunc(v) && !strings.ContainsAny(text, "en") {
			text += ".0" // as it stands in the file: 2.0 is not an integer
		}
		return "the float " + text
	case outOfRange:
		return fmt.Sprintf("the number %s, which 64 bits cannot hold", string(v))
	case bool:
		return fmt.Sprintf("the boolean %v", v)
	case time.Time:
		return "a date or time"
	case map[string]any:
		return "a table"
	default:
		return "a list"
	}
}

// unknown reports keys that this table does not have, and those that are not in this version.
func (t table) unknown(name string) {
	known := keysOf(name)
	names := make([]string, 0, len(known))
	for k, key := range known {
		if key.Instead == "" {
			names = append(names, k)
		}
	}
	slices.Sort(names)
	for _, k := range slices.Sorted(maps.Keys(t.m)) {
		key, ok := known[k]
		switch {
		case !ok:
			t.failUnknown(k, name, names)
		case key.Instead != "":
			t.fail(k, "not in this version; %s", key.Instead)
		}
	}
}

func (t table) failUnknown(key, name string, names []string) {
	hint := job.Nearest(key, names)
	if !strings.HasPrefix(hint, "; did") {
		for _, other := range []string{"run", "task", "slurm"} {
			if _, ok := keysOf(other)[key]; ok && other != name {
				hint = fmt.Sprintf("; it is a key of %s", map[string]string{"run": "[run]", "task": "[[task]]", "slurm": "[slurm] or [task.slurm]"}[other])
			}
		}
		if below := tableBelow(name, key); below != "" {
			hint = fmt.Sprintf("; it is a key of %s: write %s = { %s = … }", below, below, key)
		}
	}
	text := fmt.Sprintf("unknown key %q%s", key, hint)
	n := t.n
	if k := t.n.key(key); k != nil {
		n = k
	}
	t.load.report(n, t.at, t.where, strings.TrimSuffix(t.path, "."), text)
}

// tableBelow is the key of a table whose value has a key, "" if there is none.
func tableBelow(name, key string) string {
	for _, t := range map[string][][2]string{
		"task": {{"block", "block"}, {"run", "command"}, {"requires", "amounts"}},
		"run":  {{"resources", "amounts"}},
	}[name] {
		if _, ok := keysOf(t[1])[key]; ok {
			return t[0]
		}
	}
	return ""
}

func (t table) has(key string) bool {
	_, ok := t.m[key]
	return ok
}

func (t table) text(key string) (string, bool) {
	v, ok := t.m[key]
	if !ok {
		return "", false
	}
	s, ok := v.(string)
	if !ok {
		if n := t.n.key(key); n != nil && n.bare != "" {
			return n.bare, true // --set run.name=2026 means the text
		}
		t.want(key, "a string")
	}
	return s, ok
}

// choice is a string out of a few.
func (t table) choice(key string, allowed ...string) (string, bool) {
	s, ok := t.text(key)
	if ok && !slices.Contains(allowed, s) {
		t.fail(key, "unknown value %q%s", s, job.Nearest(s, allowed))
		return "", false
	}
	return s, ok
}

// file is a path, made absolute.
func (t table) file(key string) (string, bool) {
	s, ok := t.text(key)
	if ok && s == "" {
		t.fail(key, "empty; allowed is a path, relative to the job file")
		return "", false
	}
	if ok && strings.IndexByte(s, 0) >= 0 {
		t.fail(key, "it has a NUL character, which no path can hold")
		return "", false
	}
	if !ok {
		return "", false
	}
	return t.load.absolute(s), true
}

func (t table) integer(key string, least, most int64) (int64, bool) {
	v, ok := t.m[key]
	if !ok {
		return 0, false
	}
	n, ok := v.(int64)
	far, isFar := v.(outOfRange)
	switch {
	case !ok && !isFar:
		t.want(key, "an integer")
	case isFar && far.isNegative() || ok && n < least:
		t.fail(key, "%v is too small; allowed is %d or more", v, least)
	case isFar || n > most:
		t.fail(key, "%v is too large; allowed is %d or less", v, most)
	default:
		return n, true
	}
	return 0, false
}

func (t table) count(key string, least int64, into *int) {
	if n, ok := t.integer(key, least, math.MaxInt32); ok {
		*into = int(n)
	}
}

func (t table) boolean(key string, into *bool) {
	if v, ok := t.m[key]; ok {
		if b, ok := v.(bool); ok {
			*into = b
		} else {
			t.want(key, "true or false")
		}
	}
}

func (t table) duration(key string, positive bool, into *time.Duration) {
	v, ok := t.m[key]
	if !ok {
		return
	}
	s, ok := v.(string)
	if !ok {
		switch v.(type) {
		case int64, float64:
			t.fail(key, "found the bare number %v, which has no unit; wanted a duration such as \"30s\", \"10m\" or \"2d\"", v)
		default:
			t.want(key, `a duration such as "30s", "10m" or "2d"`)
		}
		return
	}
	d, err := units.ParseDuration(s)
	switch {
	case err != nil:
		t.fail(key, "%v", err)
	case positive && d == 0:
		t.fail(key, "%q is too short; allowed is more than 0", s)
	default:
		*into = d
	}
}

// items is a value as a list, whatever the TOML library made of it.
func items(v any) ([]any, bool) {
	switch v := v.(type) {
	case []any:
		return v, true
	case []map[string]any:
		list := make([]any, len(v))
		for i := range v {
			list[i] = v[i]
		}
		return list, true
	}
	return nil, false
}

// strings is a list of strings; nil and false where it is missing or wrong.
func (t table) strings(key string) ([]string, bool) {
	v, ok := t.m[key]
	if !ok {
		return nil, false
	}
	list, ok := items(v)
	if !ok {
		t.want(key, "a list of strings")
		return nil, false
	}
	out := make([]string, 0, len(list))
	for i, item := range list {
		s, ok := item.(string)
		if !ok {
			t.failItem(key, i, "item %d is %s, wanted a string", i+1, found(item))
			return nil, false
		}
		out = append(out, s)
	}
	return out, true
}

// integers is a list of integers, each at least least.
func (t table) integers(key string, least int64) ([]int64, bool) {
	v, ok := t.m[key]
	if !ok {
		return nil, false
	}
	list, ok := items(v)
	if !ok {
		t.want(key, "a list of integers, one for each axis")
		return nil, false
	}
	out := make([]int64, 0, len(list))
	for i, item := range list {
		if far, ok := item.(outOfRange); ok {
			t.failItem(key, i, "%s on axis %d is too far from 0; allowed is within 2^58 of it", far, i)
			return nil, false
		}
		n, ok := item.(int64)
		if !ok {
			t.failItem(key, i, "item %d is %s, wanted an integer", i+1, found(item))
			return nil, false
		}
		if n < least {
			t.failItem(key, i, "%d on axis %d is too small; allowed is %d or more", n, i, least)
			return nil, false
		}
		out = append(out, n)
	}
	if len(out) == 0 || len(out) > maxDims {
		t.fail(key, "%d dimensions; allowed are 1 to %d", len(out), maxDims)
		return nil, false
	}
	return out, true
}

func (t table) failItem(key string, i int, format string, args ...any) {
	n := t.n.key(key)
	if item := n.item(i); item != nil {
		n = item
	}
	if n == nil {
		n = t.n
	}
	t.load.report(n, t.at, t.where, t.path+key, fmt.Sprintf(format, args...))
}

// table is a table below this one.
func (t table) table(key, wanted string) (table, bool) {
	v, ok := t.m[key]
	if !ok {
		return table{}, false
	}
	m, ok := v.(map[string]any)
	if !ok {
		t.want(key, wanted)
		return table{}, false
	}
	n := t.n.key(key)
	if n == nil {
		n = t.n
	}
	return table{load: t.load, at: t.at, where: t.where, path: t.path + key + ".", m: m, n: n}, true
}

// absolute makes a path of the job file absolute.
func (l *loader) absolute(path string) string {
	if strings.Contains(path, "://") {
		return path // a URL stays one, so that its refusal names it
	}
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(l.job.Dir, path)
}
