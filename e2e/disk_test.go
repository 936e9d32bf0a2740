//go:build linux

package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// smallDisk mounts a file system with such options. Where this process may not, the test runs again in one that may, with
// namespaces of its own: its result is that of the test, and ok is false here.
func smallDisk(t *testing.T, options string) (disk string, ok bool) {
	t.Helper()
	const inside = "E2E_MAY_MOUNT"
	disk = t.TempDir()
	err := unix.Mount("tmpfs", disk, "tmpfs", 0, options)
	if err == nil {
		t.Cleanup(func() {
			if err := unix.Unmount(disk, unix.MNT_DETACH); err != nil {
				t.Errorf("unmount %s: %v", disk, err)
			}
		})
		return disk, true
	}
	if os.Getenv(inside) != "" {
		t.Skipf("mount -t tmpfs: %v", err)
	}
	cmd := exec.CommandContext(t.Context(), self(), "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), inside+"=1", "E2E_PROGRAMS="+bin)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	var failed *exec.ExitError
	switch {
	case err != nil && !errors.As(err, &failed), bytes.Contains(out, []byte("--- SKIP")):
		unavailable(t, fmt.Sprintf("it needs a small disk, and this system lets nobody but root mount one (%v): run it as root, "+
			"in a container with CAP_SYS_ADMIN, or allow user namespaces (sysctl user.max_user_namespaces, kernel.apparmor_restrict_unprivileged_userns)", err))
	case err != nil:
		t.Errorf("%s", out)
	}
	return "", false
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
	disk, ok := smallDisk(t, "size=64m")
	if !ok {
		return
	}
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
	disk, ok := smallDisk(t, "size=1m")
	if !ok {
		return
	}
	dir, path := writeJob(t, job("", blocks("work", 1)+shell("touch ran")))
	r := wantStatus(t, 3, dir, "run", path, "--run-dir", disk+"/out")
	wantText(t, r.stderr, disk+"/out", "no space left on device", "free space")
	if exists(dir+"/ran") || exists(disk+"/out") {
		t.Error("something was started, or is left")
	}
}

func TestAReadOnlyDiskIsAnInfrastructureFault(t *testing.T) {
	t.Parallel()
	disk, ok := smallDisk(t, "ro,size=1m")
	if !ok {
		return
	}
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
	disk, ok := smallDisk(t, "size=1m")
	if !ok {
		return
	}
	d := newDirector(t)
	// Two million blocks have two million bytes of marks, for which there would be no room on an empty disk either.
	dir, path := writeJob(t, job("resources = { cpu = 1 }\ngrace = \"1s\"\ntracking = "+quote(disk+"/tracking"), blocks("work", 2_000_000)+d.code("command")))
	s := start(t, dir, "run", path, "--run-dir", "out")
	v := d.next()
	fill(t, disk)
	v.ok()
	r := s.wait()
	if r.status != 3 {
		t.Errorf("exit status %d, want 3", r.status)
	}
	wantText(t, r.all(), disk+"/tracking/work", "no space left on device")
	stats := statsOf(t, dir+"/out")
	if work := task(t, stats, "work"); work.Success != 1 {
		t.Errorf("one block succeeded; the counts are %+v", countsOf(work))
	}
	wantNoneLeft(t, stats.Run.ID, dir+"/out")
}
