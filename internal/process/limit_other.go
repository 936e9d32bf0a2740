//go:build unix && !linux

package process

import "errors"

// LimitMemory is always an error on this system.
func LimitMemory(int, int64) error { return errors.New("memory can be limited on Linux only") }
