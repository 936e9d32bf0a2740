package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// through makes a shell of the command, which runs a script and becomes the program then.
func (s *submit) through(script string) {
	s.cmd.Args = append([]string{"sh", "-c", script + `; exec "$@"`, "sh", s.cmd.Path}, s.cmd.Args[1:]...)
	s.cmd.Path = "/bin/sh"
}

func TestAJobThatNeedsMoreOpenFilesThanAllowedIsRefusedAtTheStart(t *testing.T) {
	t.Parallel()
	dir, path := writeJob(t, job("resources = { cpu = 22 }", blocks("work", 22)+shell("touch ran")))
	for _, args := range [][]string{{"plan", path}, {"run", path, "--run-dir", "out"}} {
		s := prepare(t, dir, args...)
		s.through("ulimit -n 100")
		s.begin()
		r := s.wait()
		if r.status != 2 {
			t.Errorf("%s: exit status %d, want 2", args[0], r.status)
		}
		wantText(t, r.stderr, "22 workers at once needs 102 open files, and the limit is 100", "ulimit -n 103", "21 workers at most")
	}
	for _, name := range []string{"ran", "out"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			t.Errorf("there is %s", name)
		}
	}
}

func TestAsManyWorkersAndSlotsAsAreAllowedHaveFilesEnough(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ workers, slots int }{{21, 1}, {2, 8}} {
		for _, kind := range []string{"command", "stream"} {
			t.Run(fmt.Sprintf("%d workers, %d slots, %s", c.workers, c.slots, kind), func(t *testing.T) {
				t.Parallel()
				d := newDirector(t)
				n := c.workers * c.slots
				dir, path := writeJob(t, job(fmt.Sprintf("resources = { cpu = %d }\ntracking = \"marks\"", n), blocks("work", n)+fmt.Sprintf("slots = %d\n", c.slots)+d.code(kind, "E2E_LEAVE=session")))
				s := prepare(t, dir, "run", path, "--run-dir", "out")
				s.through("ulimit -n 100")
				s.begin()
				for _, v := range visitsOf(d, map[string]int{"ask": n, "sit": n})["ask"] { // all at once
					v.ok()
				}
				if r := s.wait(); r.status != 0 {
					t.Errorf("exit status %d", r.status)
				}
				wantCounts(t, statsOf(t, dir+"/out"), map[string]counts{"work": {State: "done", Blocks: int64(n), Success: int64(n), Processed: int64(n)}})
			})
		}
	}
}

func TestUserCodeHasTheLimitOfOpenFilesThatTheRunWasStartedWith(t *testing.T) {
	t.Parallel()
	dir, path := writeJob(t, job("resources = { cpu = 40 }", blocks("work", 40)+shell(`test "$(ulimit -Sn) $(ulimit -Hn)" = "100 400"`)))
	s := prepare(t, dir, "run", path, "--run-dir", "out")
	s.through("ulimit -Sn 100; ulimit -Hn 400")
	s.begin()
	if r := s.wait(); r.status != 0 {
		t.Errorf("exit status %d", r.status)
	}
}
