package main

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.org/daisy/internal/api"
	"example.org/daisy/internal/rundir"
)

func TestWhyNothingRuns(t *testing.T) {
	text := func(s string) *string { return &s }
	for name, c := range map[string]struct {
		state api.State
		want  string
	}{
		"something runs": {api.State{Tasks: []api.LiveTask{{ID: "a", Waits: text("b")}, {ID: "c", Running: 1}}}, ""},
		"all wait":       {api.State{Tasks: []api.LiveTask{{ID: "a", Waits: text("no worker has come")}, {ID: "b", Waits: text("a is not done")}}}, "nothing runs: a: no worker has come; b: a is not done"},
		"one has ended":  {api.State{Tasks: []api.LiveTask{{ID: "a"}, {ID: "b", Waits: text("1 worker starting")}}}, "nothing runs: b: 1 worker starting"},
		"all have ended": {api.State{Tasks: []api.LiveTask{{ID: "a"}}}, "nothing runs: every block has ended"},
		"it ends":        {api.State{Run: api.LiveRun{Message: text("drained by anna")}, Tasks: []api.LiveTask{{ID: "a", Waits: text("x")}}}, "nothing runs: the run is ending: drained by anna"},
	} {
		if got := whyNothingRuns(&c.state); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// A port of another machine's loopback address is nobody's here.
func TestACoordinatorOnAnotherMachineIsNamed(t *testing.T) {
	dir, err := rundir.Create(t.TempDir(), "job", "")
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := l.Addr().String()
	_ = l.Close()
	if err := dir.WriteDiscovery(rundir.Discovery{Epoch: 1, Addresses: []string{nobody}}); err != nil {
		t.Fatal(err)
	}
	owner, err := json.Marshal(rundir.Owner{Host: "login7", PID: 4711, Process: "elsewhere", Since: time.Now(), Epoch: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir.Path(), "lock"), owner, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, command := range [][]string{{"status", dir.Path()}, {"drain", dir.Path()}, {"stop", dir.Path(), "1.0"}, {"exclude", dir.Path(), "n1"}, {"include", dir.Path(), "n1"}, {"set", dir.Path(), "run.resources.cpu=2"}} {
		status, _, stderr := call(command...)
		if status != exitInfrastructure || !strings.Contains(stderr, "process 4711 on login7") || !strings.Contains(stderr, "give the command there") {
			t.Errorf("%v: status %d: %s", command, status, stderr)
		}
	}
}

func TestEachNodeThatIsNotUsedIsNamedWithTheReason(t *testing.T) {
	text := func(s string) *string { return &s }
	got := notUsed([]api.LiveExcluded{{Node: "n1", By: text("anna"), Reason: text("it is\nhot")}, {Node: "n2", By: text("ben")}, {Node: "n3", Task: text("predict")}})
	const want = "node n1 is not used: excluded by anna: it is hot\nnode n2 is not used: excluded by ben\nnode n3 is not used for predict: workers keep failing on it\n"
	if got != want {
		t.Errorf("%q", got)
	}
}

func TestAmountsOfResourcesAreForPeople(t *testing.T) {
	for want, c := range map[string]api.LiveResource{"16GiB": {Name: "memory", Used: 16 << 30}, "0.5": {Name: "cpu", Used: 0.5}, "12": {Name: "gpu", Used: 12}} {
		if got := resourceAmount(c.Name, c.Used); got != want {
			t.Errorf("%s of %s: %q", want, c.Name, got)
		}
	}
}
