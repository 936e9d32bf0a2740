package rundir

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func mustCreate(t testing.TB, parent, name, explicit string) *Dir {
	t.Helper()
	d, err := Create(parent, name, explicit)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestARunDirectoryIsPrivateAndHasItsParts(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0))
	d := mustCreate(t, filepath.Join(t.TempDir(), "runs"), "segment", "")
	for path, want := range map[string]fs.FileMode{
		d.Path():                        fs.ModeDir | 0o700,
		d.JournalDir():                  fs.ModeDir | 0o700,
		d.LogsDir():                     fs.ModeDir | 0o700,
		d.OutboxDir():                   fs.ModeDir | 0o700,
		filepath.Dir(d.WorkerPath()):    fs.ModeDir | 0o700,
		filepath.Join(d.path, "secret"): 0o600,
	} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode(); got != want {
			t.Errorf("%s has mode %v, want %v", path, got, want)
		}
	}
	secret, err := d.Secret()
	if err != nil || len(secret) != 64 {
		t.Errorf("secret %q, %v", secret, err)
	}
	other := mustCreate(t, t.TempDir(), "segment", "")
	if s, _ := other.Secret(); s == secret || other.RunID() == d.RunID() {
		t.Error("two runs share secret or id")
	}
	opened, err := Open(d.Path())
	if err != nil {
		t.Fatal(err)
	}
	if opened.RunID() != d.RunID() || opened.Name() != "segment" || !opened.Created().Equal(d.Created()) || opened.Path() != d.Path() {
		t.Errorf("opened %+v, want %+v", opened, d)
	}
}

func TestRunsAreNamedByNameAndTimeAndLatestLeadsToTheNewest(t *testing.T) {
	parent := t.TempDir()
	now := time.Date(2026, 11, 30, 15, 4, 5, 0, time.Local)
	var names []string
	for range 3 {
		d, err := create(parent, "segment", "", now)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, filepath.Base(d.Path()))
		latest, err := Open(filepath.Join(parent, "latest"))
		if err != nil {
			t.Fatal(err)
		}
		if latest.Path() != d.Path() {
			t.Errorf("latest leads to %s, want %s", latest.Path(), d.Path())
		}
	}
	want := []string{"segment-2026-11-30T15-04-05", "segment-2026-11-30T15-04-05-2", "segment-2026-11-30T15-04-05-3"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	if link, err := os.Readlink(filepath.Join(parent, "latest")); err != nil || link != want[2] {
		t.Errorf("latest is %q (%v), want the relative path %q", link, err, want[2])
	}
}

func TestSomethingOfTheUsersNamedLatestIsLeftAlone(t *testing.T) {
	parent := t.TempDir()
	if err := os.Mkdir(filepath.Join(parent, "latest"), 0o755); err != nil {
		t.Fatal(err)
	}
	d := mustCreate(t, parent, "segment", "")
	want := []string{filepath.Join(parent, "latest") + " is not a symbolic link, so it was left as it is; rename it if it is to lead to the latest run"}
	if diff := cmp.Diff(want, d.Warnings()); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
}

