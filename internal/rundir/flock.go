package rundir

import (
	"errors"
	"os"
	"syscall"
)

// flockFunc takes an exclusive flock without waiting: EWOULDBLOCK if another has it.
type flockFunc func(*os.File) error

func flock(f *os.File) error {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

func noFlock(*os.File) error { return syscall.ENOSYS }

// isUnsupported reports whether the file system has no flock, as Lustre without its mount option and some NFS servers.
func isUnsupported(err error) bool {
	return errors.Is(err, syscall.ENOSYS) || errors.Is(err, syscall.ENOLCK) || errors.Is(err, syscall.EOPNOTSUPP)
}

// isStill reports whether f is the file that path names now.
func isStill(f *os.File, path string) bool {
	mine, err1 := f.Stat()
	there, err2 := os.Stat(path)
	return err1 == nil && err2 == nil && os.SameFile(mine, there)
}
