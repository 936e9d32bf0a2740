package worker

import (
	"os"
	"testing"

	"example.org/daisy/internal/process"
)

// TestMain is also what limits the memory of the processes that tests start, and a client of daisy (daisyclient_test.go).
func TestMain(m *testing.M) {
	process.RunLimited()
	if os.Getenv(clientVariable) != "" {
		os.Exit(playClient(os.Args[1:]))
	}
	os.Exit(m.Run())
}
