package api

// UndeliveredVersion is the format version of a file in the outbox.
const UndeliveredVersion = 1

// Undelivered is a result that a worker could not deliver: a file outbox/WORKER-NONCE-SEQ.json of the run directory, which a resume
// takes in. A file is complete once it has this name.
type Undelivered struct {
	Version      int    `json:"version"`
	RunID        string `json:"run_id"`
	Worker       string `json:"worker"`
	Nonce        uint64 `json:"nonce"`
	Seq          uint64 `json:"seq"`
	Epoch        uint64 `json:"epoch"`
	Lease        uint64 `json:"lease"`
	Task         string `json:"task"`
	Block        int64  `json:"block"` // index in the task's grid
	Attempt      int    `json:"attempt"`
	Outcome      string `json:"outcome"`
	WallNanos    int64  `json:"wall_nanos"`
	CPUNanos     int64  `json:"cpu_nanos"`
	PeakRSSBytes int64  `json:"peak_rss_bytes"`
	ReadBytes    int64  `json:"read_bytes,omitempty"`
	WrittenBytes int64  `json:"written_bytes,omitempty"`
	// Both are nil where nobody has measured what was used of GPUs.
	GPUPercent  *float32 `json:"gpu_util_pct,omitempty"`
	GPUMemBytes *int64   `json:"gpu_mem_bytes,omitempty"`
	Message     string   `json:"message,omitempty"`
	Tail        string   `json:"tail,omitempty"`
}
