// Package slurmlab gives tests a real Slurm: a cluster of several nodes on this machine, started and stopped by the test. Facts that
// tests can count on are in cluster.sh: nodes n1 to n4 of 4 cores and 4000 MB, the last two with 2 GPUs each; users alice and bob;
// partitions, QOS and timers.
package slurmlab

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/daisy/internal/testenv"
)

//go:embed cluster.sh
var script []byte

// Variable is set to 1 where tests on a real Slurm are wanted: make test-slurm does it. They take minutes and start a dozen daemons.
const Variable = "DAISY_TEST_SLURM"

// Options change the cluster.
type Options struct {
	// Nodes is how many there are, at least 2; 0 = 4.
	Nodes int
	// NoAccounting leaves out the database: sacct does not work.
	NoAccounting bool
	// MaxArraySize and MinJobAge (in seconds) take the place of 101 and 900, if they are not 0.
	MaxArraySize, MinJobAge int
	// Conf are further lines of slurm.conf.
	Conf string
	// Prolog is a script that each node runs before a job, if it is not "".
	Prolog string
}

// A Lab is a running cluster.
type Lab struct {
	// Dir is its folder; Home("alice") is in it.
	Dir string
	// Conf is the value of SLURM_CONF.
	Conf string

	t   testing.TB
	env []string
}

// needs are the programs of a cluster, each with the Debian package that has it.
var needs = [][2]string{{"slurmctld", "slurm-wlm"}, {"slurmd", "slurm-wlm"}, {"sbatch", "slurm-wlm"}, {"munged", "munge"}, {"setpriv", "util-linux"}}

var needsOfAccounting = [][2]string{{"slurmdbd", "slurmdbd"}, {"mariadbd", "mariadb-server"}}

// Start starts a cluster that ends with the test. Where one cannot be had the test ends by testenv.Unavailable; where none is wanted
// (Variable) it is skipped.
func Start(t testing.TB, o Options) *Lab {
	t.Helper()
	if os.Getenv(Variable) != "1" {
		t.Skip("make test-slurm runs it")
	}
	if os.Geteuid() != 0 {
		testenv.Unavailable(t, "a Slurm of several users on one machine has to be started by root")
	}
	wanted := needs
	if !o.NoAccounting {
		wanted = append(wanted[:len(wanted):len(wanted)], needsOfAccounting...)
	}
	for _, n := range wanted {
		if !there(n[0]) {
			testenv.Unavailable(t, fmt.Sprintf("%s is missing: it was looked for in PATH and /usr/sbin; apt-get install --no-install-recommends slurm-wlm munge slurmdbd slurm-wlm-mysql-plugin mariadb-server (it is in %s)", n[0], n[1]))
		}
	}
	dir, port := place(t)
	l := &Lab{Dir: dir, Conf: filepath.Join(dir, "etc/slurm.conf"), t: t}
	l.env = append(os.Environ(), "SLURMLAB_DIR="+dir, "SLURMLAB_PORT="+strconv.Itoa(port), "SLURMLAB_CACHE="+filepath.Join(os.TempDir(), "daisy-slurmlab.cache"))
	set := func(name string, n int) {
		if n > 0 {
			l.env = append(l.env, name+"="+strconv.Itoa(n))
		}
	}
	set("SLURMLAB_NODES", o.Nodes)
	set("SLURMLAB_MAXARRAY", o.MaxArraySize)
	set("SLURMLAB_MINJOBAGE", o.MinJobAge)
	if o.NoAccounting {
		l.env = append(l.env, "SLURMLAB_ACCT=none")
	}
	if o.Prolog != "" {
		file := filepath.Join(dir, "prolog")
		l.must(os.WriteFile(file, []byte(o.Prolog), 0o755)) //nolint:gosec // slurmd runs it
		o.Conf += "\nProlog=" + file
	}
	if o.Conf != "" {
		file := filepath.Join(dir, "extra.conf")
		l.must(os.WriteFile(file, []byte(strings.TrimRight(o.Conf, "\n")+"\n"), 0o644))
		l.env = append(l.env, "SLURMLAB_EXTRA_CONF="+file)
	}
	l.must(os.WriteFile(filepath.Join(dir, "cluster.sh"), script, 0o755))
	t.Cleanup(func() {
		if t.Failed() {
			log, _ := os.ReadFile(filepath.Join(dir, "log/slurmctld.log"))
			t.Logf("the end of slurmctld.log:\n%s", log[max(0, len(log)-4000):])
		}
		l.cluster("wipe")
	})
	l.Up()
	return l
}

func there(program string) bool {
	if _, err := exec.LookPath(program); err == nil {
		return true
	}
	_, err := os.Stat("/usr/sbin/" + program)
	return err == nil
}

