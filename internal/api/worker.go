package api

import "example.org/daisy/geom"

// Paths of the HTTP interface that workers use. Every request, and every answer to somebody who knows the run's secret, is
// signed with a Key.
const (
	// PathJoin takes a JoinRequest (POST) and answers with a JoinResponse, or with an Error and a 4xx status.
	PathJoin = "/v1/join"
	// PathStream upgrades the connection (GET, "Upgrade: daisy-worker/1") to the stream of frames of package wire.
	PathStream = "/v1/stream"
	// Upgrade is the value of the Upgrade header of PathStream.
	Upgrade = "daisy-worker/1"
)

// A JoinRequest is how a worker introduces itself. Sent again by the same process (same Nonce) it gets the same answer.
type JoinRequest struct {
	// Version is the version of the worker's program; a coordinator refuses another protocol than its own.
	Protocol int    `json:"protocol"`
	Version  string `json:"version"`
	// Tag and Element name the submission that started this worker; both are absent for a worker that nobody launched,
	// which then has a Name.
	Tag     string `json:"tag,omitempty"`
	Element int    `json:"element,omitempty"`
	// Array is what a batch system calls that submission, as the worker's environment says; absent where there is none.
	Array string `json:"array,omitempty"`
	// Restart is how often the batch system has started this worker again; absent for 0.
	Restart int `json:"restart,omitempty"`
	// Cluster and Process tell processes apart that were started for the same element: which batch system it is, and the number of the
	// process in its step. With the same ones two processes are two workers all the same, by their nonces.
	Cluster string `json:"cluster,omitempty"`
	Process int    `json:"process,omitempty"`
	Name    string `json:"name,omitempty"`
	// Nonce tells one process from another with the same identity. Random, never 0.
	Nonce uint64 `json:"nonce"`
	// Task is the task that a worker with a Name asks for; "" = any.
	Task  string `json:"task,omitempty"`
	Slots int    `json:"slots"`
	// Fill: it can have more slots than that, up to what its job was given.
	Fill bool   `json:"fill,omitempty"`
	Node string `json:"node"`
	PID  int    `json:"pid"`
	// PIDSpace names the set of processes in which PID means something, "" if that is not known. A coordinator in the same
	// space can see for certain that the process has ended.
	PIDSpace string `json:"pid_space,omitempty"`
	// Job is what the batch system calls the worker's own job, CPUMilli (thousandths of a core), MemoryBytes and GPUs what that was given of
	// the node, and LeftSeconds for how long it may still run, as far as its environment says; absent where that is not known.
	Job         string  `json:"job,omitempty"`
	CPUMilli    int64   `json:"cpu_milli,omitempty"`
	MemoryBytes int64   `json:"memory_bytes,omitempty"`
	GPUs        int64   `json:"gpus,omitempty"`
	LeftSeconds float64 `json:"left_seconds,omitempty"`
}

// A JoinResponse accepts a worker.
type JoinResponse struct {
	// Worker is the id of the reports ("3.0").
	Worker string `json:"worker"`
	Epoch  uint64 `json:"epoch"`
	// Task is what it is to run; Stream may reassign it.
	Task TaskSpec `json:"task"`
	// Slots is how many it has: those that it said, or more where it can have more.
	Slots int `json:"slots"`
	// HeartbeatSeconds is how often both sides say that they live.
	HeartbeatSeconds float64 `json:"heartbeat_seconds"`
	// ReconnectSeconds is for how long a worker tries to come back, and HintSeconds after how long of total silence it kills
	// its blocks: 0.9 and 0.8 of the coordinator's own patience.
	AbandonSeconds float64 `json:"abandon_seconds"`
	HintSeconds    float64 `json:"hint_seconds"`
	// GraceSeconds is what running blocks get between SIGTERM and SIGKILL.
	GraceSeconds float64 `json:"grace_seconds"`
}

// A TaskSpec is all that a worker needs to know of a task.
type TaskSpec struct {
	// Index is the number that the frames use for the task.
	Index int    `json:"index"`
	ID    string `json:"id"`
	// Grid describes the blocks; a block on the wire is its flat index in this grid.
	TotalRead         geom.Roi `json:"total_read"`
	Read              geom.Roi `json:"read"`
	Write             geom.Roi `json:"write"`
	Fit               string   `json:"fit"`
	ReadWriteConflict bool     `json:"read_write_conflict"`
	// Runner is "command", "stream", "python", "daisy" or "func".
	Runner string   `json:"runner"`
	Argv   []string `json:"argv,omitempty"`
	// Python is "module:function" or "/path/file.py:function", where Argv is the interpreter.
	Python string `json:"python,omitempty"`
	// PythonBlock is the package whose Block that function gets; "" = our own.
	PythonBlock string   `json:"python_block,omitempty"`
	Check       []string `json:"check,omitempty"`
	// Env is added to the environment of user code ("K=V"). Dir is its working directory, absolute.
	Env []string `json:"env,omitempty"`
	Dir string   `json:"dir"`
	// RunDir is the run directory, absolute; "" for a library run that has none.
	RunDir string `json:"run_dir"`
	// TimeoutSeconds limits one block, from its start; 0 = no limit.
	TimeoutSeconds float64 `json:"timeout_seconds"`
	// CPUMilli, MemoryBytes and GPUs are what one slot may use; CPUMilli in thousandths of a core.
	CPUMilli    int64 `json:"cpu_milli"`
	MemoryBytes int64 `json:"memory_bytes"`
	GPUs        int   `json:"gpus"`
	// MaxBlocksPerWorker sends a worker away after so many blocks of this task; 0 = no limit.
	MaxBlocksPerWorker int64 `json:"max_blocks_per_worker,omitempty"`
	// ResourceTracking asks for what each block reads and writes, and for the memory of all its processes together.
	ResourceTracking bool `json:"resource_tracking,omitempty"`
	// EnforceMemory: user code cannot have more memory than MemoryBytes.
	EnforceMemory bool `json:"enforce_memory,omitempty"`
}

// An Error is the body of every answer that is not a success.
type Error struct {
	// Code is one word for programs: "secret", "version", "epoch", "twin", "ended", "unknown_tag", "excluded", "busy", "bad_request",
	// "not_now", "tls".
	Code string `json:"code"`
	// Message is for people.
	Message string `json:"error"`
}
