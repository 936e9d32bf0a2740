//go:build linux

package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"example.org/daisy/internal/api"
)

// wantNoneLeft checks that no process of a run is left: none that has its id in its environment, none that names its directory.
func wantNoneLeft(t testing.TB, runID, runDir string) {
	t.Helper()
	pids, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pids {
		// A process that ends meanwhile has neither file.
		env, _ := os.ReadFile(filepath.Join(p, "environ"))
		cmdline, _ := os.ReadFile(filepath.Join(p, "cmdline"))
		if pid, _ := strconv.Atoi(filepath.Base(p)); pid == os.Getpid() {
			continue
		}
		if bytes.Contains(env, []byte("DAISY_RUN_ID="+runID)) || bytes.Contains(cmdline, []byte(runDir)) {
			t.Errorf("process %s is left: %q", filepath.Base(p), cmdline)
		}
	}
}

// wantSecretKept looks for a run's secret where others can read, or a site stores it: arguments and environments of processes, and all
// files of the run but its own.
func wantSecretKept(t testing.TB, runDir string) {
	t.Helper()
	secret := strings.TrimSpace(readFile(t, filepath.Join(runDir, "secret")))
	places := slices.Concat(first2(filepath.Glob("/proc/[0-9]*/environ")), first2(filepath.Glob("/proc/[0-9]*/cmdline")))
	if err := filepath.WalkDir(runDir, func(path string, e fs.DirEntry, err error) error {
		if e.Type().IsRegular() && path != filepath.Join(runDir, "secret") {
			places = append(places, path)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for _, path := range places {
		if text, _ := os.ReadFile(path); bytes.Contains(text, []byte(secret)) {
			t.Errorf("the secret of the run stands in %s", path)
		}
	}
}

func TestTheSecretOfARunIsInItsFileOnly(t *testing.T) {
	t.Parallel()
	d := newDirector(t)
	dir, path := writeJob(t, job("resources = { cpu = 2 }\nlisten = \"0.0.0.0\"", blocks("work", 2)+d.code("command"), blocks("other", 1)+d.code("stream")))
	s := start(t, dir, "run", path, "--run-dir", "out")
	one, two := d.next(), d.next()
	wantSecretKept(t, filepath.Join(dir, "out"))
	one.ok()
	two.ok()
	d.next().ok()
	if r := s.wait(); r.status != 0 {
		t.Errorf("exit status %d", r.status)
	}
	wantSecretKept(t, filepath.Join(dir, "out"))
}

// awaitProcessEnd waits until a process has ended that is no child of ours.
func awaitProcessEnd(t testing.TB, pid int) {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(patience/time.Millisecond))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n == 0 {
			t.Fatalf("process %d has not ended within %v (%v)", pid, patience, err)
		}
		return
	}
}

// freeze stops a process, and returns when each of its threads has: until the first of them has seen the signal, the others run
// on, and nothing announces the moment.
func freeze(t testing.TB, pid int) {
	t.Helper()
	kill(t, pid, syscall.SIGSTOP)
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for until := time.Now().Add(patience); ; <-look.C {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		if err != nil || len(threads) == 0 {
			t.Fatalf("process %d has no threads (%v)", pid, err)
		}
		running := slices.DeleteFunc(threads, func(path string) bool {
			stat, err := os.ReadFile(path)
			_, rest, _ := strings.Cut(string(stat), ") ")
			return err != nil || strings.HasPrefix(rest, "T")
		})
		if len(running) == 0 {
			return
		}
		if time.Now().After(until) {
			t.Fatalf("threads of process %d have not stopped: %v", pid, running)
		}
	}
}

// wantEnd checks how a worker ended.
func wantEnd(t testing.TB, workers []api.WorkerStats, id, want string) {
	t.Helper()
	for _, w := range workers {
		if w.ID == id {
			if w.End == nil || *w.End != want {
				t.Errorf("worker %s: want the end %q, got %v", id, want, *w.End)
			}
			return
		}
	}
	t.Errorf("there is no worker %s", id)
}

// awaitFile waits until a file has a text in it, and gives it.
func awaitFile(t testing.TB, path, part string) string {
	t.Helper()
	watch, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(watch)
	if _, err := unix.InotifyAddWatch(watch, path, unix.IN_MODIFY); err != nil {
		t.Fatalf("watch %s: %v", path, err)
	}
	for end := time.Now().Add(patience); ; {
		if text := readFile(t, path); bytes.Contains([]byte(text), []byte(part)) {
			return text
		}
		left := time.Until(end)
		if left <= 0 {
			t.Fatalf("%q has not come in %s within %v; it has only:\n%s", part, path, patience, readFile(t, path))
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(watch), Events: unix.POLLIN}}, int(left/time.Millisecond)+1)
		if err != nil && !errors.Is(err, unix.EINTR) {
			t.Fatal(err)
		}
		if n > 0 {
			_, _ = unix.Read(watch, make([]byte, 4096))
		}
	}
}
