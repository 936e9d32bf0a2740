package job

import "time"

// Launchers are the names of all launchers.
var Launchers = []string{"local", "serial", "slurm"}

// Defaults are the values of keys that a job does not give. The launcher decides where a comment says so.
var Defaults = struct {
	Launcher  string
	Directory string
	Listen    string
	// ListenToNodes is Listen where workers are on other machines.
	ListenToNodes string

	Grace            time.Duration
	ReconnectGrace   time.Duration
	HeartbeatTimeout time.Duration
	HintAfter        time.Duration

	// CPU is what a slot needs, in thousandths of a core.
	CPU               int64
	Slots             int
	Timeout           time.Duration
	MaxRetries        int
	MaxLost           int
	MaxWorkerRestarts int
}{
	Launcher:  "local",
	Directory: "runs",
	Listen:    "127.0.0.1",

	ListenToNodes: "0.0.0.0",

	Grace:            10 * time.Second,
	ReconnectGrace:   5 * time.Second,
	HeartbeatTimeout: 30 * time.Second,
	HintAfter:        5 * time.Minute,

	CPU:               1000,
	Slots:             1,
	Timeout:           10 * time.Minute,
	MaxRetries:        2,
	MaxLost:           5,
	MaxWorkerRestarts: 10,
}
