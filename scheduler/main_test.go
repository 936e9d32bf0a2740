package scheduler_test

import (
	"flag"
	"os"
	"testing"
)

// TestMain lets rapid draw more cases than its usual 100, which are mostly tiny; -rapid.checks still decides.
func TestMain(m *testing.M) {
	if err := flag.Set("rapid.checks", "1000"); err != nil {
		panic(err)
	}
	flag.Parse()
	os.Exit(m.Run())
}
