package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"example.org/daisy/internal/job"
	"example.org/daisy/internal/process"
	"example.org/daisy/internal/report"
	"example.org/daisy/internal/units"
	"example.org/daisy/internal/version"
)

func doctorCommand() *cli.Command {
	return &cli.Command{
		Name: "doctor", Usage: "look at what this machine has and lacks for a run",
		UsageText: "daisy-submit doctor [DIR|JOB] [OPTIONS]",
		Description: `Checks the programs, limits and file system that a run on this machine needs, and says how to get what is missing. DIR is where
run directories are to be made ("runs" by default, of a job file its own); small files are made there, or in the folder that it would
be made in, and removed again. A warning keeps no run from starting.

Where there is Slurm, it is looked at, too: its commands, the controller, partitions and accounts. With a job file whose launcher is
slurm each task is compared with them: partition, account, time, memory, nodes, and what would never start or cost more than was asked
for. Slurm is asked half a dozen questions; nothing is submitted unless --probe is given. That submits a job of one core and two minutes for
each kind of worker, which looks from a node at what is here: whether it sees the run directory, can run the worker, can write, reaches
this machine, and may submit jobs, which only a coordinator that is a job has to.

EXAMPLE
   daisy-submit doctor /scratch/me/runs
   daisy-submit doctor segment.toml --probe

EXIT STATUS
   0    nothing is missing; there may be warnings
   2    the command line is wrong
   3    something is missing, or the answer could not be written
`,
		Flags: append(jobFlags(),
			&cli.BoolFlag{Name: "probe", Usage: "submit short jobs that look at this machine from a node"},
			&cli.BoolFlag{Name: "json", Usage: "as JSON, in the shape of docs/cli.md"},
		),
		Action: func(c *cli.Context) error {
			dir, j, err := doctorsPatient(c)
			if err != nil {
				return err
			}
			d, err := examine(c.Context, dir, j, c.Bool("probe"))
			if err != nil {
				return err
			}
			if c.Bool("json") {
				err = json.NewEncoder(c.App.Writer).Encode(d)
			} else {
				err = d.write(c)
			}
			if err != nil {
				return infrastructure(err)
			}
			if !d.OK {
				return &statusError{status: exitInfrastructure}
			}
			return nil
		},
	}
}

// doctorsPatient is the directory that is to be looked at, and the job, nil if none is given.
func doctorsPatient(c *cli.Context) (dir string, j *job.Job, err error) {
	dir = "runs"
	if c.NArg() > 0 {
		if dir, err = oneArgument(c, "a directory for runs, or a job file"); err != nil {
			return "", nil, err
		}
	}
	if info, err := os.Stat(dir); err == nil && info.Mode().IsRegular() {
		if j, err = loadJob(c, dir); err != nil {
			return "", nil, err
		}
		dir = j.Directory
	}
	for _, name := range []string{"launcher", "max-workers", "set"} {
		if j == nil && c.IsSet(name) {
			return "", nil, usage("--%s goes with a job file, and %s is none", name, dir)
		}
	}
	if c.Bool("probe") && (j == nil || j.Launcher != "slurm") {
		return "", nil, usage("--probe goes with a job file whose launcher is slurm: that says which jobs to try (--launcher slurm changes it)")
	}
	return dir, j, nil
}

// diagnosis is what doctor --json prints, as docs/cli.md describes it.
type diagnosis struct {
	Version int       `json:"version"`
	OK      bool      `json:"ok"` // nothing is missing
	Checks  []finding `json:"checks"`
}

// States of findings.
const (
	fine    = "ok"
	warning = "warning"
	missing = "missing"
)

// A finding is what one check has found, and what to do about it unless that is fine.
type finding struct {
	Check  string  `json:"check"`
	State  string  `json:"state"`
	Found  string  `json:"found"`
	Advice *string `json:"advice"`
}

func is(check, state, found, advice string) finding {
	return finding{check, state, found, pointer(advice)}
}

