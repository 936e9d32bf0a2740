package jobfile_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.org/daisy/internal/job"
	"example.org/daisy/internal/jobfile"
)

var big = job.Machine{Cores: 64, MemoryBytes: 256 << 30}

// with loads a job with the defaults of a user and of a site, "" = none.
func with(t *testing.T, text, user, site string, sets ...string) (*job.Job, error) {
	t.Helper()
	return jobfile.Load(write(t, text), sets, jobfile.Options{Machine: big, Below: below(user, site)})
}

func below(user, site string) []jobfile.Below {
	var files []jobfile.Below
	if user != "" {
		files = append(files, jobfile.Below{Path: "user.toml", Text: user})
	}
	if site != "" {
		files = append(files, jobfile.Below{Path: "site.toml", Text: site, Site: true})
	}
	return files
}

// origins are the defaults of a job as "task.key = value (file:line)".
func origins(j *job.Job) []string {
	var list []string
	for _, d := range j.Defaults {
		how := ""
		if d.Cap {
			how = ", cap"
		}
		list = append(list, fmt.Sprintf("%s.%s = %s (%s:%d%s)", d.Task, d.Key, d.Value, d.File, d.Line, how))
	}
	return list
}

const two = small + "timeout = \"1m\"\nenv = { A = \"job\" }\nrequires = { cpu = 2 }\n" + "[[task]]\nid = \"b\"\ntotal = { offset = [0], shape = [30] }\nblock = { shape = [10] }\nrun = { command = [\"true\"] }\n"

func TestTheJobStandsAboveTheUserWhoStandsAboveTheSite(t *testing.T) {
	j, err := with(t, "[run]\ngrace = \"3s\"\n"+two,
		"[run]\ngrace = \"4s\"\nidle_timeout = \"4s\"\n[task]\ntimeout = \"4m\"\nenv = { A = \"user\", B = \"user\" }\n",
		"[run]\ngrace = \"5s\"\nidle_timeout = \"5s\"\nhint_after = \"5m\"\n[task]\ntimeout = \"5m\"\nmax_retries = 5\nenv = { B = \"site\", C = \"site\" }\nrequires = { memory = \"1GiB\" }\n")
	if err != nil {
		t.Fatal(err)
	}
	if j.Grace != 3*time.Second || j.IdleTimeout != 4*time.Second || j.HintAfter != 5*time.Minute {
		t.Errorf("got %v, %v, %v", j.Grace, j.IdleTimeout, j.HintAfter)
	}
	a, b := j.Task("a"), j.Task("b")
	if a.Timeout != time.Minute || b.Timeout != 4*time.Minute || a.MaxRetries != 5 || b.MaxRetries != 5 {
		t.Errorf("got %v, %v, %d, %d", a.Timeout, b.Timeout, a.MaxRetries, b.MaxRetries)
	}
	if d := cmp.Diff([][]string{{"A=job", "B=user", "C=site"}, {"A=user", "B=user", "C=site"}}, [][]string{a.Env, b.Env}); d != "" {
		t.Error(d)
	}
	if a.Requires.String() != "cpu=2 memory=1GiB" || b.Requires.String() != "cpu=1 memory=1GiB" {
		t.Errorf("got %v, %v", a.Requires, b.Requires)
	}
	want := []string{
		`.idle_timeout = "4s" (user.toml:3)`,
		`a.env.B = "user" (user.toml:6)`,
		`b.env.A = "user" (user.toml:6)`, `b.env.B = "user" (user.toml:6)`, `b.timeout = "4m" (user.toml:5)`,
		`.hint_after = "5m" (site.toml:4)`,
		`a.env.C = "site" (site.toml:8)`, `a.max_retries = 5 (site.toml:7)`, `a.requires.memory = "1GiB" (site.toml:9)`,
		`b.env.C = "site" (site.toml:8)`, `b.max_retries = 5 (site.toml:7)`, `b.requires.memory = "1GiB" (site.toml:9)`,
	}
	if d := cmp.Diff(want, origins(j)); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
}

func TestTheCommandLineStandsAboveDefaults(t *testing.T) {
	j, err := with(t, small, "[run]\nresources = { cpu = 3, memory = \"1GiB\" }\n[task]\nmax_retries = 7\n", "", "task.a.max_retries=1", "run.resources.cpu=5")
	if err != nil {
		t.Fatal(err)
	}
	if j.Tasks[0].MaxRetries != 1 || j.Resources.String() != "cpu=5 memory=1GiB" {
		t.Errorf("got %d, %v", j.Tasks[0].MaxRetries, j.Resources)
	}
}

