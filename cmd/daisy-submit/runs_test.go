package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.org/daisy/internal/rundir"
)

// runsIn makes runs in a new folder, by their states, oldest first; "locked" is one that goes on, and "broken" one that the
// infrastructure ended.
func runsIn(t *testing.T, states ...string) (folder string, dirs map[string]string) {
	t.Helper()
	folder, dirs = t.TempDir(), map[string]string{}
	for i, state := range states {
		name := fmt.Sprintf("r%d", i)
		d, err := rundir.Create(folder, name, "")
		if err != nil {
			t.Fatal(err)
		}
		dirs[name] = d.Path()
		r := runFolder{d, t}
		about := fmt.Sprintf(`{"version":1,"run_id":"id%d","name":%q,"created":"2026-01-%02dT00:00:00Z"}`, i, name, i+1)
		r.write("run.json", about)
		if state == "locked" || state == "locked again" {
			if _, err := d.TryLock(); err != nil { // until this program ends
				t.Fatal(err)
			}
		}
		if state != "locked" && state != "killed" {
			if state == "locked again" {
				state = "failed"
			}
			status := exitIncomplete
			if state == "broken" {
				state, status = "failed", exitInfrastructure
			}
			r.write("stats.json", fmt.Sprintf(`{"version":1,"run":{"state":%q,"exit_status":%d},"tasks":[{"blocks":5,"success":2,"skipped":1}]}`, state, status))
		}
	}
	return folder, dirs
}

// listed is what runs --json says.
func listed(t *testing.T, wantStatus int, args ...string) (runList, string) {
	t.Helper()
	status, out, said := call(append([]string{"runs", "--json"}, args...)...)
	var l runList
	if err := json.Unmarshal([]byte(out), &l); err != nil || status != wantStatus {
		t.Fatalf("status %d, %v: %q\n%s", status, err, out, said)
	}
	return l, said
}

func removedOf(l runList) string {
	var names []string
	for _, r := range l.Runs {
		if _, err := os.Stat(r.Directory); (err != nil) != r.Removed {
			names = append(names, "but "+r.Name)
		}
		if r.Removed {
			names = append(names, r.Name)
		}
	}
	return strings.Join(names, " ")
}

func TestRunsAreListedWithWhereTheyStand(t *testing.T) {
	wantHelp(t, "runs", "0", "1", "2", "3")
	folder, _ := runsIn(t, "done", "killed", "locked", "interrupted", "locked again")
	if err := os.Mkdir(filepath.Join(folder, "no run"), 0o700); err != nil {
		t.Fatal(err)
	}
	l, _ := listed(t, exitOK, folder)
	var got []string
	for _, r := range l.Runs {
		done := "-"
		if r.Done != nil {
			done = fmt.Sprint(*r.Done, " of ", *r.Blocks)
		}
		got = append(got, r.Name+" "+r.State+" "+done)
		if bytes, files, err := sizeOf(r.Directory); err != nil || bytes != r.Bytes || files != r.Files || files < 3 || bytes < 2<<20 {
			t.Errorf("%s: %d bytes in %d files, want %d in %d (%v)", r.Name, r.Bytes, r.Files, bytes, files, err)
		}
	}
	want := []string{"r0 done 3 of 5", "r1 killed -", "r2 running -", "r3 interrupted 3 of 5", "r4 running -"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if _, text, _ := call("runs", folder); !strings.Contains(text, " interrupted ") || !strings.Contains(text, "3 of 5") || !strings.Contains(text, "MiB") {
		t.Errorf("got\n%s", text)
	}
}

func TestPruningTakesOnlyWhatHasEndedForGood(t *testing.T) {
	states := []string{"done", "killed", "locked", "failed", "done", "locked again", "stopped", "interrupted", "broken"}
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"all":           {nil, "r0 r3 r4"},
		"keep":          {[]string{"--keep", "2"}, "r0"},
		"keep all":      {[]string{"--keep", "9"}, ""},
		"unfinished":    {[]string{"--unfinished"}, "r0 r1 r3 r4 r6 r7 r8"},
		"young ones":    {[]string{"--older-than", "100000d"}, ""},
		"old ones":      {[]string{"--older-than", "1h"}, "r0 r3 r4"},
		"both together": {[]string{"--older-than", "1h", "--keep", "1", "--unfinished"}, "r0 r1 r3 r4 r6 r7"},
	} {
		folder, _ := runsIn(t, states...)
		l, said := listed(t, exitOK, append([]string{folder, "--prune", "--yes"}, c.args...)...)
		if got := removedOf(l); got != c.want {
			t.Errorf("%s: removed %q, want %q\n%s", name, got, c.want, said)
		}
		if (l.Freed > 0) != (c.want != "") {
			t.Errorf("%s: freed %d", name, l.Freed)
		}
		if left := strings.Contains(said, "left alone, as they can be resumed: 4 runs;"); left != !strings.Contains(strings.Join(c.args, " "), "unfinished") {
			t.Errorf("%s: speaks of what is left: %v\n%s", name, left, said)
		}
	}
}