// place finds a folder and 100 ports that no other lab has, in whatever process it runs. The folder is short, for the sake of sockets,
// and open to all users, as no test's own folder is.
func place(t testing.TB) (dir string, port int) {
	t.Helper()
	for n := range 40 {
		lock, err := os.OpenFile(fmt.Sprintf("/tmp/daisy-slurmlab-%d.place", n), os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
			lock.Close()
			continue
		}
		t.Cleanup(func() { lock.Close() })
		dir = fmt.Sprintf("/tmp/daisy-slurmlab-%d", n)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		return dir, 17000 + 100*n
	}
	t.Fatal("all places for labs are taken")
	return "", 0
}

func (l *Lab) must(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

// cluster runs cluster.sh.
func (l *Lab) cluster(args ...string) {
	l.t.Helper()
	cmd := exec.Command("bash", append([]string{filepath.Join(l.Dir, "cluster.sh")}, args...)...)
	cmd.Env = l.env
	cmd.WaitDelay = time.Second
	if out, err := cmd.CombinedOutput(); err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		l.t.Fatalf("cluster.sh %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// Up starts what is not running, with all state kept.
func (l *Lab) Up() { l.t.Helper(); l.cluster("up") }

// KillNode ends the slurmd of node n; with power its jobs too, as if the plug had been pulled. StartNode brings it back.
func (l *Lab) KillNode(n int, power bool) {
	l.t.Helper()
	args := []string{"node-kill", strconv.Itoa(n)}
	if power {
		args = append(args, "power")
	}
	l.cluster(args...)
}

// StartNode starts the slurmd of node n.
func (l *Lab) StartNode(n int) { l.t.Helper(); l.cluster("node-start", strconv.Itoa(n)) }

// Signal sends a signal to a daemon: "slurmctld", "slurmdbd", "munged", "slurmd.n2". One that is stopped (SIGSTOP) goes on at the
// end of the test.
func (l *Lab) Signal(daemon string, sig syscall.Signal) {
	l.t.Helper()
	text, err := os.ReadFile(filepath.Join(l.Dir, "run", daemon+".pid"))
	l.must(err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	l.must(err)
	l.must(syscall.Kill(pid, sig))
	if sig == syscall.SIGSTOP {
		l.t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGCONT) })
	}
}

// Home is the home directory of a user.
func (l *Lab) Home(user string) string { return filepath.Join(l.Dir, "home", user) }

// UID is the number of a user.
func (l *Lab) UID(name string) int {
	l.t.Helper()
	u, err := user.Lookup(name)
	l.must(err)
	n, err := strconv.Atoi(u.Uid)
	l.must(err)
	return n
}

// Environment is that of a user of the cluster.
func (l *Lab) Environment(user string) []string {
	return []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + l.Home(user), "USER=" + user, "LOGNAME=" + user, "SHELL=/bin/bash", "LANG=C.UTF-8", "SLURM_CONF=" + l.Conf}
}

// Command is a command that a user runs in the home directory; "root" administers the cluster.
func (l *Lab) Command(user, name string, args ...string) *exec.Cmd {
	l.t.Helper()
	path, err := exec.LookPath(name)
	l.must(err)
	cmd := exec.Command(path, args...)
	cmd.Env = l.Environment(user)
	if user == "root" {
		cmd.Dir = l.Dir
		return cmd
	}
	id := uint32(l.UID(user))
	cmd.Dir = l.Home(user)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: id, Gid: id}}
	return cmd
}

// Run runs a command of a user to its end and gives what it wrote to standard output, without white space around it. A failure is the
// test's.
func (l *Lab) Run(user, name string, args ...string) string {
	l.t.Helper()
	cmd := l.Command(user, name, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		l.t.Fatalf("%s: %s %s: %v\n%s%s", user, name, strings.Join(args, " "), err, out, stderr.Bytes())
	}
	return strings.TrimSpace(string(out))
}

// As gives a folder with the commands of Slurm in it, each of which a user of the cluster runs, whoever called it: for tests that run as
// root. They die with their caller.
func (l *Lab) As(user string) string {
	l.t.Helper()
	dir := filepath.Join(l.Dir, "as-"+user)
	l.must(os.MkdirAll(dir, 0o755))
	for _, name := range []string{"sbatch", "squeue", "scancel", "scontrol", "sacct", "sinfo"} {
		path, err := exec.LookPath(name)
		l.must(err)
		text := fmt.Sprintf("#!/bin/sh\nexec setpriv --reuid=%[1]s --regid=%[1]s --init-groups --pdeathsig=KILL %[2]s \"$@\"\n", user, path)
		l.must(os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755))
	}
	return dir
}
