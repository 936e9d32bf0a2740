package worker

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"example.org/daisy/internal/api"
	"example.org/daisy/internal/daisywire"
	"example.org/daisy/internal/process"
)

// A Foreground is one block that runs before the eyes of its user, without a coordinator: its process belongs to the terminal,
// has no time limit, and what it writes goes where the user's own output goes.
type Foreground struct {
	Spec  api.TaskSpec
	Block int64 // in the grid of the task
	// Inherited is the environment of a worker, GPUs its devices.
	Inherited, GPUs []string
	// Stdin, if not nil, is the standard input of a worker script of daisy, and of a command in place of the block as JSON.
	Stdin          *os.File
	Stdout, Stderr io.Writer
}

// Run runs the block. The status is that of its process, 128 + N after signal N, and not 0 for a stream or a client of daisy that says failed; then
// the text says what is wrong. An error says that it could not be started.
func (f Foreground) Run() (status int, text string, err error) {
	t, err := NewTask(f.Spec)
	if err != nil {
		return 0, "", err
	}
	if f.Spec.GPUs > len(f.GPUs) {
		return 0, "", fmt.Errorf("task %q needs %d GPUs for a block, and there are %d here", f.Spec.ID, f.Spec.GPUs, len(f.GPUs))
	}
	b, ok := newBlock(t, uint64(f.Block), 1, 1, 1)
	if !ok {
		return 0, "", fmt.Errorf("task %q has no block %d", f.Spec.ID, f.Block)
	}
	at := place{runID: "run-block", runDir: f.Spec.RunDir, workerID: "run-block", gpus: f.GPUs[:f.Spec.GPUs], workerGPUs: len(f.GPUs)}
	env := slotEnvironment(f.Inherited, t, at)
	argv, line := f.Spec.Argv, append(b.appendJSON(nil), '\n')
	switch f.Spec.Runner {
	case runnerCommand:
		values := blockValues(&b)
		argv, env = placeholders(argv, &values, &at, f.Spec.ID), blockEnvironment(env, &values)
	case runnerStream:
		env = append(env, "DAISY_ANSWER_FD=3")
	case runnerDaisy:
		env = daisyEnvironment(env)
	case runnerPython:
		argv, line = pythonArgv(&f.Spec, pythonRuns), append([]byte(pythonProgram), line...)
		env = append(env, "DAISY_ANSWER_FD=3")
	default:
		return 0, "", fmt.Errorf("task %q has a runner %q, whose blocks cannot be run alone", f.Spec.ID, f.Spec.Runner)
	}
	if len(argv) == 0 {
		return 0, "", errors.New("the command is empty")
	}
	program, err := process.LookPath(argv[0], f.Spec.Dir, variable(env, "PATH"))
	if err != nil {
		return 0, "", err
	}
	cmd := exec.Command(program, argv[1:]...)
	if f.Spec.EnforceMemory {
		limit := process.MemoryLimit{AddressSpace: f.Spec.MemoryBytes}
		if all, err := process.OpenMemoryCgroups("/"); err == nil {
			cgroup, err := all.New(f.Spec.MemoryBytes)
			if err != nil {
				return 0, "", err
			}
			defer cgroup.Remove()
			limit = process.MemoryLimit{Cgroup: cgroup}
		}
		if cmd.Path, cmd.Args, err = process.Limited(cmd.Args, limit); err != nil {
			return 0, "", err
		}
	}
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = env, f.Spec.Dir, f.Stdout, f.Stderr
	switch f.Spec.Runner {
	case runnerDaisy:
		return f.daisy(cmd, &b, daisyNumber(at))
	case runnerStream, runnerPython:
		return f.stream(cmd, line, b.LeaseText())
	}
	cmd.Stdin = bytes.NewReader(line)
	if f.Stdin != nil {
		cmd.Stdin = f.Stdin
	}
	ended, err := begin(cmd)
	if err != nil {
		return 0, "", err
	}
	status, text = ended()
	return status, text, nil
}

// begin starts the process; the function that it gives waits for its end. Ctrl-C goes from the terminal to the process itself,
// which decides what it means; SIGTERM and SIGHUP are passed on.
func begin(cmd *exec.Cmd) (func() (int, string), error) {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGHUP)
	if err := cmd.Start(); err != nil {
		signal.Stop(signals)
		return nil, err
	}
	over, cancel := context.WithCancel(context.Background())
	passed := make(chan struct{})
	go func() {
		defer close(passed)
		for {
			select {
			case s := <-signals:
				if s == syscall.SIGTERM || s == syscall.SIGHUP {
					_ = cmd.Process.Signal(s) // whoever is gone needs none
				}
			case <-over.Done():
				return
			}
		}
	}()
	return func() (int, string) {
		err := cmd.Wait()
		cancel()
		<-passed
		signal.Stop(signals)
		return endOf(cmd.ProcessState, err)
	}, nil
}

// endOf is the exit status of a shell for a process, and what is to be said of it.
func endOf(p *os.ProcessState, err error) (int, string) {
	if w, ok := p.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return 128 + int(w.Signal()), fmt.Sprintf("ended by signal %d (%v)", w.Signal(), w.Signal())
	}
	if code := p.ExitCode(); code != 0 {
		return code, fmt.Sprintf("exit status %d", code)
	}
	if err != nil { // its output could not be written
		return 1, err.Error()
	}
	return 0, ""
}

