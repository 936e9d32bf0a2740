//go:build linux

package e2e

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// jobOfTwo is a job for two workers, one of which is started by hand: the block of "first", which the launched one has, and then one of "work" for
// each.
func jobOfTwo(d *director, run string) string {
	return job("resources = { cpu = 2 }\n"+run, "id = \"first\"\ntotal = { offset = [0], shape = [2] }\nblock = { shape = [2] }\n"+d.code("command"),
		blocks("work", 2)+d.code("command")+"after = [\"first\"]\n")
}

// A helper is a worker that somebody has started by hand.
type helper struct {
	*exec.Cmd
	said *transcript
}

// aHelper starts one for the run in dir/out, and waits until it serves a task. What is to be done with its command before that, before does.
func aHelper(t testing.TB, dir string, before ...func(*exec.Cmd)) *helper {
	t.Helper()
	h := &helper{exec.Command(filepath.Join(bin, "daisy-worker"), "--run-dir", dir+"/out", "--name", "helper"), newTranscript()}
	h.Stdout, h.Stderr = h.said, h.said
	for _, f := range before {
		f(h.Cmd)
	}
	if err := h.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Process.Kill() })
	h.said.await(t, "serves task")
	return h
}

// share ends the first block, and returns those that the launched worker and the helper have then.
func (h *helper) share(t testing.TB, d *director, first *visit) (launched, helped *visit) {
	t.Helper()
	first.ok()
	launched, helped = d.next(), d.next()
	if launched.Worker == "helper" {
		launched, helped = helped, launched
	}
	if helped.Worker != "helper" || launched.Worker == "helper" {
		t.Fatalf("workers %s and %s have the blocks", launched.Worker, helped.Worker)
	}
	return launched, helped
}
