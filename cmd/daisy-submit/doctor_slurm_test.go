package main

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/daisy/internal/job"
	"example.org/daisy/internal/jobfile"
	"example.org/daisy/launcher"
	"example.org/daisy/launcher/launchertest"
)

// A site as its commands describe it; the lines are those of Slurm 22.05, cut down.
const (
	siteConfig = `AuthType                = auth/munge
ClusterName             = lab
DefMemPerCPU            = 100
KillWait                = 45 sec
MaxArraySize            = 101
MaxMemPerCPU            = 2000
SLURM_VERSION           = 22.05.8
`
	sitePartitions = `PartitionName=cpu AllowAccounts=ALL AllowQos=ALL Default=YES DefaultTime=00:10:00 MaxTime=1-00:00:00 Nodes=n[1-4] OverSubscribe=NO State=UP
PartitionName=short AllowAccounts=ALL AllowQos=ALL Default=NO DefaultTime=NONE MaxTime=00:05:00 Nodes=n[1-4] OverSubscribe=NO State=UP
PartitionName=whole AllowAccounts=ALL AllowQos=ALL Default=NO DefaultTime=NONE MaxTime=1-00:00:00 Nodes=n[1-4] OverSubscribe=EXCLUSIVE State=UP
PartitionName=closed AllowAccounts=vip AllowQos=ALL Default=NO DefaultTime=NONE MaxTime=1-00:00:00 Nodes=n[1-4] OverSubscribe=NO State=DOWN
PartitionName=mine AllowAccounts=acc AllowQos=Night Default=NO DefaultTime=NONE MaxTime=1-00:00:00 Nodes=n[1-4] OverSubscribe=NO State=UP
PartitionName=arm AllowAccounts=ALL AllowQos=ALL Default=NO DefaultTime=NONE MaxTime=1-00:00:00 Nodes=a1 OverSubscribe=NO State=UP
`
	siteNodes = `NodeName=n1 Arch=x86_64 CPUTot=4 AvailableFeatures=(null) Gres=(null) RealMemory=4000 State=IDLE Partitions=cpu,short,whole,closed
NodeName=n2 Arch=x86_64 CPUTot=4 AvailableFeatures=(null) Gres=(null) RealMemory=4000 State=DOWN* Partitions=cpu,short,whole,closed
NodeName=n3 Arch=x86_64 CPUTot=4 AvailableFeatures=gpu Gres=gpu:a100:2(S:0) RealMemory=4000 State=MIXED Partitions=cpu,short,whole,closed
NodeName=n4 Arch=x86_64 CPUTot=16 AvailableFeatures=big Gres=(null) RealMemory=2000 State=IDLE+DRAIN Partitions=cpu,short,whole,closed
NodeName=a1 Arch=s390x CPUTot=4 AvailableFeatures=(null) Gres=(null) RealMemory=4000 State=IDLE Partitions=arm
`
)

