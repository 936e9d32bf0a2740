package worker

import (
	"os"
	"testing"

	"example.org/daisy/internal/process"
)

// TestMain is also what limits the memory of the processes that tests start.
func TestMain(m *testing.M) {
	process.RunLimited()
	os.Exit(m.Run())
}
