// Package testenv is for tests that need something of the machine.
package testenv

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// Unavailable ends a test for which this machine lacks something: it has failed where CI=true, and is skipped elsewhere.
// scripts/test says at its end what was skipped; SKIPPED_TESTS names its list.
func Unavailable(t testing.TB, why string) {
	t.Helper()
	why = strings.TrimSpace(why)
	if os.Getenv("CI") == "true" {
		t.Fatal(why)
	}
	if list := os.Getenv("SKIPPED_TESTS"); list != "" {
		f, err := os.OpenFile(list, os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := fmt.Fprintf(f, "%s: %s\n", t.Name(), why); err != nil {
			t.Fatal(err)
		}
	}
	t.Skip(why)
}
