//go:build unix && !linux

package process

import "errors"

func limitMemory(int, int64) error { return errors.New("memory can be limited on Linux only") }
