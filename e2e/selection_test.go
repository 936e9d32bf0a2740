package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// ranIn are the lines of a file, sorted.
func ranIn(t testing.TB, path string) []string {
	t.Helper()
	lines := strings.Fields(readFile(t, path))
	slices.Sort(lines)
	return lines
}

func TestAPartOfTheBlocksCanBeRun(t *testing.T) {
	t.Parallel()
	note := func(id string) string { return shell("echo " + id + "{index} >> ran") }
	text := job("", blocks("a", 6)+note("a"), blocks("b", 6)+note("b")+`after = ["a"]`)
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"only":           {[]string{"--only", "b"}, "b0 b1 b2 b3 b4 b5"},
		"roi":            {[]string{"--roi", "2:4"}, "a2 a3 b2 b3"},
		"limit":          {[]string{"--limit", "2"}, "a0 a1 b0 b1"},
		"roi of one":     {[]string{"--only", "a", "--roi", "5:9"}, "a5"},
		"limit of a roi": {[]string{"--roi", "3:6", "--limit", "1"}, "a3 b3"},
	} {
		t.Run(name, func(t *testing.T) {
			dir, path := writeJob(t, text)
			r := wantStatus(t, 0, dir, append([]string{"run", path, "--run-dir", "out"}, c.args...)...)
			if got := strings.Join(ranIn(t, dir+"/ran"), " "); got != c.want {
				t.Errorf("ran %s, want %s", got, c.want)
			}
			n := int64(len(strings.Fields(c.want)))
			wantText(t, r.stderr, "of 12 blocks are selected")
			stats := statsOf(t, dir+"/out")
			if a, b := task(t, stats, "a"), task(t, stats, "b"); a.Success+b.Success != n || a.Skipped+b.Skipped != 12-n {
				t.Errorf("%+v %+v", countsOf(a), countsOf(b))
			}
			if a, b := task(t, stats, "a"), task(t, stats, "b"); a.Unselected+b.Unselected != 12-n || *a.SkippedWhy.NotSelected+*b.SkippedWhy.NotSelected != 12-n || *a.SkippedWhy.Mask+*b.SkippedWhy.Mask != 0 {
				t.Errorf("skipped because of %+v %+v", a.SkippedWhy, b.SkippedWhy)
			}
			wantText(t, r.stdout, fmt.Sprintf("12 blocks: %d succeeded, %d not selected. ", n, 12-n))
			if strings.Contains(r.all(), "skip_mask") || strings.Contains(r.all(), "masked") {
				t.Errorf("it speaks of a mask:\n%s", r.all())
			}
			wantText(t, wantStatus(t, 0, dir, "plan", path, c.args[0], c.args[1]).stdout, "12 blocks (")
			wantText(t, wantStatus(t, 0, dir, "runs", ".").stdout, fmt.Sprintf(" %d of %d ", n, n))
		})
	}
	dir, path := writeJob(t, text)
	for want, args := range map[string][]string{
		`--only c: there is no task "c"; allowed are "a" and "b"`: {"--only", "c"},
		"the region has 2 dimensions":                             {"--roi", "0:1,0:1"},
		"is no range of axis 0":                                   {"--roi", "x"},
		"at least 1":                                              {"--limit", "0"},
	} {
		wantText(t, wantStatus(t, 2, dir, append([]string{"run", path}, args...)...).stderr, want)
		wantText(t, wantStatus(t, 2, dir, append([]string{"plan", path}, args...)...).stderr, want)
	}
	if exists(dir + "/ran") {
		t.Error("a block ran")
	}
}

func TestAResumeKeepsThePartThatWasSelected(t *testing.T) {
	t.Parallel()
	d := newDirector(t)
	dir, path := writeJob(t, job("resources = { cpu = 1 }", blocks("work", 6)+d.code("command")))
	s := start(t, dir, "run", path, "--run-dir", "out", "--roi", "2:4")
	held := d.next()
	killAll(t, s, dir)
	held.wantGone(t)
	again := start(t, dir, "run", path, "--resume", "out")
	for _, want := range []string{"2", "3"} {
		v := d.next()
		if v.Index != want {
			t.Errorf("block %s runs, want %s", v.Index, want)
		}
		v.ok()
	}
	if r := again.wait(); r.status != 0 {
		t.Fatalf("exit status %d", r.status)
	}
	wantCounts(t, statsOf(t, dir+"/out"), map[string]counts{"work": {State: "done", Blocks: 6, Success: 2, Skipped: 4, Processed: 2}})
}
