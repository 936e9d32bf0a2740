package jobfile

import (
	"strconv"
	"time"

	"example.org/daisy/geom"
	"example.org/daisy/internal/job"
	"example.org/daisy/internal/units"
)

// maxDims is the largest number of axes.
const maxDims = geom.MaxDims

// A Key is one key of the job file. The table of all keys drives the messages about unknown ones and is compared with
// docs/job-file.md.
type Key struct {
	// Table is "run", "task", "slurm", "coordinator" (of [slurm.coordinator]), or the name of a form that values have: "block", "context", "region", "command", "amounts".
	Table string
	Name  string
	// Type and Default are as the documentation has them; a Default of "" means that the key has none.
	Type, Default string
	Meaning       string
	// Instead says what to use in place of a key that is not in this version; "" for those that are.
	Instead string
}

// Keys are all keys, in reading order.
func Keys() []Key {
	d := job.Defaults
	span := func(v time.Duration) string { return strconv.Quote(units.WriteDuration(v)) }
	number := func(n int) string { return strconv.Itoa(n) }
	return []Key{
		{"run", "name", "string", "name of the file", "Name of the run, which begins the name of its run directory: letters a-z and A-Z, digits, `_`, `-`, `.`, at most 64.", ""},
		{"run", "launcher", "string", strconv.Quote(d.Launcher), "`\"local\"`: workers are processes on this machine. `\"serial\"`: one process, one block at a time, stops at the first failure. `\"slurm\"`: workers are jobs of Slurm; see [slurm.md](slurm.md).", ""},
		{"run", "directory", "path", strconv.Quote(d.Directory), "Folder in which run directories are made.", ""},
		{"run", "tracking", "path", "none", "Folder that keeps done marks, one group for each task, so that a new run skips what is done.", ""},
		{"run", "resources", "amounts", "all of the machine", "What the workers of the run may use together. With Slurm, no limit; then each task has `max_workers`.", ""},
		{"run", "grace", "duration", span(d.Grace), "What running blocks get to end when the run is stopped or their task is abandoned.", ""},
		{"run", "max_failures", "integer", "no limit", "The run stops once this many blocks have failed for good. After a resume those of before count, and it stops at the next.", ""},
		{"run", "listen", "string", strconv.Quote(d.Listen), "Address of this machine on which the coordinator listens: `\"localhost\"` or an IP address; `\"0.0.0.0\"`: all that it has, which is the default with Slurm. Where other machines can come in, it speaks TLS; plain HTTP is answered to this machine only.", ""},
		{"run", "addresses", "list of strings", "none", "Addresses (`\"host\"` or `\"host:port\"`) that workers try first, in this order. After them come those on which the coordinator listens, which it finds out itself.", ""},
		{"run", "port", "integer or string", "any free port", "Port on which the coordinator listens, or a range of ports such as `\"7000-7100\"`.", ""},
		{"run", "reconnect_grace", "duration", span(d.ReconnectGrace), "A worker whose connection closed and is not back within this time is suspect: it gets no new blocks.", ""},
		{"run", "heartbeat_timeout", "duration", span(d.HeartbeatTimeout), "A worker without a heartbeat for this long is suspect.", ""},
		{"run", "hint_after", "duration", span(d.HintAfter), "The blocks of a suspect go out again after this silence if the launcher, too, has signs of its end.", ""},
		{"run", "abandon_after", "duration", `"2m"`, "The blocks of a suspect go out again after this silence in any case. A worker whose coordinator is gone waits nearly as long for the next one. With Slurm, the default is `15m`.", ""},
		{"run", "pending_patience", "duration", `"10m"`, "Workers of one kind that wait in the queue of a batch system for this long, while none of them runs, give their share of the resources up to tasks that need it, all but one. Without a batch system it means nothing.", ""},
		{"run", "max_submitted", "integer", "no limit", "At most so many workers may be in a batch system at once, in its queue or running, for sites that limit how many jobs one may have. Without a batch system it means nothing.", ""},
		{"run", "idle_timeout", "duration", `"5s"`, "How long a worker without work stays while nobody else needs its share of the resources. With Slurm, the default is `2m`.", ""},
		{"run", "on_end", "command", "none", "A command that is run in the folder of the job file when the run has ended, however it did; see [programs.md](programs.md#at-the-end-of-a-run).", ""},

		{"task", "id", "string", "required", "Name of the task: letters a-z and A-Z, digits, `_`, `-`, `.`, at most 64; unique in the file, also when case is ignored.", ""},
		{"task", "after", "list of strings", "none", "Upstream tasks: a block waits for those of their blocks that write into what it reads.", ""},
		{"task", "array", "path", "none", "An array (Zarr v2 or v3, N5) or OME-Zarr image on disk; its whole extent is the total write region, and reads may stick out.", ""},
		{"task", "array_is", "string", `"write"`, "`\"read\"`: the extent of `array` is the total read region instead, and what is written is smaller by the context.", ""},
		{"task", "axes", "list of strings", "all, or the space axes of OME-Zarr", "Names of the axes of `array` that blocks cover, in the order in which blocks have them.", ""},
		{"task", "total", "region", "none", "The total read region. Exactly one of `array`, `total` and `total_write` is needed.", ""},
		{"task", "total_write", "region", "none", "The total write region; reads stick out of it by the context.", ""},
		{"task", "block", "block", "required", "Shape and context of a block; or give `read_roi` and `write_roi`.", ""},
		{"task", "read_roi", "region", "none", "What one block reads, in place of `block` and with `write_roi`. Only the shapes count and how the two lie to each other.", ""},
		{"task", "write_roi", "region", "none", "What that block writes; it lies inside `read_roi`.", ""},
		{"task", "fit", "string", strconv.Quote(geom.Valid.String()), "At the end of an axis: `\"valid\"` has only blocks that are wholly inside and leaves the rest unwritten, with `\"overhang\"` blocks stick out, with `\"shrink\"` they are clipped.", ""},
		{"task", "read_write_conflict", "boolean", "true", "Blocks of this task that run at the same time never read what the other writes. `false`: all may run at once.", ""},
		{"task", "run", "command", "required", "The code that runs a block.", ""},
		{"task", "check", "command", "none", "A command that finds out whether a block is done already, before it is run: exit 0 = done, 1 = run it, anything else is a failed attempt.", ""},
		{"task", "output", "path", "none", "The array that blocks write, which must be there when the run starts: its chunks (shards) are checked against the blocks.", ""},
		{"task", "chunk_race", "string", `"deny"`, "`\"allow\"`: no error if two blocks that may run at the same time write into one chunk of `output`.", ""},
		{"task", "requires", "amounts", "{ cpu = 1 }", "What one slot needs while it runs a block; `cpu = 1` unless it is given.", ""},
		{"task", "max_workers", "integer", "no limit", "How many blocks of this task run at once, at most: it counts slots. Needed with Slurm where `[run]` has no `resources`.", ""},
		{"task", "slots", "integer or string", number(d.Slots), "How many blocks one worker runs at once. A worker takes slots × requires of the resources. With Slurm, `\"fill\"`: as many as what Slurm has given the worker holds; see [slurm.md](slurm.md#workers-that-fill-what-they-are-given).", ""},
		{"task", "max_blocks_per_worker", "integer", "no limit", "A worker leaves after so many blocks and a new one takes its place. With several `slots` those that run in the others then end as well, so that it may be up to `slots` - 1 more.", ""},
		{"task", "priority", "integer", "0", "Tasks of higher priority get free resources first; of equal priority, the one further downstream.", ""},
		{"task", "timeout", "duration", span(d.Timeout), "A block that takes longer is killed, which is a failed attempt. `\"0s\"`: no timeout.", ""},
		{"task", "max_retries", "integer", number(d.MaxRetries), "How often a block is tried again after it failed, timed out or ran out of memory.", ""},
		{"task", "retry_backoff", "duration", `"0s"`, "Pause before the first retry of a block, doubled for each further one, with some jitter. `\"0s\"`: a retry goes first.", ""},
		{"task", "max_lost", "integer", number(d.MaxLost), "A block fails when a worker that ran it has died by itself this many times.", ""},
		{"task", "max_worker_restarts", "integer", number(d.MaxWorkerRestarts), "The task starts no more workers after this many in a row ended by themselves before a block came back.", ""},
		{"task", "env", "table of strings", "none", "Variables that are added to the environment of the code: `{ NAME = \"value\" }`. Names that begin with `DAISY_` are taken.", ""},
		{"task", "skip_mask", "path", "none", "A `.npy` file of bool or uint8 with the shape of the grid of blocks: blocks that are not 0 in it are skipped in this run, which keeps a copy of it.", ""},
		{"task", "resource_tracking", "boolean", "false", "`true`: measure what each block uses: time, CPU, memory of all its processes, bytes read and written. It is kept in the statistics and, with `tracking`, block by block.", ""},
		{"task", "enforce_memory", "boolean", "false", "`true`: the processes of a block cannot have more memory than `requires.memory` says; see [below](#memory-that-is-enforced).", ""},
		{"task", "slurm", "table", "none", "Options of Slurm for this task, in `[task.slurm]`; see [below](#slurm). Any of them may stand in `[slurm]` once for all tasks.", ""},

		{"slurm", "partition", "string", "the site's", "Partition, or several with commas between them.", ""},
		{"slurm", "account", "string", "yours", "Account that is charged.", ""},
		{"slurm", "qos", "string", "the site's", "Quality of service.", ""},
		{"slurm", "time", "string", "the partition's", "Time limit of a worker: `\"90m\"`, `\"12h\"`, or as Slurm has it, `\"1:30:00\"`, `\"2-12:00\"`.", ""},
		{"slurm", "nodelist", "string or list of strings", "none", "The one node that workers are to be on; to choose among several use `partition`, `constraint` or `exclude`.", ""},
		{"slurm", "exclude", "string or list of strings", "none", "Nodes that no worker may have, also as `\"n[1-4]\"`.", ""},
		{"slurm", "constraint", "string", "none", "Features that nodes must have.", ""},
		{"slurm", "gres", "string or list of strings", "none", "The type of the GPUs of `requires` (`\"gpu:a100\"`), and other generic resources of one worker (`\"shard:2\"`).", ""},
		{"slurm", "licenses", "string or list of strings", "none", "Licences that one worker takes (`\"matlab:1\"`).", ""},
		{"slurm", "reservation", "string", "none", "Reservation in which workers run.", ""},
		{"slurm", "nice", "integer", "0", "Priority that workers give up.", ""},
		{"slurm", "begin", "string", "now", "Workers start no earlier (`\"now+1hour\"`, `\"20:00\"`).", ""},
		{"slurm", "hint", "string", "none", "sbatch's `--hint`, such as `\"nomultithread\"`.", ""},
		{"slurm", "cluster", "string", "the default one", "Cluster that is asked, where there are several; the same for all tasks.", ""},
		{"slurm", "memory_option", "string", `"mem"`, "How memory is asked for: `\"mem\"`, `\"mem-per-cpu\"`, or `\"none\"` at sites that do not count it.", ""},
		{"slurm", "gpu_option", "string", `"gres"`, "How GPUs are asked for: `\"gres\"` or `\"gpus-per-node\"`.", ""},
		{"slurm", "arrays", "boolean", "true", "`false`: one job for each worker, at sites without job arrays.", ""},
		{"slurm", "array_limit", "integer", "none", "Workers for which there is no room yet are queued too, in arrays of at most so many, and grow old there: a throttle lets no more of them start than `resources` and `max_workers` allow.", ""},
		{"slurm", "requeue", "boolean", "false", "`true`: Slurm may put a worker back into the queue when its node fails or it is preempted.", ""},
		{"slurm", "prefix", "string", "none", "What the names of jobs begin with, before `dz-`: at most 28 letters, digits, `.`, `_`, `-`.", ""},
		{"slurm", "setup", "string", "none", "Shell lines that run before the worker, such as `\"module load cuda\"`.", ""},
		{"slurm", "wrap", "string or list of strings", "none", "Words that are put before each command of the task, such as `\"apptainer exec --nv img.sif\"`. Its programs are then looked for inside only, not before the run.", ""},
		{"slurm", "template", "path", "none", "A batch script of your own with `{{.Worker}}` in it, in place of the one that comes with the program; see [slurm.md](slurm.md#a-batch-script-of-your-own).", ""},
		{"slurm", "login_env", "boolean", "false", "`true`: the batch script reads your profile, as a login does.", ""},
		{"slurm", "launch", "string", `"script"`, "`\"srun\"`: the script starts the worker with srun, for sites that show GPUs to steps only.", ""},
		{"slurm", "slurm_env", "boolean", "false", "`true`: the task's code sees the variables of the Slurm job (`SLURM_*`, `PMI*`), which make some libraries believe that they are one of many.", ""},
		{"slurm", "options", "list of strings", "none", "Further options of sbatch, each one item (`\"--exclusive\"`, `\"--mail-type=FAIL\"`). Those that would break the run are refused.", ""},

		{"slurm", "coordinator", "table", "none", "The job that `daisy-submit run --coordinator job` submits, in `[slurm.coordinator]`; see [below](#the-coordinator-as-a-job).", ""},

		{"coordinator", "cpu", "integer", "1", "Cores of the job.", ""},
		{"coordinator", "memory", "size", `"2GiB"`, "Its memory; the default is enough for thousands of workers.", ""},
		{"coordinator", "time", "string", "the partition's", "Its time limit, written as that of workers. A minute before it is over the job puts itself into the queue again.", ""},
		{"coordinator", "away", "duration", `"1h"`, "Meanwhile workers finish the blocks that they run, and keep those that take longer for so long.", ""},
		{"coordinator", "partition", "string", "the tasks', else the site's", "Its partition.", ""},
		{"coordinator", "account", "string", "the tasks', else yours", "Account that is charged.", ""},
		{"coordinator", "qos", "string", "the tasks', else the site's", "Quality of service.", ""},
		{"coordinator", "reservation", "string", "the tasks', else none", "Reservation in which it runs.", ""},
		{"coordinator", "setup", "string", "the tasks', else none", "Shell lines that run before the coordinator.", ""},
		{"coordinator", "login_env", "boolean", "the tasks', else false", "`true`: its batch script reads your profile.", ""},
		{"coordinator", "constraint", "string", "none", "Features that its node must have.", ""},
		{"coordinator", "nodelist", "string or list of strings", "none", "The one node that it is to be on.", ""},
		{"coordinator", "exclude", "string or list of strings", "none", "Nodes that it may not have.", ""},
		{"coordinator", "nice", "integer", "0", "Priority that it gives up.", ""},
		{"coordinator", "begin", "string", "now", "It starts no earlier.", ""},
		{"coordinator", "memory_option", "string", `"mem"`, "How memory is asked for, as in `[slurm]`.", ""},
		{"coordinator", "options", "list of strings", "none", "Further options of sbatch, as in `[slurm]`; mail (`\"--mail-type=END,FAIL\"`) is about the run here.", ""},

		{"block", "shape", "list of integers", "required", "What a block writes, one extent of 1 or more for each of 1 to 6 axes.", ""},
		{"block", "context", "integer, list or context", "0", "What a block reads beyond that: the same on all sides, one number for each axis, or a context table.", ""},
		{"context", "low", "integer or list", "0", "Before the begin, on all axes or for each.", ""},
		{"context", "high", "integer or list", "0", "After the end, on all axes or for each.", ""},
		{"region", "offset", "list of integers", "required", "Where it begins, one number for each axis.", ""},
		{"region", "shape", "list of integers", "required", "Its extents, 1 or more.", ""},
		{"command", "command", "list of strings", "none", "A program and its arguments, started for each block.", ""},
		{"command", "stream", "list of strings", "none", "Only in `run`: a program and its arguments, started once for each slot; blocks come on its standard input.", ""},
		{"command", "python", "string", "none", "Only in `run`: a Python function, `\"module:function\"` or `\"file.py:function\"`, imported once for each slot and called with each block.", ""},
		{"command", "interpreter", "string", "\"python3\"", "Only with `python`: the Python that imports it, 3.8 or later, such as `\".venv/bin/python\"`.", ""},
		{"command", "block", "string", "none", "Only with `python`: a package whose `Block` the function gets in place of daisy's own, such as `\"daisy\"` for a function written for daisy 2; see [programs.md](programs.md#functions-written-for-daisy-2).", ""},
		{"command", "daisy", "list of strings", "none", "Only in `run`: a worker script of daisy 2 with what runs it, such as `[\"python\", \"worker.py\"]`, started once for each slot; it asks for blocks with `daisy.Client`.", ""},
		{"command", "clients", "string", "none", "Only in `run`: `\"daisy\"`: nothing is started; scripts with `daisy.Client` that you start yourself on the coordinator's machine get the blocks. See [programs.md](programs.md#clients-scripts-of-daisy-2-that-you-start-yourself).", ""},
		{"amounts", "cpu", "number", "none", "Cores; thousandths are possible (`0.5`).", ""},
		{"amounts", "memory", "size", "none", "Memory.", ""},
		{"amounts", "gpu", "integer", "none", "GPUs. They are numbered, and each slot sees its own.", ""},
		{"amounts", "any other name", "number", "none", "Something else of which there is a limited number, such as licences; it must be in the resources of the run.", ""},
	}
}

// keysOf are the keys of a table by name.
func keysOf(name string) map[string]Key {
	keys := map[string]Key{}
	for _, k := range Keys() {
		if k.Table == name {
			keys[k.Name] = k
		}
	}
	return keys
}
