package local

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"example.org/daisy/internal/process"
	"example.org/daisy/launcher"
)

// strayBound limits the waiting for what a worker left behind; it has got SIGKILL, and only the system can keep it.
const strayBound = 2 * time.Second

// markVariable names the launcher and the worker in the environment of the worker and of all that it starts.
const markVariable = "DAISY_LAUNCH"

// These tell a worker who it is, and which devices it has. It does not hand the first two on to what it starts.
const tagVariable, elementVariable, gpusVariable = "DAISY_TAG", "DAISY_ELEMENT", "DAISY_GPUS"

// A worker is one process, or the wait for it.
type worker struct {
	launcher *Launcher
	name     launcher.Worker
	request  launcher.Request
	log      *os.File
	claim    *claim
	adopted  bool // its process is there from the beginning

	mu      sync.Mutex
	stopped chan struct{} // closed when told to leave before the start
	ours    bool
	process *process.Process
}

// worker makes a worker of a checked request, with its log file open.
func (l *Launcher) worker(r launcher.Request, name launcher.Worker) (*worker, error) {
	log, err := os.OpenFile(r.LogPath(name), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("log of worker %s: %w", name, err)
	}
	return &worker{launcher: l, name: name, request: r, log: log, stopped: make(chan struct{})}, nil
}

// run is the life of a worker, in a goroutine of its own, and tells all its statuses in order.
func (w *worker) run() {
	l := w.launcher
	end := w.live()
	if w.log != nil {
		w.log.Close()
	}
	l.gpus.giveBack(w.claim)
	l.mu.Lock()
	delete(l.workers, w.name)
	l.mu.Unlock()
	l.tell(launcher.Status{Worker: w.name, State: launcher.Ended, PID: w.pid(), End: end})
}

func (w *worker) live() launcher.End {
	if w.adopted {
		return w.watch(w.process)
	}
	select {
	case <-w.claim.granted:
	default:
		w.launcher.tell(launcher.Status{Worker: w.name, State: launcher.Pending})
		select {
		case <-w.claim.granted:
		case <-w.stopped:
		}
	}
	p, err := w.start()
	if err != nil {
		return launcher.End{Cause: launcher.NeverStarted, Detail: err.Error(), Ours: w.isOurs()}
	}
	if p == nil {
		return launcher.End{Cause: launcher.NeverStarted, Ours: true}
	}
	return w.watch(p)
}

// watch tells of a worker that runs, and waits for its end.
func (w *worker) watch(p *process.Process) launcher.End {
	w.launcher.tell(launcher.Status{Worker: w.name, State: launcher.Running, PID: p.PID()})
	end := endOf(p.Wait())
	end.Ours = w.isOurs()
	// Whatever ended the worker, nothing of it may go on writing into blocks that somebody else gets next.
	ctx, cancel := context.WithTimeout(context.Background(), strayBound)
	defer cancel()
	strays, err := p.EndStrays(ctx, 0)
	if err != nil {
		end.Detail = addDetail(end.Detail, err.Error())
	} else if len(strays) > 0 {
		end.Detail = addDetail(end.Detail, fmt.Sprintf("it left %d processes behind, which were ended", len(strays)))
	}
	return end
}

// start starts the process, or answers nil if the worker was told to leave before.
func (w *worker) start() (*process.Process, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ours {
		return nil, nil
	}
	mark := fmt.Sprintf("%s=%s.%s", markVariable, w.launcher.id, w.name)
	p, err := w.launcher.spawner.Start(process.Config{
		Argv: w.request.Argv, Env: w.environment(mark), Dir: w.request.Dir,
		Stdout: w.log, Stderr: w.log, Markers: []string{mark}, Outlives: true,
	})
	w.process = p
	return p, err
}

// environment is that of the request, with what the launcher adds.
func (w *worker) environment(mark string) []string {
	added := []string{mark, tagVariable + "=" + w.name.Tag, elementVariable + "=" + strconv.Itoa(w.name.Element)}
	if len(w.claim.devices) > 0 {
		added = append(added, gpusVariable+"="+strings.Join(w.claim.devices, ","))
	}
	env := make([]string, 0, len(w.request.Env)+len(added))
	for _, entry := range w.request.Env {
		switch name, _, _ := strings.Cut(entry, "="); name {
		case markVariable, tagVariable, elementVariable, gpusVariable: // of a worker further up
		default:
			env = append(env, entry)
		}
	}
	return append(env, added...)
}

// stop notes that the end is our doing. It gives the process, nil if there is none, and then there never will be.
func (w *worker) stop() *process.Process {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.process == nil && !w.ours {
		close(w.stopped)
	}
	w.ours = true
	return w.process
}

func (w *worker) isOurs() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ours
}

func (w *worker) pid() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.process == nil {
		return 0
	}
	return w.process.PID()
}

func endOf(r process.Result) launcher.End {
	end := launcher.End{Cause: launcher.Exited, Exit: r.Exit, CPU: r.CPU, PeakRSSBytes: r.PeakRSSBytes}
	switch {
	case r.Err != nil:
		end.Detail = r.Err.Error()
	case r.Signal != 0:
		end.Cause, end.Exit, end.Signal = launcher.Signalled, 0, int(r.Signal)
		switch r.Signal {
		case syscall.SIGILL:
			end.Detail = "illegal instruction: was the program built for another CPU?"
		case syscall.SIGXCPU:
			end.Detail = "limit of CPU time (ulimit -t)"
		}
	}
	return end
}

func addDetail(detail, more string) string {
	if detail == "" {
		return more
	}
	return detail + "; " + more
}
