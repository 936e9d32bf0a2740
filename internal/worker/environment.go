package worker

import (
	"os"
	"strconv"
	"strings"

	"example.org/daisy/geom"
	"example.org/daisy/internal/daisywire"
)

// threadCounts are the variables by which libraries are told how many threads to start.
var threadCounts = []string{"OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS", "NUMBA_NUM_THREADS"}

// gpuLists are the variables by which a process is shown a part of the GPUs.
var gpuLists = []string{"CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK", "GPU_DEVICE_ORDINAL"}

// shownByDefault are those of them that are set where the worker itself has none: on a machine whose devices it has looked for.
const shownByDefault = 3

// launched are the variables by which launchers tell a worker who it is. User code is none.
var launched = map[string]bool{"DAISY_TAG": true, "DAISY_ELEMENT": true, "DAISY_ARRAY": true, "DAISY_RESTART": true, "DAISY_NODE": true, "DAISY_KILL_WAIT": true}

// ours are the variables that speak of this worker, not of user code's.
var ours = map[string]bool{
	"DAISY_RUN_ID": true, "DAISY_RUN_DIR": true, "DAISY_WORKER_ID": true,
	"DAISY_SLOT": true, "DAISY_LEASE": true, "DAISY_TASK_ID": true, "DAISY_BLOCK_ID": true, "DAISY_BLOCK_INDEX": true,
	"DAISY_READ_OFFSET": true, "DAISY_READ_SHAPE": true, "DAISY_READ_END": true,
	"DAISY_WRITE_OFFSET": true, "DAISY_WRITE_SHAPE": true, "DAISY_WRITE_END": true,
	"DAISY_ATTEMPT": true, "DAISY_CPUS": true, "DAISY_MEMORY_BYTES": true, "DAISY_GPUS": true, "DAISY_ANSWER_FD": true,
	daisywire.Variable: true,
}

// A place is where user code runs: what its environment says of the slot.
type place struct {
	runID, runDir, workerID string
	slot                    int
	gpus                    []string
	// gpusBefore are the devices of the slots before, workerGPUs all of the worker.
	gpusBefore, workerGPUs int
}

// slotEnvironment is the environment of user code of a task in a slot, without what differs from block to block: the worker's
// own, the task's, and ours, each before the next.
func slotEnvironment(inherited []string, t *Task, at place) []string {
	var names []string // in order of first appearance
	values := map[string]string{}
	set := func(name, value string) {
		if _, known := values[name]; !known {
			names = append(names, name)
		}
		values[name] = value
	}
	for _, entry := range withoutJob(inherited) {
		if name, value, ok := strings.Cut(entry, "="); ok && name != "" && !ours[name] && !launched[name] && name != showJob {
			set(name, value)
		}
	}
	shown := at.gpuVariables(values)
	for _, entry := range t.Spec.Env {
		if name, value, ok := strings.Cut(entry, "="); ok && name != "" {
			set(name, value)
		}
	}
	threads := strconv.FormatInt(max(1, t.Spec.CPUMilli/1000), 10)
	for _, name := range threadCounts {
		if _, known := values[name]; !known {
			set(name, threads)
		}
	}
	for _, v := range shown {
		set(v[0], v[1])
	}
	set("DAISY_TASK_ID", t.Spec.ID)
	set("DAISY_WORKER_ID", at.workerID)
	set("DAISY_SLOT", strconv.Itoa(at.slot))
	set("DAISY_RUN_ID", at.runID)
	set("DAISY_RUN_DIR", at.runDir)
	set("DAISY_CPUS", milli(t.Spec.CPUMilli))
	set("DAISY_MEMORY_BYTES", strconv.FormatInt(t.Spec.MemoryBytes, 10))
	set("DAISY_GPUS", strings.Join(at.gpus, ","))
	env := make([]string, len(names), len(names)+len(blockVariables)+1)
	for i, name := range names {
		env[i] = name + "=" + values[name]
	}
	return env
}

// gpuVariables are the variables that show the slot its devices, with their values. A batch system sets those that its devices need, and may name
// the same device otherwise in each; of every list the slot gets its part, as it is written.
func (at *place) gpuVariables(inherited map[string]string) (vars [][2]string) {
	if len(at.gpus) == 0 {
		return nil
	}
	all := strings.Join(at.gpus, ",")
	for _, name := range gpuLists {
		if list := Devices(inherited[name]); len(list) == at.workerGPUs {
			vars = append(vars, [2]string{name, strings.Join(list[at.gpusBefore:at.gpusBefore+len(at.gpus)], ",")})
		} else if len(list) > 0 {
			vars = append(vars, [2]string{name, all})
		}
	}
	if vars == nil {
		for _, name := range gpuLists[:shownByDefault] {
			vars = append(vars, [2]string{name, all})
		}
	}
	return vars
}

