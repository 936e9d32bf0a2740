package tracking

import (
	"encoding/binary"
	"math"
)

// Resources is what the attempt that made a block succeed has used.
type Resources struct {
	// CPUSeconds and GPUPercent are not a number where they are not known.
	WallSeconds, CPUSeconds, GPUPercent float32
	// These are 0 where they are not known.
	PeakRSSBytes, ReadBytes, WrittenBytes, GPUMemBytes uint64
}

// append appends the cell of array i of resourceArrays.
func (r Resources) append(b []byte, i int) []byte {
	switch resourceArrays[i] {
	case "wall_seconds":
		return binary.LittleEndian.AppendUint32(b, math.Float32bits(r.WallSeconds))
	case "cpu_seconds":
		return binary.LittleEndian.AppendUint32(b, math.Float32bits(r.CPUSeconds))
	case "gpu_util_pct":
		return binary.LittleEndian.AppendUint32(b, math.Float32bits(r.GPUPercent))
	case "peak_rss_bytes":
		return binary.LittleEndian.AppendUint64(b, r.PeakRSSBytes)
	case "io_read_bytes":
		return binary.LittleEndian.AppendUint64(b, r.ReadBytes)
	case "io_write_bytes":
		return binary.LittleEndian.AppendUint64(b, r.WrittenBytes)
	default: // gpu_mem_bytes
		return binary.LittleEndian.AppendUint64(b, r.GPUMemBytes)
	}
}

// HasResources: the group was opened WithResources.
func (s *Store) HasResources() bool { return s.resources != nil }

// SetResources keeps what a block has used, with the next Flush. The block is as in MarkDone; the Store HasResources.
func (s *Store) SetResources(block int64, r Resources) {
	s.mustHave(block)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pendingUse[s.cells.cell(block)] = r
}
