// Package launchertest is the conformance suite of launchers: what package launcher promises, tested on real processes, or on
// real goroutines.
package launchertest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.org/daisy/launcher"
)

// Options say what the launchers under test have.
type Options struct {
	// GPUs is how many devices they give out; the tests about GPUs need 2.
	GPUs int
	// Goroutines: the workers are no processes but calls of Goroutine. What only a process can have is skipped, with the reason.
	Goroutines bool
	// Batch: a batch system starts the workers. It adds variables of its own to their environment, numbers the devices of each node by
	// themselves (NodeVariable names the node), and of an end it tells only whether it was a success, a failure or a cancellation.
	Batch        bool
	NodeVariable string
	// Dir makes the folder of a test; nil = t.TempDir.
	Dir func(*testing.T) string
	// Program is the test's own program, which runs the workers; "" = where it is.
	Program string
}

// Run tests launchers that open makes, a fresh one for each test. The package's TestMain must call Main, unless the workers
// are goroutines.
func Run(t *testing.T, open func(*testing.T) launcher.Launcher, o Options) {
	for _, test := range []struct {
		name string
		run  func(*bench)
		// lacks is why a goroutine cannot keep the promise, "" if it can.
		lacks string
	}{
		{"ArgvAndEnvironmentArriveByteForByte", argvAndEnvironment, "it has no arguments and no environment of its own"},
		{"AWorkerRunsInItsFolderAndAppendsToItsLog", folderAndLog, "it has no folder and no output of its own"},
		{"EveryElementKnowsItsTagAndNumber", elements, ""},
		{"NothingIsToldBeforeSubmitAndEveryStateOnceInOrder", statuses, ""},
		{"TheExitStatusIsTold", exitStatus, ""},
		{"TheSignalIsTold", signalNumber, "no signal ends it alone"},
		{"CancelTellsAWorkerToLeave", cancelRunning, ""},
		{"AWorkerCancelledBeforeItsStartNeverStarts", cancelPending, "it starts at once: it has nothing to wait for"},
		{"CancelAndKillIgnoreUnknownAndEndedWorkers", unknownWorkers, ""},
		{"KillEndsAWorkerThatIgnoresTERMWithDetachedChildren", killStubborn, "one that ignores its context cannot be ended"},
		{"KillEndsAStoppedWorker", killStopped, "it cannot be stopped alone"},
		{"WhatAWorkerLeavesBehindIsGoneBeforeItsEndIsTold", strays, "what it starts are children of the coordinator"},
		{"GPUsAreGivenToOneWorkerAtATime", gpus, "it has no environment that could name its GPUs"},
		{"ARefusedRequestStartsNothing", refusals, ""},
		{"CloseEndsEverything", closeAll, ""},
		{"ManyAtOnceEndOnceEach", concurrency, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			if o.Batch && strings.HasPrefix(test.name, "WhatAWorkerLeavesBehind") {
				t.Skip("the tracking of processes is the site's; a worker ends what user code left behind by itself")
			}
			if o.Goroutines && test.lacks != "" {
				t.Skip("a goroutine cannot: " + test.lacks)
			}
			b := &bench{T: t, options: o, desk: openDesk(t), record: newRecord(), launcher: open(t), dir: o.folder(t)}
			b.launcher.Watch(b.record.watch)
			t.Cleanup(func() {
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				defer cancel()
				if err := b.launcher.Close(ctx); err != nil {
					t.Errorf("Close: %v", err)
				}
			})
			test.run(b)
		})
	}
}

func (o Options) folder(t *testing.T) string {
	if o.Dir != nil {
		return o.Dir(t)
	}
	return t.TempDir()
}

// A bench is one test at work.
type bench struct {
	*testing.T
	options  Options
	desk     *desk
	record   *record
	launcher launcher.Launcher
	dir      string
}

// request asks for workers of the suite.
func (b *bench) request(tag string, count int, args ...string) launcher.Request {
	self := b.options.Program
	if self == "" {
		var err error
		if self, err = os.Executable(); err != nil {
			b.Fatal(err)
		}
	}
	return launcher.Request{
		Tag: tag, Count: count, Dir: b.dir, CPUMilli: 1000,
		Argv:    append([]string{self, program, b.desk.address(), "worker"}, args...),
		Env:     []string{"PATH=/usr/bin:/bin", "GORACE=atexit_sleep_ms=0"}, // a race detector must not delay exits
		LogPath: func(w launcher.Worker) string { return filepath.Join(b.dir, w.String()+".log") },
	}
}

