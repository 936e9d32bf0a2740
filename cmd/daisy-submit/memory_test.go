package main

import (
	"errors"
	"strings"
	"testing"
)

func TestAPlanSaysHowMemoryIsEnforcedHere(t *testing.T) {
	const keys = "requires = { cpu = 1, memory = \"3GiB\" }\nenforce_memory = true\n"
	j := jobOf(t, "resources = { cpu = 4, memory = \"64GiB\", gpu = 1 }", keys, "", "requires = { memory = \"1GiB\", gpu = 1 }\nenforce_memory = true")
	for how, c := range map[string]struct {
		hold memoryHold
		text string
		warn bool
	}{
		byCgroup: {memoryHold{how: byCgroup, base: "/sys/fs/cgroup/me"}, `task "t0": the processes of a block cannot use more than 3GiB of memory together (cgroups below /sys/fs/cgroup/me)`, false},
		byRlimit: {memoryHold{how: byRlimit, why: errors.New("no cgroup of mine")}, `task "t0": no process of a block can have more than 3GiB of address space (RLIMIT_AS), but several can together, as cgroups cannot be used: no cgroup of mine`, true},
	} {
		p, err := makePlan(j)
		if err != nil {
			t.Fatal(err)
		}
		p.hold(j, c.hold)
		if got := p.Tasks[0].EnforceMemory; got == nil || *got != how || p.Tasks[1].EnforceMemory != nil {
			t.Errorf("%s: it is %v and %v", how, got, p.Tasks[1].EnforceMemory)
		}
		var b strings.Builder
		if err := p.write(&b); err != nil || !strings.Contains(b.String(), "\n"+c.text+"\n") || strings.Contains(b.String(), `task "t1": `) {
			t.Errorf("%s: there is no %q in %v\n%s", how, c.text, err, b.String())
		}
		if got := strings.Contains(b.String(), `warning: task "t2": enforce_memory: programs that use GPUs reserve far more address space`); got != c.warn {
			t.Errorf("%s: it warns of GPUs: %v, want %v", how, got, c.warn)
		}
		if asked, err := c.hold.checkMemory(j); err != nil || len(asked) != 2 {
			t.Errorf("%s: %d tasks ask, %v", how, len(asked), err)
		}
	}
}

func TestWhereMemoryCannotBeEnforcedAJobThatAsksForItIsRefused(t *testing.T) {
	hold := memoryHold{why: errors.New("this system has no way")}
	_, err := hold.checkMemory(jobOf(t, "", "requires = { memory = \"1MiB\" }\nenforce_memory = true", ""))
	if want := `task "t0": enforce_memory: this system has no way; leave it out here`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if _, err := hold.checkMemory(jobOf(t, "", "")); err != nil {
		t.Errorf("nobody asks, and it is %v", err)
	}
}

func TestTheDoctorSaysHowMemoryCanBeEnforced(t *testing.T) {
	wantFinding(t, memoryLimitFinding(memoryHold{how: byCgroup, base: "/sys/fs/cgroup/me"}), fine, "all processes of a block together", "/sys/fs/cgroup/me")
	wantFinding(t, memoryLimitFinding(memoryHold{how: byRlimit, why: errors.New("no cgroup of mine")}), warning, "each process", "no cgroup of mine", "systemd-run --user --scope")
	wantFinding(t, memoryLimitFinding(memoryHold{why: errors.New("no way")}), warning, "not possible", "no way")
}
