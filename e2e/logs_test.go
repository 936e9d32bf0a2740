package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheLogOfAWorkerHasTheOutputOfItsBlocks(t *testing.T) {
	t.Parallel()
	r, dir := runJob(t, 1, job("resources = { cpu = 2 }",
		blocks("work", 6)+shell("echo out of {index}; echo err of {index} >&2; printf unfinished-{index}; test {index} != 4")))
	logs, err := filepath.Glob(dir + "/logs/*.log")
	if err != nil || len(logs) == 0 {
		t.Fatalf("%v, %v", logs, err)
	}
	lines := 0
	for _, log := range logs {
		for line := range strings.Lines(readFile(t, log)) {
			mark, rest, marked := strings.Cut(strings.TrimSuffix(line, "\n"), "] ")
			if !marked || !strings.HasPrefix(mark, "[") {
				t.Errorf("%s: a line without a mark: %q", log, line)
			}
			for i := range 6 {
				if strings.HasSuffix(rest, fmt.Sprintf("of %d", i)) || rest == fmt.Sprintf("unfinished-%d", i) {
					lines++
					if !strings.Contains(mark, fmt.Sprint(i)) || !strings.Contains(mark, "work") {
						t.Errorf("%s: the mark does not name the block: %q", log, line)
					}
				}
			}
		}
	}
	if lines != 3*(5+3) { // block 4 had three attempts
		t.Errorf("%d lines of output are in the logs, want 24", lines)
	}
	// The end of the output of the block that failed is shown, and where the whole of it is.
	wantText(t, r.stdout, "out of 4", "err of 4", "unfinished-4", dir+"/logs/")
	f := task(t, statsOf(t, dir), "work").Failures
	if len(f) != 1 || f[0].Tail == nil || f[0].Log == nil || !strings.Contains(readFile(t, *f[0].Log), "out of 4") {
		t.Errorf("failures: %+v", f)
	}
}

func TestMuchOutputDoesNotFillTheDisk(t *testing.T) {
	t.Parallel()
	r, dir := runJob(t, 1, job("resources = { cpu = 1 }",
		blocks("work", 2)+shell("yes a line of output that is written again and again | head -c 100000000; head -c 1000000 /dev/zero; echo; echo the last words; test {index} != 1")+"max_retries = 0"))
	wantText(t, r.stdout, "the last words")
	logs, err := filepath.Glob(dir + "/logs/*.log")
	if err != nil || len(logs) != 1 {
		t.Fatalf("%v, %v", logs, err)
	}
	info, err := os.Stat(logs[0])
	if err != nil || info.Size() > 70<<20 {
		t.Errorf("200 MB of output made a log of %d bytes (%v)", info.Size(), err)
	}
	if tail := task(t, statsOf(t, dir), "work").Failures[0].Tail; tail == nil || len(*tail) > 16<<10 {
		t.Errorf("the tail is %d bytes", len(*tail))
	}
}
