package e2e

import (
	"strings"
	"testing"
)

func TestResetForgetsATaskAndWhatWasMadeFromIt(t *testing.T) {
	t.Parallel()
	note := func(id string) string { return shell("echo " + id + " >> ran") }
	dir, path := writeJob(t, job("tracking = \"tracking\"",
		blocks("raw", 2)+note("raw"), blocks("made", 2)+note("made")+`after = ["raw"]`, blocks("apart", 2)+note("apart"), blocks("last", 2)+note("last")+`after = ["made"]`))
	ran := func() map[string]int {
		n := map[string]int{}
		for _, id := range strings.Fields(readFile(t, dir+"/ran")) {
			n[id]++
		}
		return n
	}
	wantStatus(t, 0, dir, "run", path)
	r := wantStatus(t, 2, dir, "reset", path, "made") // nobody can be asked
	wantText(t, r.stderr, "--yes")
	wantText(t, wantStatus(t, 2, dir, "reset", path, "mode", "--yes").stderr, `no task "mode"`, "raw, made, apart, last")
	wantStatus(t, 0, dir, "run", path)
	if n := ran(); n["raw"] != 2 || n["last"] != 2 {
		t.Fatalf("a refused reset has made blocks run: %v", n)
	}
	r = wantStatus(t, 0, dir, "reset", path, "made", "--yes", "--json")
	if want := `[{"task":"made","marks":2},{"task":"last","marks":2}]` + "\n"; r.stdout != want {
		t.Errorf("said %q, want %q", r.stdout, want)
	}
	wantStatus(t, 0, dir, "run", path)
	if n := ran(); n["raw"] != 2 || n["apart"] != 2 || n["made"] != 4 || n["last"] != 4 {
		t.Errorf("what ran: %v", n)
	}
	wantText(t, wantStatus(t, 0, dir, "reset", path, "raw", "--yes").stdout, "raw", "made", "last")
	wantText(t, wantStatus(t, 2, dir, "reset", path).stderr, "at least one task")
}
