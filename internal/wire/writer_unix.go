//go:build unix

package wire

import "syscall"

// writeAtOnce is the attempt of Flush: one write that does not wait. The descriptor is in non-blocking mode, as all of
// package net are.
func (w *Writer) writeAtOnce(fd uintptr) bool {
	n, err := syscall.Write(int(fd), w.taken)
	if err == nil && n > 0 {
		w.took = n
	}
	return true
}