// aSite puts its commands on PATH, in which the real ones are not found.
func aSite(t *testing.T) *launchertest.Fake {
	t.Helper()
	fake := launchertest.NewFake(t, "sbatch", "squeue", "scancel", "scontrol", "sacct", "sacctmgr", "munge")
	for file, text := range map[string]string{"config": siteConfig, "partition": sitePartitions, "node": siteNodes, "ping": "Slurmctld(primary) at vm is UP\n", "assoc": "acc||normal,night\n", "qos": "normal|\nnight|00:30:00\n"} {
		if err := os.WriteFile(filepath.Join(fake.Dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	fake.Say("scontrol", launchertest.Answer{Then: `for last; do :; done; cat "$own/../$last"`})
	fake.Say("sacctmgr", launchertest.Answer{Then: `cat "$own/../$4"`})
	t.Setenv("PATH", fake.Dir+":"+os.Getenv("PATH"))
	return fake
}

// doctorOf is what doctor finds of a job file, by check.
func doctorOf(t *testing.T, text string, args ...string) (map[string]finding, int) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "job.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	status, stdout, stderr := call(append([]string{"doctor", path, "--json"}, args...)...)
	var d diagnosis
	if err := json.Unmarshal([]byte(stdout), &d); err != nil {
		t.Fatalf("status %d: %v\n%s%s", status, err, stdout, stderr)
	}
	m := map[string]finding{}
	for _, f := range d.Checks {
		m[f.Check] = f
	}
	return m, status
}

// ofTask is a job of one task "a" with these lines in it.
func ofTask(requires string, slurm ...string) string {
	return "[run]\nlauncher = \"slurm\"\nresources = { cpu = 100, memory = \"1TiB\", gpu = 100 }\n[[task]]\nid = \"a\"\ntotal = { offset = [0], shape = [100] }\nblock = { shape = [10] }\nrun = { command = [\"true\"] }\n" +
		"requires = {" + requires + "}\n[task.slurm]\n" + strings.Join(slurm, "\n") + "\n"
}

// The checks that a fake site and this machine bring out, and those of a probe, each with a row in docs/cli.md.
func TestEveryCheckOfTheDoctorIsOnItsPage(t *testing.T) {
	aSite(t)
	page, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "### `doctor --json`")
	findings, _ := doctorOf(t, ofTask("cpu = 1"))
	names := slices.Collect(maps.Keys(findings))
	for _, said := range []string{"daisy-probe full x\ndaisy-probe submits\ndaisy-probe reached w:1\n", "daisy-probe refused x\n"} {
		for _, f := range judgeProbe("probe of a", "daisy-probe node n1\ndaisy-probe clock 1\ndaisy-probe runs v\n"+said+"daisy-probe end\n", launcher.Element{}, "/d/.trial", time.Unix(1_800_000_000, 0)) {
			names = append(names, f.Check)
		}
	}
	if len(names) < 30 {
		t.Errorf("only %q were looked at", names)
	}
	for _, name := range names {
		name = strings.Replace(strings.Replace(name, "task a:", "task T:", 1), "probe of a", "probe of T", 1)
		if !strings.Contains(table, "`"+name+"`") {
			t.Errorf("docs/cli.md lacks the check %q", name)
		}
	}
}

func TestTheDoctorComparesEachTaskWithTheCluster(t *testing.T) {
	aSite(t)
	for name, c := range map[string]struct {
		job, check, state string
		parts             []string
	}{
		"all is well":              {ofTask("cpu = 2, memory = '1GiB'", `time = "1h"`), "task a: nodes", fine, []string{"4 nodes with 2 cores, 1GiB, 2 up"}},
		"its time":                 {ofTask("cpu = 2", `time = "1h"`), "task a: time", fine, []string{"1h"}},
		"default time":             {ofTask("cpu = 2"), "task a: time", fine, []string{"cpu gives 10m"}},
		"longest time":             {ofTask("cpu = 2", `partition = "short"`), "task a: time", warning, []string{"the longest is taken, 5m"}},
		"too much time":            {ofTask("cpu = 2", `partition = "short"`, `time = "10m"`), "task a: time", missing, []string{"gives 5m", `time = "5m"`}},
		"too much time for QOS":    {ofTask("cpu = 2", `qos = "night"`, `time = "1h"`), "task a: time", missing, []string{"QOS night gives 30m"}},
		"that QOS in capitals":     {ofTask("cpu = 2", `qos = "NIGHT"`, `time = "1h"`), "task a: time", missing, []string{"QOS NIGHT gives 30m"}},
		"any of several":           {ofTask("cpu = 2", `partition = "short,cpu"`, `time = "10m"`), "task a: time", fine, nil},
		"no such partition":        {ofTask("cpu = 2", `partition = "nope"`), "task a: partition", missing, []string{"nope", "there are cpu, short"}},
		"a partition that is down": {ofTask("cpu = 2", `partition = "closed"`, `account = "acc"`), "task a: partition", warning, []string{"closed is DOWN"}},
		"a closed partition":       {ofTask("cpu = 2", `partition = "closed"`, `account = "acc"`), "task a: account", missing, []string{"allows the accounts vip"}},
		"names in other letters":   {ofTask("cpu = 2", `partition = "mine"`, `account = "ACC"`, `qos = "night"`), "task a: account", fine, nil},
		"no such account":          {ofTask("cpu = 2", `account = "foo"`), "task a: account", missing, []string{"foo", "acc (QOS normal, night)"}},
		"no such QOS":              {ofTask("cpu = 2", `qos = "foo"`), "task a: account", missing, []string{"QOS foo", "normal, night"}},
		"whole nodes":              {ofTask("cpu = 2", `partition = "whole"`), "task a: OverSubscribe", warning, []string{"a whole node", "slots"}},
		"little memory":            {ofTask("cpu = 2"), "task a: memory", warning, []string{"200MiB", "DefMemPerCPU", "requires.memory"}},
		"more cores for memory":    {ofTask("cpu = 1, memory = '3GiB'"), "task a: memory", warning, []string{"MaxMemPerCPU", "2 cores"}},
		"too many cores":           {ofTask("cpu = 17"), "task a: nodes", missing, []string{"no node of 4 has 17 cores", "16 cores"}},
		"not together":             {ofTask("cpu = 16, memory = '3GiB'"), "task a: nodes", missing, []string{"together"}},
		"GPUs":                     {ofTask("cpu = 1, gpu = 2", `gres = "gpu:a100"`), "task a: nodes", fine, []string{"1 node with 1 core, 2 GPUs a100"}},
		"GPUs of another type":     {ofTask("cpu = 1, gpu = 1", `gres = "gpu:h100"`), "task a: nodes", missing, nil},
		"a feature":                {ofTask("cpu = 8", `constraint = "big"`), "task a: nodes", warning, []string{"none is up now", "sinfo -R"}},
		"what nodes lack":          {ofTask("cpu = 1", `constraint = "big&gpu"`), "task a: nodes", missing, []string{"constraint"}},
		"excluded":                 {ofTask("cpu = 1, gpu = 1", `exclude = "n[3-4]"`), "task a: nodes", missing, nil},
		"only those":               {ofTask("cpu = 1", `nodelist = "n2"`), "task a: nodes", warning, []string{"none is up now"}},
		"another architecture":     {ofTask("cpu = 1", `partition = "arm"`), "task a: architecture", missing, []string{"s390x", "build"}},
		"the site":                 {ofTask("cpu = 1"), "MaxArraySize", fine, []string{"101"}},
		"the controller":           {ofTask("cpu = 1"), "controller", fine, []string{"is UP; Slurm 22.05.8, cluster lab"}},
		"munge":                    {ofTask("cpu = 1"), "munge", fine, nil},
	} {
		t.Run(name, func(t *testing.T) {
			findings, _ := doctorOf(t, c.job)
			if c.check == "task a: architecture" && findings["daisy-worker"].State == missing {
				c.state, c.parts = warning, []string{"cannot be read"} // this test has no worker beside it
			}
			f, there := findings[c.check]
			if !there {
				t.Fatalf("no finding %q among %v", c.check, findings)
			}
			wantFinding(t, f, c.state, c.parts...)
		})
	}
}

func TestTheDoctorSubmitsNothingUnasked(t *testing.T) {
	fake := aSite(t)
	doctorOf(t, ofTask("cpu = 1"))
	for name, most := range map[string]int{"sbatch": 0, "scancel": 0, "squeue": 0, "scontrol": 4, "sacctmgr": 2} {
		if calls := fake.Calls(name); len(calls) > most {
			t.Errorf("%d calls of %s: %v", len(calls), name, calls)
		}
	}
}

func TestTheDoctorSaysWhatOfSlurmIsMissing(t *testing.T) {
	fake := aSite(t)
	fake.Say("munge", launchertest.Answer{Stderr: "munge: Error: Failed to access \"/run/munge/munge.socket.2\": No such file or directory\n", Status: 6})
	findings, status := doctorOf(t, ofTask("cpu = 1"))
	wantFinding(t, findings["munge"], missing, "munge.socket.2", "administrator")
	if status != exitInfrastructure {
		t.Errorf("status %d", status)
	}
	// Without a job nothing of Slurm keeps a run from starting.
	_, stdout, _ := call("doctor", t.TempDir(), "--json")
	if !strings.Contains(stdout, `{"check":"munge","state":"warning"`) || strings.Contains(stdout, `"check":"executable"`) {
		t.Errorf("without a job: %s", stdout)
	}
	fake.Say("scontrol", launchertest.Answer{Stderr: "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n", Status: 1})
	findings, _ = doctorOf(t, ofTask("cpu = 1"))
	wantFinding(t, findings["controller"], missing, "Unable to contact slurm controller", "scontrol ping")
	fake.Say("scontrol", launchertest.Answer{Stderr: "scontrol: fatal: Could not establish a configuration source\n", Status: 1})
	findings, _ = doctorOf(t, ofTask("cpu = 1"))
	wantFinding(t, findings["controller"], missing, "Could not establish", "SLURM_CONF", "login node")
	if err := os.Remove(filepath.Join(fake.Dir, "sacct")); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(fake.Dir, "squeue")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", fake.Dir+":"+onlyShell(t))
	findings, _ = doctorOf(t, ofTask("cpu = 1"))
	wantFinding(t, findings["squeue"], missing, "login node", "module load slurm")
	wantFinding(t, findings["sacct"], warning, "goes on without it")
	if _, asked := findings["controller"]; asked {
		t.Error("a run cannot start, and the controller was asked all the same")
	}
}

// onlyShell is a folder with what fake commands need and nothing of Slurm.
func onlyShell(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"sh", "cat", "date", "env", "true"} {
		if err := os.Symlink(filepath.Join("/bin", name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestTheDoctorsOptionsGoWithAJob(t *testing.T) {
	for _, args := range [][]string{{"doctor", "--probe"}, {"doctor", "--launcher", "slurm"}, {"doctor", writeJob(t, oneBlock), "--probe"}} {
		if status, _, stderr := call(args...); status != exitUsage || !strings.Contains(stderr, "goes with a job file") {
			t.Errorf("%v: status %d: %s", args, status, stderr)
		}
	}
}

func loadedJob(t *testing.T, path string) *job.Job {
	t.Helper()
	j, err := jobfile.Load(path, nil, jobfile.Options{Machine: machine(), CheckSlurm: checkSlurm})
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// runsAtOnce makes sbatch a cluster of one node, this machine.
const runsAtOnce = `for last; do case $last in --output=*) log=${last#--output=} ;; esac; done
bash "$last" >"${log%\%a.log}0.log" 2>&1`

func TestAProbeLooksFromANodeAndLeavesNothing(t *testing.T) {
	fake := aSite(t)
	fake.Say("sbatch", launchertest.Answer{Stdout: "4711\n", Then: runsAtOnce})
	dir := t.TempDir()
	path := filepath.Join(dir, "job.toml")
	if err := os.WriteFile(path, []byte(ofTask("cpu = 4, gpu = 2, memory = '3GiB'", `gres = "gpu:a100"`, `time = "8h"`)), 0o600); err != nil {
		t.Fatal(err)
	}
	p := &prober{job: loadedJob(t, path), dir: filepath.Join(dir, "runs"), worker: program(t, "daisy-worker", "echo daisy-worker version 7"), time: 20 * time.Second}
	list := p.findings(t.Context())
	m := map[string]finding{}
	for _, f := range list {
		m[f.Check] = f
	}
	wantFinding(t, m["probe of a"], fine, "sees the run directory")
	wantFinding(t, m["probe of a: program"], fine, "version 7")
	wantFinding(t, m["probe of a: addresses"], fine, "reached ")
	args := strings.Join(fake.Calls("sbatch")[0].Args, " ")
	for _, want := range []string{"--time=0-00:02:00", "--cpus-per-task=1", "--gres=gpu:a100:1"} {
		if !strings.Contains(args, want) {
			t.Errorf("it asks for more than it needs: no %s in %s", want, args)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".daisy*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	// It was taken, and the answer came too late.
	fake.Say("sbatch", launchertest.Answer{Then: runsAtOnce + "\necho 'sbatch: error: Batch job submission failed: Socket timed out on send/recv operation' >&2; exit 1"})
	wantFinding(t, p.findings(t.Context())[0], fine, "sees the run directory")
	fake.Say("sbatch", launchertest.Answer{Stdout: "4711\n", Then: runsAtOnce})
	p.worker = program(t, "daisy-worker", "echo wrong format; exit 126")
	for _, f := range p.findings(t.Context()) {
		if f.Check == "probe of a: program" {
			wantFinding(t, f, missing, "wrong format", "noexec")
		}
	}
	fake.Say("sbatch", launchertest.Answer{Stderr: "sbatch: error: Batch job submission failed: Invalid qos specification\n", Status: 1})
	wantFinding(t, p.findings(t.Context())[0], missing, "Invalid qos specification")
}

func TestAProbeOfAJobWithATimeAmongItsOptionsTakesThat(t *testing.T) {
	fake := aSite(t)
	fake.Say("sbatch", launchertest.Answer{Stdout: "4711\n", Then: runsAtOnce})
	dir := t.TempDir()
	path := filepath.Join(dir, "job.toml")
	if err := os.WriteFile(path, []byte(ofTask("cpu = 1", `options = ["--time=8:00:00"]`)), 0o600); err != nil {
		t.Fatal(err)
	}
	p := &prober{job: loadedJob(t, path), dir: filepath.Join(dir, "runs"), worker: program(t, "daisy-worker", "echo daisy-worker version 7"), time: 20 * time.Second}
	wantFinding(t, p.findings(t.Context())[0], fine, "sees the run directory")
	if args := strings.Join(fake.Calls("sbatch")[0].Args, " "); strings.Count(args, "--time=0-08:00:00") != 1 || strings.Count(args, "--time") != 1 {
		t.Errorf("%s", args)
	}
}

func TestAllWorkersOfARunAreOnOneCluster(t *testing.T) {
	_ = aSite(t)
	for cluster, many := range map[string]bool{"": false, "west": false, "west,east": true, "all": true} {
		t.Setenv("SLURM_CLUSTERS", cluster)
		status, _, stderr := call("render", writeJob(t, ofTask("cpu = 1")))
		if many != (status == exitUsage && strings.Contains(stderr, "more than one cluster")) || !many && status != exitOK {
			t.Errorf("SLURM_CLUSTERS=%s: status %d: %s", cluster, status, stderr)
		}
		if status, _, stderr := call("render", writeJob(t, ofTask("cpu = 1", `cluster = "west"`))); status != exitOK {
			t.Errorf("SLURM_CLUSTERS=%s and cluster: status %d: %s", cluster, status, stderr)
		}
	}
}

func TestWhatAProbeDidNotSayIsSaid(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	const begin = "daisy-probe node n1\ndaisy-probe clock 1800000000\ndaisy-probe runs v\n"
	for name, c := range map[string]struct {
		said  string
		state launcher.Element
		check string
		want  string
		parts []string
	}{
		"not seen":      {"", launcher.Element{State: launcher.Ended, Word: "COMPLETED", Node: "n7"}, "p", missing, []string{"n7", "nothing that it wrote is seen here", "file system of the whole cluster"}},
		"not seen yet":  {"", launcher.Element{State: launcher.Running, Word: "RUNNING", Node: "n7"}, "p", missing, []string{"a job runs on n7"}},
		"pending":       {"", launcher.Element{State: launcher.Pending, Word: "PENDING", Reason: launcher.Reason{Word: "Priority", Plain: "other jobs go first"}}, "p", warning, []string{"PENDING, Priority: other jobs go first"}},
		"no folder":     {"slurm_script: line 8: cd: /x: No such file or directory\n", launcher.Element{}, "p", missing, []string{"cd: /x", "folder of the job file"}},
		"no address":    {begin + "daisy-probe unreached vm:1: Connection refused\ndaisy-probe end\n", launcher.Element{}, "p: addresses", missing, []string{"vm:1: Connection refused", "firewall"}},
		"some":          {begin + "daisy-probe unreached vm:1: Connection refused\ndaisy-probe reached w:1\ndaisy-probe end\n", launcher.Element{}, "p: addresses", fine, []string{"reached w:1; not vm:1"}},
		"submits":       {begin + "daisy-probe submits\ndaisy-probe end\n", launcher.Element{}, "nodes submit", fine, []string{"n1 may"}},
		"may not":       {begin + "daisy-probe refused sbatch: error: Batch job submission failed: Access/permission denied\ndaisy-probe end\n", launcher.Element{}, "nodes submit", warning, []string{"n1 may not", "Access/permission denied", "--detach"}},
		"no space":      {begin + "daisy-probe full head: write error: Disk quota exceeded\ndaisy-probe end\n", launcher.Element{}, "p: space", missing, []string{"Disk quota exceeded"}},
		"another clock": {strings.Replace(begin, "1800000000", "1800007200", 1), launcher.Element{}, "p: clock", warning, []string{"2h"}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, f := range judgeProbe("p", c.said, c.state, "/d/.trial", now) {
				if f.Check == c.check {
					wantFinding(t, f, c.want, c.parts...)
					return
				}
			}
			t.Errorf("no finding %s", c.check)
		})
	}
}

func TestFileSystemsAreToldApart(t *testing.T) {
	wantFinding(t, judgeShared(0x6969), fine, "nfs")
	wantFinding(t, judgeShared(0xef53), warning, "ext4", "whole cluster")
	wantFinding(t, judgeShared(1), warning, "0x1")
	wantFinding(t, executableFinding(t.TempDir()), fine)
	wantFinding(t, executableFinding("/proc"), warning)
}
