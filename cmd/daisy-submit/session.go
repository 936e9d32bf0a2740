package main

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.org/daisy/internal/units"
)

// A loginSession says what becomes of programs of a user at logout, as systemd has it, and what they may use until then.
type loginSession struct {
	// kills: at logout the session's programs are ended. from is where that is said.
	kills bool
	from  string
	// linger: the user's own service manager outlives the last logout. inManager: this process is below it, not in a session.
	linger, inSession, inManager bool
	// memory is the least limit of the cgroups that this process is in, cpus that of cores; 0 = none. memoryOf and cpusOf are those cgroups.
	memory           int64
	cpus             float64
	memoryOf, cpusOf string
	// cpuTime is what a process may have of the processor altogether; 0 = no limit.
	cpuTime time.Duration
	// scope is the path of systemd-run, "" if there is none.
	scope string
}

// sessionAt looks below root, which is "/" but for tests. ask runs loginctl.
func sessionAt(root string, uid int, ask func(args ...string) (string, error), cpuTime time.Duration) loginSession {
	s := loginSession{cpuTime: cpuTime}
	name := strconv.Itoa(uid)
	if u, err := user.LookupId(name); err == nil {
		name = u.Username
	}
	own := cgroupsOf(root)
	s.limits(root, own)
	if _, err := os.Stat(filepath.Join(root, "run/systemd/system")); err != nil {
		return s // nothing of the kind is here
	}
	for _, p := range own {
		s.inManager = s.inManager || strings.Contains(p, fmt.Sprintf("/user@%d.service/", uid))
		s.inSession = s.inSession || strings.Contains(p, "/session-") && strings.Contains(p, ".scope")
	}
	_, err := os.Stat(filepath.Join(root, "var/lib/systemd/linger", name))
	s.linger = err == nil
	c := readLogind(root)
	if said, err := ask("show-session", "-p", "KillUserProcesses", "-p", "KillOnlyUsers", "-p", "KillExcludeUsers"); err == nil {
		c.answer(said)
	}
	if said, err := ask("show-user", "-p", "Linger", strconv.Itoa(uid)); err == nil && strings.Contains(said, "Linger=") {
		s.linger = strings.Contains(said, "Linger=yes")
	}
	s.kills, s.from = c.kill && !slices.Contains(c.exclude, name) && (len(c.only) == 0 || slices.Contains(c.only, name)), c.from
	s.scope, _ = exec.LookPath("systemd-run")
	return s
}

// dies: what this process starts will not outlive the logout.
func (s *loginSession) dies() bool { return s.inSession && s.kills || s.inManager && !s.linger }

// escape is what a program is started with to outlive the logout, nil if it does so anyway, or cannot.
func (s *loginSession) escape() []string {
	if s.inSession && s.kills && s.linger && s.scope != "" {
		return []string{s.scope, "--user", "--scope", "--quiet", "--collect", "--"}
	}
	return nil
}

// leastMemory is below what a coordinator may need with many workers.
const leastMemory = 1 << 30

// warnings are what speaks against a coordinator that is left here.
func (s *loginSession) warnings() (list []string) {
	const instead = "daisy-submit run --coordinator job has Slurm run it instead"
	switch {
	case s.escape() != nil:
	case s.inSession && s.kills:
		list = append(list, fmt.Sprintf("WARNING: THIS RUN WILL BE KILLED WHEN YOU LOG OUT: the site ends all programs of a session with it (KillUserProcesses=yes, said by %s). %s; or allow yourself to linger, if the site lets you: loginctl enable-linger", s.from, instead))
	case s.inManager && !s.linger:
		list = append(list, fmt.Sprintf("WARNING: THIS RUN WILL BE KILLED AT YOUR LAST LOGOUT: it is started below your own service manager, which ends then, as you do not linger. %s; or allow yourself to, if the site lets you: loginctl enable-linger", instead))
	}
	if s.cpuTime > 0 {
		list = append(list, fmt.Sprintf("WARNING: the system ends a program here after %s of processor time (ulimit -t), and the coordinator is one. %s", units.Duration(s.cpuTime), instead))
	}
	if s.memory > 0 && s.memory < leastMemory {
		list = append(list, fmt.Sprintf("warning: all that you run here has %s of memory together (%s): with thousands of workers, or workers of its own beside it, the coordinator may need more. %s", units.Size(s.memory), s.memoryOf, instead))
	}
	if s.cpus > 0 && s.cpus < 1 {
		list = append(list, fmt.Sprintf("warning: all that you run here has %s of a core together (%s). %s", strconv.FormatFloat(s.cpus, 'g', 2, 64), s.cpusOf, instead))
	}
	return list
}

