package main

import (
	"errors"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// layOut makes files below a folder that stands for /.
func layOut(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

const someUID = 4242 // of nobody, so that its name is its number

func noLoginctl(...string) (string, error) { return "", errors.New("no such program") }

func TestWhatLogindEndsAtLogoutIsReadAsSystemdReadsIt(t *testing.T) {
	if _, err := user.LookupId("4242"); err == nil {
		t.Fatal("user 4242 exists, and the test takes it for nobody")
	}
	const session = "0::/user.slice/user-4242.slice/session-7.scope\n"
	base := map[string]string{"proc/self/cgroup": session, "run/systemd/system/x": ""}
	for name, tc := range map[string]struct {
		files map[string]string
		said  map[string]string // by the first word that loginctl is asked
		dies  bool
		from  string
	}{
		"nothing is said":             {files: nil},
		"in the main file":            {files: map[string]string{"etc/systemd/logind.conf": "[Login]\n# KillUserProcesses=no\n KillUserProcesses = Yes \n"}, dies: true, from: "etc/systemd/logind.conf"},
		"as a comment":                {files: map[string]string{"etc/systemd/logind.conf": "[Login]\n#KillUserProcesses=yes\n;KillUserProcesses=yes\n"}},
		"in another section":          {files: map[string]string{"etc/systemd/logind.conf": "[Other]\nKillUserProcesses=yes\n"}},
		"taken back by a drop-in":     {files: map[string]string{"etc/systemd/logind.conf": "[Login]\nKillUserProcesses=yes\n", "etc/systemd/logind.conf.d/10.conf": "[Login]\nKillUserProcesses=no\n"}},
		"the last drop-in counts":     {files: map[string]string{"usr/lib/systemd/logind.conf.d/90.conf": "[Login]\nKillUserProcesses=1\n", "etc/systemd/logind.conf.d/10.conf": "[Login]\nKillUserProcesses=no\n"}, dies: true, from: "usr/lib/systemd/logind.conf.d/90.conf"},
		"of one name that of /etc":    {files: map[string]string{"usr/lib/systemd/logind.conf.d/10.conf": "[Login]\nKillUserProcesses=no\n", "etc/systemd/logind.conf.d/10.conf": "[Login]\nKillUserProcesses=on\n"}, dies: true, from: "etc/systemd/logind.conf.d/10.conf"},
		"the main file of /etc hides": {files: map[string]string{"etc/systemd/logind.conf": "[Login]\n", "usr/lib/systemd/logind.conf": "[Login]\nKillUserProcesses=yes\n"}},
		"the vendor's main file":      {files: map[string]string{"usr/lib/systemd/logind.conf": "[Login]\nKillUserProcesses=yes\n"}, dies: true, from: "usr/lib/systemd/logind.conf"},
		"but not this user's":         {files: map[string]string{"etc/systemd/logind.conf": "[Login]\nKillUserProcesses=yes\nKillExcludeUsers=root 4242\n"}},
		"others' only":                {files: map[string]string{"etc/systemd/logind.conf": "[Login]\nKillUserProcesses=yes\nKillOnlyUsers=ada bob\n"}},
		"this user's only":            {files: map[string]string{"etc/systemd/logind.conf": "[Login]\nKillUserProcesses=yes\nKillOnlyUsers=4242\n"}, dies: true, from: "etc/systemd/logind.conf"},
		"the manager knows best":      {files: map[string]string{"etc/systemd/logind.conf": "[Login]\nKillUserProcesses=no\n"}, said: map[string]string{"show-session": "KillUserProcesses=yes\nKillOnlyUsers=\nKillExcludeUsers=root\n"}, dies: true, from: "systemd-logind"},
		"in no session":               {files: map[string]string{"etc/systemd/logind.conf": "[Login]\nKillUserProcesses=yes\n", "proc/self/cgroup": "0::/system.slice/cron.service\n"}},
		"in a session of version 1":   {files: map[string]string{"etc/systemd/logind.conf": "[Login]\nKillUserProcesses=yes\n", "proc/self/cgroup": "4:memory:/user.slice\n1:name=systemd:/user.slice/user-4242.slice/session-7.scope\n"}, dies: true, from: "etc/systemd/logind.conf"},
		"below the user's manager":    {files: map[string]string{"proc/self/cgroup": "0::/user.slice/user-4242.slice/user@4242.service/tmux.scope\n"}, dies: true, from: "systemd-logind"},
		"which lingers":               {files: map[string]string{"proc/self/cgroup": "0::/user.slice/user-4242.slice/user@4242.service/tmux.scope\n", "var/lib/systemd/linger/4242": ""}},
		"which lingers, as it says":   {files: map[string]string{"proc/self/cgroup": "0::/user.slice/user-4242.slice/user@4242.service/tmux.scope\n"}, said: map[string]string{"show-user": "Linger=yes\n"}},
	} {
		files := map[string]string{}
		for _, m := range []map[string]string{base, tc.files} {
			for k, v := range m {
				files[k] = v
			}
		}
		root := layOut(t, files)
		s := sessionAt(root, someUID, func(args ...string) (string, error) {
			if said, there := tc.said[args[0]]; there {
				return said, nil
			}
			return noLoginctl()
		}, 0)
		if s.dies() != tc.dies {
			t.Errorf("%s: it dies: %v, want %v (%+v)", name, s.dies(), tc.dies, s)
		}
		if tc.dies && strings.TrimPrefix(s.from, root+"/") != tc.from {
			t.Errorf("%s: said by %s, want %s", name, s.from, tc.from)
		}
		warned := slices.ContainsFunc(s.warnings(), func(w string) bool {
			return strings.HasPrefix(w, "WARNING: THIS RUN WILL BE KILLED") && strings.Contains(w, "--coordinator job")
		})
		if warned != tc.dies {
			t.Errorf("%s: the warnings are %q", name, s.warnings())
		}
	}
}

func TestWithoutSystemdNothingEndsAtLogout(t *testing.T) {
	root := layOut(t, map[string]string{"proc/self/cgroup": "0::/user.slice/user-4242.slice/session-7.scope\n", "etc/systemd/logind.conf": "[Login]\nKillUserProcesses=yes\n"})
	if s := sessionAt(root, someUID, noLoginctl, 0); s.dies() || s.warnings() != nil {
		t.Errorf("%+v: %q", s, s.warnings())
	}
}

// Whoever may linger gets out of the session with systemd-run.
func TestWhoLingersIsMovedOutOfTheSession(t *testing.T) {
	bin := t.TempDir()
	program := filepath.Join(bin, "systemd-run")
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"), 0o755); err != nil { //nolint:gosec // it stands for a program
		t.Fatal(err)
	}
	t.Setenv("PATH", bin)
	files := map[string]string{"proc/self/cgroup": "0::/user.slice/user-4242.slice/session-7.scope\n", "run/systemd/system/x": "", "etc/systemd/logind.conf": "[Login]\nKillUserProcesses=yes\n"}
	if s := sessionAt(layOut(t, files), someUID, noLoginctl, 0); s.escape() != nil || s.warnings() == nil {
		t.Errorf("without linger: %q, %q", s.escape(), s.warnings())
	}
	files["var/lib/systemd/linger/4242"] = ""
	s := sessionAt(layOut(t, files), someUID, noLoginctl, 0)
	if want := []string{program, "--user", "--scope", "--quiet", "--collect", "--"}; !slices.Equal(s.escape(), want) || s.warnings() != nil {
		t.Errorf("it is started with %q and %q is said, want %q and nothing", s.escape(), s.warnings(), want)
	}
}

func TestLimitsOfASessionAreThoseOfAllAboveIt(t *testing.T) {
	const slice = "sys/fs/cgroup/user.slice/user-4242.slice/"
	root := layOut(t, map[string]string{
		"proc/self/cgroup":                   "0::/user.slice/user-4242.slice/session-7.scope\n",
		slice + "session-7.scope/memory.max": "max\n", slice + "memory.max": "536870912\n", slice + "memory.high": "268435456\n", "sys/fs/cgroup/user.slice/memory.max": "1073741824\n",
		slice + "cpu.max": "50000 100000\n", "sys/fs/cgroup/user.slice/cpu.max": "max 100000\n",
	})
	s := sessionAt(root, someUID, noLoginctl, 10*time.Minute)
	if s.memory != 256<<20 || s.memoryOf != "/user.slice/user-4242.slice/memory.high" || s.cpus != 0.5 || s.cpusOf != "/user.slice/user-4242.slice/cpu.max" {
		t.Errorf("%+v", s)
	}
	said := strings.Join(s.warnings(), "\n")
	for _, want := range []string{"256MiB of memory together (/user.slice/user-4242.slice/memory.high)", "0.5 of a core", "after 10m00s of processor time"} {
		if !strings.Contains(said, want) {
			t.Errorf("there is no %q in\n%s", want, said)
		}
	}
	root = layOut(t, map[string]string{"proc/self/cgroup": "9:memory:/user.slice/user-4242.slice\n", "sys/fs/cgroup/memory/user.slice/user-4242.slice/memory.limit_in_bytes": "134217728\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"})
	if s := sessionAt(root, someUID, noLoginctl, 0); s.memory != 128<<20 {
		t.Errorf("by cgroups of version 1: %+v", s)
	}
}
