package daisywire

// Kind is the number of a message.
type Kind uint8

// The messages, by their numbers.
const (
	// AcquireBlock: the client wants a block: TaskID, Worker if HasWorker.
	AcquireBlock Kind = iota
	// SendBlock: the server has one: Block, Timeout if HasTimeout.
	SendBlock
	// ReleaseBlock: the client gives it back: Block, whose status says how it ended.
	ReleaseBlock
	// BlockFailed: the client gives it back as failed: Block, Error.
	BlockFailed
	// RequestShutdown: the server has no more.
	RequestShutdown
	// Disconnect: the client goes away.
	Disconnect
	// Register: the client says who it is: TaskID, Worker. Only sources before the release have it.
	Register

	kinds
)

// String is the name of a message in daisy.
func (k Kind) String() string {
	if k >= kinds {
		return "unknown message"
	}
	return [...]string{"AcquireBlock", "SendBlock", "ReleaseBlock", "BlockFailed", "RequestShutdown", "Disconnect", "Register"}[k]
}

// Status is the state of a block in a message.
type Status uint8

// The states, by their numbers.
const (
	Created Status = iota
	Processing
	Success
	Failed

	statuses
)

// String is the name of a state in daisy.
func (s Status) String() string {
	if s >= statuses {
		return "unknown status"
	}
	return [...]string{"Created", "Processing", "Success", "Failed"}[s]
}

// A Message is one message; Kind says which fields count.
type Message struct {
	Kind       Kind
	HasWorker  bool
	HasTimeout bool
	TaskID     string
	Worker     uint64
	Block      Block
	// Timeout is in seconds. Any float may come.
	Timeout float64
	// Error is for people, of any length that fits a frame.
	Error string
}

// A Block is a block of a task as daisy describes it.
type Block struct {
	Read, Write Region
	TaskID      string
	// SpatialID is the number of the block in its task (geom.Grid.ID).
	SpatialID uint64
	Status    Status
	// Stats is what the block used, nil if nobody has measured it.
	Stats *Stats
}

// A Region is the offset and shape of a region, as they came: of any number of axes up to 32, not even the same for both.
type Region struct{ Offset, Shape []int64 }

// Stats is what a block used, as its client measured it. Any float may come.
type Stats struct {
	WallSeconds, CPUSeconds   float64
	PeakRSSBytes              uint64
	IOReadBytes, IOWriteBytes uint64
	// GPUUtilPercent is NaN, and GPUMemBytes 0, where there is no GPU.
	GPUUtilPercent float32
	GPUMemBytes    uint64
}
