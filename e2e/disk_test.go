//go:build linux

package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"example.org/daisy/internal/testenv"
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
		testenv.Unavailable(t, fmt.Sprintf("it needs a small disk, and this system lets nobody but root mount one (%v): run it as root, "+
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

// free takes back what fill took.
func free(t testing.TB, disk string) {
	t.Helper()
	if err := os.Remove(filepath.Join(disk, "filler")); err != nil {
		t.Fatal(err)
	}
}

// marked are the blocks of a task in one dimension that tracking has as done: those whose success was made durable and
// acknowledged.
func marked(t testing.TB, tracking, task string) (done []int) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(tracking, task, "done", "c", "0"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	for i, b := range data {
		if b != 0 {
			done = append(done, i)
		}
	}
	return done
}

// wantResumed goes on with a run whose blocks write their index into the file ran, and checks that each block succeeds and
// that none runs again of those that are durable.
func wantResumed(t testing.TB, d *director, dir, runDir, ran string, n int, durable []int) {
	t.Helper()
	d.letAllEnd()
	if err := os.Remove(ran); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	wantStatus(t, 0, dir, "run", "--resume", runDir)
	if work := task(t, statsOf(t, runDir), "work"); work.Success != int64(n) {
		t.Errorf("after the resume the counts are %+v, want %d successes", countsOf(work), n)
	}
	var again []int
	for line := range strings.Lines(readFile(t, ran)) {
		if i, err := strconv.Atoi(strings.TrimSpace(line)); err != nil || slices.Contains(durable, i) {
			again = append(again, i)
		}
	}
	if len(again) > 0 {
		t.Errorf("blocks %v had succeeded, and the success was acknowledged; they have run again", again)
	}
}

func TestADiskThatFillsUpEndsTheRun(t *testing.T) {
	t.Parallel()
	disk, ok := smallDisk(t, "size=64m")
	if !ok {
		return
	}
	const n = 2000 // blocks after the first make enough records for the journal to need more of the disk
	d := newDirector(t)
	ran := filepath.Join(t.TempDir(), "ran")
	dir, path := writeJob(t, job("resources = { cpu = 1 }\ngrace = \"1s\"\ntracking = \"marks\"", blocks("work", n)+d.code("stream", "E2E_ONLY=3", "E2E_RAN="+ran)))
	s := start(t, dir, "run", path, "--run-dir", disk+"/out")
	v := d.next()
	fill(t, disk)
	v.ok()
	r := s.wait()
	if r.status != 3 {
		t.Errorf("exit status %d, want 3", r.status)
	}
	wantText(t, r.all(), disk+"/out/journal", "no space left on device", "are needed, its disk has 0B free")
	wantNoneLeft(t, "none", disk)
	durable := marked(t, dir+"/marks", "work")
	if len(durable) < 3 || len(durable) == n {
		t.Errorf("%d of %d blocks became durable", len(durable), n)
	}
	free(t, disk)
	wantResumed(t, d, dir, disk+"/out", ran, n, durable)
}

func TestAFullDiskForTheLogsEndsTheRunInOrder(t *testing.T) {
	t.Parallel()
	disk, ok := smallDisk(t, "size=64m")
	if !ok {
		return
	}
	d := newDirector(t)
	ran := filepath.Join(t.TempDir(), "ran")
	dir, path := writeJob(t, job("resources = { cpu = 1 }\ngrace = \"1s\"", blocks("work", 3)+d.code("command", "E2E_ONLY=0", "E2E_RAN="+ran)))
	s := start(t, dir, "run", path, "--run-dir", disk+"/out")
	v := d.next()
	logs := disk + "/out/logs"
	if err := unix.Mount("tmpfs", logs, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	s.stderr.await(t, "no new blocks: "+logs+": no space left on device")
	v.ok() // what runs may end
	r := s.wait()
	if err := unix.Unmount(logs, 0); err != nil {
		t.Fatal(err)
	}
	if r.status != 3 {
		t.Errorf("exit status %d, want 3", r.status)
	}
	wantText(t, r.all(), "1MiB are needed, its disk has 64KiB free")
	wantCounts(t, statsOf(t, disk+"/out"), map[string]counts{"work": {State: "abandoned", Blocks: 3, Success: 1, Abandoned: 2, Processed: 1}})
	wantResumed(t, d, dir, disk+"/out", ran, 3, []int{0})
}

func TestAFullDiskCostsARunNoStatistics(t *testing.T) {
	t.Parallel()
	disk, ok := smallDisk(t, "size=64m")
	if !ok {
		return
	}
	d := newDirector(t)
	dir, path := writeJob(t, job("resources = { cpu = 1 }", blocks("work", 1)+d.code("command")))
	s := start(t, dir, "run", path, "--run-dir", disk+"/out")
	v := d.next()
	fill(t, disk)
	v.ok() // its records fit into the last page of the journal
	s.wait()
	wantCounts(t, statsOf(t, disk+"/out"), map[string]counts{"work": {State: "done", Blocks: 1, Success: 1, Processed: 1}})
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
	ran := filepath.Join(t.TempDir(), "ran")
	dir, path := writeJob(t, job("resources = { cpu = 1 }\ngrace = \"1s\"\ntracking = "+quote(disk+"/tracking"), blocks("work", 3)+d.code("command", "E2E_RAN="+ran)))
	s := start(t, dir, "run", path, "--run-dir", "out")
	v := d.next()
	fill(t, disk)
	v.ok()
	d.next() // and so the first success has been acknowledged
	r := s.wait()
	if r.status != 3 {
		t.Errorf("exit status %d, want 3", r.status)
	}
	wantText(t, r.all(), disk+"/tracking/work", "no space left on device", "are needed, its disk has 0B free")
	stats := statsOf(t, dir+"/out")
	if work := task(t, stats, "work"); work.Success != 1 {
		t.Errorf("one block succeeded; the counts are %+v", countsOf(work))
	}
	wantNoneLeft(t, stats.Run.ID, dir+"/out")
	free(t, disk)
	resumed := start(t, dir, "run", "--resume", "out")
	d.next().ok()
	d.next().ok()
	if r := resumed.wait(); r.status != 0 {
		t.Errorf("exit status %d, want 0", r.status)
	}
	if got := strings.Fields(readFile(t, ran)); !slices.Equal(got, []string{"0", "1", "1", "2"}) {
		t.Errorf("blocks ran in this order: %v; 0 was acknowledged, 1 was not", got)
	}
	if got := marked(t, disk+"/tracking", "work"); len(got) != 3 {
		t.Errorf("marked are %v", got)
	}
}
