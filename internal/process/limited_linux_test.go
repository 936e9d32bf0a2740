package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// asGiven is a shell with whatever is to be passed on byte for byte.
func asGiven(script string) Config {
	return Config{
		Argv: []string{"/bin/sh", "-c", script, "zero", "", "a b", "ü\xff\n"},
		Env:  []string{"A=1", "not a name=2", "A=twice", "=empty", "no equals sign", "BYTES=\xff\n"},
	}
}

func TestUnderALimitAProgramIsStartedAsWithoutOne(t *testing.T) {
	const script = `ulimit -v; printf '%s|' "$0" "$@" "$PWD"; cat /proc/self/environ; cat; cat <&3`
	run := func(limit MemoryLimit) string {
		s := newSpawner(t)
		c := asGiven(script)
		out, read := outputFile(t)
		extra, err := os.Open(filepath.Join(givenFile(t, "descriptor three")))
		if err != nil {
			t.Fatal(err)
		}
		defer extra.Close()
		c.Dir, c.Input, c.Stdout, c.Stderr, c.ExtraFiles, c.Memory = "/usr", []byte("input"), out, out, []*os.File{extra}, limit
		p, err := s.Start(c)
		if err != nil {
			t.Fatal(err)
		}
		if r := p.Wait(); !r.Success() {
			t.Errorf("%v", r)
		}
		return read()
	}
	without, with := run(MemoryLimit{}), run(MemoryLimit{AddressSpace: 300 << 20})
	if want := "307200\n"; !strings.HasPrefix(with, want) {
		t.Errorf("the limit is %.20q, want %q", with, want)
	}
	_, without, _ = strings.Cut(without, "\n")
	_, with, _ = strings.Cut(with, "\n")
	if with != without {
		t.Errorf("with a limit:\n%q\nwithout:\n%q", with, without)
	}
}

func givenFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "given")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestUnderALimitOfAddressSpaceAProcessCannotHaveMore(t *testing.T) {
	for limit, want := range map[int64]bool{100 << 20: false, 0: true} {
		p, err := newSpawner(t).Start(Config{
			Argv: []string{"/bin/sh", "-c", "head -c 200000000 /dev/zero | tail -c 200000000 > /dev/null"}, Memory: MemoryLimit{AddressSpace: limit},
		})
		if err != nil {
			t.Fatal(err)
		}
		if r := p.Wait(); r.Success() != want {
			t.Errorf("limit %d: a child with 200 MB ended with %v", limit, r)
		}
	}
}

func TestALimitIsNeverAboveTheOneThatThereIs(t *testing.T) {
	s := newStage(t)
	out, read := outputFile(t)
	c := s.config("limited further", "1099511627776")
	c.Stdout, c.Stderr, c.Memory = out, out, MemoryLimit{AddressSpace: 8 << 30}
	if r := s.start(c).Wait(); !r.Success() || read() != "8388608\n" {
		t.Errorf("%v, the limit is %q, want that of the parent, 8388608", r, read())
	}
}

