//go:build linux

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"example.org/daisy/internal/testenv"
)

// obeyModes makes a run of root's obey the modes of files, as anybody else's does.
func (s *submit) obeyModes() {
	s.t.Helper()
	if os.Geteuid() != 0 {
		return
	}
	setpriv, err := exec.LookPath("setpriv")
	if err != nil {
		testenv.Unavailable(s.t, "root may write where others may not, and there is no setpriv (util-linux) to make it equal: run it as another user")
	}
	const caps = "-dac_override,-dac_read_search"
	s.cmd.Args = append([]string{setpriv, "--inh-caps=" + caps, "--bounding-set=" + caps, s.cmd.Path}, s.cmd.Args[1:]...)
	s.cmd.Path = setpriv
}

// readOnly takes the right to write in folders away, and gives what gives it back.
func readOnly(t testing.TB, folders ...string) (undo func()) {
	t.Helper()
	set := func(mode os.FileMode) {
		for _, folder := range folders {
			if err := os.Chmod(folder, mode); err != nil {
				t.Fatal(err)
			}
		}
	}
	set(0o500)
	t.Cleanup(func() { set(0o700) })
	return func() { set(0o700) }
}

func TestMarksAreWrittenIntoAFolderThatBecomesReadOnly(t *testing.T) {
	t.Parallel()
	d := newDirector(t)
	dir, path := writeJob(t, job("resources = { cpu = 1 }\ntracking = \"marks\"", blocks("work", 3)+d.code("command")))
	s := prepare(t, dir, "run", path, "--run-dir", "out")
	s.obeyModes()
	s.begin()
	v := d.next()
	marks := dir + "/marks"
	readOnly(t, marks, filepath.Join(marks, "work"), filepath.Join(marks, "work", "done"), filepath.Join(marks, "work", "done", "c"))
	d.letAllEnd()
	v.ok()
	if r := s.wait(); r.status != 0 {
		t.Errorf("exit status %d, want 0", r.status)
	}
	if got := marked(t, dir+"/marks", "work"); len(got) != 3 {
		t.Errorf("marked are %v", got)
	}
}

func TestARunWhoseDirectoryBecomesReadOnlyEndsInOrder(t *testing.T) {
	t.Parallel()
	d := newDirector(t)
	ran := filepath.Join(t.TempDir(), "ran")
	dir, path := writeJob(t, job("resources = { cpu = 1 }\ngrace = \"1s\"", blocks("work", 3)+d.code("command", "E2E_RAN="+ran)))
	out := dir + "/out"
	s := prepare(t, dir, "run", path, "--run-dir", out)
	s.obeyModes()
	s.begin()
	d.next().ok()
	second := d.next() // the success of the first one has been acknowledged
	undo := readOnly(t, out, out+"/journal", out+"/logs")
	s.stderr.await(t, "no new blocks: write into "+out+": permission denied")
	second.ok() // what runs may end
	r := s.wait()
	undo()
	if r.status != 3 {
		t.Errorf("exit status %d, want 3", r.status)
	}
	wantText(t, r.all(), "change the permissions", "The statistics are in no file", "3 blocks: 2 succeeded, 1 abandoned")
	d.letAllEnd()
	wantStatus(t, 0, dir, "run", "--resume", out)
	if got := strings.Fields(readFile(t, ran)); !slices.Equal(got, []string{"0", "1", "2"}) {
		t.Errorf("blocks ran in this order: %v", got)
	}
}
