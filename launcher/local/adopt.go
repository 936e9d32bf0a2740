package local

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"example.org/daisy/internal/process"
	"example.org/daisy/launcher"
)

// Adopt takes over the workers that the local launcher of another process has left. Whoever is one says so in its environment.
func (l *Launcher) Adopt(ctx context.Context, mark string, known func(launcher.Worker) bool) (adopted []launcher.Worker, ended fmt.Stringer, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.prepare(); err != nil {
		return nil, nil, err
	}
	found, err := process.Marked([]string{mark})
	if err != nil {
		return nil, nil, fmt.Errorf("take over the workers that are left: %w", err)
	}
	var spared []string
	for _, f := range found {
		name, launch, ok := nameOf(&f)
		// The oldest of a name: what a worker is about to start carries all that it carries itself, until it is started.
		if !ok || l.workers[name] != nil || !known(name) {
			continue
		}
		p, err := l.spawner.Take(f, []string{launch})
		if err != nil {
			return nil, nil, err
		}
		if p == nil {
			continue
		}
		w := &worker{launcher: l, name: name, adopted: true, process: p, stopped: make(chan struct{})}
		gpus, _ := f.Env(gpusVariable)
		w.claim = l.gpus.claimed(strings.Split(gpus, ","))
		l.workers[name], l.tags[name.Tag] = w, true
		spared = append(spared, launch)
		adopted = append(adopted, name)
	}
	left, err := process.EndMarked(ctx, []string{mark}, spared, 0)
	for _, name := range adopted {
		l.running.Go(l.workers[name].run)
	}
	if err != nil {
		return adopted, nil, fmt.Errorf("what was left beside workers: %w", err)
	}
	if len(left) > 0 {
		ended = left
	}
	return adopted, ended, nil
}

// Release gives the workers up to the launcher of another process.
func (l *Launcher) Release() {
	l.mu.Lock()
	l.closed, l.released = true, true
	workers := slices.Collect(maps.Values(l.workers))
	l.mu.Unlock()
	for _, w := range workers {
		if w.pid() == 0 {
			w.stop()
		}
	}
}

// nameOf is the worker that a process is, and the entry of its environment that it shares with all that it has started; false for a
// process that is no worker.
func nameOf(f *process.Found) (name launcher.Worker, launch string, ok bool) {
	tag, isWorker := f.Env(tagVariable)
	text, _ := f.Env(elementVariable)
	element, err := strconv.Atoi(text)
	launch, marked := f.Env(markVariable)
	name = launcher.Worker{Tag: tag, Element: element}
	return name, markVariable + "=" + launch, isWorker && err == nil && marked && strings.HasSuffix(launch, "."+name.String())
}
