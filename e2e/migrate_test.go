package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
)

// grownJob are four tasks over a line of n: blocks of 1 that read a neighbour more, blocks of 1 made from those, blocks of 2, and blocks of
// 1 of which one fails.
func grownJob(n int) string {
	total := fmt.Sprintf("total_write = { offset = [0], shape = [%d] }\n", n)
	one := func(id string) string { return fmt.Sprintf("id = %q\n%sread_write_conflict = false\n", id, total) }
	note := shell("echo {task_id} {index} >> ran")
	return job(tracked,
		one("smooth")+"block = { shape = [1], context = 1 }\n"+note,
		one("label")+"block = { shape = [1] }\n"+note+`after = ["smooth"]`,
		one("apart")+"block = { shape = [2] }\nfit = \"shrink\"\n"+note,
		one("plain")+"block = { shape = [1] }\nmax_retries = 0\n"+shell("echo {task_id} {index} >> ran; test {index} != 3 || test -e mended"))
}

func TestTheMarksOfAVolumeThatHasGrownAreKeptOnRequest(t *testing.T) {
	t.Parallel()
	dir, path := writeJob(t, grownJob(5))
	wantStatus(t, 1, dir, "run", path, "--run-dir", "one")
	writeFile(t, dir+"/mended", "")
	r := wantStatus(t, 0, dir, "migrate", path, "--yes", "--json")
	wantMoves(t, r.stdout, moved{"smooth", 5, 5, false}, moved{"label", 5, 5, false}, moved{"apart", 3, 3, false}, moved{"plain", 4, 4, false})

	writeFile(t, path, grownJob(7))
	wantText(t, wantStatus(t, 2, dir, "run", path, "--run-dir", "two").stderr, "If the volume has only grown, daisy-submit migrate keeps")
	wantText(t, wantStatus(t, 2, dir, "migrate", path).stderr, "--yes") // nobody can be asked
	// The last of smooth read what was not there then.
	r = wantStatus(t, 0, dir, "migrate", path, "--yes", "--json")
	wantMoves(t, r.stdout, moved{"smooth", 5, 4, true}, moved{"label", 5, 4, true}, moved{"apart", 3, 2, true}, moved{"plain", 4, 4, true})

	if err := os.Remove(dir + "/ran"); err != nil {
		t.Fatal(err)
	}
	wantStatus(t, 0, dir, "run", path, "--run-dir", "two")
	ran := map[string]bool{}
	for line := range strings.Lines(readFile(t, dir+"/ran")) {
		ran[strings.TrimSpace(line)] = true
	}
	for _, want := range []string{"smooth 4", "smooth 5", "smooth 6", "label 4", "label 5", "label 6", "apart 2", "apart 3", "plain 3", "plain 5", "plain 6"} {
		if !ran[want] {
			t.Errorf("%s did not run again", want)
		}
		delete(ran, want)
	}
	if len(ran) != 0 {
		t.Errorf("these ran again for nothing: %v", ran)
	}

	// Another block is no growth.
	writeFile(t, path, strings.ReplaceAll(grownJob(9), "shape = [2]", "shape = [3]"))
	r = wantStatus(t, 2, dir, "migrate", path, "--yes")
	wantText(t, r.stderr, `task "apart"`, "no smaller volume of the same blocks has that hash", "rm -r")
	writeFile(t, path, grownJob(7))
	wantText(t, wantStatus(t, 0, dir, "run", path, "--run-dir", "three").stdout, "nothing to run")
}

func TestMigrateNeedsAJobWithMarks(t *testing.T) {
	t.Parallel()
	dir, path := writeJob(t, job("", blocks("work", 2)+shell("true")))
	wantText(t, wantStatus(t, 2, dir, "migrate").stderr, "needs a job file")
	wantText(t, wantStatus(t, 2, dir, "migrate", path, "--yes").stderr, "run.tracking is not set")
	writeFile(t, path, job(tracked, blocks("work", 2)+shell("true")))
	wantText(t, wantStatus(t, 2, dir, "migrate", path, "--json").stderr, "--yes")
	wantMoves(t, wantStatus(t, 0, dir, "migrate", path, "--yes", "--json").stdout, moved{"work", 0, 0, false})
}

// moved is a row of what migrate says.
type moved struct {
	task        string
	marks, kept int64
	replaced    bool
}

func wantMoves(t testing.TB, text string, want ...moved) {
	t.Helper()
	var list []struct {
		Task        string
		Marks, Kept int64
		Before      *string
	}
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		t.Fatal(err)
	}
	var got []moved
	for _, m := range list {
		got = append(got, moved{m.Task, m.Marks, m.Kept, m.Before != nil})
		if m.Before != nil && !exists(*m.Before+"/zarr.json") {
			t.Errorf("%s: what was there is not in %s", m.Task, *m.Before)
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// olderArray is the zarr.json that daisy wrote before 2.0.0 for the blocks of TestTheArrayOfDaisyBeforeGroupsIsTakenOver.
const olderArray = `{"shape": [5], "data_type": "uint8", "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [5]}},
"chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}}, "fill_value": 0, "codecs": [{"name": "bytes"}],
"attributes": {"daisy_task_hash": "5dccbda243739d50186db834be488bc1d6aa767bf185f9f6ddb75a46d3757652"},
"zarr_format": 3, "node_type": "array", "storage_transformers": []}`

func TestTheArrayOfDaisyBeforeGroupsIsTakenOver(t *testing.T) {
	t.Parallel()
	dir, path := writeJob(t, job(tracked, "id = \"work\"\ntotal = { offset = [0], shape = [50] }\nblock = { shape = [10] }\n"+shell("echo {index} >> ran")))
	if err := os.MkdirAll(dir+"/tracking/work/c", 0o700); err != nil {
		t.Fatal(err)
	}
	writeFile(t, dir+"/tracking/work/zarr.json", olderArray)
	writeFile(t, dir+"/tracking/work/c/0", "\x01\x01\x00\x01\x00")
	wantText(t, wantStatus(t, 0, dir, "plan", path, "--json").stdout, `"done":3`)
	r := wantStatus(t, 0, dir, "run", path, "--run-dir", "one")
	wantText(t, r.stderr, "the marks of task work were one array", "the array is in "+dir+"/tracking/work.before-5dccbda2")
	if ran := strings.Fields(readFile(t, dir+"/ran")); len(ran) != 2 || !strings.Contains("24 42", ran[0]+ran[1]) {
		t.Errorf("what ran: %v", ran)
	}
	if left := readFile(t, dir+"/tracking/work.before-5dccbda2/c/0"); left != "\x01\x01\x00\x01\x00" {
		t.Errorf("the array that is kept is %q", left)
	}
	wantText(t, wantStatus(t, 0, dir, "run", path, "--run-dir", "two").stdout, "nothing to run")
}