// stream gives the process its one block, waits for the answer, and lets it end.
func (f Foreground) stream(cmd *exec.Cmd, line []byte, lease string) (int, string, error) {
	answers, write, err := os.Pipe()
	if err != nil {
		return 0, "", fmt.Errorf("make a pipe for the answers: %w", err)
	}
	defer answers.Close()
	cmd.ExtraFiles = []*os.File{write}
	in, err := cmd.StdinPipe()
	if err == nil {
		var ended func() (int, string)
		if ended, err = begin(cmd); err == nil {
			_ = write.Close()
			status, text := f.answered(cmd, in, bufio.NewReader(answers), line, lease, ended)
			return status, text, nil
		}
	}
	_ = write.Close()
	return 0, "", err
}

func (f Foreground) answered(cmd *exec.Cmd, in io.WriteCloser, answers *bufio.Reader, line []byte, lease string, ended func() (int, string)) (int, string) {
	_, _ = in.Write(line) // a process that does not read is judged by its answer and its end
	var raw []byte
	var err error
	for len(bytes.TrimSpace(raw)) == 0 && err == nil {
		raw, err = answers.ReadBytes('\n')
	}
	_ = in.Close()
	if len(bytes.TrimSpace(raw)) == 0 {
		status, text := ended()
		if text == "" {
			text = "exit status 0"
		}
		text = "the " + processName(f.Spec.Runner) + " ended without an answer: " + text
		if f.Spec.Runner == runnerStream {
			text += "; expected " + expectedAnswer + " on descriptor DAISY_ANSWER_FD"
		}
		return max(status, 1), text
	}
	var a answer
	err = json.Unmarshal(raw, &a)
	if err == nil && a.Import != "" {
		_, _ = ended()
		return 1, api.Printable(a.Import)
	}
	if err != nil || a.Lease == nil || a.OK == nil || *a.Lease != lease {
		_ = cmd.Process.Signal(syscall.SIGTERM) // what it waits for never comes
		_, _ = ended()
		return 1, fmt.Sprintf("the %s gave a wrong answer: %.200q; expected {\"lease\":%q,\"ok\":true} or {\"lease\":%q,\"ok\":false,\"error\":\"…\"}", processName(f.Spec.Runner), raw, lease, lease)
	}
	_, _ = ended()
	if *a.OK {
		return 0, ""
	}
	if a.Error = strings.TrimSpace(a.Error); a.Error == "" {
		a.Error = "failed without an error message"
	}
	return 1, api.Printable(a.Error)
}

// daisy gives a worker script of daisy its one block, and tells it that there are no more.
func (f Foreground) daisy(cmd *exec.Cmd, b *Block, number string) (int, string, error) {
	if !b.IDFits {
		return 0, "", errNoID
	}
	relay, err := newRelay(f.Spec.ID)
	if err != nil {
		return 0, "", err
	}
	defer relay.close()
	if f.Stdin != nil {
		cmd.Stdin = f.Stdin
	}
	cmd.Env = append(cmd.Env, relay.variable(number, f.Spec.ResourceTracking))
	ended, err := begin(cmd)
	if err != nil {
		return 0, "", err
	}
	pid := cmd.Process.Pid
	relay.serve(func(conn net.Conn) error { return process.CheckPeerOf(pid, conn) }, func(format string, args ...any) {
		fmt.Fprintf(f.Stderr, format+"\n", args...)
	})
	type end struct {
		status int
		text   string
	}
	over := make(chan end, 1)
	go func() { // ends with the process
		status, text := ended()
		over <- end{status, text}
	}()
	wrong := func(e end, text string) (int, string, error) {
		if e.text != "" {
			text += ": " + e.text
		}
		return max(e.status, 1), text, nil
	}
	select {
	case relay.offers <- grantOf(b):
	case e := <-over:
		return wrong(e, "the "+daisyName+" ended without asking for a block")
	case why := <-relay.dropped:
		_ = cmd.Process.Signal(syscall.SIGTERM) // what it waits for never comes
		<-over
		return 1, "the connection of the " + daisyName + " was dropped: " + why.Error(), nil
	}
	var got relayEnd
	var e end
	select {
	case got = <-relay.ends: // at the latest when its connection ends
		relay.noMore()
		e = <-over
	case e = <-over:
		select {
		case got = <-relay.ends:
		case <-time.After(lateAnswer):
			got.Outcome = daisywire.Lost
		}
	}
	switch {
	case got.Outcome == daisywire.Succeeded:
		return 0, "", nil
	case got.Outcome == daisywire.Broke && strings.TrimSpace(got.Error) != "":
		return 1, api.Printable(exceptionOf(strings.TrimSpace(got.Error))), nil
	case got.Outcome == daisywire.Broke:
		return 1, "the " + daisyName + " said that the block failed, and not why", nil
	}
	return wrong(e, "the "+daisyName+" ended without giving its block back")
}