func TestWhatCannotBeStartedUnderALimitIsTheSameError(t *testing.T) {
	s := newSpawner(t)
	noInterpreter := givenFile(t, "#!/no/such/interpreter\n")
	notAProgram := givenFile(t, "no program")
	for _, path := range []string{noInterpreter, notAProgram} {
		if err := os.Chmod(path, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{"/no/such/program", noInterpreter, notAProgram, "/etc/passwd"} {
		_, want := s.Start(Config{Argv: []string{path}})
		_, got := s.Start(Config{Argv: []string{path}, Input: []byte("never read"), Memory: MemoryLimit{AddressSpace: 1 << 30}})
		if got == nil || want == nil || got.Error() != want.Error() {
			t.Errorf("got  %v\nwant %v", got, want)
		}
		var errno, wanted syscall.Errno
		if !errors.As(got, &errno) || !errors.As(want, &wanted) || errno != wanted {
			t.Errorf("%s: the number is %d, want %d", path, errno, wanted)
		}
	}
	if left := childrenOf(os.Getpid()); len(left) > 0 {
		t.Errorf("processes that were not started are left: %v", left)
	}
}

func TestAProgramThatCannotLimitStartsNothing(t *testing.T) {
	defer func(was bool) { limits = was }(limits)
	limits = false
	_, err := newSpawner(t).Start(Config{Argv: []string{"/bin/true"}, Memory: MemoryLimit{AddressSpace: 1 << 30}})
	if want := `cannot start "/bin/true" with limited memory: that is not possible on this system, or in this program`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// cgroups lays out a system of version 2.
func cgroups(t *testing.T, own string, files map[string]string) (root string) {
	t.Helper()
	root = t.TempDir()
	write := func(path, text string) {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("proc/self/cgroup", own)
	for path, text := range files {
		write(filepath.Join("sys/fs/cgroup", path), text)
	}
	return root
}

func TestWhereCgroupsMayLimitMemory(t *testing.T) {
	alone := fmt.Sprintf("%d\n", os.Getpid())
	for name, c := range map[string]struct {
		own   string
		files map[string]string
		base  string // below sys/fs/cgroup
		err   string
	}{
		"beside its own": {"0::/user/app\n", map[string]string{
			"user/app/cgroup.controllers": "cpu memory pids\n", "user/app/cgroup.procs": "1\n2\n", "user/app/memory.max": "max\n", "user/app/cpu.max": "max 100000\n", "user/cgroup.subtree_control": "memory pids\n", "user/cgroup.procs": "",
		}, "user", ""},
		"below its own, alone": {"4:memory:/x\n0::/job\n", map[string]string{
			"job/cgroup.controllers": "memory\n", "job/cgroup.subtree_control": "\n", "job/cgroup.procs": alone, "cgroup.subtree_control": "cpu\n",
		}, "job", ""},
		"below its own rather than beside it": {"0::/user/scope\n", map[string]string{
			"user/scope/cgroup.controllers": "memory\n", "user/scope/cgroup.subtree_control": "\n", "user/scope/cgroup.procs": alone, "user/scope/memory.max": "1000000\n",
			"user/cgroup.subtree_control": "memory\n", "user/cgroup.procs": "",
		}, "user/scope", ""},
		"not beside a limit": {"0::/user/scope\n", map[string]string{
			"user/scope/cgroup.controllers": "memory\n", "user/scope/cgroup.procs": "1\n" + alone, "user/scope/memory.max": "max\n", "user/scope/cpu.max": "200000 100000\n",
			"user/cgroup.subtree_control": "memory\n", "user/cgroup.procs": "",
		}, "", "the cgroup /user/scope has a limit of its own (cpu.max), which blocks beside it would not keep, and other processes are in it too, so that it cannot be divided"},
		"below the top": {"0::/\n", map[string]string{
			"cgroup.controllers": "memory\n", "cgroup.subtree_control": "memory\n", "cgroup.procs": "1\n2\n",
		}, "", ""},
		"not alone": {"0::/job\n", map[string]string{
			"job/cgroup.controllers": "memory\n", "job/cgroup.subtree_control": "\n", "job/cgroup.procs": "1\n" + alone,
		}, "", "other processes are in the cgroup /job too, so that it cannot be divided"},
		"no memory": {"0::/job\n", map[string]string{"job/cgroup.controllers": "cpu memory_of_old\n"}, "",
			"this process is in no cgroup of version 2 with the memory controller"},
		"version 1":     {"4:memory:/a\n", nil, "", "this process is in no cgroup of version 2 with the memory controller"},
		"not delegated": {"0::/job\n", map[string]string{"job/cgroup.controllers": "memory\n"}, "", "the cgroup /job, in which this process is, was not delegated to this user"},
	} {
		root := cgroups(t, c.own, c.files)
		base, err := FindMemoryCgroups(root)
		if c.err != "" {
			if err == nil || err.Error() != c.err {
				t.Errorf("%s: got %q %v, want %s", name, base, err, c.err)
			}
			continue
		}
		if want := filepath.Join(root, "sys/fs/cgroup", c.base); err != nil || base != want {
			t.Errorf("%s: got %q %v, want %s", name, base, err, want)
		}
	}
}

func TestAProcessThatIsAloneInItsCgroupMovesBelowBeforeItIsDivided(t *testing.T) {
	pid := fmt.Sprint(os.Getpid())
	root := cgroups(t, "0::/job\n", map[string]string{
		"job/cgroup.controllers": "memory\n", "job/cgroup.subtree_control": "", "job/cgroup.procs": pid + "\n", "cgroup.subtree_control": "",
	})
	if _, err := OpenMemoryCgroups(root); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"daisy-" + pid + "/cgroup.procs": pid, "cgroup.subtree_control": "+memory"} {
		got, err := os.ReadFile(filepath.Join(root, "sys/fs/cgroup/job", path))
		if err != nil || string(got) != want {
			t.Errorf("%s: %q %v, want %q", path, got, err, want)
		}
	}
}

func TestACgroupLimitsMemoryAndTakesTheProcessIn(t *testing.T) {
	root := cgroups(t, "0::/user/app\n", map[string]string{
		"user/app/cgroup.controllers": "memory\n", "user/cgroup.subtree_control": "memory\n", "user/cgroup.procs": "",
	})
	all, err := OpenMemoryCgroups(root)
	if err != nil {
		t.Fatal(err)
	}
	one, err := all.New(123 << 20)
	if err != nil {
		t.Fatal(err)
	}
	other, err := all.New(1)
	if err != nil || other.dir == one.dir {
		t.Fatalf("another: %v, %v", other, err)
	}
	p, err := newSpawner(t).Start(Config{Argv: []string{"/bin/true"}, Memory: MemoryLimit{Cgroup: one}})
	if err != nil {
		t.Fatal(err)
	}
	p.Wait()
	for file, want := range map[string]string{"memory.max": fmt.Sprint(123 << 20), "cgroup.procs": "0"} {
		if got, err := os.ReadFile(filepath.Join(one.dir, file)); err != nil || string(got) != want {
			t.Errorf("%s: %q %v, want %q", file, got, err, want)
		}
	}
	if n := one.Kills(); n != 0 {
		t.Errorf("%d were killed, and nothing says so", n)
	}
	if err := os.WriteFile(filepath.Join(one.dir, "memory.events"), []byte("max 3\noom 1\noom_kill 2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if one.Kills() != 2 || other.Kills() != 0 {
		t.Errorf("killed: %d, %d, want 2 of the first", one.Kills(), other.Kills())
	}
	for _, file := range []string{"memory.max", "cgroup.procs", "memory.events"} { // there they go with the folder
		os.Remove(filepath.Join(one.dir, file))
	}
	if err := one.Remove(); err != nil {
		t.Error(err)
	}
	if _, err := newSpawner(t).Start(Config{Argv: []string{"/bin/true"}, Memory: MemoryLimit{Cgroup: one}}); err == nil || !strings.Contains(err.Error(), `cannot start "/bin/true" with limited memory: enter the cgroup: `) {
		t.Errorf("in a cgroup that is gone: %v", err)
	}
}
