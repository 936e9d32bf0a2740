package jobfile_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"example.org/daisy/internal/jobfile"
	"example.org/daisy/internal/testenv"
)

const small = "[[task]]\nid = \"a\"\ntotal = { offset = [0], shape = [30] }\nblock = { shape = [10] }\nrun = { command = [\"true\"] }\n"

func write(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "my job.toml")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestTheFrozenFileSaysWhatTheCommandLineAddedAndIsAJobFile(t *testing.T) {
	file := write(t, "\ufeff"+small)
	j, err := jobfile.Load(file, []string{"run.name=x", "task.a.timeout=1h"}, jobfile.Options{Launcher: "serial", MaxWorkers: 3})
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Dir(file)
	want := "# The job file \"" + file + "\" as it was at the start of the run; relative paths start at \"" + dir + "\".\n" +
		"# --set \"run.name=x\"\n# --set \"task.a.timeout=1h\"\n# --launcher \"serial\"\n# --max-workers 3\n\n" + small
	if got := string(j.Frozen); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if j, err = jobfile.Load(write(t, string(j.Frozen)), nil, jobfile.Options{}); err != nil || j.Name != "my_job" {
		t.Errorf("got %+v, %v", j, err)
	}
}

func TestAJobFileInAFolderWhoseNameIsNoTextIsRefused(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a\xff")
	if err := os.Mkdir(dir, 0o755); err != nil {
		testenv.Unavailable(t, "a file system whose names need not be text: "+err.Error())
	}
	file := filepath.Join(dir, "job.toml")
	if err := os.WriteFile(file, []byte(small), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := jobfile.Load(file, nil, jobfile.Options{}); err == nil || !strings.Contains(err.Error(), `a\xff", whose name is not UTF-8: rename the folder, or move the job file`) {
		t.Errorf("got %v", err)
	}
}

func TestEachErrorCanBeTakenApart(t *testing.T) {
	_, err := jobfile.Load(write(t, small+"slots = 0\n"), []string{"run.grace=1"}, jobfile.Options{})
	var all *jobfile.Errors
	if !errors.As(err, &all) || len(all.List) != 2 {
		t.Fatal(err)
	}
	if e := all.List[0]; e.Line != 6 || e.Where != `task "a"` || e.Key != "slots" {
		t.Errorf("got %+v", e)
	}
	if e := all.List[1]; e.Argument != "--set run.grace=1" || e.Where != "run" || e.Key != "grace" {
		t.Errorf("got %+v", e)
	}
}

func TestWhatIsNoJobFileIsRefusedAndNeitherHangsNorCrashes(t *testing.T) {
	for name, file := range map[string]string{
		"folder":       t.TempDir(),
		"device":       "/dev/zero",
		"deep nesting": write(t, "x = "+strings.Repeat("[", 1<<20-10)),
		"deep key":     write(t, "["+strings.Repeat("a.", 1<<19-10)+"a]"),
		"large":        write(t, strings.Repeat("#", 2<<20)),
		"binary":       write(t, "\x00\xff\xfe"),
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := jobfile.Load(file, nil, jobfile.Options{}); err == nil {
				t.Error("accepted")
			} else if len(err.Error()) > 4096 {
				t.Errorf("%d characters of error", len(err.Error()))
			} else {
				t.Log(err)
			}
		})
	}
}
