package rundir

import (
	"fmt"
	"io"
	"os"
	"syscall"
)

const workerName = "daisy-worker"

// CopyWorker copies the worker binary into the run directory, executable for
// the owner, and returns the copy's path. It is a real copy: a link would
// change under the run when the original is rebuilt.
func (d *Dir) CopyWorker(src string) (string, error) {
	if err := copyProgram(src, d.WorkerPath()); err != nil {
		return "", err
	}
	return d.WorkerPath(), nil
}

func copyProgram(src, dst string) error {
	in, err := os.Open(src)
	if err != nil {
		return explain("copy the program", src, err)
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return explain("copy the program", src, err)
	}
	if !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0 {
		return fmt.Errorf("copy the program %s: it is not an executable file (mode %v)", src, info.Mode())
	}
	// A child that is forked meanwhile has the copy open for writing until it
	// execs, and so long the copy cannot be run ("text file busy").
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	out, err := newReplacement(dst, 0o700)
	if err != nil {
		return err
	}
	defer out.discard()
	if n, err := io.Copy(out, in); err != nil {
		return fmt.Errorf("copy the program %s: %w", src, explain("write", dst, err))
	} else if n != info.Size() {
		return fmt.Errorf("copy the program %s: it has %d bytes, and %d were read: it is being changed; try again", src, info.Size(), n)
	}
	if err := out.replace(); err != nil {
		return err
	}
	return nil
}