// milli prints thousandths: 1500 is "1.5", 4000 is "4".
func milli(v int64) string { return strconv.FormatFloat(float64(v)/1000, 'f', -1, 64) }

// blockVariables are the variables that differ from block to block; the placeholders of arguments have the names behind them.
var blockVariables = []struct{ variable, placeholder string }{
	{"DAISY_BLOCK_ID", "block_id"},
	{"DAISY_BLOCK_INDEX", "index"},
	{"DAISY_READ_OFFSET", "read_offset"},
	{"DAISY_READ_SHAPE", "read_shape"},
	{"DAISY_READ_END", "read_end"},
	{"DAISY_WRITE_OFFSET", "write_offset"},
	{"DAISY_WRITE_SHAPE", "write_shape"},
	{"DAISY_WRITE_END", "write_end"},
	{"DAISY_ATTEMPT", "attempt"},
	{"DAISY_LEASE", "lease"},
}

// blockValues are the values of blockVariables, in their order.
func blockValues(b *Block) [10]string {
	return [...]string{
		b.idText(), commas(b.Index),
		commas(b.Read.Offset), commas(b.Read.Shape), commas(b.Read.End()),
		commas(b.Write.Offset), commas(b.Write.Shape), commas(b.Write.End()),
		strconv.Itoa(b.Attempt), b.LeaseText(),
	}
}

// idText is the spatial id, "" where it does not fit 64 bits.
func (b *Block) idText() string {
	if !b.IDFits {
		return ""
	}
	return strconv.FormatUint(b.ID, 10)
}

func commas(c geom.Coordinate) string {
	var buf [64]byte
	text := buf[:0]
	for i := range c.Dims() {
		if i > 0 {
			text = append(text, ',')
		}
		text = strconv.AppendInt(text, c.At(i), 10)
	}
	return string(text)
}

// blockEnvironment adds what differs from block to block.
func blockEnvironment(slot []string, values *[10]string) []string {
	env := make([]string, 0, len(slot)+len(values))
	env = append(env, slot...)
	for i, v := range blockVariables {
		env = append(env, v.variable+"="+values[i])
	}
	return env
}

// placeholders replaces the placeholders of the block and the slot in arguments. Braces around anything else stay as they are.
func placeholders(argv []string, values *[10]string, at *place, task string) []string {
	var replacer *strings.Replacer
	out := make([]string, len(argv))
	for i, arg := range argv {
		if strings.IndexByte(arg, '{') < 0 {
			out[i] = arg
			continue
		}
		if replacer == nil {
			pairs := []string{
				"{task_id}", task, "{worker_id}", at.workerID, "{slot}", strconv.Itoa(at.slot), "{run_id}", at.runID, "{run_dir}", at.runDir,
			}
			for j, v := range blockVariables {
				pairs = append(pairs, "{"+v.placeholder+"}", values[j])
			}
			replacer = strings.NewReplacer(pairs...)
		}
		out[i] = replacer.Replace(arg)
	}
	return out
}

// MarshalJSON is the block as user code gets it.
func (b Block) MarshalJSON() ([]byte, error) { return b.appendJSON(nil), nil }

// appendJSON appends the block as user code gets it: {"task":"t","block":17,"index":[0,1,4],"read":{"offset":[..],"shape":[..]},
// "write":{..},"attempt":1,"lease":"3.812"}. "block" is the spatial id, null where it does not fit 64 bits. By hand, since it is
// made for each block of a command that may take a millisecond.
func (b *Block) appendJSON(dst []byte) []byte {
	list := func(name string, c geom.Coordinate) {
		dst = append(dst, name...)
		dst = append(append(append(dst, ":["...), commas(c)...), ']')
	}
	dst = append(append(dst, `{"task":`...), b.Task.quotedID...)
	if b.IDFits {
		dst = strconv.AppendUint(append(dst, `,"block":`...), b.ID, 10)
	} else {
		dst = append(dst, `,"block":null`...)
	}
	list(`,"index"`, b.Index)
	list(`,"read":{"offset"`, b.Read.Offset)
	list(`,"shape"`, b.Read.Shape)
	list(`},"write":{"offset"`, b.Write.Offset)
	list(`,"shape"`, b.Write.Shape)
	dst = strconv.AppendInt(append(dst, `},"attempt":`...), int64(b.Attempt), 10)
	return append(append(append(dst, `,"lease":"`...), b.LeaseText()...), `"}`...)
}

// inheritedEnvironment is what user code gets of the worker's own environment.
func inheritedEnvironment() []string { return os.Environ() }
