package jobfile

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"slices"
	"strings"

	"example.org/daisy/internal/array"
	"example.org/daisy/internal/job"
	"example.org/daisy/scheduler"
)

// readTask reads the [[task]] at a position. Defaults stand where a key is missing or wrong.
func (l *loader) readTask(at int, m map[string]any, n *node) {
	d := job.Defaults
	task := &l.job.Tasks[at]
	*task = job.Task{
		Slots: d.Slots, Timeout: d.Timeout, MaxRetries: d.MaxRetries, MaxLost: d.MaxLost, MaxWorkerRestarts: d.MaxWorkerRestarts,
		Requires: scheduler.NewResources(map[string]int64{"cpu": d.CPU}),
	}
	if n != nil {
		task.Line = n.line
	}
	task.ID, _ = m["id"].(string)
	t := table{load: l, at: at, where: l.where(at), m: m, n: n}
	if !t.has("id") {
		t.fail("id", "missing; every task has one")
	} else if id, ok := t.text("id"); ok {
		task.ID = id
	}
	t.unknown("task")
	task.After, _ = t.strings("after")

	t.readSlurm(task)
	t.readCode(task)
	wrapped(task)
	t.readBlocks(task)

	if env, ok := t.table("env", `a table of strings such as { NAME = "value" }`); ok {
		for _, name := range slices.Sorted(maps.Keys(env.m)) {
			value, isText := env.m[name].(string)
			if k := env.n.key(name); !isText && k != nil && k.bare != "" {
				value, isText = k.bare, true // --set task.a.env.X=5 means the text
			}
			if strings.Contains(name, "=") { // it would set the variable before the first one
				env.fail(name, "%q is not the name of a variable; allowed are letters, digits and \"_\", not beginning with a digit", name)
				continue
			}
			if !isText {
				env.fail(name, "found %s, wanted a string; write %s = \"%v\"", found(env.m[name]), name, env.m[name])
				continue
			}
			task.Env = append(task.Env, name+"="+value)
		}
	}
	if r, ok := t.table("requires", "a table of amounts such as { cpu = 4, memory = \"16GiB\" }"); ok {
		task.Requires = r.amounts(map[string]int64{"cpu": d.CPU})
	}
	task.MaxWorkers, _ = t.integer("max_workers", 1, math.MaxInt64)
	if most := l.opts.MaxWorkers; most > 0 && (task.MaxWorkers == 0 || task.MaxWorkers > most) {
		task.MaxWorkers = most
	}
	t.readSlots(task)
	task.MaxBlocksPerWorker, _ = t.integer("max_blocks_per_worker", 1, math.MaxInt64)
	if p, ok := t.integer("priority", math.MinInt32, math.MaxInt32); ok {
		task.Priority = int(p)
	}
	t.duration("timeout", false, &task.Timeout)
	t.count("max_retries", 0, &task.MaxRetries)
	t.duration("retry_backoff", false, &task.RetryBackoff)
	t.count("max_lost", 1, &task.MaxLost)
	t.count("max_worker_restarts", 1, &task.MaxWorkerRestarts)
	t.boolean("resource_tracking", &task.ResourceTracking)
	t.boolean("enforce_memory", &task.EnforceMemory)
	t.readMask(task)
	t.readOutput(task)
}

// readSlots reads a number of slots, or that they are as many as there is room for.
func (t table) readSlots(task *job.Task) {
	text, isText := t.m["slots"].(string)
	switch {
	case !isText:
		t.count("slots", 1, &task.Slots)
	case text != "fill":
		t.fail("slots", "%q is neither a number nor \"fill\"", text)
	case slices.Equal(task.Options["launch"], []string{"srun"}):
		t.fail("slots", "\"fill\" does not go with launch = \"srun\": a step has only the cores that were asked for; write how many slots there are")
	default:
		task.Fill = true
	}
}

// readCode reads run and check, and looks for their programs.
func (t table) readCode(task *job.Task) {
	const wanted = `a table: { command = [..] }, a process for each block, { stream = [..] }, a process for each slot, { python = "module:function" }, { daisy = [..] }, a worker script of daisy 2, or { clients = "daisy" }, scripts that you start yourself`
	if run, ok := t.table("run", wanted); ok {
		run.unknown("command")
		kinds := []struct {
			name string
			kind job.RunnerKind
		}{{"command", job.RunnerCommand}, {"stream", job.RunnerStream}, {"python", job.RunnerPython}, {"daisy", job.RunnerDaisy}, {"clients", job.RunnerClients}}
		given := 0
		for _, k := range kinds {
			if !run.has(k.name) {
				continue
			}
			if given++; given > 1 {
				run.fail(k.name, "there is more than one of command, stream, python, daisy and clients; one of them runs a block")
				continue
			}
			if k.kind == job.RunnerPython {
				task.Runner, _ = run.python()
				continue
			}
			if k.kind == job.RunnerClients {
				if _, ok := run.choice("clients", "daisy"); ok {
					task.Runner = job.Runner{Kind: job.RunnerClients}
				}
				continue
			}
			if argv, ok := run.program(k.name, task); ok {
				task.Runner = job.Runner{Kind: k.kind, Argv: argv}
			}
		}
		if run.has("interpreter") && !run.has("python") {
			run.fail("interpreter", "it goes with python; that of a command, a stream or a worker script of daisy is its first item")
		}
		if run.has("block") && !run.has("python") {
			run.fail("block", "it goes with python; the blocks of the task stand beside run, not in it")
		}
		if given == 0 && len(run.m) == 0 {
			t.fail("run", "the table is empty; wanted %s", wanted)
		}
		if given == 0 {
			t.load.wrong = append(t.load.wrong, wrongKey{t.at, "run"})
		}
	}
	t.readCheck(task)
}

