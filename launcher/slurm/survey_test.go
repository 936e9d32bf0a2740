package slurm

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.org/daisy/launcher"
	"example.org/daisy/launcher/launchertest"
)

// The first two lines are what 22.05 said, the last is made up of what other versions and sites have.
const someNodes = `NodeName=n1 Arch=x86_64 CoresPerSocket=4  CPUAlloc=0 CPUEfctv=4 CPUTot=4 CPULoad=23.50 AvailableFeatures=(null) ActiveFeatures=(null) Gres=(null) NodeAddr=127.0.0.1 NodeHostName=vm Port=21911 Version=22.05.8 OS=Linux 6.18 #1 SMP PREEMPT_DYNAMIC @0  RealMemory=4000 AllocMem=0 FreeMem=13139 Sockets=1 Boards=1 State=IDLE ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A Partitions=cpu,high  BootTime=2026-11-30T08:06:34 CfgTRES=cpu=4,mem=4000M,billing=4 AllocTRES= CapWatts=n/a
NodeName=n3 Arch=x86_64 CoresPerSocket=4  CPUAlloc=0 CPUEfctv=4 CPUTot=4 AvailableFeatures=gpu ActiveFeatures=gpu Gres=gpu:2 NodeAddr=127.0.0.1 RealMemory=4000 State=IDLE Partitions=cpu,gpu,high
NodeName=big1 Arch=aarch64 CPUTot=72 AvailableFeatures=grace,ib Gres=gpu:h100:4(S:0-3),gpu:a100:1,nvme:2 OS=Linux 5.14.0 #1 SMP X=1 RealMemory=480000 MemSpecLimit=20000 State=MIXED+DRAIN Partitions=hopper Reason=bad DIMM in A=3 [root@2026-01-01T00:00:00]
`

func TestNodesAreReadWithAllThatTheyHave(t *testing.T) {
	want := []Node{
		{Name: "n1", Arch: "x86_64", State: "IDLE", CPUs: 4, MemoryMiB: 4000, GPUs: map[string]int64{}, Partitions: []string{"cpu", "high"}},
		{Name: "n3", Arch: "x86_64", State: "IDLE", CPUs: 4, MemoryMiB: 4000, GPUs: map[string]int64{"": 2}, Features: []string{"gpu"}, Partitions: []string{"cpu", "gpu", "high"}},
		{Name: "big1", Arch: "aarch64", State: "MIXED+DRAIN", CPUs: 72, MemoryMiB: 460000, GPUs: map[string]int64{"h100": 4, "a100": 1}, Features: []string{"grace", "ib"}, Partitions: []string{"hopper"}},
	}
	got := parseNodes("Welcome to Cluster 2\n" + strings.ReplaceAll(someNodes, "\n", "\r\n") + "\n")
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	for state, up := range map[string]bool{"IDLE": true, "MIXED": true, "ALLOCATED": true, "IDLE~": true, "IDLE+CLOUD+POWERED_DOWN": true, "DOWN*": false, "IDLE*": false, "IDLE+DRAIN": false, "FAIL": false, "IDLE+MAINTENANCE+RESERVED": false,
		"IDLE+DRAIN+POWERED_DOWN": false, "DOWN+POWERED_DOWN": false, "IDLE+POWERING_DOWN": true} {
		if n := (Node{State: state}); n.Up() != up {
			t.Errorf("%s: up is %v", state, !up)
		}
	}
	if n := want[2]; n.GPUsOf("") != 5 || n.GPUsOf("h100") != 4 || n.GPUsOf("v100") != 0 {
		t.Errorf("GPUs %d, %d, %d", n.GPUsOf(""), n.GPUsOf("h100"), n.GPUsOf("v100"))
	}
}

func TestPartitionsAreReadWithTheirLimits(t *testing.T) {
	const answer = `PartitionName=cpu AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL Default=YES QoS=N/A DefaultTime=00:10:00 MaxNodes=UNLIMITED MaxTime=1-00:00:00 Nodes=n[1-4] OverSubscribe=NO State=UP JobDefaults=(null) DefMemPerNode=UNLIMITED MaxMemPerNode=UNLIMITED TRES=cpu=16,mem=16000M
PartitionName=whole AllowAccounts=a,b DenyQos=low Default=NO DefaultTime=NONE MaxTime=UNLIMITED OverSubscribe=EXCLUSIVE State=DRAIN DefMemPerCPU=1000 MaxMemPerCPU=2000
`
	want := []Partition{
		{Name: "cpu", Default: true, State: "UP", MaxTime: 24 * time.Hour, DefaultTime: 10 * time.Minute},
		{Name: "whole", State: "DRAIN", Accounts: []string{"a", "b"}, DenyQOS: []string{"low"}, Exclusive: true, Memory: MemoryLimits{DefPerCPU: 1000, MaxPerCPU: 2000}},
	}
	dressed := func(answer string) string {
		return "*** Maintenance = Friday ***\r\n" + strings.ReplaceAll(answer, "\n", "\r\n") + "Your quota = 98%"
	}
	for _, answer := range []string{answer, dressed(answer)} {
		if d := cmp.Diff(want, parsePartitions(answer)); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	}
	site := parseSite(dressed("AuthType                = auth/munge\nAuthInfo                = socket=/s,cred_expire=10\nDefMemPerCPU            = 100\nMaxMemPerNode           = UNLIMITED\n"))
	if !site.Munge || site.MungeSocket != "/s" || site.Memory != (MemoryLimits{DefPerCPU: 100}) {
		t.Errorf("site %+v", site)
	}
	if m := (MemoryLimits{DefPerNode: 5}).Over(MemoryLimits{DefPerCPU: 7, MaxPerCPU: 9}); m != (MemoryLimits{DefPerNode: 5, MaxPerCPU: 9}) {
		t.Errorf("limits of a partition over those of the site: %+v", m)
	}
}