func TestWhatIsCoordinatedIsNotRemovedWhateverItLooksLike(t *testing.T) {
	folder, dirs := runsIn(t, "done")
	dir, err := rundir.Open(dirs["r0"])
	if err != nil {
		t.Fatal(err)
	}
	lock, err := dir.TryLock()
	if err != nil {
		t.Fatal(err)
	}
	if err := remove(dir); err == nil || !strings.Contains(err.Error(), "it was left") {
		t.Errorf("got %v", err)
	}
	if err := lock.Unlock(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dirs["r0"]); err != nil {
		t.Fatal(err)
	}
	if err := remove(dir); err != nil {
		t.Error(err)
	}
	if entries, _ := os.ReadDir(folder); len(entries) != 0 {
		t.Errorf("the folder has %v", entries)
	}
}

func TestNothingIsRemovedWithoutBeingAsked(t *testing.T) {
	folder, dirs := runsIn(t, "done")
	status, _, said := call("runs", folder, "--prune")
	if status != exitUsage || !strings.Contains(said, "give --yes") {
		t.Errorf("status %d: %s", status, said)
	}
	if _, err := os.Stat(dirs["r0"]); err != nil {
		t.Error(err)
	}
	for name, args := range map[string][]string{
		"keep without prune": {folder, "--keep", "1"},
		"yes without prune":  {folder, "--yes"},
		"a bare number":      {folder, "--prune", "--older-than", "30"},
		"less than nothing":  {folder, "--prune", "--keep", "-1"},
		"a run":              {dirs["r0"]},
		"no folder":          {folder + "/nothing"},
	} {
		if status, _, said := call(append([]string{"runs"}, args...)...); status != exitUsage || said == "" {
			t.Errorf("%s: status %d, %s", name, status, said)
		}
	}
}

func TestADamagedRunHidesNoOther(t *testing.T) {
	folder, dirs := runsIn(t, "done", "done")
	if err := os.WriteFile(dirs["r0"]+"/run.json", []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	status, out, said := call("runs", folder)
	if status != exitInfrastructure || !strings.Contains(out, "r1") || !strings.Contains(said, "run.json cannot be read") {
		t.Errorf("status %d\n%s\n%s", status, out, said)
	}
}

func TestTheAgeOfARunIsThatOfItsStart(t *testing.T) {
	now := time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC)
	runs := []runRow{{State: "done", Started: now.Add(-49 * time.Hour)}, {State: "done", Started: now.Add(-47 * time.Hour)}}
	(&pruning{olderThan: 48 * time.Hour}).choose(runs, now)
	if !runs[0].chosen || runs[1].chosen {
		t.Errorf("got %+v", runs)
	}
}