// examine looks at this machine, and at Slurm where a job of its workers, or no job, is given.
func examine(ctx context.Context, dir string, j *job.Job, probe bool) (*diagnosis, error) {
	onSlurm := j != nil && j.Launcher == "slurm"
	worker, err := findWorker("local")
	checks := []finding{workerFinding(ctx, worker, err), pythonFinding(ctx)}
	files, err := process.FileLimit()
	checks = append(checks, filesFinding(files, err))
	checks = append(checks, folderFindings(dir, onSlurm)...)
	checks = append(checks, machineFindings(process.ThisMachine(), runtime.NumCPU(), memoryOf("/proc/meminfo"))...)
	checks = append(checks, memoryLimitFinding(memoryHoldAt("/")), networkFinding(), logoutFinding(thisSession(ctx)))
	if _, err := exec.LookPath("sbatch"); onSlurm || j == nil && err == nil {
		l, err := slurmDoctor(j)
		if err != nil {
			return nil, err
		}
		of, cl := examineSlurm(ctx, j, l, worker)
		for i := range of {
			if j == nil && of[i].State == missing {
				of[i].State = warning // runs on this machine do not need it
			}
		}
		checks = append(checks, of...)
		if probe && cl != nil {
			checks = append(checks, (&prober{job: j, dir: dir, worker: worker}).findings(ctx)...)
		}
	}
	d := &diagnosis{Version: 1, OK: true, Checks: checks}
	for _, f := range checks {
		d.OK = d.OK && f.State != missing
	}
	return d, nil
}

func (d *diagnosis) write(c *cli.Context) error {
	var rows [][]string
	for _, f := range d.Checks {
		rows = append(rows, []string{f.Check, f.State, f.Found})
	}
	if err := report.Grid(c.App.Writer, "This machine", []string{"<check", "<state", "<found"}, rows); err != nil {
		return err
	}
	for _, f := range d.Checks {
		if f.Advice != nil {
			if _, err := fmt.Fprintf(c.App.Writer, "\n%s (%s): %s\n", f.Check, f.State, *f.Advice); err != nil {
				return err
			}
		}
	}
	return nil
}

// toolTime bounds a program that says its version.
const toolTime = 20 * time.Second

// versionOf is the first line that a program prints when it is called with arguments.
func versionOf(ctx context.Context, program string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, toolTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	if err != nil {
		return line, fmt.Errorf("%s cannot be run: %w: %s", program, err, line)
	}
	return line, nil
}

func workerFinding(ctx context.Context, path string, err error) finding {
	const check = "daisy-worker"
	if err != nil {
		return is(check, missing, "not found", err.Error())
	}
	said, err := versionOf(ctx, path, "--version")
	switch {
	case err != nil:
		return is(check, missing, path, err.Error()+"; it must be built for this machine: make build makes both programs")
	case !strings.Contains(said, version.String()):
		return is(check, warning, path+", "+said, "it is of another version than daisy-submit "+version.String()+", and may be refused when it joins: install both together")
	}
	return is(check, fine, path, "")
}

func pythonFinding(ctx context.Context) finding {
	const check = "python3"
	const least = "3.8"
	path, err := exec.LookPath("python3")
	if err != nil {
		return is(check, warning, "not in PATH", "only tasks with run = { python = … } need it: "+install("python3"))
	}
	said, err := versionOf(ctx, path, "--version")
	if err != nil {
		return is(check, warning, path, err.Error())
	}
	number := strings.TrimPrefix(said, "Python ")
	parts := strings.SplitN(number, ".", 3)
	if len(parts) >= 2 {
		major, _ := strconv.Atoi(parts[0])
		minor, _ := strconv.Atoi(parts[1])
		if major < 3 || major == 3 && minor < 8 {
			return is(check, warning, path+", "+number, "tasks with run = { python = … } need "+least+" or later: activate an environment that has it, or "+install("python3"))
		}
	}
	return is(check, fine, path+", "+number, "")
}

