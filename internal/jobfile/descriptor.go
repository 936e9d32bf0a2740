package jobfile

import (
	"path/filepath"
	"strconv"
	"syscall"
)

// descriptor is the number in the path of an open file that the program that started this one has handed over, as /dev/fd/7: a job file
// without a name, of which nothing is left however both programs end. It belongs to the present folder.
func descriptor(path string) (fd int, handed bool) {
	dir, name := filepath.Split(path)
	fd, err := strconv.Atoi(name)
	return fd, err == nil && fd > 2 && filepath.Clean(dir) == "/dev/fd"
}

// keepOpen keeps a file that was handed over from the programs that this one starts, which would inherit it. It reports whether it is one.
func keepOpen(path string) (handed bool) {
	fd, handed := descriptor(path)
	if handed {
		syscall.CloseOnExec(fd)
	}
	return handed
}