// readCheck reads check, which is a command and nothing else.
func (t table) readCheck(task *job.Task) {
	check, ok := t.table("check", "a table: { command = [..] }")
	if !ok {
		return
	}
	check.unknown("command")
	others := false
	for _, k := range Keys() {
		if k.Table == "command" && k.Name != "command" && check.has(k.Name) {
			others = true
			check.fail(k.Name, "a check is a process for each block; write { command = [..] }")
		}
	}
	switch {
	case check.has("command") && !others:
		task.Check, _ = check.program("command", task)
	case len(check.m) == 0:
		t.fail("check", "no command; wanted { command = [..] }")
	}
}

// readMask reads skip_mask, whose shape is that of the grid.
func (t table) readMask(task *job.Task) {
	path, ok := t.file("skip_mask")
	if !ok || task.Grid == nil || task.Grid.Len() == 0 {
		return
	}
	keepOpen(path)
	at := path
	if t.load.opts.Mask != nil {
		if copied := t.load.opts.Mask(task.ID); exists(copied) { // else an earlier version has begun the run
			at = copied
		}
	}
	bits, err := array.OpenMask(at, task.Grid.Shape())
	if err != nil {
		t.fail("skip_mask", "%v; allowed is a .npy file of bool or uint8 with the shape of the grid of blocks, %v", err, task.Grid.Shape())
		return
	}
	task.SkipMask, task.Mask = path, scheduler.Bitmap(bits)
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// readOutput reads output and chunk_race.
func (t table) readOutput(task *job.Task) {
	if how, ok := t.choice("chunk_race", "allow", "deny"); ok {
		task.ChunkRace = how == "allow"
	}
	path, ok := t.file("output")
	if !ok {
		return
	}
	task.OutputPath = path
	a, err := array.Open(path)
	if err != nil {
		t.fail("output", "%v; create the array before the run, or leave output out", err)
		return
	}
	if task.Grid == nil {
		return
	}
	a, guess := outputAxes(a, task)
	if a == nil {
		t.fail("output", "%s; blocks have %d", guess, task.Grid.Dims())
		return
	}
	task.Output = volume(a)
	if guess != "" {
		t.warn("output", guess)
	}
	for k := range task.Grid.Dims() {
		w := task.Grid.TotalWrite()
		if w.Offset.At(k) < 0 || w.End().At(k) > task.Output.Shape.At(k) {
			t.warn("output", fmt.Sprintf("blocks write %v, which is not all inside the array of shape %v", w, task.Output.Shape))
			break
		}
	}
}

// outputAxes is the output as seen along the axes of the blocks: by name where both have names, else the array's own or its
// spatial ones, else its last ones, which is said. nil, with a reason, if that is not possible.
func outputAxes(a *array.Array, task *job.Task) (seen *array.Array, said string) {
	dims := task.Grid.Dims()
	if task.Input != nil && task.Input.Axes != nil {
		if named, err := a.Select(task.Input.Axes); err == nil {
			return named, ""
		}
	}
	if a.Shape.Dims() == dims {
		return a, ""
	}
	if space := a.SpaceAxes(); len(space) == dims {
		if named, err := a.Select(space); err == nil {
			return named, ""
		}
	}
	if a.Shape.Dims() > dims {
		return a.Last(dims), fmt.Sprintf("the array has %d axes, blocks have %d; its last %d are taken as theirs", a.Shape.Dims(), dims, dims)
	}
	return nil, fmt.Sprintf("%s has %d axes", a.Path, a.Shape.Dims())
}

func volume(a *array.Array) *job.Volume {
	return &job.Volume{
		Path: a.Path, Format: a.Format, DType: a.DType, Shape: a.Shape, Chunks: a.Chunks, Sharded: a.Sharded,
		Axes: a.Axes, VoxelSize: a.VoxelSize, Translation: a.Translation, Units: a.Units,
	}
}

func (t table) warn(key, text string) {
	t.load.job.Warnings = append(t.load.job.Warnings, fmt.Sprintf("%s: %s%s: %s", t.where, t.path, key, text))
}