// install says how a package is installed with the package manager of this machine.
func install(packages string) string {
	sudo := ""
	if os.Getuid() != 0 {
		sudo = "sudo "
	}
	for _, manager := range []struct{ name, command string }{
		{"apt-get", sudo + "apt-get install "}, {"dnf", sudo + "dnf install "}, {"zypper", sudo + "zypper install "}, {"pacman", sudo + "pacman -S "}, {"brew", "brew install "},
	} {
		if _, err := exec.LookPath(manager.name); err == nil {
			return manager.command + packages
		}
	}
	return "install the package " + packages
}

// Fewer open files than these keep any run from starting, or runs from having some hundred workers.
const (
	leastFiles = filesOfProgram + filesOfTask + filesOfWorker
	goodFiles  = 1024
)

func filesFinding(limit uint64, err error) finding {
	const check = "open files"
	if err != nil {
		return is(check, warning, "not known", err.Error())
	}
	have := int64(min(limit, 1<<40))
	workers := max(have-filesOfProgram-filesOfTask, 0) / filesOfWorker
	found := fmt.Sprintf("%s, enough for %s", units.Count(have), units.Plural(workers, "worker"))
	const more = `give more with "ulimit -n 4096" before the start; above the hard limit that needs an administrator (limits.conf, or LimitNOFILE of the service)`
	switch {
	case have < leastFiles:
		return is(check, missing, found, more)
	case have < goodFiles:
		return is(check, warning, found, more)
	}
	return is(check, fine, found, "")
}

// folderFindings tries what a run directory needs of its file system, with forNodes also what nodes of a cluster need of it.
func folderFindings(dir string, forNodes bool) []finding {
	trial, err := trialFolder(dir)
	if err != nil {
		return []finding{is("run directory", missing, dir, err.Error()+": give another directory, or change its permissions")}
	}
	defer os.RemoveAll(trial)
	abs, _ := filepath.Abs(dir) // it could be made above
	list := []finding{is("run directory", fine, abs, ""), renameFinding(trial), lockFinding(trial), spaceFinding(trial), clockFinding(trial, time.Now())}
	if forNodes {
		list = append(list, sharedFindings(trial)...)
	}
	return list
}

