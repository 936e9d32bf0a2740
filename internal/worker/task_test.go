package worker

import (
	"testing"
	"time"

	"example.org/daisy/internal/units"
)

func TestTheLongestTimeoutOfAJobIsOneForAWorker(t *testing.T) {
	longest, err := units.ParseDuration("106751d")
	if err != nil {
		t.Fatal(err)
	}
	spec := testTask("func")
	spec.TimeoutSeconds = longest.Seconds()
	task, err := NewTask(spec)
	if err != nil {
		t.Fatal(err)
	}
	if got := task.Timeout(); got < longest-time.Second || got > longest+time.Second {
		t.Errorf("got %v, want %v", got, longest)
	}
}
