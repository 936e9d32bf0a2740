package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.org/daisy/internal/jobfile"
)

// defaultsOf makes this test's user and site have defaults; "" = none.
func defaultsOf(t *testing.T, user, site string) (home string) {
	t.Helper()
	home = t.TempDir()
	t.Setenv("HOME", home)
	if err := os.Mkdir(filepath.Join(home, ".config"), 0o700); err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string]string{filepath.Join(home, ".config/daisy.toml"): user, filepath.Join(home, "site.toml"): site} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv(jobfile.SiteVariable, filepath.Join(home, "site.toml"))
	return home
}

func TestAPlanSaysWhichValuesComeFromWhere(t *testing.T) {
	home := defaultsOf(t, "[task]\nmax_retries = 9\n", "[run]\ngrace = \"5s\"\n[caps]\nmax_workers = 3\n")
	path := writeJob(t, strings.Replace(oneBlock, "id =", "max_lost = 4\nid =", 1))
	user, site, work := filepath.Join(home, ".config/daisy.toml"), filepath.Join(home, "site.toml"), "work"
	want := []planDefault{
		{&work, "max_retries", "9", user, 2, false}, {nil, "grace", `"5s"`, site, 2, false}, {&work, "max_workers", "3", site, 4, true},
	}
	p := planOf(t, path)
	if d := cmp.Diff(want, p.Defaults); d != "" {
		t.Error(d)
	}
	if p.Tasks[0].MaxWorkers != 3 {
		t.Errorf("got %d", p.Tasks[0].MaxWorkers)
	}
	text := planText(t, path)
	for _, part := range []string{"From defaults of the user or the site", user + ":2\n", site + ":4 (the most that the site allows)\n"} {
		if !strings.Contains(text, part) {
			t.Errorf("there is no %q in\n%s", part, text)
		}
	}

	defaultsOf(t, "", "")
	if text := planText(t, path); strings.Contains(text, "From defaults") {
		t.Errorf("nothing comes from elsewhere:\n%s", text)
	}
	if p := planOf(t, path); p.Defaults == nil || len(p.Defaults) != 0 {
		t.Errorf("got %v", p.Defaults)
	}
}

func TestWrongDefaultsAreAFaultThatNamesTheirPlace(t *testing.T) {
	home := defaultsOf(t, "[task]\nmax_retires = 9\n", "")
	path := writeJob(t, oneBlock)
	for _, command := range []string{"plan", "run"} {
		status, _, said := call(command, path)
		if status != exitUsage || !strings.Contains(said, filepath.Join(home, ".config/daisy.toml")+`:2: task: unknown key "max_retires"; did you mean "max_retries"?`) {
			t.Errorf("%s: status %d\n%s", command, status, said)
		}
	}
}
