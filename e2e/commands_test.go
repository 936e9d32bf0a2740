package e2e

import (
	"encoding/csv"
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"example.org/daisy/internal/api"
)

func TestJSONLinesTellTheWholeRun(t *testing.T) {
	t.Parallel()
	r, dir := runJob(t, 1, job("", blocks("work", 3)+shell("test {index} != 1")), "--json")
	var kinds []string
	var end struct {
		Event string
		Stats api.Stats
	}
	for line := range strings.Lines(r.stdout) {
		var event struct{ Event string }
		if err := json.Unmarshal([]byte(line), &event); err != nil {
			t.Fatalf("%v: %q", err, line)
		}
		kinds = append(kinds, event.Event)
		if event.Event == "end" {
			if err := json.Unmarshal([]byte(line), &end); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(kinds) < 2 || kinds[len(kinds)-1] != "end" {
		t.Errorf("the events are %v", kinds)
	}
	wantHonest(t, end.Stats)
	if got, want := countsOf(task(t, end.Stats, "work")), countsOf(task(t, statsOf(t, dir), "work")); got != want {
		t.Errorf("the last line counts %+v, stats.json %+v", got, want)
	}
}

func TestOffATerminalThereIsPlainText(t *testing.T) {
	t.Parallel()
	r, _ := runJob(t, 0, job("", blocks("work", 3)+shell("true")))
	if strings.ContainsAny(r.all(), "\x1b\r\a\b") {
		t.Errorf("control characters: %q", r.all())
	}
	wantText(t, r.stdout, "Tasks", "work", "3 blocks: 3 succeeded.", "logs: ")
	wantText(t, r.stderr, "run directory: ", "3 of 3 done")
	if strings.Contains(r.stderr, "daisy-submit:") {
		t.Errorf("a good run complains: %s", r.stderr)
	}
}

func TestStatisticsCanBePrintedAgainInEveryFormat(t *testing.T) {
	t.Parallel()
	r, dir := runJob(t, 1, job("", blocks("work", 3)+shell("echo a word; test {index} != 1")))
	print := func(args ...string) string {
		out := wantStatus(t, 0, dir, append([]string{"stats"}, args...)...)
		if out.stderr != "" {
			t.Errorf("%v says %q", args, out.stderr)
		}
		return out.stdout
	}
	if table := print(dir); table != r.stdout {
		t.Errorf("the run printed\n%s\nstats prints\n%s", r.stdout, table)
	}
	if table := print(dir, "--format", "table"); table != r.stdout {
		t.Error("table is not the default")
	}
	wantText(t, print("--format", "markdown", dir), "| work", "|--")
	reader := csv.NewReader(strings.NewReader(print(dir, "--format=csv")))
	reader.FieldsPerRecord = -1 // each table has its own
	rows, err := reader.ReadAll()
	if err != nil || len(rows) < 2 {
		t.Errorf("csv: %v, %v", rows, err)
	}
	for _, args := range [][]string{{dir, "--format", "json"}, {dir, "--json"}} {
		var s api.Stats
		if err := json.Unmarshal([]byte(print(args...)), &s); err != nil {
			t.Fatal(err)
		}
		wantHonest(t, s)
	}
}

func TestStatisticsOfARunThatGoesOnAreNotThereYet(t *testing.T) {
	t.Parallel()
	d := newDirector(t)
	dir, path := writeJob(t, job("", blocks("work", 1)+d.code("command")))
	s := start(t, dir, "run", path, "--run-dir", "out")
	v := d.next()
	wantText(t, wantStatus(t, 2, dir, "stats", "out").stderr, "has not ended")
	v.ok()
	s.wait()
	wantStatus(t, 0, dir, "stats", "out")
}

func TestAPlanStartsNothing(t *testing.T) {
	t.Parallel()
	dir, path := writeJob(t, job("tracking = \"tracking\"",
		blocks("work", 12)+shell("touch ran"),
		"id = \"two\"\ntotal = { offset = [0, 0], shape = [10, 10] }\nblock = { shape = [4, 4], context = 1 }\n"+shell("touch ran")))
	r := wantStatus(t, 0, dir, "plan", path)
	wantText(t, r.stdout, "work", "12", "two", "4")
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("something was made: %v, %v", entries, err)
	}
}

func TestVersionsAreTold(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if out := wantStatus(t, 0, dir, "version").stdout; !regexp.MustCompile(`^daisy-submit \S+ \(go1\.\S+.*\)\n$`).MatchString(out) {
		t.Errorf("version prints %q", out)
	}
	var v struct{ Version, Go string }
	if err := json.Unmarshal([]byte(wantStatus(t, 0, dir, "version", "--json").stdout), &v); err != nil || v.Version == "" || v.Go == "" {
		t.Errorf("version --json: %+v, %v", v, err)
	}
}

func TestEveryCommandHasHelpWithExitStatuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	wantText(t, wantStatus(t, 0, dir).stdout, "run", "plan", "stats", "version")
	for _, c := range []string{"run", "plan", "stats", "version"} {
		wantText(t, wantStatus(t, 0, dir, c, "--help").stdout, "daisy-submit "+c, "EXIT STATUS")
	}
}

func TestFlagsMayStandBeforeAndAfterTheJob(t *testing.T) {
	t.Parallel()
	text := job("resources = { cpu = 4 }", blocks("work", 8)+shell("true"))
	for name, place := range map[string]func(job string) []string{
		"before":   func(j string) []string { return []string{"run", "--max-workers", "1", "--run-dir=out", j} },
		"after":    func(j string) []string { return []string{"run", j, "--max-workers", "1", "--run-dir", "out"} },
		"around":   func(j string) []string { return []string{"run", "--max-workers=1", j, "--run-dir", "out"} },
		"one dash": func(j string) []string { return []string{"run", "-max-workers", "1", j, "-run-dir", "out"} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, path := writeJob(t, text)
			wantStatus(t, 0, dir, place(path)...)
			if w := task(t, statsOf(t, dir+"/out"), "work"); w.MaxConcurrency != 1 || w.Success != 8 {
				t.Errorf("at most %d at once, %d done", w.MaxConcurrency, w.Success)
			}
		})
	}
}

func TestASetChangesTheJobAndIsKept(t *testing.T) {
	t.Parallel()
	text := job("", blocks("work", 2)+shell("echo word is $WORD; exit 3")+"max_retries = 0\nenv = { WORD = \"old\" }")
	r, dir := runJob(t, 1, text, "--set", "task.work.env.WORD=new one", "--set", "task.work.max_retries=1", "--set", "run.name=renamed")
	wantText(t, r.stdout, "word is new one", "renamed")
	wantCounts(t, statsOf(t, dir), map[string]counts{"work": {State: "done", Blocks: 2, Failed: 2, Processed: 4, Retries: 2}})
	wantText(t, readFile(t, dir+"/job.toml"), "new one", "renamed", "max_retries")
}

func TestRunDirectoriesAreMadeBesideTheJob(t *testing.T) {
	t.Parallel()
	dir, path := writeJob(t, job("name = \"named\"", blocks("work", 1)+shell("true")))
	wantStatus(t, 0, t.TempDir(), "run", path) // wherever it is called
	target, err := os.Readlink(dir + "/runs/latest")
	if err != nil || !strings.HasPrefix(target, "named-") {
		t.Errorf("latest leads to %q, %v", target, err)
	}
	info, err := os.Stat(dir + "/runs/latest/.")
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the run directory: %v, %v", info, err)
	}
	wantStatus(t, 0, dir, "stats", "runs/latest")
}
