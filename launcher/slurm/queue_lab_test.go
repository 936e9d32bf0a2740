package slurm

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/daisy/internal/slurmlab"
	"example.org/daisy/launcher"
)

// A stand is a launcher of alice's in a lab.
type stand struct {
	*Launcher
	t   *testing.T
	lab *slurmlab.Lab
	dir string
	tag int
}

var stands int

// stand begins a run of its own; what is left of it is cancelled at the end of the test.
func newStand(t *testing.T, lab *slurmlab.Lab) *stand {
	stands++
	s := &stand{Launcher: asAlice(t, lab, fmt.Sprintf("qrun%04d", stands)), t: t, lab: lab, dir: folder(t, lab)}
	t.Cleanup(func() {
		cmd := lab.Command("root", "scancel", "-u", "alice")
		_ = cmd.Run()
	})
	return s
}

// request asks for workers that sleep.
func (s *stand) request(count int, options map[string][]string) launcher.Request {
	s.tag++
	return launcher.Request{
		Tag: fmt.Sprint(s.tag), Count: count, Argv: []string{"/bin/sleep", "300"}, Dir: s.dir, CPUMilli: 1000, Options: options,
		LogPath: func(w launcher.Worker) string { return filepath.Join(s.dir, w.String()+".log") },
	}
}

// submit submits and binds.
func (s *stand) submit(r launcher.Request) string {
	s.t.Helper()
	array, err := s.Submit(s.t.Context(), r)
	if err != nil {
		s.t.Fatal(err)
	}
	s.Bind(r.Tag, array)
	return array
}

// until lists until the elements of an array are as wanted; shown is how a listing is told, one line a row.
func (s *stand) until(what string, ok func(rows []launcher.Element) bool, array string) []launcher.Element {
	s.t.Helper()
	var rows []launcher.Element
	await(s.t, what, func() bool {
		list, err := s.List(s.t.Context())
		if err != nil {
			s.t.Fatal(err)
		}
		rows = nil
		for _, e := range list.Elements {
			if e.Array == array {
				rows = append(rows, e)
			}
		}
		time.Sleep(100 * time.Millisecond)
		return ok(rows)
	})
	return rows
}

// count is how many elements of the rows are in a state.
func count(rows []launcher.Element, state launcher.State) (n int) {
	for _, e := range rows {
		if e.State == state {
			n += e.Last - e.First + 1
		}
	}
	return n
}

func counts(running, pending int) func([]launcher.Element) bool {
	return func(rows []launcher.Element) bool {
		return count(rows, launcher.Running) == running && count(rows, launcher.Pending) == pending
	}
}

func TestOnSlurmRequests(t *testing.T) {
	lab := slurmlab.Start(t, slurmlab.Options{})
	for _, c := range []struct {
		name string
		test func(*stand)
	}{
		{"AnArrayIsListedThrottledAndCancelledElementByElement", elementsOfAnArray},
		{"AnArrayIsCancelledWholeAndNothingElse", wholeArray},
		{"PendingElementsAreKeptOffANode", excludedNode},
		{"RefusalsAreToldByTheirKindAndLeaveNothing", labRefusals},
		{"ReasonsThatNeverEndAreTold", labReasons},
		{"APartitionThatIsDownIsWaitedFor", partitionDown},
		{"TheAccountingSaysWhoCancelledAndHowItEnded", labAccount},
		{"OneJobForEachWorkerWithoutArrays", withoutArrays},
		{"HostilePathsAndValuesArriveAsTheyAre", hostileValues},
		{"AnOwnTemplateWithSrunRunsTheWorker", ownTemplate},
		{"ASubmissionWhoseAnswerWasLostIsFoundByItsName", lostAnswer},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(newStand(t, lab)) })
	}
}

