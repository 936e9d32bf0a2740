package slurm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"example.org/daisy/internal/process"
)

// errStatus is wrapped by the error of a command that ran to its end and gave a status other than 0.
var errStatus = errors.New("it failed")

// limits are the longest times that commands get. Slurm itself gives up a controller that does not answer after MessageTimeout (10 s, where
// the site has not more; then they get afterTimeout more than that), and hangs without end where munge does.
var limits = map[string]time.Duration{"sbatch": time.Minute, "sacct": time.Minute, "": 30 * time.Second}

const afterTimeout = 20 * time.Second

// mostOutput bounds what is kept of a command's output: a full listing of 100,000 rows is far below it.
const mostOutput = 64 << 20

// An answer is what a command wrote.
type answer struct{ stdout, stderr string }

// run runs a command of Slurm to its end. Its error says which command it was, how it ended and what it said.
func (l *Launcher) run(ctx context.Context, name string, args ...string) (answer, error) {
	path, err := l.find(name)
	if err != nil {
		return answer{}, err
	}
	cmd := exec.Command(path, args...)
	cmd.Env = l.commandEnv
	return l.finish(ctx, name, cmd, func() error { return cmd.Start() })
}

// errStuck is wrapped by the error of a command that got SIGKILL and has not ended, nor perhaps begun.
var errStuck = errors.New("nothing ends it: the disk that it is on, or needs, does not answer")

// stuckAfter is how long after its time was over a command is given up that the kernel does not end.
const stuckAfter = 5 * time.Second

// finish starts a command, waits for it within its limit, and judges its end. The whole process group goes when the time is over, and
// the command when this process ends. Of one that is stuck nothing may be read: what is left of it goes on beside.
func (l *Launcher) finish(ctx context.Context, name string, cmd *exec.Cmd, start func() error) (answer, error) {
	limit := l.limit(name)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no answer within %v", limit))
	defer cancel()
	dieWithParent(cmd)
	type ended struct {
		answer
		error
	}
	done := make(chan ended, 1)
	go onOneThread(func() {
		got, err := l.finishHere(ctx, name, cmd, start)
		done <- ended{got, err}
	})
	select {
	case e := <-done:
		return e.answer, e.error
	case <-ctx.Done():
	}
	select {
	case e := <-done:
		return e.answer, e.error
	case <-time.After(stuckAfter):
		return answer{}, fmt.Errorf("%s: %w, and %w", name, context.Cause(ctx), errStuck)
	}
}

func (l *Launcher) finishHere(ctx context.Context, name string, cmd *exec.Cmd, start func() error) (answer, error) {
	if err := ctx.Err(); err != nil {
		return answer{}, fmt.Errorf("%s was not started: %w", name, context.Cause(ctx))
	}
	stdout, stderr := &bounded{}, &bounded{}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	cmd.WaitDelay = 2 * time.Second // what a wrapper left behind may hold the pipes
	if err := start(); err != nil {
		return answer{}, fmt.Errorf("%s cannot be started: %w", cmd.Path, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	err := cmd.Wait()
	stopped := !stop()
	got := answer{stdout.kept.String(), stderr.kept.String()}
	said := wordsOf(got.stderr)
	if said != "" {
		said = ": " + said
	}
	var exit *exec.ExitError
	switch {
	case stopped && err != nil:
		return got, fmt.Errorf("%s: %w%s", name, context.Cause(ctx), said)
	case errors.As(err, &exit) && exit.Exited():
		return got, fmt.Errorf("%s: %w with status %d%s", name, errStatus, exit.ExitCode(), said)
	case err != nil && !errors.Is(err, exec.ErrWaitDelay):
		return got, fmt.Errorf("%s: %w%s", name, err, said)
	case stdout.cut:
		return got, fmt.Errorf("%s: more than %d MiB of output", name, mostOutput>>20)
	}
	return got, nil
}

// limit is the longest time that a command gets.
func (l *Launcher) limit(name string) time.Duration {
	if l.cfg.Limit > 0 {
		return l.cfg.Limit
	}
	limit, own := limits[name]
	if !own {
		limit = limits[""]
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.site != nil {
		limit = max(limit, l.site.MessageTimeout+afterTimeout)
	}
	return limit
}

// bounded keeps the first part of what is written to it. The buffer is not embedded: its ReadFrom, which a copy prefers, knows no bound.
type bounded struct {
	kept bytes.Buffer
	cut  bool
}

func (b *bounded) Write(p []byte) (int, error) {
	room := max(mostOutput-b.kept.Len(), 0)
	b.cut = b.cut || len(p) > room
	b.kept.Write(p[:min(len(p), room)])
	return len(p), nil
}

// find looks for a command on the PATH of the launcher's environment.
func (l *Launcher) find(name string) (string, error) {
	file, err := process.LookPath(name, "/", valueOf(l.cfg.Env, "PATH"))
	if err != nil {
		return "", fmt.Errorf("a command of Slurm is missing: %w. %s", err, howToGet())
	}
	return file, nil
}

// findAll looks for several commands. Those that are missing are told in one error: the folders and what to do are the same for all.
func (l *Launcher) findAll(names []string) error {
	var first error
	var others []string
	for _, name := range names {
		_, err := process.LookPath(name, "/", valueOf(l.cfg.Env, "PATH"))
		switch {
		case err != nil && first == nil:
			first = err
		case err != nil:
			others = append(others, strconv.Quote(name))
		}
	}
	switch {
	case first == nil:
		return nil
	case others == nil:
		return fmt.Errorf("a command of Slurm is missing: %w. %s", first, howToGet())
	default:
		return fmt.Errorf("commands of Slurm are missing: %w, nor %s. %s", first, strings.Join(others, ", "), howToGet())
	}
}

// HowToConfigure says what to do about an error that is Unconfigured.
const HowToConfigure = "Slurm's commands find no slurm.conf here: run this on a login node of the cluster, or let SLURM_CONF name that file; where it worked before, try again later"

// Unconfigured tells that a command of Slurm knows of no cluster, as on a laptop. A cluster without files of configuration (configless) whose
// controller is away looks the same.
func Unconfigured(err error) bool {
	return strings.Contains(err.Error(), "Could not establish a configuration source") || strings.Contains(err.Error(), "Unable to process configuration file")
}

// howToGet says what to do about a missing command.
func howToGet() string {
	text := "Run this on a login node of the cluster; where Slurm is a module there, load it first (module load slurm)"
	if runtime.GOOS == "linux" {
		text += `. A machine that belongs to the cluster gets it with "apt install slurm-client" or "dnf install slurm"`
	}
	return text
}

// Environment is what a batch system and its commands get of an environment: who the user is, where programs are, where the cluster is. Of a
// surrounding job nothing is left: Slurm's commands read its variables as options.
func Environment(env []string) []string {
	var kept []string
	for _, name := range []string{"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "SLURM_CONF", "SLURM_CLUSTERS"} {
		if v := valueOf(env, name); v != "" {
			kept = append(kept, name+"="+v)
		}
	}
	return kept
}

// valueOf is the value of a variable in an environment, the last one where there are several.
func valueOf(env []string, name string) string {
	for i := len(env) - 1; i >= 0; i-- {
		if v, ok := strings.CutPrefix(env[i], name+"="); ok {
			return v
		}
	}
	return ""
}
