package rundir

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
)

func TestWhatADiskLacksIsSaidOnlyWhereItIsTheCause(t *testing.T) {
	dir := t.TempDir()
	for _, full := range []error{syscall.ENOSPC, syscall.EDQUOT} {
		if got := Shortage(fmt.Errorf("write x: %w", full), dir, 3<<10); !strings.HasPrefix(got, " (3KiB are needed, its disk has ") {
			t.Errorf("%v: got %q", full, got)
		}
	}
	for _, err := range []error{nil, errors.New("no space left"), syscall.EROFS} {
		if got := Shortage(err, dir, 1); got != "" {
			t.Errorf("%v: got %q", err, got)
		}
	}
	if got := Shortage(syscall.ENOSPC, dir+"/missing", 1); got != "" {
		t.Errorf("a folder that is not there: got %q", got)
	}
}

func TestAFolderThatIsGoneIsNoFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := CheckWritable(dir); err != nil {
		t.Error(err)
	}
	err := CheckWritable(dir + "/missing")
	if err == nil || errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), dir+"/missing") {
		t.Errorf("got %v", err)
	}
}