func TestErrorsInDefaultsNameTheirFileAndLineOnce(t *testing.T) {
	for name, c := range map[string]struct{ user, site, want string }{
		"a value":        {"[task]\ntimeout = 5\n", "", `user.toml:2: task: timeout: found the bare number 5, which has no unit; wanted a duration such as "30s", "10m" or "2d"`},
		"a deep value":   {"", "[task]\n\nrequires = { cpu = 1, memory = 5 }\n", `site.toml:3: task: requires.memory: found the bare number 5, which has no unit; wanted a size such as "16GiB" or "512MiB"`},
		"of the run":     {"", "[run]\ngrace = \"x\"\n", `site.toml:2: run: grace: `},
		"unknown":        {"[task]\nmax_worker = 5\n", "", `user.toml:2: task: unknown key "max_worker"; did you mean "max_workers"?`},
		"what blocks do": {"[task]\nfit = \"shrink\"\n", "", `user.toml:2: task: fit: has no default: it belongs into the job file`},
		"tracking":       {"[run]\ntracking = \"t\"\n", "", `user.toml:2: run: tracking: has no default`},
		"a list":         {"[[task]]\ntimeout = \"1m\"\n", "", `user.toml:1: task: found a list, wanted a table; write [task] with one bracket`},
		"a table":        {"[tasks]\n", "", `user.toml:1: unknown key "tasks"; allowed are the tables [run] and [task]`},
		"no TOML":        {"x = \n", "", `user.toml:1: expected value`},
		"caps of a user": {"[caps]\nmax_workers = 1\n", "", `user.toml:1: caps: only the defaults of the site (/etc/daisy/site.toml) have caps`},
		"unknown cap":    {"", "[caps]\nmax_worker = 1\n", `site.toml:2: caps: unknown key "max_worker"; did you mean "max_workers"?`},
		"a wrong cap":    {"", "[caps]\ntimeout = 7\n", `site.toml:2: caps: timeout: found the bare number 7`},
	} {
		_, err := with(t, two+"[run]\n", c.user, c.site)
		if err == nil || !strings.HasPrefix(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got\n%v\nwant\n%s", name, err, c.want)
		}
	}
}

func TestErrorsOfTheJobComeBeforeThoseOfDefaults(t *testing.T) {
	_, err := with(t, small+"slots = 0\n", "[run]\ngrace = \"x\"\n", "", "task.a.max_lost=0")
	var all *jobfile.Errors
	if !errors.As(err, &all) || len(all.List) != 3 {
		t.Fatal(err)
	}
	if all.List[0].Key != "slots" || all.List[1].File != "user.toml" || all.List[2].Key != "max_lost" {
		t.Errorf("got\n%v", err)
	}
}

func TestNobodyGetsMoreThanTheSiteAllows(t *testing.T) {
	const caps = "[caps]\nmax_workers = 10\ntimeout = \"5m\"\nresources = { cpu = 8, memory = \"16GiB\" }\n"
	j, err := with(t, two, "", caps)
	if err == nil && (j.Caps.MaxWorkers != 10 || j.Caps.Timeout != 5*time.Minute || j.Caps.Resources.String() != "cpu=8 memory=16GiB" || j.Caps.File != "site.toml") {
		t.Errorf("caps %+v", j.Caps)
	}
	if err != nil {
		t.Fatal(err)
	}
	if j.Tasks[0].MaxWorkers != 10 || j.Tasks[0].Timeout != time.Minute || j.Tasks[1].Timeout != 5*time.Minute || j.Budget(big).String() != "cpu=8 gpu=0 memory=16GiB" {
		t.Errorf("got %d, %v, %v, %v", j.Tasks[0].MaxWorkers, j.Tasks[0].Timeout, j.Tasks[1].Timeout, j.Budget(big))
	}
	want := []string{
		"a.max_workers = 10 (site.toml:2, cap)", "b.max_workers = 10 (site.toml:2, cap)", `b.timeout = "5m" (site.toml:3, cap)`,
		".resources.cpu = 8 (site.toml:4, cap)", ".resources.memory = 16GiB (site.toml:4, cap)",
	}
	if d := cmp.Diff(want, origins(j)); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
	if j, err = with(t, "[run]\nresources = { cpu = 2 }\n"+two, "", caps); err != nil || j.Budget(big).String() != "cpu=2" {
		t.Errorf("got %v, %v", j, err)
	}

	for name, c := range map[string]struct {
		job, user string
		sets      []string
		want      string
	}{
		"workers":         {small + "max_workers = 11\n", "", nil, `:6: task "a": max_workers: 11 is more than this site allows (site.toml:2); allowed is 10 or less`},
		"of the user":     {small, "[task]\nmax_workers = 11\n", nil, `user.toml:2: task: max_workers: 11 is more than this site allows (site.toml:2)`},
		"of an argument":  {small, "", []string{"task.a.max_workers=11"}, `--set task.a.max_workers=11: task "a": max_workers: 11 is more`},
		"time":            {small + "timeout = \"6m\"\n", "", nil, `:6: task "a": timeout: 6m is more than this site allows (site.toml:3); allowed is more than 0 and at most "5m"`},
		"without a limit": {small + "timeout = \"0s\"\n", "", nil, `:6: task "a": timeout: 0s is more than`},
		"resources":       {"[run]\nresources = { cpu = 9, memory = \"1GiB\" }\n" + small, "", nil, `:2: run: resources.cpu: 9 is more than this site allows (site.toml:4); allowed is 8 or less`},
		"memory":          {"[run]\nresources = { cpu = 8, memory = \"17GiB\" }\n" + small, "", nil, `resources.memory: 17GiB is more than this site allows (site.toml:4); allowed is 16GiB or less`},
	} {
		if _, err := with(t, c.job, c.user, caps, c.sets...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", name, err, c.want)
		}
	}
	if j, err := jobfile.Load(write(t, small), nil, jobfile.Options{Machine: big, MaxWorkers: 3, Below: below("", caps)}); err != nil || j.Tasks[0].MaxWorkers != 3 {
		t.Errorf("--max-workers below the cap: %v", err)
	}
}

