package local_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/daisy/launcher"
	"example.org/daisy/launcher/local"
)

const patience = 30 * time.Second

// A watched launcher tells what happens.
type watched struct {
	*local.Launcher
	t        *testing.T
	statuses chan launcher.Status
	seen     []launcher.Status
}

func newWatched(t *testing.T) *watched {
	w := &watched{local.New(local.Config{GPUs: []string{"0", "1"}}), t, make(chan launcher.Status, 100), nil}
	w.Watch(func(s launcher.Status) { w.statuses <- s })
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := w.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return w
}

// next waits for a worker's next status in a state.
func (w *watched) next(name launcher.Worker, state launcher.State) launcher.Status {
	w.t.Helper()
	for {
		if i := slices.IndexFunc(w.seen, func(s launcher.Status) bool { return s.Worker == name && s.State == state }); i >= 0 {
			return w.seen[i]
		}
		select {
		case s := <-w.statuses:
			w.seen = append(w.seen, s)
		case <-time.After(patience):
			w.t.Fatalf("worker %s is not %v within %v", name, state, patience)
		}
	}
}

// submit starts workers of which each starts a process that is no worker, in a session of its own.
func (w *watched) submit(tag string, count, gpus int, mark string) (pids []int) {
	w.t.Helper()
	dir := w.t.TempDir()
	_, err := w.Submit(w.t.Context(), launcher.Request{Tag: tag, Count: count, Dir: dir, GPUs: gpus, Env: []string{"PATH=/usr/bin:/bin", mark},
		Argv:    []string{"/bin/sh", "-c", "env -u DAISY_TAG -u DAISY_ELEMENT setsid sleep 1000 & wait"},
		LogPath: func(l launcher.Worker) string { return filepath.Join(dir, l.String()) }})
	if err != nil {
		w.t.Fatal(err)
	}
	pids = make([]int, count)
	for range count {
		s := <-w.statuses
		for s.State != launcher.Running {
			s = <-w.statuses
		}
		pids[s.Worker.Element] = s.PID
	}
	return pids
}

func all(launcher.Worker) bool { return true }