func TestListsOfNodesAreExpanded(t *testing.T) {
	for list, want := range map[string]string{
		"n1": "n1", "n[1-3],m": "n1 n2 n3 m", "n[08-10,12]": "n08 n09 n10 n12", "r[1-2]n[1-2]": "r1n1 r1n2 r2n1 r2n2", "n[1-": "n[1-", "n[a]": "n[a]", "": "",
	} {
		if got := strings.Join(ExpandNodes(list), " "); got != want {
			t.Errorf("%s: %s, want %s", list, got, want)
		}
	}
}

func TestAControllerIsUpOnlyIfSlurmSaysSo(t *testing.T) {
	l, fake := faked(t, 0, all...)
	for said, up := range map[string]string{
		"Slurmctld(primary) at vm is UP\n":                                                       "Slurmctld(primary) at vm is UP",
		"Batch is UP again\n\nSlurmctld(primary) at vm is UP\r\n17 users\n":                      "Slurmctld(primary) at vm is UP",
		"Slurmctld(primary/backup) at a/b are DOWN/UP\n":                                         "Slurmctld(primary/backup) at a/b are DOWN/UP",
		"Slurmctld(primary) at a is DOWN\nSlurmctld(backup) at b is UP\n":                        "Slurmctld(primary) at a is DOWN; Slurmctld(backup) at b is UP",
		"Batch is UP again\nSlurmctld(primary) at UP is DOWN\n":                                  "",
		"Slurmctld(primary/backup) at a/b are DOWN/DOWN\n*** Welcome: Slurmctld is UP, really\n": "",
		"": "",
	} {
		fake.Say("scontrol", launchertest.Answer{Stdout: said})
		if got, err := l.Ping(t.Context()); (err == nil) != (up != "") || up != "" && got != up {
			t.Errorf("%q: %q, %v", said, got, err)
		}
	}
}

func TestAListOfMoreNodesThanThereCanBeStandsForItself(t *testing.T) {
	for _, list := range []string{"n[0-999999]", "n[0-99999][0-99999]", "n[1-9][1-9][1-9][1-9][1-9][1-9][1-9]", "n[" + strings.Repeat("0", 10_000) + "-99999]", "n[1-60000,1-60000]"} {
		if got := ExpandNodes(list); len(got) != 1 || got[0] != list {
			t.Errorf("%.40s stands for %d nodes", list, len(got))
		}
	}
}

func TestSbatchIsAskedForAForecastWithoutAFile(t *testing.T) {
	l, fake := faked(t, 0, all...)
	s := Submission{Argv: []string{"sbatch", "--parsable", "--array=0-3", "/nowhere/x.sbatch"}, Env: l.cfg.Env, Script: []byte("#!/bin/bash\n")}
	// It knows nothing of the time zone of this process, but of the format.
	fake.Say("sbatch", launchertest.Answer{Then: `[ "$SLURM_TIME_FORMAT" = %s ] && at=1796061154 || at=2026-11-30T13:05:52
echo "sbatch: Job 3 to start at $at using 2 processors on nodes n[3-4] in partition gpu" >&2; exit 0`})
	got, err := l.TestOnly(t.Context(), s)
	if want := (Forecast{time.Unix(1796061154, 0), 2, "n[3-4]", "gpu"}); err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	if d := cmp.Diff([]string{"--test-only", "--parsable", "--array=0-3"}, fake.Calls("sbatch")[0].Args); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	fake.Say("sbatch", launchertest.Answer{Stderr: "allocation failure: Requested node configuration is not available\n", Status: 1})
	if _, err := l.TestOnly(t.Context(), s); !isRefusal(err, launcher.RefusedForGood) || !strings.Contains(err.Error(), "no node that may be used") {
		t.Errorf("a refusal: %v", err)
	}
	fake.Say("sbatch", launchertest.Answer{Stderr: "allocation failure: Unable to contact slurm controller (connect failure)\n", Status: 1})
	if _, err := l.TestOnly(t.Context(), s); !isRefusal(err, launcher.RefusedForNow) {
		t.Errorf("without a controller: %v", err)
	}
	fake.Say("sbatch", launchertest.Answer{Stderr: "sbatch: who knows\n"})
	if _, err := l.TestOnly(t.Context(), s); err == nil || errors.Is(err, launcher.ErrUnsure) {
		t.Errorf("another answer: %v", err)
	}
}