func (b *bench) submit(r launcher.Request) {
	b.Helper()
	if _, err := b.launcher.Submit(b.Context(), r); err != nil {
		b.Fatalf("Submit: %v", err)
	}
}

// start submits one worker and waits until it reports.
func (b *bench) start(tag string) (launcher.Worker, *station) {
	b.Helper()
	b.submit(b.request(tag, 1))
	return launcher.Worker{Tag: tag}, b.desk.next(b.T)
}

// ended waits for the end and compares what is certain about it.
func (b *bench) ended(w launcher.Worker, want launcher.End) {
	b.Helper()
	got := b.record.await(b.T, w, launcher.Ended).End
	got.CPU, got.PeakRSSBytes, got.Detail = 0, 0, ""
	if b.options.Batch {
		want, got = coarse(want), coarse(got)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		b.Fatalf("end of %s (-want +got):\n%s", w, diff)
	}
}

// coarse is what a batch system tells of an end.
func coarse(e launcher.End) launcher.End {
	if e.Ours && (e.Cause == launcher.Signalled || e.Cause == launcher.NeverStarted) {
		e.Cause, e.Signal = launcher.Cancelled, 0
	} else if e.Cause == launcher.Signalled || e.Cause == launcher.Exited && e.Exit != 0 {
		e.Cause, e.Exit, e.Signal = launcher.Exited, 1, 0
	}
	return e
}

// value is the value of a variable in what a worker was given.
func (s *station) value(name string) (string, bool) {
	for _, entry := range s.Env {
		if v, ok := strings.CutPrefix(string(entry), name+"="); ok {
			return v, true
		}
	}
	return "", false
}

func argvAndEnvironment(b *bench) {
	strange := []string{"", " ", "a b", "line\nline", `"quoted" 'too' \ $HOME`, "größe 体積", "\xff\xfe", "-x", "*"}
	r := b.request("1", 1, strange...)
	for i, s := range strange {
		r.Env = append(r.Env, fmt.Sprintf("V%d=%s", i, s))
	}
	r.Env = append(r.Env, "lower.case=1", "DAISY_TAG=of another", "DAISY_GPUS=of another")
	b.submit(r)
	got := b.desk.next(b.T)
	if diff := cmp.Diff(bytesOf(r.Argv), got.Args); diff != "" {
		b.Errorf("argv (-want +got):\n%s", diff)
	}
	given := func(list [][]byte) [][]byte {
		return slices.DeleteFunc(slices.Clone(list), func(e []byte) bool { return bytes.HasPrefix(e, []byte("DAISY_")) })
	}
	if b.options.Batch { // which adds variables, in an order of its own
		for _, entry := range given(bytesOf(r.Env)) {
			if !slices.ContainsFunc(got.Env, func(e []byte) bool { return bytes.Equal(e, entry) }) {
				b.Errorf("the environment lacks %q", entry)
			}
		}
	} else if diff := cmp.Diff(given(bytesOf(r.Env)), given(got.Env)); diff != "" {
		b.Errorf("environment without what the launcher adds (-want +got):\n%s", diff)
	}
	if tag, _ := got.value("DAISY_TAG"); tag != "1" {
		b.Errorf("DAISY_TAG = %q, want the submission's", tag)
	}
	if gpus, there := got.value("DAISY_GPUS"); there {
		b.Errorf("DAISY_GPUS = %q for a worker without GPUs", gpus)
	}
}

func folderAndLog(b *bench) {
	log := filepath.Join(b.dir, "1.0.log")
	if err := os.WriteFile(log, []byte("before\n"), 0o600); err != nil {
		b.Fatal(err)
	}
	if err := os.Chmod(log, 0o666); err != nil { // workers may be another user's
		b.Fatal(err)
	}
	w, s := b.start("1")
	want, err := filepath.EvalSymlinks(b.dir)
	if err != nil {
		b.Fatal(err)
	}
	if got, _ := filepath.EvalSymlinks(s.Dir); got != want {
		b.Errorf("working directory %q, want %q", got, want)
	}
	s.do(b.T, order{Do: "print", Text: "said\n"})
	s.send(b.T, order{Do: "exit"})
	b.ended(w, launcher.End{})
	got, err := os.ReadFile(log)
	if err != nil {
		b.Fatal(err)
	}
	if want := "before\nsaid\nsaid\n"; string(got) != want {
		b.Errorf("log %q, want %q", got, want)
	}
}

