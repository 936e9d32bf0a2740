package coordinator

import (
	"math"
	"testing"

	"example.org/daisy/internal/engine"
	"example.org/daisy/internal/tracking"
)

func TestWhatABlockHasUsedIsSaidAsFarAsItIsKnown(t *testing.T) {
	process := engine.Use{WallNanos: 15e8, CPUNanos: 25e7, PeakRSSBytes: 4096, ReadBytes: 1, WrittenBytes: 2, GPU: engine.GPU{Measured: true, Percent: 50, MemBytes: 3}}
	if got, want := resources(&process), (tracking.Resources{WallSeconds: 1.5, CPUSeconds: 0.25, PeakRSSBytes: 4096, ReadBytes: 1, WrittenBytes: 2, GPUPercent: 50, GPUMemBytes: 3}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	short := engine.Use{WallNanos: 1e6, PeakRSSBytes: 4096} // less CPU time than can be measured
	if got := resources(&short); got.CPUSeconds != 0 || !math.IsNaN(float64(got.GPUPercent)) {
		t.Errorf("got %v CPU seconds, want 0, and %v %% of no GPU", got.CPUSeconds, got.GPUPercent)
	}
	function := engine.Use{WallNanos: 1e9}
	if got := resources(&function); got.WallSeconds != 1 || !math.IsNaN(float64(got.CPUSeconds)) || got.PeakRSSBytes != 0 {
		t.Errorf("got %+v, want the time only", got)
	}
	lies := engine.Use{PeakRSSBytes: -1, ReadBytes: -1, WrittenBytes: -1}
	if got := resources(&lies); got.PeakRSSBytes != 0 || got.ReadBytes != 0 || got.WrittenBytes != 0 {
		t.Errorf("got %+v of numbers that are none", got)
	}
}
