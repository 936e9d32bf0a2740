package e2e

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"example.org/daisy/internal/api"
)

// eventsIn reads what "events --json" has printed.
func eventsIn(t testing.TB, stdout string) (events []api.Event) {
	t.Helper()
	for line := range strings.Lines(stdout) {
		var e api.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		events = append(events, e)
	}
	return events
}

// kindsOf are their words, without those that are not wanted.
func kindsOf(events []api.Event, but string) string {
	var words []string
	for i := range events {
		if events[i].Event != but {
			words = append(words, events[i].Event)
		}
	}
	return strings.Join(words, " ")
}

func TestTheEventsOfARunAreToldUntilItsEnd(t *testing.T) {
	t.Parallel()
	d := newDirector(t)
	dir, path := writeJob(t, job("resources = { cpu = 1 }", blocks("bad", 2)+shell("test {index} != 1")+"max_retries = 0\npriority = 1", blocks("work", 1)+d.code("command")))
	s := start(t, dir, "run", path, "--run-dir", "out")
	v := d.next()
	sofar := wantStatus(t, 0, dir, "events", "out").stdout
	wantText(t, sofar, "has joined for bad", "bad block 1: failed for good (worker 1.0)", ": exit status 1", "task bad has ended: done")
	if strings.Contains(sofar, "success") || strings.Contains(sofar, "the run has ended") {
		t.Error(sofar)
	}
	all, quiet := start(t, dir, "events", "out", "-f", "--all", "--json"), start(t, dir, "events", "out", "-f")
	all.stdout.await(t, `"event":"task_ended"`)
	quiet.stdout.await(t, "task bad has ended")
	wantStatus(t, 0, dir, "set", "out", "task.work.timeout=1h")
	v.ok()
	if r := s.wait(); r.status != 1 {
		t.Errorf("exit status %d", r.status)
	}
	r := all.wait()
	events := eventsIn(t, r.stdout)
	if got := kindsOf(events, api.EventNotice); r.status != 0 || !strings.HasSuffix(got, " set block task_ended worker_ended run_ended") {
		t.Errorf("status %d, %s", r.status, got)
	}
	last := events[len(events)-1]
	if last.Event != api.EventRunEnded || *last.State != "failed" {
		t.Errorf("%+v", last)
	}
	if r := quiet.wait(); r.status != 0 || strings.Contains(r.stdout, "success") || !strings.Contains(r.stdout, "the run has ended: failed") {
		t.Errorf("status %d\n%s", r.status, r.stdout)
	}
	wantText(t, wantStatus(t, 2, dir, "events", "out", "-f").stderr, "has ended (failed)")
}

func TestWhoFollowsARunGoesOnWithTheNextCoordinator(t *testing.T) {
	t.Parallel()
	d := newDirector(t)
	dir, path := writeJob(t, job("resources = { cpu = 1 }", blocks("work", 1)+d.code("command")))
	s := start(t, dir, "run", path, "--run-dir", "out")
	d.next()
	follower := start(t, dir, "events", "out", "-f", "--json")
	follower.stdout.await(t, api.EventWorkerJoined)
	killAll(t, s, dir)
	again := start(t, dir, "run", "--resume", "out")
	v := d.next()
	follower.stdout.await(t, api.EventMissed)
	v.ok()
	if r := again.wait(); r.status != 0 {
		t.Errorf("exit status %d", r.status)
	}
	r := follower.wait()
	events := eventsIn(t, r.stdout)
	if last := events[len(events)-1]; r.status != 0 || last.Event != api.EventRunEnded || *last.State != "done" || !strings.HasPrefix(last.ID, "2-") {
		t.Errorf("status %d, %+v", r.status, last)
	}
	if !strings.Contains(r.stdout, "was told by another coordinator of this run; this one is number 2") {
		t.Error(r.stdout)
	}
}

func TestOnlyWhoCanReadTheSecretSeesEvents(t *testing.T) {
	t.Parallel()
	d := newDirector(t)
	dir, path := writeJob(t, job("resources = { cpu = 1 }", blocks("work", 1)+d.code("command")))
	s := start(t, dir, "run", path, "--run-dir", "out")
	v := d.next()
	secret := readFile(t, dir+"/out/secret")
	if err := os.Chmod(dir+"/out/secret", 0o600); err != nil {
		t.Fatal(err)
	}
	writeFile(t, dir+"/out/secret", strings.Repeat("x", len(secret)))
	wantText(t, wantStatus(t, 3, dir, "events", "out").stderr, "does not prove that it is this run's coordinator")
	writeFile(t, dir+"/out/secret", secret)
	v.ok()
	if r := s.wait(); r.status != 0 {
		t.Errorf("exit status %d", r.status)
	}
}
