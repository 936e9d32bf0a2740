package tracking

import (
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMarksOfAnotherUserCanBeRead(t *testing.T) {
	g := mustGrid(t, lineSpec(50, 10, 0, 0))
	folder := t.TempDir()
	if err := os.Chmod(filepath.Dir(folder), 0o755); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(folder, "group")
	s := mustOpen(t, dir, g)
	s.MarkDone(1)
	mustClose(t, s)
	for _, name := range []string{"done/c/0", "failures/c/0"} {
		if err := os.Chmod(filepath.Join(dir, name), 0o444); err != nil {
			t.Fatal(err)
		}
	}
	if os.Geteuid() == 0 { // who may write everything: this thread goes to the files as nobody
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer func() { _ = syscall.Setfsuid(0) }()
		if err := syscall.Setfsuid(65534); err != nil {
			t.Fatal(err)
		}
	}
	if f, err := os.OpenFile(filepath.Join(dir, "done/c/0"), os.O_RDWR, 0); err == nil {
		f.Close()
		t.Fatal("this user may write the marks")
	}
	bits, err := ReadDone(dir, g)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]int64{1}, blocksOf(bits)); diff != "" {
		t.Errorf("done (-want +got):\n%s", diff)
	}
}