func TestARunKeepsTheDefaultsThatItBeganWith(t *testing.T) {
	j, err := with(t, two, "[task]\nenv = { B = \"a \\\"word\\\"\" }\n\n\n", "[run]\ngrace = \"5s\"\n\n[caps]\nmax_workers = 10\n")
	if err != nil {
		t.Fatal(err)
	}
	frozen := write(t, string(j.Frozen))
	now := below("[task]\nmax_retries = 9\n", "[caps]\nmax_workers = 2\n")
	again, err := jobfile.LoadFrozen(frozen, nil, jobfile.Options{Machine: big, Below: now})
	if err != nil {
		t.Fatal(err)
	}
	if again.Grace != 5*time.Second || again.Tasks[1].MaxRetries != job.Defaults.MaxRetries || again.Tasks[1].MaxWorkers != 10 || again.Tasks[1].Env[0] != `B=a "word"` {
		t.Errorf("got %+v", again)
	}
	if d := cmp.Diff(origins(j), origins(again)); d != "" {
		t.Error(d)
	}
	if changes := j.Changes(again); changes != nil {
		t.Error(changes)
	}
}

func TestFilesOfDefaultsAreFoundInTheirPlaces(t *testing.T) {
	home, site := t.TempDir(), filepath.Join(t.TempDir(), "our site.toml")
	t.Setenv("HOME", home)
	t.Setenv(jobfile.SiteVariable, site)
	if _, err := jobfile.ReadBelow(); err == nil || !strings.Contains(err.Error(), "our site.toml: there is no such file; correct or unset DAISY_SITE_FILE") {
		t.Errorf("got %v", err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.WriteFile(site, []byte("# site\n"), 0o600))
	if got, err := jobfile.ReadBelow(); err != nil || len(got) != 1 || !got[0].Site || got[0].Path != site || got[0].Text != "# site\n" {
		t.Errorf("got %+v, %v", got, err)
	}
	must(os.Mkdir(filepath.Join(home, ".config"), 0o700))
	user := filepath.Join(home, ".config", "daisy.toml")
	must(os.WriteFile(user, []byte("# user\n"), 0o600))
	if got, err := jobfile.ReadBelow(); err != nil || len(got) != 2 || got[0].Site || got[0].Path != user || !got[1].Site {
		t.Errorf("got %+v, %v", got, err)
	}
	must(os.WriteFile(user, []byte(strings.Repeat("#\n", 40<<10)), 0o600))
	if _, err := jobfile.ReadBelow(); err == nil || !strings.Contains(err.Error(), "larger than 64 KiB") {
		t.Errorf("got %v", err)
	}
	must(os.RemoveAll(filepath.Join(home, ".config")))
	must(os.WriteFile(filepath.Join(home, ".config"), nil, 0o600)) // a file
	if got, err := jobfile.ReadBelow(); err != nil || len(got) != 1 {
		t.Errorf("got %+v, %v", got, err)
	}
}