func TestAnExplicitDirectoryMustBeNewOrEmpty(t *testing.T) {
	parent := t.TempDir()
	held := mustCreate(t, "", "segment", filepath.Join(parent, "a", "held"))
	if _, err := os.Lstat(filepath.Join(parent, "a", "latest")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a link was made beside an explicit directory: %v", err)
	}
	empty := filepath.Join(parent, "empty")
	if err := os.Mkdir(empty, 0o755); err != nil {
		t.Fatal(err)
	}
	d := mustCreate(t, "", "segment", empty)
	if info, err := os.Stat(d.Path()); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	full, file := filepath.Join(parent, "full"), filepath.Join(parent, "file")
	if err := os.MkdirAll(filepath.Join(full, "data"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		held.Path():                    held.Path() + " holds run " + held.RunID() + " already; give another --run-dir",
		full:                           full + ` is not empty (it has "data") and is no run directory; give another --run-dir`,
		file:                           file + " is a file, not a directory; give another --run-dir",
		filepath.Join(file, "x"):       "make the run directory " + filepath.Join(file, "x") + ": not a directory",
		filepath.Join(parent, "a\nb"):  `has a control character in its path; use another directory`,
		filepath.Join(parent, "a\xff"): `a\xff" has a path that is not UTF-8; use another directory`,
	} {
		_, err := Create("", "segment", path)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
	if _, err := Create("", "segment", ""); err == nil || err.Error() != "the run directory has an empty path" {
		t.Errorf("empty parent: %v", err)
	}
}

func TestOfManyThatMakeOneDirectoryAtOnceOneHasIt(t *testing.T) {
	parent := t.TempDir()
	for round := range 20 {
		path := filepath.Join(parent, strconv.Itoa(round))
		var all sync.WaitGroup
		got := make([]*Dir, 4)
		errs := make([]error, len(got))
		for i := range got {
			all.Go(func() { got[i], errs[i] = Create("", "segment", path) })
		}
		all.Wait()
		winners := 0
		for i, d := range got {
			if d == nil {
				if !strings.Contains(errs[i].Error(), "give another --run-dir") {
					t.Errorf("round %d: %v", round, errs[i])
				}
				continue
			}
			winners++
			if _, err := os.Stat(d.join(secretFile)); err != nil {
				t.Errorf("round %d: %v", round, err)
			}
			if again, err := Open(path); err != nil || again.RunID() != d.RunID() {
				t.Errorf("round %d: %v", round, err)
			}
		}
		if winners != 1 {
			t.Fatalf("round %d: %d have it: %v", round, winners, errs)
		}
	}
}

func TestAnythingInAPathWorks(t *testing.T) {
	parent := filepath.Join(t.TempDir(), `a b`, `(x)'q"`, "ü", "$HOME", "%j")
	d := mustCreate(t, parent, `my job/ü "1"`, "")
	if !strings.HasPrefix(filepath.Base(d.Path()), "my-job-ü-1-") {
		t.Errorf("path %s", d.Path())
	}
	if d.Name() != `my job/ü "1"` {
		t.Errorf("name %q", d.Name())
	}
	if got := Unfinished(parent, d.Name()); len(got) != 1 || got[0] != d.Path() {
		t.Errorf("unfinished: %v", got)
	}
}

func TestASafeNameIsOnePathElement(t *testing.T) {
	for name, want := range map[string]string{
		"segment": "segment", "": "run", "..": "run", "../../etc": "etc", ".hidden": "hidden", "a/b": "a-b", "a//b c": "a-b-c", "-rf": "rf",
		"x\x00y\nz": "x-y-z", "ü_1.2": "ü_1.2", "\xff": "run", "a.": "a", strings.Repeat("ü", 80): strings.Repeat("ü", 50),
	} {
		if got := SafeName(name); got != want {
			t.Errorf("SafeName(%q) = %q, want %q", name, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.String().Draw(t, "name")
		got := SafeName(name)
		if got == "" || len(got) > maxName || strings.ContainsAny(got, "/\x00\n%$'\" ") || got[0] == '.' || got[0] == '-' || filepath.Base(got) != got {
			t.Fatalf("SafeName(%q) = %q", name, got)
		}
		if again := SafeName(got); again != got {
			t.Fatalf("SafeName(%q) = %q, and of that %q", name, got, again)
		}
	})
}

func TestALogIsAlwaysInTheLogsDirectory(t *testing.T) {
	d := mustCreate(t, t.TempDir(), "segment", "")
	for _, id := range []string{"predict-1", "../../x", "/etc/passwd", ""} {
		if got := filepath.Dir(d.LogPath(id)); got != d.LogsDir() {
			t.Errorf("LogPath(%q) is in %s", id, got)
		}
	}
}

func TestWhatIsNoRunDirectoryIsNotOpened(t *testing.T) {
	parent := t.TempDir()
	damaged := mustCreate(t, parent, "damaged", "")
	newer := mustCreate(t, parent, "newer", "")
	for path, text := range map[string]string{damaged.join(runFile): "{oops", newer.join(runFile): `{"version":2,"run_id":"x"}`} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]string{
		parent:                           parent + " is no run directory: it has no run.json",
		filepath.Join(parent, "nothing"): "there is no run directory " + filepath.Join(parent, "nothing"),
		damaged.Path():                   damaged.join(runFile) + " cannot be read: invalid character",
		newer.Path():                     newer.join(runFile) + " has format version 2, and this program knows version 1; use the version of daisy that made the run",
	} {
		if _, err := Open(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}

func TestUnfinishedRunsOfTheNameAreFound(t *testing.T) {
	parent := t.TempDir()
	now := time.Date(2026, 11, 30, 15, 4, 5, 0, time.Local)
	made := map[string]*Dir{}
	for i, c := range []struct{ key, name, stats string }{
		{"crashed", "segment", ""},
		{"running", "segment", `{"run":{"state":"running"}}`},
		{"done", "segment", `{"run":{"state":"done"}}`},
		{"failed", "segment", `{"run":{"state":"failed"}}`},
		{"other", "segment-2", ""},
		{"same path", "segment/", ""},
	} {
		d, err := create(parent, c.name, "", now.Add(time.Duration(i)*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		if c.stats != "" {
			if err := d.WriteStats([]byte(c.stats)); err != nil {
				t.Fatal(err)
			}
		}
		made[c.key] = d
	}
	want := []string{made["crashed"].Path(), made["running"].Path()}
	if diff := cmp.Diff(want, Unfinished(parent, "segment")); diff != "" {
		t.Errorf("unfinished (-want +got):\n%s", diff)
	}
	if got := Unfinished(filepath.Join(parent, "nothing"), "segment"); got != nil {
		t.Errorf("unfinished in a directory that is not there: %v", got)
	}
}

func TestFilesAreReplacedWhole(t *testing.T) {
	d := mustCreate(t, t.TempDir(), "segment", "")
	for _, text := range []string{"a long first version", "short"} {
		if err := d.WriteJob([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(d.JobPath()); err != nil || string(got) != text {
			t.Errorf("job %q, %v", got, err)
		}
	}
	entries, err := os.ReadDir(d.Path())
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			t.Errorf("%s was left behind", e.Name())
		}
	}
}

func TestTheWorkerIsARealCopy(t *testing.T) {
	d := mustCreate(t, t.TempDir(), "segment", "")
	src := filepath.Join(t.TempDir(), "worker")
	if err := os.WriteFile(src, []byte("version 1"), 0o755); err != nil {
		t.Fatal(err)
	}
	dst, err := d.CopyWorker(src)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(src, []byte("version 2"), 0o755); err != nil { // in place, as a rebuild may
		t.Fatal(err)
	}
	data, err := os.ReadFile(dst)
	if err != nil || !bytes.Equal(data, []byte("version 1")) {
		t.Errorf("copy %q, %v", data, err)
	}
	if info, err := os.Stat(dst); err != nil || info.Mode() != 0o700 || dst != d.WorkerPath() {
		t.Errorf("copy %s: %v, %v", dst, info.Mode(), err)
	}
	if err := os.Chmod(src, 0o644); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		src:              "it is not an executable file (mode -rw-r--r--)",
		src + "-nothing": "copy the program " + src + "-nothing: no such file or directory",
		d.Path():         "it is not an executable file (mode drwx------)",
	} {
		if _, err := d.CopyWorker(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// It shows most with TMPDIR on a file system in memory, where no fsync gives the children time.
func TestTheCopyCanBeRunAtOnceWhileOtherProcessesAreStarted(t *testing.T) {
	src, err := exec.LookPath("true")
	if err != nil {
		t.Fatal(err)
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				_ = exec.Command(src).Run()
			}
		}
	}()
	d := mustCreate(t, t.TempDir(), "segment", "")
	for range 50 {
		worker, err := d.CopyWorker(src)
		if err != nil {
			t.Fatal(err)
		}
		if err := exec.Command(worker).Run(); err != nil {
			t.Error(err)
			break
		}
	}
	close(stop)
	<-stopped
}

func TestASecretThatWasCutShortIsRefused(t *testing.T) {
	d := mustCreate(t, t.TempDir(), "segment", "")
	if err := os.WriteFile(d.join(secretFile), []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Secret(); err == nil || !strings.Contains(err.Error(), "has 0 characters, and at least 32 are needed") {
		t.Errorf("got %v", err)
	}
}

func TestDiscoveryIsWrittenAndRead(t *testing.T) {
	d := mustCreate(t, t.TempDir(), "segment", "")
	if _, err := ReadDiscovery(d.Path()); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), d.DiscoveryPath()) {
		t.Errorf("before it is there: %v", err)
	}
	want := Discovery{Epoch: 3, Addresses: []string{"10.0.0.1:4000", "[::1]:4000"}, Started: time.Date(2026, 11, 30, 15, 4, 5, 0, time.UTC), Host: "login", PID: 17,
		Fingerprint: strings.Repeat("0a", 32)}
	if err := d.WriteDiscovery(want); err != nil {
		t.Fatal(err)
	}
	got, err := ReadDiscovery(d.Path())
	if err != nil {
		t.Fatal(err)
	}
	want.Version, want.RunID = DiscoveryVersion, d.RunID()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("discovery (-want +got):\n%s", diff)
	}
}

func FuzzDiscoveryAndLockFilesOfAnyBytesAreReadOrRefused(f *testing.F) {
	f.Add([]byte(`{"version":1,"epoch":3,"run_id":"x","addresses":["h:1"]}`))
	f.Add([]byte(`{"version":1,"epoch":3,"run_id":"x","addresses":["h:1"],"certificate_sha256":"` + strings.Repeat("0a", 32) + `"}`))
	f.Add([]byte(`{"version":1,"epoch":3,"run_id":"x","addresses":["h:1"],"certificate_sha256":"0a"}`))
	f.Add(Owner{Host: "h", PID: 1, Token: "t"}.encode())
	f.Add([]byte("{oops"))
	f.Add([]byte(nil))
	f.Fuzz(func(t *testing.T, data []byte) {
		if where, err := parseDiscovery("file", data); err == nil && (where.Epoch == 0 || len(where.Addresses) == 0 || len(where.Fingerprint)%64 != 0) {
			t.Errorf("accepted %+v", where)
		}
		if owner, err := parseOwner("file", data); err == nil && len(owner.encode()) != ownerSize {
			t.Errorf("%+v takes %d bytes", owner, len(owner.encode()))
		}
	})
}

func TestErrorsOfTheFileSystemNamePathAndNextStep(t *testing.T) {
	for cause, want := range map[error]string{
		syscall.ENOSPC:       "write /x: no space left on device; free space (or inodes) there, or give another directory",
		syscall.EDQUOT:       "write /x: disk quota exceeded; your quota there is used up: remove files, or give another directory",
		syscall.EACCES:       "write /x: permission denied; you may not do that there: change the permissions, or give another directory",
		syscall.EROFS:        "write /x: read-only file system; the file system is read-only: give another directory",
		syscall.ENAMETOOLONG: "write /x: file name too long; use a shorter name or another directory",
		syscall.EIO:          "write /x: input/output error",
	} {
		for _, err := range []error{
			explain("write", "/x", &fs.PathError{Op: "write", Path: "/x.tmp", Err: cause}),
			explain("write", "/x", &os.LinkError{Op: "rename", Old: "/x.tmp", New: "/x", Err: cause}),
		} {
			if err.Error() != want || !errors.Is(err, cause) {
				t.Errorf("got  %v\nwant %s", err, want)
			}
		}
	}
	if _, err := Create("/dev/null/runs", "segment", ""); err == nil || !strings.Contains(err.Error(), "make the directory for runs /dev/null/runs: not a directory") {
		t.Errorf("Create: %v", err)
	}
}

func TestADiscardedRunLeavesNoDirectoryAndNoLinkToIt(t *testing.T) {
	parent := t.TempDir()
	d, err := Create(parent, "a", "")
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Discard(); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(parent)
	if err != nil {
		t.Fatal(err)
	}
	if len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestADiscardedRunGivesLatestBackToTheRunBeforeIt(t *testing.T) {
	for name, c := range map[string]struct {
		between func(parent string, before, discarded *Dir) error
		want    func(before string) string
	}{
		"before": {func(string, *Dir, *Dir) error { return nil }, func(before string) string { return before }},
		"gone":   {func(_ string, before, _ *Dir) error { return os.RemoveAll(before.Path()) }, func(string) string { return "" }},
		"newer": {func(parent string, _, _ *Dir) error {
			_, err := Create(parent, "newer", "")
			return err
		}, func(string) string { return "newer" }},
	} {
		parent := t.TempDir()
		before, discarded := mustCreate(t, parent, "a", ""), mustCreate(t, parent, "a", "")
		if err := errors.Join(c.between(parent, before, discarded), discarded.Discard()); err != nil {
			t.Fatal(err)
		}
		if link, _ := os.Readlink(filepath.Join(parent, "latest")); !strings.HasPrefix(link, c.want(filepath.Base(before.Path()))) || link == "" != (name == "gone") {
			t.Errorf("%s: latest leads to %q", name, link)
		}
	}
}

func TestARunThatGoesOnIsNoUnfinishedOne(t *testing.T) {
	d := mustCreate(t, t.TempDir(), "segment", "")
	lock, err := d.TryLock()
	if err != nil {
		t.Fatal(err)
	}
	if got := Unfinished(filepath.Dir(d.Path()), "segment"); got != nil {
		t.Errorf("it goes on, and is unfinished: %v", got)
	}
	if err := lock.Unlock(); err != nil {
		t.Fatal(err)
	}
	if got := Unfinished(filepath.Dir(d.Path()), "segment"); len(got) != 1 {
		t.Errorf("nobody has it any more, and it is not unfinished: %v", got)
	}
}

func TestTheStatisticsTakeTheSpaceThatWasHeldForThem(t *testing.T) {
	d := mustCreate(t, t.TempDir(), "segment", "")
	room, err := os.Stat(d.join(roomFile))
	if err != nil || room.Size() != statsRoom {
		t.Fatalf("%v, %v", room, err)
	}
	for _, text := range []string{"the first", "the second, longer one"} {
		if err := d.WriteStats([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(d.StatsPath()); err != nil || string(got) != text {
			t.Errorf("%q, %v", got, err)
		}
		if now, err := os.Stat(d.StatsPath()); err != nil || os.SameFile(room, now) != (text == "the first") {
			t.Errorf("%q: the same file: %v, %v", text, os.SameFile(room, now), err)
		}
	}
	if _, err := os.Lstat(d.join(roomFile)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the room is left: %v", err)
	}
}
