//go:build !linux

package process

import (
	"context"
	"time"
)

// Space is "": there is no way here to tell whose PIDs can be compared.
func Space() string { return "" }

// Gone is false: nothing is known for certain.
func Gone(context.Context, int, time.Duration) bool { return false }
