package e2e

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// smallDisk mounts a file system of so many MiB.
func smallDisk(t testing.TB, options string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		t.Fatalf("mount -t tmpfs -o %s: %v; these tests need a small disk that they can fill: run them as root, or in a container with CAP_SYS_ADMIN (docker run --cap-add SYS_ADMIN)", options, err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Errorf("unmount %s: %v", dir, err)
		}
	})
	return dir
}

// fill leaves no byte free on a disk.
func fill(t testing.TB, disk string) {
	t.Helper()
	f, err := os.Create(filepath.Join(disk, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for chunk := make([]byte, 1<<20); len(chunk) > 0; {
		if _, err := f.Write(chunk); errors.Is(err, unix.ENOSPC) {
			chunk = chunk[:len(chunk)/2]
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

func TestADiskThatFillsUpEndsTheRun(t *testing.T) {
	t.Parallel()
	disk := smallDisk(t, "size=64m")
	d := newDirector(t)
	// The blocks after the first make enough records for the journal to need more of the disk.
	dir, path := writeJob(t, job("resources = { cpu = 1 }\ngrace = \"1s\"", blocks("work", 2000)+d.code("stream", "E2E_ONLY=0")))
	s := start(t, dir, "run", path, "--run-dir", disk+"/out")
	v := d.next()
	fill(t, disk)
	v.ok()
	r := s.wait()
	if r.status != 3 {
		t.Errorf("exit status %d, want 3", r.status)
	}
	wantText(t, r.all(), disk+"/out/journal/", "no space left on device")
	wantNoneLeft(t, "none", disk)
}

func TestADiskThatIsFullFromTheStartIsAnInfrastructureFault(t *testing.T) {
	t.Parallel()
	disk := smallDisk(t, "size=1m")
	dir, path := writeJob(t, job("", blocks("work", 1)+shell("touch ran")))
	r := wantStatus(t, 3, dir, "run", path, "--run-dir", disk+"/out")
	wantText(t, r.stderr, disk+"/out", "no space left on device", "free space")
	if exists(dir+"/ran") || exists(disk+"/out") {
		t.Error("something was started, or is left")
	}
}

func TestAReadOnlyDiskIsAnInfrastructureFault(t *testing.T) {
	t.Parallel()
	disk := smallDisk(t, "ro,size=1m")
	if err := unix.Mount("", disk, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	dir, path := writeJob(t, job("", blocks("work", 1)+shell("touch ran")))
	r := wantStatus(t, 3, dir, "run", path, "--run-dir", disk+"/out")
	wantText(t, r.stderr, disk+"/out", "read-only file system", "give another directory")
	r = wantStatus(t, 3, dir, "run", path, "--run-dir", "out", "--set", "run.tracking="+disk+"/tracking")
	wantText(t, r.stderr, disk+"/tracking", "read-only file system")
	if exists(dir+"/ran") || exists(dir+"/out") {
		t.Error("something was started, or is left")
	}
}

func TestAFullDiskForTheMarksEndsTheRun(t *testing.T) {
	t.Parallel()
	disk := smallDisk(t, "size=1m")
	d := newDirector(t)
	dir, path := writeJob(t, job("resources = { cpu = 1 }\ntracking = "+quote(disk+"/tracking"), blocks("work", 2)+d.code("command")))
	s := start(t, dir, "run", path, "--run-dir", "out")
	v := d.next()
	fill(t, disk)
	v.ok()
	d.next().ok()
	r := s.wait()
	// What was made at the start is enough for the marks, or the run says what it could not write.
	if r.status != 0 && r.status != 3 {
		t.Errorf("exit status %d", r.status)
	}
	if r.status == 3 {
		wantText(t, r.all(), disk+"/tracking/work", "no space left on device")
	}
	stats := statsOf(t, dir+"/out")
	wantNoneLeft(t, stats.Run.ID, dir+"/out")
}