func elementsOfAnArray(s *stand) {
	r := s.request(20, map[string][]string{"time": {"30m"}})
	r.Throttle = 3
	array := s.submit(r)
	rows := s.until("3 run", counts(3, 17), array)
	for _, e := range rows {
		switch {
		case e.Throttle != 3 && e.State == launcher.Pending:
			s.t.Errorf("throttle %d in %+v", e.Throttle, e)
		case e.State == launcher.Running && (e.Left < 29*time.Minute || e.Left > 30*time.Minute || e.Node == "" || e.CPUs != 1 || e.Job == ""):
			s.t.Errorf("running as %+v", e)
		}
	}
	if err := s.Throttle(s.t.Context(), array, 5); err != nil {
		s.t.Fatal(err)
	}
	s.until("5 run", counts(5, 15), array)
	worker := func(i int) launcher.Worker { return launcher.Worker{Tag: "1", Element: i} }
	if err := s.Cancel(s.t.Context(), worker(1), worker(15), worker(16), worker(99)); err != nil {
		s.t.Fatal(err)
	}
	rows = s.until("one that ran and two that waited are gone, and another runs", counts(5, 12), array)
	for _, e := range rows {
		for _, i := range []int{15, 16} {
			if e.First <= i && i <= e.Last && e.State != launcher.Ended {
				s.t.Errorf("element %d was cancelled and is %+v", i, e)
			}
		}
		if e.First == 1 && e.Last == 1 && (e.State == launcher.Ended && e.End.Cause != launcher.Cancelled || e.State == launcher.Running) {
			s.t.Errorf("element 1 was cancelled and is %+v", e)
		}
	}
	if known, err := s.Known(s.t.Context(), array); !known || err != nil {
		s.t.Errorf("known %v, %v", known, err)
	}
	if known, err := s.Known(s.t.Context(), "7654321"); known || err != nil {
		s.t.Errorf("an array that never was: known %v, %v", known, err)
	}
}

