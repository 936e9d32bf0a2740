package stats

import (
	"time"

	"example.org/daisy/internal/api"
)

// gpuUse is what the attempts of a task used of GPUs, as far as it was measured.
type gpuUse struct {
	Attempts int64 `json:"attempts"` // that were measured
	// BusySeconds is how long GPUs were busy, of so many Seconds.
	BusySeconds float64 `json:"busy_seconds"`
	Seconds     float64 `json:"seconds"`
	PeakMem     int64   `json:"peak_mem"`
}

func (g *gpuUse) add(a *Attempt) {
	if !a.GPU.Measured {
		return
	}
	took := time.Duration(max(a.WallNanos, 0)).Seconds()
	g.Attempts++
	g.BusySeconds += took * float64(a.GPU.Percent) / 100
	g.Seconds += took
	g.PeakMem = max(g.PeakMem, a.GPU.MemBytes)
}

// say puts it into the statistics of the task.
func (g *gpuUse) say(s *api.TaskStats) {
	if g.Attempts == 0 {
		return
	}
	s.PeakGPUMemBytes = &g.PeakMem
	if g.Seconds > 0 {
		percent := g.BusySeconds / g.Seconds * 100
		s.GPUUtilPercent = &percent
	}
}