func elements(b *bench) {
	b.submit(b.request("7", 3))
	var got []string
	for range 3 {
		s := b.desk.next(b.T)
		tag, _ := s.value("DAISY_TAG")
		element, _ := s.value("DAISY_ELEMENT")
		got = append(got, tag+"."+element)
	}
	slices.Sort(got)
	if diff := cmp.Diff([]string{"7.0", "7.1", "7.2"}, got); diff != "" {
		b.Errorf("workers (-want +got):\n%s", diff)
	}
}

func statuses(b *bench) {
	if err := b.launcher.Check(b.Context()); err != nil {
		b.Fatalf("Check: %v", err)
	}
	if n := b.record.count(); n != 0 {
		b.Errorf("%d statuses before Submit", n)
	}
	w, s := b.start("1")
	if got := b.record.await(b.T, w, launcher.Running); got.Node == "" || b.launcher.Properties().Local && got.PID != s.PID {
		b.Errorf("running as %+v, want a node and process %d", got, s.PID)
	}
	s.send(b.T, order{Do: "exit"})
	b.record.await(b.T, w, launcher.Ended)
	b.close()
	b.inOrder(w)
}

// inOrder: never back, and one end, which is the last.
func (b *bench) inOrder(w launcher.Worker) {
	b.Helper()
	list, _ := b.record.of(w)
	last := launcher.Unknown
	for _, s := range list {
		if s.State <= last {
			b.Errorf("statuses of %s out of order: %+v", w, list)
			return
		}
		last = s.State
	}
	if last != launcher.Ended {
		b.Errorf("the last status of %s is no end: %+v", w, list)
	}
}

func (b *bench) close() {
	b.Helper()
	if err := b.launcher.Close(b.Context()); err != nil {
		b.Errorf("Close: %v", err)
	}
}

func exitStatus(b *bench) {
	all := []int{0, 1, 127, 255}
	if b.options.Goroutines { // it returns an error or none
		all = all[:2]
	}
	for i, status := range all {
		w, s := b.start(fmt.Sprint(i))
		s.send(b.T, order{Do: "exit", N: status})
		b.ended(w, launcher.End{Cause: launcher.Exited, Exit: status})
	}
}

func signalNumber(b *bench) {
	for i, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		w, s := b.start(fmt.Sprint(i))
		s.send(b.T, order{Do: "signal", N: int(sig)})
		b.ended(w, launcher.End{Cause: launcher.Signalled, Signal: int(sig)})
	}
}

func cancelRunning(b *bench) {
	w, s := b.start("1")
	if err := b.launcher.Cancel(b.Context(), w); err != nil {
		b.Fatalf("Cancel: %v", err)
	}
	s.gone(b.T)
	end := launcher.End{Cause: launcher.Signalled, Signal: int(syscall.SIGTERM), Ours: true}
	if b.options.Goroutines {
		end = launcher.End{Cause: launcher.Exited, Ours: true}
	}
	b.ended(w, end)
}

func cancelPending(b *bench) {
	b.needGPUs()
	all := b.request("1", 1)
	all.GPUs = b.options.GPUs
	b.submit(all)
	holder := b.desk.next(b.T)
	waiting := b.request("2", 2)
	waiting.GPUs = 1
	b.submit(waiting)
	first, second := launcher.Worker{Tag: "2"}, launcher.Worker{Tag: "2", Element: 1}
	b.record.await(b.T, first, launcher.Pending)
	b.record.await(b.T, second, launcher.Pending)
	if err := b.launcher.Cancel(b.Context(), first); err != nil {
		b.Fatalf("Cancel: %v", err)
	}
	if err := b.launcher.Kill(b.Context(), second); err != nil {
		b.Fatalf("Kill: %v", err)
	}
	b.ended(first, launcher.End{Cause: launcher.NeverStarted, Ours: true})
	b.ended(second, launcher.End{Cause: launcher.NeverStarted, Ours: true})
	holder.send(b.T, order{Do: "exit"})
	b.ended(launcher.Worker{Tag: "1"}, launcher.End{})
	b.inOrder(first)
	b.inOrder(second)
	if n := len(b.desk.arrivals); n != 0 {
		b.Errorf("%d cancelled workers started", n)
	}
}