func wholeArray(s *stand) {
	array := s.submit(s.request(3, nil))
	twin := s.lab.Run("alice", "sbatch", "--parsable", "--job-name="+nameOf("", s.cfg.Run, "1"), "--array=0-2", "-o", "/dev/null", "--wrap", "sleep 300")
	bobs := s.lab.Run("bob", "sbatch", "--parsable", "--job-name="+nameOf("", s.cfg.Run, "1"), "-o", "/dev/null", "--wrap", "sleep 300")
	s.until("the twin is seen under the same tag", func(rows []launcher.Element) bool { return count(rows, launcher.Running) == 3 && rows[0].Tag == "1" }, twin)
	s.until("it runs", counts(3, 0), array)
	if err := s.CancelArray(s.t.Context(), "2", array); err != nil { // not its tag
		s.t.Fatal(err)
	}
	if err := s.CancelArray(s.t.Context(), "1", bobs); err != nil && !strings.Contains(err.Error(), "denied") {
		s.t.Fatal(err)
	}
	if err := s.CancelArray(s.t.Context(), "1", twin); err != nil {
		s.t.Fatal(err)
	}
	s.until("the twin has ended", func(rows []launcher.Element) bool { return count(rows, launcher.Ended) == 3 }, twin)
	s.until("the array runs on", counts(3, 0), array)
	if state := s.lab.Run("root", "squeue", "-h", "-j", bobs, "-o", "%T"); state != "RUNNING" && state != "PENDING" {
		s.t.Errorf("the job of another user is %s", state)
	}
	s.lab.Run("root", "scancel", bobs)
	if err := s.Close(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
	if left := s.lab.Run("alice", "squeue", "-h", "-u", "alice"); left != "" {
		s.t.Errorf("after Close:\n%s", left)
	}
}

func excludedNode(s *stand) {
	r := s.request(14, map[string][]string{"exclude": {"n4"}})
	r.Throttle = 4
	r.Argv = []string{"/bin/sleep", "1"}
	array := s.submit(r)
	s.until("some run", func(rows []launcher.Element) bool { return count(rows, launcher.Running) > 0 }, array)
	if err := s.Exclude(s.t.Context(), array, []string{"n1", "n2"}); err != nil {
		s.t.Fatal(err)
	}
	pending := s.lab.Run("alice", "squeue", "-h", "-t", "pending", "-j", array, "-o", "%x")
	if pending != "n[1-2,4]" {
		s.t.Errorf("the pending rest has %q excluded, want the nodes of the job and ours", pending)
	}
	if err := s.Throttle(s.t.Context(), array, 8); err != nil {
		s.t.Fatal(err)
	}
	rows := s.until("all have ended", func(rows []launcher.Element) bool { return count(rows, launcher.Ended) == 14 }, array)
	for _, e := range rows {
		if e.Node == "n4" || e.First > 8 && e.Node != "n3" {
			s.t.Errorf("element %d ran on %s", e.First, e.Node)
		}
	}
}

func labRefusals(s *stand) {
	big := s.request(1, nil)
	big.MemoryBytes = 5000 << 20
	wide := s.request(1, nil)
	wide.CPUMilli = 5000
	gpus := s.request(1, nil)
	gpus.GPUs = 3
	for _, c := range []struct {
		r    launcher.Request
		want launcher.RefusalKind
		says string
	}{
		{s.request(1, map[string][]string{"partition": {"nope"}}), launcher.RefusedForGood, "Invalid partition name"},
		{s.request(1, map[string][]string{"account": {"nope"}}), launcher.RefusedForGood, "Invalid account"},
		{s.request(1, map[string][]string{"qos": {"nope"}}), launcher.RefusedForGood, "Invalid qos"},
		{s.request(1, map[string][]string{"constraint": {"nope"}}), launcher.RefusedForGood, "Invalid feature"},
		{s.request(1, map[string][]string{"nodelist": {"n9"}}), launcher.RefusedForGood, "Invalid node name"},
		{s.request(1, map[string][]string{"qos": {"shortwall"}, "time": {"10m"}}), launcher.RefusedForGood, "QOSMaxWall"},
		{s.request(1, map[string][]string{"gres": {"foo:1"}}), launcher.RefusedForGood, "Invalid generic resource"},
		{s.request(1, map[string][]string{"options": {"--bogus"}}), launcher.RefusedForGood, "unrecognized option"},
		{big, launcher.RefusedForGood, "so much memory"}, {wide, launcher.RefusedForGood, "so many cores"}, {gpus, launcher.RefusedForGood, "so many GPUs"},
		{s.request(3, map[string][]string{"qos": {"tiny"}}), launcher.RefusedForLimits, "QOSMaxSubmitJobPerUserLimit"},
		{s.request(102, nil), launcher.RefusedForLimits, "MaxArraySize is 101"},
	} {
		_, err := s.Submit(s.t.Context(), c.r)
		var r *launcher.Refusal
		if !errors.As(err, &r) || r.Kind != c.want || !strings.Contains(r.Text, c.says) {
			s.t.Errorf("%v: %v, want kind %d with %q", c.r.Options, err, c.want, c.says)
		}
	}
	if left := s.lab.Run("root", "squeue", "-h"); left != "" {
		s.t.Errorf("in the queue:\n%s", left)
	}
}

func labReasons(s *stand) {
	for _, c := range []struct {
		options map[string][]string
		word    string
	}{
		{map[string][]string{"partition": {"short"}, "time": {"10m"}}, "PartitionTimeLimit"},
		{map[string][]string{"options": {"--dependency=afterok:1"}}, "DependencyNeverSatisfied"},
	} {
		array := s.submit(s.request(2, c.options))
		rows := s.until(c.word+" is told", func(rows []launcher.Element) bool { return len(rows) > 0 && rows[0].Reason.Word == c.word }, array)
		if !rows[0].Reason.Never || rows[0].Reason.Plain == "" || rows[0].Last != 1 {
			s.t.Errorf("%+v", rows[0])
		}
	}
	waits := s.submit(s.request(3, map[string][]string{"qos": {"one"}}))
	rows := s.until("one runs and the others wait for the QOS", func(rows []launcher.Element) bool {
		return count(rows, launcher.Running) == 1 && slices.ContainsFunc(rows, func(e launcher.Element) bool { return strings.HasPrefix(e.Reason.Word, "QOSMaxJobs") })
	}, waits)
	for _, e := range rows {
		if e.Reason.Never {
			s.t.Errorf("waiting helps, but %+v", e)
		}
	}
}

func partitionDown(s *stand) {
	s.lab.Run("root", "scontrol", "update", "partitionname=short", "state=down")
	array := s.submit(s.request(1, map[string][]string{"partition": {"short"}, "time": {"4m"}}))
	rows := s.until("the reason is told", func(rows []launcher.Element) bool { return len(rows) == 1 && rows[0].Reason.Word != "" }, array)
	if rows[0].Reason.Never || rows[0].Reason.Plain != "its partition is down" {
		s.t.Errorf("%+v", rows[0].Reason)
	}
	s.lab.Run("root", "scontrol", "update", "partitionname=short", "state=up")
	s.until("it starts", counts(1, 0), array)
}

func labAccount(s *stand) {
	r := s.request(5, nil)
	r.Argv = []string{"/bin/sh", "-c", `case $DAISY_ELEMENT in 0) exit 3;; 1) kill -9 $$;; 2) exit 0;; esac; exec sleep 300`}
	array := s.submit(r)
	s.until("two are left", counts(2, 0), array)
	s.lab.Run("alice", "scancel", array+"_3")
	s.lab.Run("root", "scancel", array+"_4")
	want := map[int]string{0: "exited 3 0 by 0", 1: "signal 0 9 by 0", 2: "exited 0 0 by 0", 3: "cancelled 0 0 by 1", 4: "cancelled 0 0 by 2"}
	var got map[int]string
	await(s.t, "all ends are in the accounting", func() bool {
		list, err := s.Account(s.t.Context(), array)
		if err != nil {
			s.t.Fatal(err)
		}
		got = map[int]string{}
		for _, e := range list.Elements {
			if e.State == launcher.Ended && e.Tag == r.Tag {
				got[e.First] = fmt.Sprintf("%v %d %d by %d", e.End.Cause, e.End.Exit, e.End.Signal, e.By)
			}
		}
		time.Sleep(200 * time.Millisecond)
		return len(got) == 5
	})
	for i, w := range want {
		if got[i] != w {
			s.t.Errorf("element %d: %s, want %s", i, got[i], w)
		}
	}
	list, err := s.Account(s.t.Context())
	if err != nil || len(list.Elements) != 5 {
		s.t.Errorf("for the whole run: %+v, %v", list, err)
	}
}

func withoutArrays(s *stand) {
	options := map[string][]string{"arrays": {"false"}}
	if _, err := s.Submit(s.t.Context(), s.request(2, options)); !isRefusal(err, launcher.RefusedForLimits) {
		s.t.Errorf("two at once: %v", err)
	}
	r := s.request(1, options)
	r.Argv = []string{"/bin/sh", "-c", `echo "$DAISY_TAG.$DAISY_ELEMENT $DAISY_ARRAY"; exec sleep 300`}
	array := s.submit(r)
	s.until("it runs", counts(1, 0), array)
	await(s.t, "it has said who it is", func() bool {
		text, _ := os.ReadFile(filepath.Join(s.dir, "2.0.log"))
		return string(text) == "2.0 "+array+"\n"
	})
	if err := s.Cancel(s.t.Context(), launcher.Worker{Tag: "2"}); err != nil {
		s.t.Fatal(err)
	}
	ended := func(rows []launcher.Element) bool { return count(rows, launcher.Ended) == 1 }
	s.until("it has ended", ended, array)

	// Many of them are ended in one call, by who stops them and at the end, and no other job of the same person is.
	r.Argv = []string{"/bin/sleep", "300"}
	submit := func() string {
		s.tag++
		r.Tag = fmt.Sprint(s.tag)
		return s.submit(r)
	}
	a, b, stays := submit(), submit(), submit()
	for _, array := range []string{a, b, stays} {
		s.until("it runs", counts(1, 0), array)
	}
	others := s.lab.Run("alice", "sbatch", "--parsable", "--job-name=dz-other000-1", "--output=/dev/null", "--wrap=sleep 300")
	if err := s.Cancel(s.t.Context(), launcher.Worker{Tag: "3"}, launcher.Worker{Tag: "4"}); err != nil {
		s.t.Fatal(err)
	}
	s.until("the first has ended", ended, a)
	s.until("so has the second", ended, b)
	s.until("the third runs", counts(1, 0), stays)
	c := submit()
	s.until("there are two again", counts(1, 0), c)
	if err := s.Close(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
	if state := s.lab.Run("alice", "squeue", "-h", "-t", "all", "-o", "%t", "-j", strings.TrimSpace(others)); !strings.Contains(state, "R") && !strings.Contains(state, "PD") {
		s.t.Errorf("the job of another run is %q", state)
	}
}

func hostileValues(s *stand) {
	dir := filepath.Join(s.dir, "50% of $(id) 'it' \"is\" größe; %a !")
	if err := os.MkdirAll(dir, 0o777); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Chown(dir, s.lab.UID("alice"), -1); err != nil {
		s.t.Fatal(err)
	}
	r := s.request(2, nil)
	r.Dir = dir
	r.LogPath = func(w launcher.Worker) string { return filepath.Join(dir, w.String()+" 100%j.log") }
	const value = "a\nb `c` $d \\ \xff %x"
	r.Env = []string{"VALUE=" + value}
	r.Argv = []string{"/bin/sh", "-c", `printf '%s|%s|%s' "$VALUE" "$1" "$PWD"`, "x", value}
	s.submit(r)
	for i := range 2 {
		await(s.t, "the log is there", func() bool {
			text, _ := os.ReadFile(r.LogPath(launcher.Worker{Tag: r.Tag, Element: i}))
			return string(text) == value+"|"+value+"|"+dir
		})
	}
}

func ownTemplate(s *stand) {
	path := filepath.Join(s.dir, "own.tmpl")
	text := "#!/bin/bash\n#SBATCH --time=5\n{{.Setup}}\ncd {{.Dir}}\nexport DAISY_TAG={{.Tag}}\nexec {{.Worker}}\n"
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		s.t.Fatal(err)
	}
	r := s.request(1, map[string][]string{"template": {path}, "launch": {"srun"}, "setup": {"export FROM_SETUP=yes"}, "prefix": {"mine"}})
	r.GPUs = 2
	r.Argv = []string{"/bin/sh", "-c", `echo "$DAISY_TAG $FROM_SETUP $SLURM_STEP_ID $SLURM_JOB_NAME $DAISY_GPUS"; exec sleep 300`}
	array := s.submit(r)
	s.until("it runs", counts(1, 0), array)
	want := "1 yes 0 mine-dz-" + s.cfg.Run + "-1 0,1\n"
	await(s.t, "it says "+want, func() bool { text, _ := os.ReadFile(filepath.Join(s.dir, "1.0.log")); return string(text) == want })
	if err := s.CancelArray(s.t.Context(), "1", array); err != nil {
		s.t.Fatal(err)
	}
	s.until("it has ended", func(rows []launcher.Element) bool { return count(rows, launcher.Ended) == 1 }, array)
}

// sbatch gives up after 10 s, and the controller, when it goes on, finds the job in its mail.
func lostAnswer(s *stand) {
	if err := s.Check(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
	s.lab.Signal("slurmctld", syscall.SIGSTOP)
	_, err := s.Submit(s.t.Context(), s.request(2, nil))
	s.lab.Signal("slurmctld", syscall.SIGCONT)
	if !errors.Is(err, launcher.ErrUnsure) {
		s.t.Errorf("without an answer: %v", err)
	}
	array := ""
	await(s.t, "it is found", func() bool {
		list, err := s.List(s.t.Context())
		if err != nil {
			s.t.Fatal(err)
		}
		for _, e := range list.Elements {
			array = e.Array
		}
		time.Sleep(100 * time.Millisecond)
		return array != ""
	})
	s.Bind("1", array)
	if err := s.Cancel(s.t.Context(), launcher.Worker{Tag: "1"}, launcher.Worker{Tag: "1", Element: 1}); err != nil {
		s.t.Fatal(err)
	}
	s.until("nothing of it waits or runs", counts(0, 0), array) // pending elements leave no row
}

func TestOnSlurmWithoutAccountingThereIsNone(t *testing.T) {
	lab := slurmlab.Start(t, slurmlab.Options{NoAccounting: true, MaxArraySize: 1})
	s := newStand(t, lab)
	if _, err := s.Account(t.Context(), "1"); !errors.Is(err, launcher.ErrNoAccounting) {
		t.Error(err)
	}
	// Nor are there arrays here, which the launcher finds out.
	if _, err := s.Submit(t.Context(), s.request(2, nil)); !isRefusal(err, launcher.RefusedForLimits) {
		t.Errorf("two at once: %v", err)
	}
	array := s.submit(s.request(1, nil))
	s.until("it runs", counts(1, 0), array)
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
