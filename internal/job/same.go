package job

import (
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"example.org/daisy/geom"
	"example.org/daisy/scheduler"
)

// Changes names what differs between the job of a run and one with which it is to be resumed, other than limits, in the words of the
// job file: what has been done would not be what the new one asks for. Limits are max_workers, resources, timeouts of blocks and of
// silence, retries, priorities, and where the coordinator listens.
func (j *Job) Changes(now *Job) []string {
	var list []string
	// The texts of two values are the same only if the values are.
	differs := func(key, was, is string) {
		if was != is {
			list = append(list, fmt.Sprintf("%s was %s, and is %s now", key, was, is))
		}
	}
	differs("run.name", quoted(j.Name), quoted(now.Name))
	differs("run.launcher", quoted(j.Launcher), quoted(now.Launcher))
	differs("the folder of the job file", quoted(j.Dir), quoted(now.Dir))
	differs("run.tracking", j.path(j.Tracking), now.path(now.Tracking))
	differs("what is selected", j.Selection.String(), now.Selection.String())
	differs("the list of tasks", quotedList(j.TaskIDs()), quotedList(now.TaskIDs()))
	if !slices.Equal(j.TaskIDs(), now.TaskIDs()) {
		return list
	}
	for i := range j.Tasks {
		a, b := &j.Tasks[i], &now.Tasks[i]
		of := func(key string) string { return fmt.Sprintf("task %q: %s", a.ID, key) }
		differs(of("after"), quotedList(a.After), quotedList(b.After))
		differs(of("array"), j.path(a.ArrayPath), now.path(b.ArrayPath))
		differs(of("the total write region"), regionText(a.Grid.TotalWrite()), regionText(b.Grid.TotalWrite()))
		differs(of("block.shape"), list64(a.Grid.BlockShape()), list64(b.Grid.BlockShape()))
		differs(of("block.context"), contextText(a.Grid), contextText(b.Grid))
		differs(of("fit"), quoted(a.Grid.Spec().Fit.String()), quoted(b.Grid.Spec().Fit.String()))
		differs(of("read_write_conflict"), strconv.FormatBool(a.Grid.Spec().ReadWriteConflict), strconv.FormatBool(b.Grid.Spec().ReadWriteConflict))
		differs(of("output"), j.path(a.OutputPath), now.path(b.OutputPath))
		differs(of("run"), j.runnerText(a), now.runnerText(b))
		differs(of("check"), commandText(a.Check), commandText(b.Check))
		differs(of("requires"), amountsText(a.Requires), amountsText(b.Requires))
		differs(of("slots"), slotsText(a), slotsText(b))
		differs(of("env"), variablesText(a.Env), variablesText(b.Env))
		differs(of("skip_mask"), j.path(a.SkipMask), now.path(b.SkipMask))
		if a.SkipMask == b.SkipMask && !reflect.DeepEqual(a.Mask, b.Mask) {
			list = append(list, of("skip_mask")+" has other blocks now")
		}
	}
	return list
}

func slotsText(t *Task) string {
	if t.Fill {
		return quoted("fill")
	}
	return strconv.Itoa(t.Slots)
}

// notGiven is the text of a key that a job does not have.
const notGiven = "not given"

func quoted(s string) string { return strconv.Quote(s) }

func quotedList(list []string) string {
	texts := make([]string, len(list))
	for i, s := range list {
		texts[i] = quoted(s)
	}
	return "[" + strings.Join(texts, ", ") + "]"
}

func list64(c geom.Coordinate) string { return list(c.Slice()) }

// path is relative to the folder of the job file, where it lies below that.
func (j *Job) path(p string) string {
	if p == "" {
		return notGiven
	}
	if rel, err := filepath.Rel(j.Dir, p); err == nil && filepath.IsLocal(rel) {
		p = rel
	}
	return quoted(p)
}

func regionText(r geom.Roi) string {
	return fmt.Sprintf("{ offset = %s, shape = %s }", list64(r.Offset), list64(r.Shape))
}

func contextText(g *geom.Grid) string {
	low, high := list64(g.ContextLow()), list64(g.ContextHigh())
	if low == high {
		return low
	}
	return fmt.Sprintf("{ low = %s, high = %s }", low, high)
}

func commandText(argv []string) string {
	if argv == nil {
		return notGiven
	}
	return "{ command = " + quotedList(argv) + " }"
}

func (j *Job) runnerText(t *Task) string {
	r := t.Runner
	if r.Kind != RunnerPython {
		return fmt.Sprintf("{ %s = %s }", r.Kind, quotedList(r.Argv))
	}
	reference := quoted(r.Python)
	if file, function, isFile := SplitReference(r.Python); isFile {
		reference = strings.TrimSuffix(j.path(file), `"`) + ":" + function + `"`
	}
	block := ""
	if r.Block != "" {
		block = ", block = " + quoted(r.Block)
	}
	return fmt.Sprintf("{ python = %s, interpreter = %s%s }", reference, quoted(strings.Join(r.Argv, " ")), block)
}

func amountsText(r scheduler.Resources) string {
	var texts []string
	for _, name := range r.Names() {
		n := amount(name, r.Get(name))
		if name == "memory" {
			n = quoted(n)
		}
		texts = append(texts, name+" = "+n)
	}
	return "{ " + strings.Join(texts, ", ") + " }"
}

func variablesText(env []string) string {
	if len(env) == 0 {
		return notGiven
	}
	texts := make([]string, len(env))
	for i, v := range env {
		name, value, _ := strings.Cut(v, "=")
		texts[i] = name + " = " + quoted(value)
	}
	return "{ " + strings.Join(texts, ", ") + " }"
}

// TaskIDs are the ids of the tasks in the order of the job file.
func (j *Job) TaskIDs() (ids []string) {
	for i := range j.Tasks {
		ids = append(ids, j.Tasks[i].ID)
	}
	return ids
}