// trialFolder makes a folder in dir, or in the folder that dir would be made in.
func trialFolder(dir string) (string, error) {
	parent, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	for {
		info, err := os.Stat(parent)
		if err == nil && !info.IsDir() {
			return "", fmt.Errorf("%s is a file", parent)
		}
		if err == nil || parent == filepath.Dir(parent) {
			break
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		parent = filepath.Dir(parent)
	}
	return os.MkdirTemp(parent, ".daisy-doctor-")
}

func renameFinding(dir string) finding {
	const check = "rename"
	from, to := filepath.Join(dir, "new"), filepath.Join(dir, "old")
	err := errors.Join(os.WriteFile(to, []byte("old"), 0o600), os.WriteFile(from, []byte("new"), 0o600))
	if err == nil {
		err = os.Rename(from, to)
	}
	if err == nil {
		var text []byte
		if text, err = os.ReadFile(to); err == nil && string(text) != "new" {
			err = fmt.Errorf("%s still has its old content after another file was renamed to it", to)
		}
	}
	if err != nil {
		return is(check, missing, "does not work", err.Error()+": keep run directories on another file system")
	}
	return is(check, fine, "replaces a file", "")
}

func lockFinding(dir string) finding {
	const check = "flock"
	first, err := os.Create(filepath.Join(dir, "lock"))
	if err != nil {
		return is(check, missing, "does not work", err.Error())
	}
	defer first.Close()
	second, err := os.Open(first.Name())
	if err != nil {
		return is(check, missing, "does not work", err.Error())
	}
	defer second.Close()
	const slow = "a run is protected by the content of its lock file instead, and whoever resumes after a crash waits 30 s; on Lustre, mounting with -o flock mends it"
	if err := syscall.Flock(int(first.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return is(check, warning, "not supported here: "+err.Error(), slow)
	}
	if err := syscall.Flock(int(second.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
		return is(check, missing, "does not exclude", "two coordinators of one run would not see each other: keep run directories on another file system, or have this one mounted with locks (Lustre: -o flock; NFS: without nolock)")
	}
	return is(check, fine, "works", "")
}

// What a run directory needs at least, and what it needs to be at ease.
const (
	leastSpace = 64 << 20
	goodSpace  = 2 << 30
)

func spaceFinding(dir string) finding {
	const check = "free space"
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return is(check, warning, "not known", err.Error())
	}
	free := int64(math.MaxInt64)
	if blocks := uint64(s.Bavail); s.Bsize > 0 && blocks < uint64(math.MaxInt64)/uint64(s.Bsize) {
		free = int64(blocks) * int64(s.Bsize)
	}
	return judgeSpace(check, free, uint64(s.Files), uint64(s.Ffree))
}

func judgeSpace(check string, free int64, inodes, freeInodes uint64) finding {
	found := units.Size(free)
	switch {
	case inodes > 0 && freeInodes < 100:
		return is(check, missing, fmt.Sprintf("%s, but only %d more files", found, freeInodes), "remove files there, or give another directory; daisy-submit runs --prune removes old runs")
	case free < leastSpace:
		return is(check, missing, found, "free space there, or give another directory; daisy-submit runs --prune removes old runs")
	case free < goodSpace:
		return is(check, warning, found, "a worker's log alone may take 64 MiB; daisy-submit runs --prune removes old runs")
	}
	return is(check, fine, found, "")
}

// goodClock is how far the clocks of this machine and of the file server may be apart.
const goodClock = 5 * time.Second

// clockFinding compares the clock with that of the file system. Only times shown to people depend on them, and how long a lock
// of another machine is trusted.
func clockFinding(dir string, now time.Time) finding {
	path := filepath.Join(dir, "clock")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		return is("clock", warning, "not known", err.Error())
	}
	info, err := os.Stat(path)
	if err != nil {
		return is("clock", warning, "not known", err.Error())
	}
	return judgeClock(now, info.ModTime())
}

func judgeClock(now, there time.Time) finding {
	const check = "clock"
	const advice = "set the clock (chrony, ntpd or systemd-timesyncd): times in reports would be wrong"
	text := now.UTC().Format(time.RFC3339)
	if now.Year() < 2026 {
		return is(check, warning, text, advice)
	}
	if apart := now.Sub(there).Abs(); apart > goodClock {
		return is(check, warning, fmt.Sprintf("%s from that of the file system", units.Duration(apart)), advice)
	}
	return is(check, fine, text, "")
}

// machineFindings say what a run may use by default, and what limits it to less than the machine has.
func machineFindings(m process.Machine, cores int, memory int64) []finding {
	list := []finding{is("cores", fine, strconv.Itoa(m.Cores), "")}
	if m.Cores < cores {
		list[0].Found = fmt.Sprintf("%d of %d, by the cgroup or the allowed CPUs", m.Cores, cores)
	}
	found := "not known"
	switch {
	case m.MemoryBytes > 0 && m.MemoryBytes < memory:
		found = fmt.Sprintf("%s of %s, by the cgroup", units.Size(m.MemoryBytes), units.Size(memory))
	case m.MemoryBytes > 0:
		found = units.Size(m.MemoryBytes)
	}
	list = append(list, is("memory", fine, found, ""))
	return append(list, is("GPUs", fine, strconv.Itoa(len(m.GPUs)), ""))
}

// memoryOf is MemTotal of the machine; 0 where it is not known.
func memoryOf(meminfo string) int64 {
	text, err := os.ReadFile(meminfo)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == "MemTotal:" {
			kib, _ := strconv.ParseInt(fields[1], 10, 64)
			return kib << 10
		}
	}
	return 0
}

func networkFinding() finding {
	const check = "loopback"
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return is(check, missing, "cannot listen", err.Error()+": workers reach the coordinator over 127.0.0.1")
	}
	defer l.Close()
	conn, err := net.DialTimeout("tcp", l.Addr().String(), 5*time.Second)
	if err != nil {
		return is(check, missing, "cannot connect", err.Error()+": workers reach the coordinator over 127.0.0.1; is a firewall in the way?")
	}
	_ = conn.Close()
	return is(check, fine, "works", "")
}
