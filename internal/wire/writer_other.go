//go:build !unix

package wire

// writeAtOnce writes nothing here; the goroutine of Flush does it all.
func (w *Writer) writeAtOnce(uintptr) bool { return true }