// logoutFinding is what doctor says of it.
func logoutFinding(s loginSession) finding {
	const check = "logout"
	warnings := s.warnings()
	switch {
	case warnings != nil:
		found := "a run with --detach would be limited"
		if s.dies() && s.escape() == nil {
			found = "a run with --detach would be killed"
		}
		return is(check, warning, found, strings.Join(warnings, "; "))
	case s.escape() != nil:
		return is(check, fine, "a run with --detach goes on, in a scope of your own service manager", "")
	default:
		return is(check, fine, "a run with --detach goes on", "")
	}
}

// A logind is what its configuration says of programs at logout.
type logind struct {
	kill          bool
	only, exclude []string
	from          string
}

// Where systemd looks for its configuration, the first over the others.
var configDirs = []string{"etc/systemd", "run/systemd", "usr/local/lib/systemd", "usr/lib/systemd"}

// readLogind reads logind.conf and its drop-ins, as systemd does: the first main file counts, of drop-ins with one name the first, and all of
// them in the order of their names.
func readLogind(root string) logind {
	c := logind{exclude: []string{"root"}, from: "systemd-logind"}
	for _, dir := range configDirs {
		file := filepath.Join(root, dir, "logind.conf")
		if text, err := os.ReadFile(file); err == nil {
			c.read(file, string(text))
			break
		}
	}
	files := map[string]string{}
	for _, dir := range slices.Backward(configDirs) {
		list, _ := filepath.Glob(filepath.Join(root, dir, "logind.conf.d", "*.conf"))
		for _, file := range list {
			files[filepath.Base(file)] = file
		}
	}
	names := make([]string, 0, len(files))
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if text, err := os.ReadFile(files[name]); err == nil {
			c.read(files[name], string(text))
		}
	}
	return c
}

// read takes in one file.
func (c *logind) read(file, text string) {
	section := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		key, value, isKey := strings.Cut(line, "=")
		switch {
		case strings.HasPrefix(line, "#") || strings.HasPrefix(line, ";"):
		case strings.HasPrefix(line, "["):
			section = line
		case isKey && section == "[Login]":
			c.set(strings.TrimSpace(key), strings.TrimSpace(value), file)
		}
	}
}

// answer takes in what loginctl says of the manager, which knows best.
func (c *logind) answer(said string) {
	for line := range strings.Lines(said) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			was := *c
			c.set(key, value, "systemd-logind")
			if c.kill == was.kill {
				c.from = was.from // the file that says so too
			}
		}
	}
}

func (c *logind) set(key, value, from string) {
	switch key {
	case "KillUserProcesses":
		c.kill, c.from = slices.Contains([]string{"1", "yes", "y", "true", "t", "on"}, strings.ToLower(value)), from
	case "KillOnlyUsers":
		c.only = strings.Fields(value)
	case "KillExcludeUsers":
		c.exclude = strings.Fields(value)
	}
}

// cgroupsOf are the cgroups of this process, by controllers; "" is that of version 2.
func cgroupsOf(root string) map[string]string {
	text, _ := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	own := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if f := strings.SplitN(strings.TrimSpace(line), ":", 3); len(f) == 3 {
			own[f[1]] = f[2]
		}
	}
	return own
}

// limits finds the least limits of a cgroup and all above it, where they can be read.
func (s *loginSession) limits(root string, own map[string]string) {
	top := filepath.Join(root, "sys/fs/cgroup")
	for controllers, path := range own {
		mount := top
		if controllers != "" {
			mount = filepath.Join(top, controllers)
		}
		for path = filepath.Clean("/" + path); ; path = filepath.Dir(path) {
			for _, file := range []string{"memory.max", "memory.high", "memory.limit_in_bytes"} {
				n, err := strconv.ParseInt(firstWord(filepath.Join(mount, path, file)), 10, 64)
				if err == nil && n > 0 && n < math.MaxInt64/2 && (s.memory == 0 || n < s.memory) {
					s.memory, s.memoryOf = n, path+"/"+file
				}
			}
			text, _ := os.ReadFile(filepath.Join(mount, path, "cpu.max"))
			if f := strings.Fields(string(text)); len(f) == 2 && f[0] != "max" {
				quota, err1 := strconv.ParseFloat(f[0], 64)
				period, err2 := strconv.ParseFloat(f[1], 64)
				if err1 == nil && err2 == nil && period > 0 && (s.cpus == 0 || quota/period < s.cpus) {
					s.cpus, s.cpusOf = quota/period, path+"/cpu.max"
				}
			}
			if path == "/" {
				break
			}
		}
	}
}

func firstWord(file string) string {
	text, _ := os.ReadFile(file)
	word, _, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
	return word
}
