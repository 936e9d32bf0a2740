package jobfile_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
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

// mask is a .npy file of three blocks, of which one is skipped.
const mask = "\x93NUMPY\x01\x00\x38\x00{'descr': '|u1', 'fortran_order': False, 'shape': (3,)}\n\x00\x01\x00"

func TestAFrozenJobHasTheMaskOfWhichThereIsACopy(t *testing.T) {
	file := write(t, small+"skip_mask = \"mask.npy\"\n")
	dir := filepath.Dir(file)
	if err := os.WriteFile(filepath.Join(dir, "mask.npy"), []byte(mask), 0o644); err != nil {
		t.Fatal(err)
	}
	j, err := jobfile.Load(file, nil, jobfile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	kept := write(t, string(j.Frozen))
	copied := jobfile.Options{Mask: func(task string) string { return filepath.Join(filepath.Dir(kept), task+".npy") }}
	if again, err := jobfile.LoadFrozen(kept, nil, copied); err != nil || again.Tasks[0].Mask.Count() != 1 {
		t.Errorf("without a copy: got %+v, %v, want the mask itself", again, err)
	}
	if err := os.Rename(filepath.Join(dir, "mask.npy"), copied.Mask("a")); err != nil {
		t.Fatal(err)
	}
	if again, err := jobfile.LoadFrozen(kept, nil, copied); err != nil || again.Tasks[0].Mask.Count() != 1 || j.Changes(again) != nil {
		t.Errorf("with a copy alone: got %+v, %v, want the job as it was", again, err)
	}
}

func TestAJobFileThatIsHandedOverOpenIsOneOfThePresentFolder(t *testing.T) {
	file := write(t, small)
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	inherited, err := syscall.Dup(int(f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(inherited)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	t.Chdir(filepath.Dir(file))
	path := fmt.Sprintf("/dev/fd/%d", inherited)
	j, err := jobfile.Load(path, nil, jobfile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if j.Dir != filepath.Dir(file) || !strings.HasPrefix(string(j.Frozen), "# The job file \""+path+"\" as it was") {
		t.Errorf("got the folder %s and\n%s", j.Dir, j.Frozen)
	}
	if out, _ := exec.Command("sh", "-c", "cat "+path).Output(); len(out) > 0 {
		t.Errorf("a program that it starts has the file: %q", out)
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
