//go:build linux

package e2e

import (
	"fmt"
	"path/filepath"
	"syscall"
	"testing"
)

// A batch system that ends a job, or warns it, signals all of its processes at once, and which of them ends first is chance.
func TestASignalToAllProcessesOfAJobBlamesNoBlock(t *testing.T) {
	t.Parallel()
	const (
		command = `{ command = ["/bin/sh", "-c", %s] }`
		stream  = `{ stream = ["/bin/sh", "-c", %s] }`
	)
	// Whoever runs a block for the first time is what the signals meet; after that all is well.
	const commandLine = `[ "$DAISY_ATTEMPT" = 2 ] && exit; [ "$DAISY_BLOCK_INDEX" = 1 ] && exit; echo $$ $PPID. > pids; exec sleep 1000`
	const streamLine = `while read line; do [ -s pids ] || { echo $$ $PPID. > pids; exec sleep 1000; }; lease=${line##*\"lease\":\"}; echo "{\"lease\":\"${lease%%\"*}\",\"ok\":true}" >&3; done`
	for name, c := range map[string]struct {
		toCode, toWorker syscall.Signal
		codeFirst        bool
		stays            bool
	}{
		"TERM, and user code ends before its worker is told":  {syscall.SIGTERM, syscall.SIGTERM, true, false},
		"TERM, and user code ends after its worker was told":  {syscall.SIGTERM, syscall.SIGTERM, false, false},
		"XCPU of user code before its worker is told":         {syscall.SIGXCPU, syscall.SIGTERM, true, false},
		"KILL of user code before its worker is told":         {syscall.SIGKILL, syscall.SIGTERM, true, false},
		"a warning that user code does not expect":            {syscall.SIGUSR1, syscall.SIGUSR1, true, true},
		"a warning that user code gets later than its worker": {syscall.SIGUSR1, syscall.SIGUSR1, false, true},
	} {
		for kind, code := range map[string]string{"command": fmt.Sprintf(command, quote(commandLine)), "stream": fmt.Sprintf(stream, quote(streamLine))} {
			t.Run(name+", "+kind, func(t *testing.T) {
				t.Parallel()
				dir, path := writeJob(t, job("resources = { cpu = 1 }", blocks("work", 2)+"max_retries = 0\nrun = "+code+"\n"))
				writeFile(t, filepath.Join(dir, "pids"), "")
				s := start(t, dir, "run", path, "--run-dir", "out")
				var child, worker int
				if _, err := fmt.Sscan(awaitFile(t, filepath.Join(dir, "pids"), "."), &child, &worker); err != nil {
					t.Fatal(err)
				}
				if c.codeFirst {
					kill(t, child, c.toCode)
					awaitProcessEnd(t, child)
					kill(t, worker, c.toWorker)
				} else {
					kill(t, worker, c.toWorker)
					kill(t, child, c.toCode)
				}
				if r := s.wait(); r.status != 0 {
					t.Fatalf("exit status %d:\n%s", r.status, r.all())
				}
				stats := statsOf(t, dir+"/out")
				wantCounts(t, stats, map[string]counts{"work": {State: "done", Blocks: 2, Success: 2, Processed: 2, Returned: 1}})
				want := 2
				if c.stays {
					want = 1
				}
				if len(stats.Workers) != want {
					t.Errorf("%d workers: %+v", len(stats.Workers), stats.Workers)
				}
			})
		}
	}
}
