package e2e

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestTheOutputOfABlockIsFoundByItsIDAndByItsPosition(t *testing.T) {
	t.Parallel()
	text := "[run]\nresources = { cpu = 1 }\n[[task]]\nid = \"work\"\ntotal_write = { offset = [0, 0], shape = [2, 3] }\nblock = { shape = [1, 1], context = 2 }\nread_write_conflict = false\n" +
		shell("echo words of {index} {block_id}")
	_, dir := runJob(t, 0, text)
	byPosition := wantStatus(t, 0, dir, "logs", dir, "--block", "1,2").stdout
	wantText(t, byPosition, "words of 1,2 ")
	if strings.Count(byPosition, "words") != 1 {
		t.Errorf("other blocks are there too:\n%s", byPosition)
	}
	_, id, _ := strings.Cut(strings.TrimSpace(byPosition), "1,2 ")
	if byID := wantStatus(t, 0, dir, "logs", "--block", id, dir).stdout; byID != byPosition {
		t.Errorf("by id %s:\n%s\nby position:\n%s", id, byID, byPosition)
	}
	wantText(t, wantStatus(t, 2, dir, "logs", dir, "--block", "1,3").stderr, "there is no block at (1, 3)")
	wantText(t, wantStatus(t, 2, dir, "logs", dir, "--worker", "9.9").stderr, "1.0")
}

func TestFailedBlocksAreShownWithTheEndOfTheirOutput(t *testing.T) {
	t.Parallel()
	_, dir := runJob(t, 1, job("", blocks("work", 4)+shell("echo words of {index} in {attempt}; test {index} != 2")+"max_retries = 1"))
	out := wantStatus(t, 0, dir, "logs", dir, "--failed").stdout
	wantText(t, out, "task work, block 2 at (2): failed after 2 attempts", "  | words of 2 in 2\n", "log: "+dir+"/logs/")
	if strings.Contains(out, "words of 1") {
		t.Errorf("a block that succeeded is shown:\n%s", out)
	}
	var f struct {
		Task  string
		Block int64
		Final bool
	}
	if err := json.Unmarshal([]byte(wantStatus(t, 0, dir, "logs", dir, "--failed", "--json").stdout), &f); err != nil || f.Task != "work" || f.Block != 2 || !f.Final {
		t.Errorf("%+v, %v", f, err)
	}
}

func TestLogsAreFollowedToTheEndOfTheRun(t *testing.T) {
	t.Parallel()
	d := newDirector(t)
	dir, path := writeJob(t, job("resources = { cpu = 1 }", blocks("work", 2)+shell("echo begin {index}; \"$0\" || exit; echo end {index}")+
		"env = { E2E_ROLE = \"ask\", E2E_SOCKET = "+quote(d.listener.Addr().String())+" }\n"))
	text := strings.Replace(readFile(t, path), `echo end {index}"]`, `echo end {index}", `+quote(self())+`]`, 1)
	writeFile(t, path, text)
	s := start(t, dir, "run", path, "--run-dir", "out")
	first := d.next()
	f := start(t, dir, "logs", "out", "--follow")
	f.stdout.await(t, "begin 0")
	first.ok()
	f.stdout.await(t, "end 0")
	second := d.next()
	f.stdout.await(t, "begin 1")
	second.ok()
	s.wait()
	r := f.wait()
	if r.status != 0 {
		t.Errorf("exit status %d", r.status)
	}
	wantText(t, r.stdout, "end 1")
	if strings.Count(r.stdout, "begin 0") != 1 {
		t.Errorf("a line came twice:\n%s", r.stdout)
	}
}