func TestTheNextLauncherTakesWorkersOver(t *testing.T) {
	mark := "DAISY_TEST_RUN=" + t.Name() + fmt.Sprint(time.Now().UnixNano())
	first, next := newWatched(t), newWatched(t)
	pids := first.submit("7", 3, 0, mark)
	stranger := first.submit("1", 1, 0, mark+"x")
	got, ended, err := next.Adopt(t.Context(), mark, func(w launcher.Worker) bool { return w.Element != 1 })
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(got, func(a, b launcher.Worker) int { return a.Element - b.Element })
	if want := []launcher.Worker{{Tag: "7", Element: 0}, {Tag: "7", Element: 2}}; !slices.Equal(got, want) {
		t.Errorf("taken over are %v, want %v", got, want)
	}
	// The one that is not to live is gone, with what it had started, before anything else happens.
	if ended == nil || !strings.Contains(ended.String(), fmt.Sprint(pids[1])) || strings.Contains(ended.String(), fmt.Sprint(pids[0])) {
		t.Errorf("ended are %v; the workers are %v", ended, pids)
	}
	first.next(launcher.Worker{Tag: "7", Element: 1}, launcher.Ended)
	for _, i := range []int{0, 2} {
		if s := next.next(launcher.Worker{Tag: "7", Element: i}, launcher.Running); s.PID != pids[i] {
			t.Errorf("%+v, want process %d", s, pids[i])
		}
	}
	if err := syscall.Kill(stranger[0], 0); err != nil {
		t.Errorf("a worker of another run: %v", err)
	}
	if _, err := next.Submit(t.Context(), launcher.Request{Tag: "7", Count: 1}); err == nil || !strings.Contains(err.Error(), "the tag is taken") {
		t.Errorf("the tag can be used again: %v", err)
	}

	// One is told to leave, and one ends by itself.
	if err := next.Cancel(t.Context(), got[0]); err != nil {
		t.Error(err)
	}
	if s := next.next(got[0], launcher.Ended); !s.End.Ours || s.End.Cause != launcher.Exited || s.End.Exit != -1 || s.PID != pids[0] {
		t.Errorf("it was told to leave, and ended as %+v", s)
	}
	if err := syscall.Kill(pids[2], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	s := next.next(got[1], launcher.Ended)
	if s.End.Ours || s.End.Exit != -1 || !strings.Contains(s.End.Detail, "another process's child") {
		t.Errorf("it was killed, and ended as %+v", s)
	}
	if got, ended, err := newWatched(t).Adopt(t.Context(), mark, all); err != nil || got != nil || ended != nil {
		t.Errorf("left are %v and %v: %v", got, ended, err)
	}
}

func TestWorkersThatWereTakenOverAreKilledWithAllThatTheyStarted(t *testing.T) {
	for name, end := range map[string]func(l *watched, w launcher.Worker) error{
		"kill":  func(l *watched, w launcher.Worker) error { return l.Kill(t.Context(), w) },
		"close": func(l *watched, _ launcher.Worker) error { return l.Close(t.Context()) },
	} {
		t.Run(name, func(t *testing.T) {
			mark := fmt.Sprintf("DAISY_TEST_RUN=%s%d", name, time.Now().UnixNano())
			first, next := newWatched(t), newWatched(t)
			first.submit("1", 1, 0, mark)
			got, ended, err := next.Adopt(t.Context(), mark, all)
			if err != nil || len(got) != 1 || ended != nil {
				t.Fatalf("taken over are %v, ended %v: %v", got, ended, err)
			}
			if err := end(next, got[0]); err != nil {
				t.Error(err)
			}
			if s := next.next(got[0], launcher.Ended); !s.End.Ours {
				t.Errorf("it ended as %+v", s)
			}
			// Whoever looks now finds nobody.
			last := newWatched(t)
			if got, ended, err := last.Adopt(t.Context(), mark, all); err != nil || got != nil || ended != nil {
				t.Errorf("left are %v and %v: %v", got, ended, err)
			}
		})
	}
}

func TestALauncherThatHasReleasedItsWorkersTouchesNone(t *testing.T) {
	mark := "DAISY_TEST_RUN=" + t.Name() + fmt.Sprint(time.Now().UnixNano())
	first, next := newWatched(t), newWatched(t)
	pids := first.submit("1", 1, 1, mark)
	dir := t.TempDir()
	waiting := launcher.Worker{Tag: "2"}
	if _, err := first.Submit(t.Context(), launcher.Request{Tag: "2", Count: 1, Dir: dir, GPUs: 2, Argv: []string{"/bin/true"}, LogPath: func(launcher.Worker) string { return filepath.Join(dir, "log") }}); err != nil {
		t.Fatal(err)
	}
	first.next(waiting, launcher.Pending)
	got, _, err := next.Adopt(t.Context(), mark, all)
	if err != nil || len(got) != 1 {
		t.Fatalf("taken over are %v: %v", got, err)
	}
	first.Release()
	if s := first.next(waiting, launcher.Ended); s.End.Cause != launcher.NeverStarted {
		t.Errorf("the one that had not started ended as %+v", s)
	}
	for name, err := range map[string]error{
		"cancel": first.Cancel(t.Context(), got[0]), "kill": first.Kill(t.Context(), got[0]), "close": first.Close(t.Context()),
	} {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	// What ends it says so, and it is not the first one.
	if err := syscall.Kill(pids[0], syscall.SIGUSR1); err != nil {
		t.Error(err)
	}
	if s := first.next(got[0], launcher.Ended); s.End.Ours || s.End.Signal != int(syscall.SIGUSR1) {
		t.Errorf("the worker ended as %+v", s)
	}
}

func TestDevicesOfWorkersThatWereTakenOverAreNotGivenToOthers(t *testing.T) {
	mark := "DAISY_TEST_RUN=" + fmt.Sprint(time.Now().UnixNano())
	first, next := newWatched(t), newWatched(t)
	first.submit("1", 1, 1, mark)
	got, _, err := next.Adopt(t.Context(), mark, all)
	if err != nil || len(got) != 1 {
		t.Fatalf("taken over are %v: %v", got, err)
	}
	dir := t.TempDir()
	if _, err := next.Submit(t.Context(), launcher.Request{Tag: "2", Count: 1, Dir: dir, GPUs: 2, Argv: []string{"/bin/true"}, LogPath: func(launcher.Worker) string { return filepath.Join(dir, "log") }}); err != nil {
		t.Fatal(err)
	}
	later := launcher.Worker{Tag: "2"}
	next.next(later, launcher.Pending) // for the second device
	if err := next.Kill(t.Context(), got[0]); err != nil {
		t.Error(err)
	}
	if s := next.next(later, launcher.Ended); s.End.Cause != launcher.Exited || s.End.Exit != 0 {
		t.Errorf("it ended as %+v", s)
	}
}
