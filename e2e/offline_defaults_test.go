package e2e

import (
	"os"
	"path/filepath"
	"testing"
)

func TestDefaultsOfTheSiteHoldForARunWhichKeepsThem(t *testing.T) {
	t.Parallel()
	dir, path := writeJob(t, job("", blocks("work", 3)+shell("echo $WORD >> words; test {index} != 1")))
	site := filepath.Join(dir, "site.toml")
	writeFile(t, site, "[task]\nmax_retries = 1\nenv = { WORD = \"site\" }\n[caps]\nmax_workers = 1\n")
	s := prepare(t, dir, "run", path, "--run-dir", "out")
	s.cmd.Env = append(os.Environ(), "DAISY_SITE_FILE="+site, "HOME="+dir)
	s.begin()
	if r := s.wait(); r.status != 1 {
		t.Fatalf("status %d", r.status)
	}
	w := task(t, statsOf(t, dir+"/out"), "work")
	if w.Failures[0].Attempts != 2 || w.MaxConcurrency != 1 {
		t.Errorf("got %+v", w)
	}
	if got := readFile(t, dir+"/words"); got != "site\nsite\nsite\nsite\n" {
		t.Errorf("got %q", got)
	}
	wantText(t, readFile(t, dir+"/out/job.toml"), "# site-defaults ")
	wantText(t, wantStatus(t, 0, dir, "logs", "out", "--block", "(1)", "--failed").stdout, "block 1 at (1): failed after 2 attempts")
}
