package rundir

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// TestMain is also the other coordinator: a process that holds the lock of the
// directory that DAISY_TEST_HOLD names until its standard input ends.
func TestMain(m *testing.M) {
	if path := os.Getenv("DAISY_TEST_HOLD"); path != "" {
		hold(path)
		return
	}
	os.Exit(m.Run())
}

func hold(path string) {
	d, err := Open(path)
	if err == nil {
		_, err = d.TryLock()
	}
	fmt.Println("held:", err)
	_, _ = bufio.NewReader(os.Stdin).ReadByte()
}

// holder starts a process that holds the lock and kills it when kill is called.
func holder(t *testing.T, d *Dir) (pid int, kill func()) {
	t.Helper()
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), "DAISY_TEST_HOLD="+d.Path())
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	said, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || said != "held: <nil>\n" {
		t.Fatalf("the other process said %q, %v", said, err)
	}
	kill = func() {
		_ = c.Process.Kill()
		_ = c.Wait()
		_ = in.Close()
	}
	t.Cleanup(kill)
	return c.Process.Pid, kill
}

func wantLocked(t *testing.T, l *Lock, err error) *LockedError {
	t.Helper()
	var locked *LockedError
	if l != nil || !errors.As(err, &locked) {
		t.Fatalf("got %v, %v; want a LockedError", l, err)
	}
	return locked
}

func mustLock(t *testing.T, l *Lock, err error) *Lock {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Unlock() })
	return l
}

func unsupported(err error) flockFunc { return func(*os.File) error { return err } }

func TestOneCoordinatorAtATime(t *testing.T) {
	for name, flock := range map[string]flockFunc{"flock": flock, "ENOSYS": unsupported(syscall.ENOSYS), "ENOLCK": unsupported(syscall.ENOLCK), "EOPNOTSUPP": unsupported(syscall.EOPNOTSUPP)} {
		t.Run(name, func(t *testing.T) {
			d := mustCreate(t, t.TempDir(), "segment", "")
			first, err := d.tryLock(flock)
			mustLock(t, first, err)
			second, err := d.tryLock(flock)
			locked := wantLocked(t, second, err)
			if got := locked.Owner; got.PID != os.Getpid() || got.Token != first.Owner().Token {
				t.Errorf("the owner is %+v, want %+v", got, first.Owner())
			}
			if err := first.Renew(4); err != nil {
				t.Fatal(err)
			}
			second, err = d.tryLock(flock)
			if got := wantLocked(t, second, err).Owner; got.Epoch != 4 || got.Counter != 1 {
				t.Errorf("after Renew: epoch %d, counter %d", got.Epoch, got.Counter)
			}
			if err := first.Unlock(); err != nil {
				t.Fatal(err)
			}
			second, err = d.tryLock(flock)
			mustLock(t, second, err)
		})
	}
}

func TestTheMessageOfALockSaysWhoHasItAndWhatToDo(t *testing.T) {
	e := &LockedError{"/runs/x", Owner{Host: "login1", PID: 17, Since: time.Date(2026, 11, 30, 15, 4, 5, 0, time.UTC), Epoch: 2}}
	want := "/runs/x: the run is being coordinated by pid 17 on login1, since 2026-11-30T15:04:05Z; stop that one first, or give --take-over if it is gone"
	if got := e.Error(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got, want := (&LockedError{Path: "/runs/x"}).Error(), "coordinated by another coordinator;"; !strings.Contains(got, want) {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestTheLockOfAProcessThatWasKilledIsFree(t *testing.T) {
	d := mustCreate(t, t.TempDir(), "segment", "")
	pid, kill := holder(t, d)
	l, err := d.TryLock()
	if got := wantLocked(t, l, err).Owner.PID; got != pid {
		t.Errorf("the owner is pid %d, want %d", got, pid)
	}
	kill()
	l, err = d.TryLock()
	mustLock(t, l, err)
}

func TestWithoutFlockAProcessOfThisHostThatIsGoneHasNoLock(t *testing.T) {
	d := mustCreate(t, t.TempDir(), "segment", "")
	_, kill := holder(t, d)
	l, err := d.tryLock(noFlock)
	wantLocked(t, l, err)
	kill()
	l, err = d.tryLock(noFlock)
	mustLock(t, l, err)
}

func TestAFlockThatOutlivedItsProcessDoesNotHoldTheRun(t *testing.T) {
	d := mustCreate(t, t.TempDir(), "segment", "")
	_, kill := holder(t, d)
	kill()
	busy := unsupported(syscall.EWOULDBLOCK) // as a server that has not noticed
	first := true
	l, err := d.tryLock(func(f *os.File) error {
		if first {
			first = false
			return busy(f)
		}
		return flock(f)
	})
	mustLock(t, l, err)
	other, err := d.TryLock()
	wantLocked(t, other, err)
}

func TestAnotherHostOrBootIsNotJudgedGone(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	here := Owner{Host: host, PID: os.Getpid(), Process: processIdentity(os.Getpid())}
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*Owner)
		want   bool
	}{
		"this process":           {func(*Owner) {}, false},
		"a process that ended":   {func(o *Owner) { o.PID = gone.Process.Pid }, true},
		"its pid was used again": {func(o *Owner) { o.Process += "1" }, true},
		"another host":           {func(o *Owner) { o.Host, o.PID = "elsewhere", gone.Process.Pid }, false},
		"another boot":           {func(o *Owner) { o.Process, o.PID = "boot/"+o.Process, gone.Process.Pid }, false},
		"nobody":                 {func(o *Owner) { *o = Owner{} }, false},
	} {
		o := here
		c.change(&o)
		if got := o.isGone(); got != c.want {
			t.Errorf("%s: gone is %v, want %v", name, got, c.want)
		}
	}
}

func TestTheFormerOwnerIsToldThatItWasTakenOver(t *testing.T) {
	d := mustCreate(t, t.TempDir(), "segment", "")
	first, err := d.TryLock()
	mustLock(t, first, err)
	second, err := d.TakeOver()
	mustLock(t, second, err)
	if err := second.Renew(2); err != nil {
		t.Fatal(err)
	}
	var taken *TakenOverError
	if err := first.Renew(1); !errors.As(err, &taken) || taken.By.Token != second.Owner().Token || taken.Newer != 2 {
		t.Errorf("Renew of the first: %v", err)
	}
	if err := first.Unlock(); err != nil {
		t.Fatal(err)
	}
	third, err := d.TryLock()
	wantLocked(t, third, err) // Unlock of the first left the second's lock alone
	if err := second.Renew(2); err != nil {
		t.Error(err)
	}
}

func TestALockWhoseCounterStandsStillIsTakenOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := mustCreate(t, t.TempDir(), "segment", "")
		first, err := d.TryLock()
		mustLock(t, first, err)
		begin := time.Now()
		var told Owner
		second, err := d.AwaitLock(t.Context(), func(o Owner) { told = o })
		mustLock(t, second, err)
		if got := time.Since(begin); got != StaleAfter {
			t.Errorf("the wait took %v, want %v", got, StaleAfter)
		}
		if told.PID != os.Getpid() {
			t.Errorf("told of %+v", told)
		}
	})
}

func TestALockThatIsRenewedIsNotTakenOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := mustCreate(t, t.TempDir(), "segment", "")
		first, err := d.TryLock()
		mustLock(t, first, err)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			tick := time.NewTicker(RenewEvery)
			defer tick.Stop()
			for {
				select {
				case <-ctx.Done():
					done <- nil
					return
				case <-tick.C:
					if err := first.Renew(1); err != nil {
						done <- err
						return
					}
				}
			}
		}()
		begin := time.Now()
		second, err := d.AwaitLock(t.Context(), nil)
		wantLocked(t, second, err)
		if got := time.Since(begin); got > RenewEvery+2*time.Second {
			t.Errorf("it was said after %v only", got)
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestTheWaitForALockCanBeEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := mustCreate(t, t.TempDir(), "segment", "")
		first, err := d.TryLock()
		mustLock(t, first, err)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		l, err := d.AwaitLock(ctx, nil)
		wantLocked(t, l, err)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}

func TestEpochsRiseAndAnOlderOneIsTold(t *testing.T) {
	d := mustCreate(t, t.TempDir(), "segment", "")
	for want := uint64(1); want <= 3; want++ {
		got, err := d.NextEpoch()
		if err != nil || got != want {
			t.Fatalf("epoch %d, %v; want %d", got, err, want)
		}
	}
	if err := d.CheckEpoch(3); err != nil {
		t.Error(err)
	}
	var taken *TakenOverError
	if err := d.CheckEpoch(2); !errors.As(err, &taken) || err.Error() != d.Path()+": the run was taken over: it is in epoch 3 now, this coordinator was epoch 2" {
		t.Errorf("got %v", err)
	}
	l, err := d.TryLock()
	mustLock(t, l, err)
	if err := d.CheckEpoch(2); !errors.As(err, &taken) || taken.By.PID != os.Getpid() {
		t.Errorf("got %v", err)
	}
	if err := os.WriteFile(d.join(epochFile), []byte("three\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := d.NextEpoch(); err == nil || !strings.Contains(err.Error(), `"three\n" is no epoch; the file was damaged: write the highest number of the files in `+d.JournalDir()+" into it") {
		t.Errorf("got %v", err)
	}
}

func TestALockWhoseFileIsGoneSaysWhichAndWhatToDo(t *testing.T) {
	d := mustCreate(t, t.TempDir(), "segment", "")
	l, err := d.TryLock()
	if err != nil {
		t.Fatal(err)
	}
	for what, spoil := range map[string]func() error{
		"emptied": func() error { return os.Truncate(d.join(lockFile), 0) },
		"removed": func() error { return os.Remove(d.join(lockFile)) },
	} {
		if err := spoil(); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		if err := l.Renew(1); err == nil || !strings.Contains(err.Error(), d.join(lockFile)) || !strings.Contains(err.Error(), "--resume "+d.Path()) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
