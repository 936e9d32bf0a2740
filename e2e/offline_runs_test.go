//go:build linux

package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

func TestOldRunsAreRemovedWhenTheUserSaysYesAndOneThatGoesOnIsNot(t *testing.T) {
	t.Parallel()
	d := newDirector(t)
	dir, path := writeJob(t, job("", blocks("work", 1)+d.code("command")))
	s := start(t, dir, "run", path)
	d.next().ok()
	s.wait()
	going := start(t, dir, "run", path, "--set", "run.name=second")
	block := d.next()

	answer := func(keys string) result {
		t.Helper()
		p := prepare(t, dir, "runs", "--prune")
		term := openTerminal(t, p)
		p.begin()
		term.screen.await(t, "[y/N]")
		wantText(t, term.screen.String(), "1 run, which frees", "job-")
		term.write(keys + "\n")
		return p.wait()
	}
	if r := answer("n"); r.status != 1 {
		t.Errorf("status %d", r.status)
	}
	if left, _ := filepath.Glob(dir + "/runs/*-*"); len(left) != 2 {
		t.Errorf("there are %v", left)
	}
	if r := answer("y"); r.status != 0 {
		t.Errorf("status %d", r.status)
	}
	var list struct {
		Runs []struct {
			Name, State string
			Done        *int64
		}
	}
	runs := func() {
		t.Helper()
		if err := json.Unmarshal([]byte(wantStatus(t, 0, dir, "runs", "--json").stdout), &list); err != nil {
			t.Fatal(err)
		}
	}
	if runs(); len(list.Runs) != 1 || list.Runs[0].Name != "second" || list.Runs[0].State != "running" || list.Runs[0].Done == nil || *list.Runs[0].Done != 0 {
		t.Errorf("got %+v", list)
	}
	block.ok()
	going.wait()
	if runs(); len(list.Runs) != 1 || list.Runs[0].State != "done" || *list.Runs[0].Done != 1 {
		t.Errorf("got %+v", list)
	}
	wantStatus(t, 0, dir, "runs", "--prune", "--yes")
	if entries, err := os.ReadDir(dir + "/runs"); err != nil || len(entries) != 0 {
		t.Errorf("there are %v, %v", entries, err)
	}
}
