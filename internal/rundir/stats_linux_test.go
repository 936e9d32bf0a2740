package rundir

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"example.org/daisy/internal/testenv"
)

// onSmallDisk runs the test again in a process that may mount a file system without being root, and gives it the path of
// one of 6 MiB. In the first process ok is false.
func onSmallDisk(t *testing.T) (disk string, ok bool) {
	t.Helper()
	const inside = "RUNDIR_TEST_MAY_MOUNT"
	if os.Getenv(inside) != "" {
		disk = t.TempDir()
		if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=6m"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = syscall.Unmount(disk, 0) })
		return disk, true
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	var failed *exec.ExitError
	if err != nil && !errors.As(err, &failed) {
		testenv.Unavailable(t, "a small disk needs a user namespace, which this system does not give: "+err.Error())
	}
	if err != nil {
		t.Errorf("%s", out)
	}
	return "", false
}

func fill(t *testing.T, disk string) {
	t.Helper()
	f, err := os.Create(filepath.Join(disk, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
}

func TestADiskThatFillsUpDoesNotCostTheStatistics(t *testing.T) {
	disk, ok := onSmallDisk(t)
	if !ok {
		return
	}
	d := mustCreate(t, disk, "segment", "")
	fill(t, disk)
	if err := d.WriteJob(make([]byte, 8192)); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	stats := []byte(`{"run":{"state":"failed"},"much":"` + strings.Repeat("x", statsRoom-100) + `"}`)
	if err := d.WriteStats(stats); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(d.StatsPath()); err != nil || !bytes.Equal(got, stats) || !d.Finished() {
		t.Errorf("%d bytes, %v, finished %v", len(got), err, d.Finished())
	}
}

func TestStatisticsForWhichThereIsNoSpaceSaySo(t *testing.T) {
	disk, ok := onSmallDisk(t)
	if !ok {
		return
	}
	d := mustCreate(t, disk, "segment", "")
	fill(t, disk)
	err := d.WriteStats(make([]byte, 2*statsRoom))
	want := "write " + d.StatsPath() + ": no space left on device; free space (or inodes) there, or give another directory " +
		"(4MiB are needed, its disk has 2MiB free). The statistics are in no file: the tables that are printed are all there is"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	if d.Finished() {
		t.Error("a part of the statistics was left")
	}
}

func TestARunDirectoryForWhichThereIsNoSpaceIsNotLeftBehind(t *testing.T) {
	disk, ok := onSmallDisk(t)
	if !ok {
		return
	}
	fill(t, disk)
	if err := os.Truncate(filepath.Join(disk, "filler"), 5<<20); err != nil { // enough to begin with
		t.Fatal(err)
	}
	path := filepath.Join(disk, "out")
	if _, err := Create("", "segment", path); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("%v", err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s was left: %v", path, err)
	}
}