func unknownWorkers(b *bench) {
	w, s := b.start("1")
	s.send(b.T, order{Do: "exit"})
	b.ended(w, launcher.End{})
	for _, call := range []func(context.Context, ...launcher.Worker) error{b.launcher.Cancel, b.launcher.Kill} {
		if err := call(b.Context(), w, launcher.Worker{Tag: "nobody"}); err != nil {
			b.Error(err)
		}
	}
	b.close()
	b.inOrder(w)
}

func killStubborn(b *bench) {
	w, s := b.start("1")
	s.do(b.T, order{Do: "ignore TERM"})
	s.do(b.T, order{Do: "spawn", Text: "child"})
	child := b.desk.next(b.T)
	child.do(b.T, order{Do: "ignore TERM"})
	child.do(b.T, order{Do: "spawn", Text: "grandchild"})
	grandchild := b.desk.next(b.T)
	child.do(b.T, order{Do: "spawn", Text: "orphan"})
	orphan := b.desk.next(b.T)
	child.do(b.T, order{Do: "spawn", Text: "between"})
	between := b.desk.next(b.T)
	between.do(b.T, order{Do: "spawn", Text: "orphan of a dead one"})
	orphaned := b.desk.next(b.T)
	between.send(b.T, order{Do: "exit"})
	between.gone(b.T)
	if err := b.launcher.Kill(b.Context(), w); err != nil {
		b.Fatalf("Kill: %v", err)
	}
	b.ended(w, launcher.End{Cause: launcher.Signalled, Signal: int(syscall.SIGKILL), Ours: true})
	all := []*station{s, child, grandchild, orphan, orphaned}
	if b.options.Batch {
		all = all[:1]
	}
	for _, each := range all {
		each.gone(b.T)
	}
}

func killStopped(b *bench) {
	if !b.launcher.Properties().Local {
		return // its processes are out of the test's reach
	}
	w, s := b.start("1")
	s.do(b.T, order{Do: "spawn", Text: "child"})
	child := b.desk.next(b.T)
	if err := syscall.Kill(s.PID, syscall.SIGSTOP); err != nil {
		b.Fatal(err)
	}
	if err := b.launcher.Kill(b.Context(), w); err != nil {
		b.Fatalf("Kill: %v", err)
	}
	b.ended(w, launcher.End{Cause: launcher.Signalled, Signal: int(syscall.SIGKILL), Ours: true})
	child.gone(b.T)
}

func strays(b *bench) {
	for i, last := range []order{{Do: "exit"}, {Do: "signal", N: int(syscall.SIGKILL)}} {
		w, s := b.start(fmt.Sprint(i))
		s.do(b.T, order{Do: "spawn", Text: "stray"})
		stray := b.desk.next(b.T)
		stray.do(b.T, order{Do: "ignore TERM"})
		s.send(b.T, last)
		if end := b.record.await(b.T, w, launcher.Ended).End; end.Ours {
			b.Errorf("the end after %s is called ours", last.Do)
		}
		stray.gone(b.T)
	}
}

// needGPUs: a launcher without GPUs cannot be tested for them, and a suite that then passes in silence says nothing.
func (b *bench) needGPUs() {
	b.Helper()
	if b.options.GPUs < 2 {
		b.Fatalf("the suite needs a launcher with at least 2 GPUs (names are enough), Options.GPUs is %d", b.options.GPUs)
	}
}

func gpus(b *bench) {
	b.needGPUs()
	r := b.request("1", b.options.GPUs+1)
	r.GPUs = 1
	b.submit(r)
	holders := map[string]*station{}
	hold := func() {
		s := b.desk.next(b.T)
		device, _ := s.value("DAISY_GPUS")
		if node, ok := s.value(b.options.NodeVariable); ok && device != "" {
			device = node + " " + device
		}
		if device == "" || strings.Contains(device, ",") || holders[device] != nil {
			b.Fatalf("DAISY_GPUS = %q, want one device that nobody has of %d held", device, len(holders))
		}
		holders[device] = s
	}
	for range b.options.GPUs {
		hold()
	}
	for device, s := range holders { // one is given back, and the one that waits gets it
		delete(holders, device)
		s.send(b.T, order{Do: "exit"})
		break
	}
	hold()
	for _, s := range holders {
		s.send(b.T, order{Do: "exit"})
	}
	for i := range r.Count {
		b.ended(launcher.Worker{Tag: "1", Element: i}, launcher.End{})
	}
	both := b.request("2", 1)
	both.GPUs = 2
	b.submit(both)
	s := b.desk.next(b.T)
	if list, _ := s.value("DAISY_GPUS"); len(strings.Split(list, ",")) != 2 {
		b.Errorf("DAISY_GPUS = %q, want two devices", list)
	}
}

