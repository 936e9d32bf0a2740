package slurm

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// lockName is the file whose lock every sbatch of the run holds while it lives.
//
// An sbatch whose coordinator was killed may live on and submit later, after a resume has looked for what was submitted. So it
// gets a signal when its parent dies (command.go), and it inherits the lock: a later coordinator submits only
// when it has the lock itself, and what the earlier one makes after it was looked for is a twin.
const lockName = "submit.lock"

// A submitLock is the lock, held.
type submitLock struct{ file *os.File }

// lockSubmissions takes the lock. An sbatch of an earlier coordinator is waited for; one that is still there after half of the time is
// ended, if it runs on this machine.
func (l *Launcher) lockSubmissions(ctx context.Context) (*submitLock, error) {
	path := filepath.Join(l.scripts, lockName)
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("the lock of submissions: %w", err)
	}
	patience := l.limit("sbatch")
	begun, ended := time.Now(), false
	for {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return &submitLock{file}, nil
		}
		if err != syscall.EWOULDBLOCK && err != syscall.EINTR {
			// A file system without locks: then the look-ups after an unsure answer have to do.
			return &submitLock{file}, nil
		}
		waited := time.Since(begun)
		if !ended && waited > patience/2 {
			endHolder(file)
			ended = true
		}
		if waited > patience {
			file.Close()
			return nil, fmt.Errorf("an earlier sbatch of this run still lives, and could submit: it holds %s, which says its machine and process: end it there", path)
		}
		select {
		case <-ctx.Done():
			file.Close()
			return nil, context.Cause(ctx)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (s *submitLock) release() {
	// Closing alone would leave the lock with whatever sbatch left behind.
	_ = syscall.Flock(int(s.file.Fd()), syscall.LOCK_UN)
	s.file.Close()
}

// start runs sbatch with the lock.
func (s *submitLock) start(ctx context.Context, l *Launcher, cmd *exec.Cmd) (answer, error) {
	cmd.ExtraFiles = []*os.File{s.file}
	return l.finish(ctx, "sbatch", cmd, func() error {
		if err := cmd.Start(); err != nil {
			return err
		}
		host, _ := os.Hostname()
		text := fmt.Sprintf("%s %d %s\n", host, cmd.Process.Pid, startOf(cmd.Process.Pid))
		if s.file.Truncate(0) == nil {
			_, _ = s.file.WriteAt([]byte(text), 0)
		}
		return nil
	})
}

// endHolder ends the sbatch that the lock file names, if that very process runs on this machine.
func endHolder(file *os.File) {
	text, err := io.ReadAll(io.NewSectionReader(file, 0, 1000))
	f := strings.Fields(string(text))
	if err != nil || len(f) != 3 {
		return
	}
	host, _ := os.Hostname()
	pid, err := strconv.Atoi(f[1])
	if err != nil || pid < 2 || f[0] != host || f[2] == "-" || startOf(pid) != f[2] {
		return
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
}
