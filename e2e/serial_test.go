package e2e

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestASerialRunStopsAtTheFirstFailureWithItsWholeError(t *testing.T) {
	t.Parallel()
	text := job("", blocks("work", 5)+shell("touch ran-{index}-{attempt}; echo output of {index}; echo error of {index} >&2; test {index} != 2 || exit 77"))
	r, dir := runJob(t, 1, text, "--launcher", "serial")
	wantText(t, r.stderr, "output of 2", "error of 2", "exit status 77")
	wantText(t, r.stdout, "exit status 77", "1 failed")
	wantCounts(t, statsOf(t, dir), map[string]counts{"work": {State: "abandoned", Blocks: 5, Success: 2, Failed: 1, Abandoned: 2, Processed: 3}})
	at := filepath.Dir(dir)
	ran, err := filepath.Glob(at + "/ran-*")
	if err != nil || len(ran) != 3 || !exists(at+"/ran-2-1") || exists(at+"/ran-2-2") {
		t.Errorf("want one attempt of each of the first three blocks; there are %v, %v", ran, err)
	}
}

func TestASerialRunWorksInOrderInOneProcess(t *testing.T) {
	t.Parallel()
	_, dir := runJob(t, 0, job("", blocks("work", 6)+shell("echo {index} $PPID >> order")), "--launcher", "serial")
	stats := statsOf(t, dir)
	if w := task(t, stats, "work"); w.MaxConcurrency != 1 || w.Success != 6 {
		t.Errorf("at most %d at once, %d done", w.MaxConcurrency, w.Success)
	}
	var order, parents []string
	for line := range strings.Lines(readFile(t, filepath.Dir(dir)+"/order")) {
		index, parent, _ := strings.Cut(strings.TrimSpace(line), " ")
		order = append(order, index)
		parents = append(parents, parent)
	}
	if got := strings.Join(order, ""); got != "012345" {
		t.Errorf("the order is %s", got)
	}
	for _, p := range parents {
		if p != parents[0] {
			t.Errorf("the parents are %v: more than one process", parents)
		}
	}
}