func refusals(b *bench) {
	good := func(tag string) launcher.Request { return b.request(tag, 2) }
	b.submit(good("taken"))
	for range 2 {
		b.desk.next(b.T)
	}
	type refused struct {
		says   string
		change func(*launcher.Request)
	}
	all := []refused{
		{"taken", func(r *launcher.Request) { r.Tag = "taken" }},
		{"0 workers", func(r *launcher.Request) { r.Count = 0 }},
	}
	ofProcesses := []refused{
		{"/no/such/program", func(r *launcher.Request) { r.Argv = []string{"/no/such/program"} }},
		{"program", func(r *launcher.Request) { r.Argv = nil }},
		{"folder", func(r *launcher.Request) { r.Argv = []string{b.dir} }},
		{"/no/such/folder", func(r *launcher.Request) { r.Dir = "/no/such/folder" }},
		{"/no/such/logs", func(r *launcher.Request) { r.LogPath = func(launcher.Worker) string { return "/no/such/logs/1.log" } }},
		{"zero byte", func(r *launcher.Request) { r.Env = []string{"A=\x00"} }},
		{"GPUs", func(r *launcher.Request) { r.GPUs = b.options.GPUs + 1 }},
	}
	if !b.options.Goroutines {
		all = append(all, ofProcesses...)
	}
	for _, test := range all {
		r := good("bad")
		test.change(&r)
		if _, err := b.launcher.Submit(b.Context(), r); err == nil || !strings.Contains(err.Error(), test.says) {
			b.Errorf("Submit: error %v, want one about %q", err, test.says)
		}
	}
	cancelled, cancel := context.WithCancel(b.Context())
	cancel()
	if _, err := b.launcher.Submit(cancelled, good("bad")); err == nil {
		b.Error("Submit with a cancelled context is no error")
	}
	if list, _ := b.record.of(launcher.Worker{Tag: "bad"}); len(list) != 0 {
		b.Errorf("a refused worker has statuses: %+v", list)
	}
	b.submit(good("bad")) // the tag of a refused request is not used up
	for range 2 {
		b.desk.next(b.T)
	}
	b.close()
	if n := len(b.desk.arrivals); n != 0 {
		b.Errorf("%d workers of refused requests started", n)
	}
}

func closeAll(b *bench) {
	b.submit(b.request("1", 3))
	var all []*station
	for range 3 {
		s := b.desk.next(b.T)
		all = append(all, s)
		if !b.options.Goroutines {
			s.do(b.T, order{Do: "ignore TERM"})
			s.do(b.T, order{Do: "spawn", Text: "child"})
			all = append(all, b.desk.next(b.T))
		}
	}
	b.close()
	for i := range 3 {
		w := launcher.Worker{Tag: "1", Element: i}
		list, _ := b.record.of(w)
		if len(list) == 0 || list[len(list)-1].State != launcher.Ended || !list[len(list)-1].End.Ours {
			b.Errorf("after Close the statuses of %s are %+v, want an end of our doing", w, list)
		}
		b.inOrder(w)
	}
	for _, s := range all {
		if s.Role == "worker" || !b.options.Batch {
			s.gone(b.T)
		}
	}
	if _, err := b.launcher.Submit(b.Context(), b.request("2", 1)); err == nil {
		b.Error("Submit after Close is no error")
	}
	b.close() // again
}

func concurrency(b *bench) {
	const submissions, each = 6, 3
	var submitting sync.WaitGroup
	for i := range submissions {
		submitting.Go(func() {
			r := b.request(fmt.Sprint(i), each)
			if _, err := b.launcher.Submit(b.Context(), r); err != nil {
				b.Errorf("Submit: %v", err)
				return
			}
			for e := range each {
				w := launcher.Worker{Tag: r.Tag, Element: e}
				var err error
				switch (i + e) % 3 {
				case 0:
					err = b.launcher.Cancel(b.Context(), w)
				case 1:
					err = b.launcher.Kill(b.Context(), w)
				default: // left to Close
				}
				if err != nil {
					b.Errorf("worker %s: %v", w, err)
				}
			}
		})
	}
	submitting.Wait()
	b.close()
	for i := range submissions {
		for e := range each {
			b.inOrder(launcher.Worker{Tag: fmt.Sprint(i), Element: e})
		}
	}
}
