package slurm

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.org/daisy/launcher"
)

const aRun = "abcd2345"

var aTime = time.Unix(1796037625, 0)

func noPlain(string) bool { return false }

// listed reads rows of squeue, without the marks.
func listed(t *testing.T, rows ...string) (launcher.Listing, error) {
	t.Helper()
	var b strings.Builder
	for _, r := range rows {
		b.WriteString(rowBegin + r + rowEnd + "\n")
	}
	return parseSqueue(b.String(), aRun, aTime, noPlain)
}

// Rows as Slurm 22.05 wrote them.
func TestRowsOfSqueueBecomeElements(t *testing.T) {
	name := "dz-" + aRun + "-7"
	got, err := listed(t,
		"2|2-30%2|2|PENDING|N/A|N/A|1||"+name+"|JobArrayTaskLimit",
		"2|0|3|RUNNING|1796038225|1796037625|4|n1|"+name+"|None",
		"2|1|4|COMPLETING|1796038225|1796037625|1|n1|"+name+"|None",
		"9|0,2,4-5%3|9|PENDING|N/A|1796037685|1||x-"+name+"|ReqNodeNotAvail, UnavailableNodes:n4",
		"1|0,2,4|1|PENDING|N/A|N/A|1||wrap|JobHeldUser",
		"5|3|6|CANCELLED|1796037627|1796037625|1|n1|"+name+"|None",
		"5|4|5|FAILED|1796037627|1796037625|1|n2|"+name+"|NonZeroExitCode",
		"5|5|8|NODE_FAIL|1796037627|1796037625|1|n2|"+name+"|NodeDown",
		"5|6|9|WONDERFUL|1796037627|1796037625|1|n2|"+name+"|None",
	)
	if err != nil {
		t.Fatal(err)
	}
	limit := launcher.Reason{Word: "JobArrayTaskLimit", Plain: "as many of its array run as may run at once"}
	away := launcher.Reason{Word: "ReqNodeNotAvail, UnavailableNodes:n4", Plain: "nodes that it needs are down, reserved, or about to be maintained (n4)"}
	want := []launcher.Element{
		{Tag: "7", Array: "2", First: 2, Last: 30, State: launcher.Pending, Word: "PENDING", Reason: limit, Throttle: 2},
		{Tag: "7", Array: "2", Job: "3", State: launcher.Running, Word: "RUNNING", Node: "n1", CPUs: 4, Left: 600 * time.Second},
		{Tag: "7", Array: "2", Job: "4", First: 1, Last: 1, Word: "COMPLETING", Node: "n1", CPUs: 1},
		{Tag: "7", Array: "9", State: launcher.Pending, Word: "PENDING", Reason: away, Throttle: 3, StartsIn: time.Minute},
		{Tag: "7", Array: "9", First: 2, Last: 2, State: launcher.Pending, Word: "PENDING", Reason: away, Throttle: 3, StartsIn: time.Minute},
		{Tag: "7", Array: "9", First: 4, Last: 5, State: launcher.Pending, Word: "PENDING", Reason: away, Throttle: 3, StartsIn: time.Minute},
		{Tag: "7", Array: "5", Job: "6", First: 3, Last: 3, State: launcher.Ended, Word: "CANCELLED", Node: "n1", CPUs: 1, End: launcher.End{Cause: launcher.Cancelled, Detail: "was cancelled (CANCELLED)"}},
		{Tag: "7", Array: "5", Job: "5", First: 4, Last: 4, State: launcher.Ended, Word: "FAILED", Node: "n2", CPUs: 1, Reason: launcher.Reason{Word: "NonZeroExitCode", Plain: "its exit status was not 0"},
			End: launcher.End{Exit: -1, Detail: "ended with an exit status other than 0, or by a signal (FAILED)"}},
		{Tag: "7", Array: "5", Job: "8", First: 5, Last: 5, Word: "NODE_FAIL", Node: "n2", CPUs: 1, Reason: launcher.Reason{Word: "NodeDown", Plain: "a node that it needs is down"}, End: launcher.End{Cause: launcher.NodeFailed}},
		{Tag: "7", Array: "5", Job: "9", First: 6, Last: 6, Word: "WONDERFUL", Node: "n2", CPUs: 1},
	}
	if d := cmp.Diff(want, got.Elements); d != "" {
		t.Errorf("elements (-want +got):\n%s", d)
	}
}

// What was pending of an array that was cancelled whole has one row without elements; a job that is no array has always such a row.
func TestARowWithoutElementsIsAPlainJobOrSaysNothing(t *testing.T) {
	row := rowBegin + "2|N/A|2|%s|N/A|N/A|1|%s|dz-" + aRun + "-7|None" + rowEnd + "\n"
	for _, c := range []struct {
		state, node string
		plain       bool
		want        int
	}{{"CANCELLED", "", false, 0}, {"CANCELLED", "", true, 1}, {"RUNNING", "n1", true, 1}, {"PENDING", "", true, 1}} {
		got, err := parseSqueue(fmt.Sprintf(row, c.state, c.node), aRun, aTime, func(string) bool { return c.plain })
		if err != nil || len(got.Elements) != c.want {
			t.Errorf("%+v: %+v, %v", c, got.Elements, err)
		}
	}
}

func TestAnAnswerSurvivesWhatSitesPutAroundIt(t *testing.T) {
	row := rowBegin + "2|0|3|RUNNING|N/A|N/A|1|n1|dz-" + aRun + "-7|None" + rowEnd
	odd := rowBegin + "4|N/A|4|RUNNING|N/A|N/A|1|n1|my|odd\nname$|None" + rowEnd
	for name, answer := range map[string]string{
		"alone":                  row + "\n",
		"banner before":          "*** Maintenance on Friday ***\n\n" + row + "\n",
		"banner behind":          row + "\nYour quota is 98% full\n",
		"banner without an end":  row + "\nYour quota",
		"the name of a cluster":  "CLUSTER: west\n" + row + "\n",
		"DOS line ends":          row + "\r\n",
		"a header":               "daisy|ARRAY_JOB_ID|ARRAY_TASK_ID|JOBID|STATE|END_TIME|START_TIME|CPUS|NODELIST|NAME|REASON|$\n" + row + "\n",
		"names that are no text": strings.ReplaceAll(odd, "my", "\xff\xfe") + "\n" + row + "\n",
		"a job of several parts": rowBegin + "4711+0|N/A|4711+1|RUNNING|N/A|N/A|1|n1|hetero|None" + rowEnd + "\n" + row + "\n",
		"jobs with odd names":    odd + "\n" + row + "\n" + odd + "\n",
	} {
		got, err := parseSqueue(answer, aRun, aTime, noPlain)
		if err != nil || len(got.Elements) != 1 || got.Elements[0].Node != "n1" {
			t.Errorf("%s: %+v, %v", name, got.Elements, err)
		}
	}
	if got, err := parseSqueue("", aRun, aTime, noPlain); err != nil || len(got.Elements) != 0 {
		t.Errorf("nothing: %+v, %v", got, err)
	}
}

func TestAnAnswerThatIsNotWholeIsNone(t *testing.T) {
	row := rowBegin + "2|0,2-9|3|PENDING|N/A|N/A|1|n1|dz-" + aRun + "-7|None" + rowEnd + "\n"
	for cut := 1; cut < len(row)-1; cut++ {
		if got, err := parseSqueue(row+row[:cut], aRun, aTime, noPlain); err == nil {
			t.Errorf("cut after %q: %+v and no error", row[:cut], got.Elements)
		}
		if got, err := parseSqueue(row[:cut]+"\n"+row, aRun, aTime, noPlain); err == nil && cut >= len(rowBegin) {
			t.Errorf("cut after %q, with a row behind it: %+v and no error", row[:cut], got.Elements)
		}
	}
	for _, bad := range []string{
		"2|0|3|RUNNING|N/A|N/A|1|n1", "x|0|3|RUNNING|N/A|N/A|1|n1|NAME|None", "2|y|3|RUNNING|N/A|N/A|1|n1|NAME|None", "2|0|3||N/A|N/A|1|n1|NAME|None",
		"2|0,2,4,6,|2|PENDING|N/A|N/A|1||NAME|None", "2|0-3,...|2|PENDING|N/A|N/A|1||NAME|None",
	} {
		if got, err := listed(t, strings.ReplaceAll(bad, "NAME", "dz-"+aRun+"-7")); err == nil {
			t.Errorf("%s: %+v and no error", bad, got.Elements)
		}
	}
}

// TestARowOfManyPendingElementsIsAllOfThem: 500 that wait in one row, one that runs, and a job that is no array.
func TestARowOfManyPendingElementsIsAllOfThem(t *testing.T) {
	got, err := listed(t, "4711|1-500%20|4711|PENDING|N/A|N/A|1||dz-"+aRun+"-1|Resources", "4711|501|4800|RUNNING|N/A|N/A|1|n1|dz-"+aRun+"-1|None",
		"4712|N/A|4712|PENDING|N/A|N/A|1||dz-"+aRun+"-2|Priority")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, e := range got.Elements {
		if e.Tag == "1" {
			n += e.Last - e.First + 1
		}
	}
	if n != 501 {
		t.Errorf("%d elements, want 501: %+v", n, got.Elements)
	}
}

func TestExitCodesOfSacctAreSaidInWords(t *testing.T) {
	for code, want := range map[string]string{
		"1:0": "exit status 1", "13:0": "exit status 13", "15:0": "exit status 15", "0:9": "signal 9", "0:15": "signal 15", "0:0": "exit status 128", "127:0": "exit status 127",
		"0:53": "exit status -1 Slurm could not open its log, or enter its folder, on the node (0:53)", "x": "exit status -1",
	} {
		end := launcher.End{Exit: unknownExit}
		exitOf(&end, "FAILED", code)
		got := fmt.Sprintf("exit status %d", end.Exit)
		if end.Cause == launcher.Signalled {
			got = fmt.Sprintf("signal %d", end.Signal)
		}
		if got = strings.TrimSpace(got + " " + end.Detail); got != want {
			t.Errorf("%s: %q, want %q", code, got, want)
		}
	}
}

func TestElementsAreReadInEveryFormThatSlurmHas(t *testing.T) {
	for text, want := range map[string][]span{
		"3": {{3, 3}}, "[3-7%3]": {{3, 7}}, "3-7%3": {{3, 7}}, "0,2,4-6": {{0, 0}, {2, 2}, {4, 6}}, "0-10:5": {{0, 0}, {5, 5}, {10, 10}}, "[0-3:2,9]": {{0, 0}, {2, 2}, {9, 9}}, "[7]": {{7, 7}}, "[0-0]": {{0, 0}}, "[0-12:4]": {{0, 0}, {4, 4}, {8, 8}, {12, 12}},
		"[1-3,9-21:6,40%2]": {{1, 3}, {9, 9}, {15, 15}, {21, 21}, {40, 40}}, "4000000": {{4000000, 4000000}}, "[0-3999999%5]": {{0, 3999999}},
	} {
		if got, _, err := parseElements(text); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %v, want %v", text, got, err, want)
		}
	}
	// Slurm cuts lists at 64 characters, without a mark or with dots.
	for _, text := range []string{"", "[", "]", "[3", "3]", "3-", "-3", "7-3", "a", "1,,2", "1,", "0x3", "3%", "%3", "3-4:0", "3:2", "0-4:", "5-7,6", "12_[0", "[0,2,4,6,8,10,12,14,16,18,20", "0,2,...", "4000001", "99999999999", "1 2", "[a]", "[10-9]", "[0-4000000000]", "0-4000000000:7"} {
		if got, _, err := parseElements(text); err == nil {
			t.Errorf("%q is read as %v", text, got)
		}
	}
	if _, limit, _ := parseElements("[3-7%12]"); limit != 12 {
		t.Errorf("throttle %d, want 12", limit)
	}
}

func FuzzElements(f *testing.F) {
	for _, s := range []string{"3", "[3-7%3]", "0,2,4-6", "0-10:5", "[0,2,4,6,8,10", "0-4000000:2,7"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		spans, _, err := parseElements(s)
		if err != nil {
			return
		}
		next, all := 0, []int{}
		for _, p := range spans {
			if p.first < next || p.last < p.first || p.last >= mostElements {
				t.Fatalf("%q gives %v", s, spans)
			}
			for i := p.first; i <= p.last && len(all) < 1000; i++ {
				all = append(all, i)
			}
			next = p.last + 1
		}
		again, _, err := parseElements(writeElements(all))
		var back []int
		for _, p := range again {
			for i := p.first; i <= p.last; i++ {
				back = append(back, i)
			}
		}
		if err != nil || !slices.Equal(all, back) {
			t.Fatalf("%v is written as %q and read back as %v, %v", all, writeElements(all), back, err)
		}
	})
}

func FuzzSqueue(f *testing.F) {
	f.Add(rowBegin + "2|2-30%2|2|PENDING|N/A|N/A|1||dz-" + aRun + "-7|JobArrayTaskLimit" + rowEnd + "\n")
	f.Add("banner\r\n" + rowBegin + "2|0|3|RUNNING|1796038225|1796037625|4|n1|dz-" + aRun + "-7|None" + rowEnd + "\r\n")
	f.Add(rowBegin + "4|N/A|4|RUNNING|N/A|N/A|1|n1|my|odd\nname|None" + rowEnd + "\n" + rowBegin)
	f.Fuzz(func(t *testing.T, s string) {
		got, err := parseSqueue(s, aRun, aTime, noPlain)
		if err != nil {
			return
		}
		for _, e := range got.Elements {
			if checkTag(e.Tag) != nil || jobID(e.Array) == "" || e.First < 0 || e.Last < e.First || e.Word == "" || e.Left < 0 || e.StartsIn < 0 || e.CPUs < 0 {
				t.Fatalf("%q gives %+v", s, e)
			}
		}
	})
}

// Rows as Slurm 22.05 wrote them, but for those of other users.
func TestRowsOfSacctSayWhoCancelledAndHowItEnded(t *testing.T) {
	name := "dz-" + aRun + "-7"
	got, err := parseSacct("Welcome to the cluster\r\n"+
		"2_0|"+name+"|CANCELLED by 1001|0:0|1|n1\n"+
		"2_1|"+name+"|CANCELLED by 0|0:0|1|n1\n"+
		"2_2|"+name+"|CANCELLED by 64030|0:0|1|None assigned\n"+
		"2_3|"+name+"|CANCELLED by 1002|0:0|1|n1\n"+
		"2_4|"+name+"|FAILED|0:9|1|n1\n"+
		"2_5|"+name+"|FAILED|9:0|2|n1\n"+
		"2_6|"+name+"|FAILED|0:0|1|n1\n"+
		"2_7|"+name+"|COMPLETED|0:0|1|n1\n"+
		"2_[8-9%2]|"+name+"|PENDING|0:0|1|None assigned\n"+
		"2_7.batch|batch|COMPLETED|0:0|1|n1\n"+
		"3|my|odd|name|COMPLETED|0:0|1|n1\n"+
		"4|x-dz-"+aRun+"-8|NODE_FAIL|1:0|1|n3\n", aRun, 1001, 64030)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, e := range got.Elements {
		lines = append(lines, fmt.Sprintf("%s %s %d-%d %s by %d, %v %d %d", e.Tag, e.Array, e.First, e.Last, e.State, e.By, e.End.Cause, e.End.Exit, e.End.Signal))
	}
	want := []string{
		"7 2 0-0 ended by 1, cancelled 0 0", "7 2 1-1 ended by 2, cancelled 0 0", "7 2 2-2 ended by 2, cancelled 0 0", "7 2 3-3 ended by 3, cancelled 0 0",
		"7 2 4-4 ended by 0, signal 0 9", "7 2 5-5 ended by 0, exited 9 0", "7 2 6-6 ended by 0, exited 128 0", "7 2 7-7 ended by 0, exited 0 0",
		"7 2 8-9 pending by 0, exited 0 0", "8 4 0-0 unknown by 0, node_failed 0 0",
	}
	if d := cmp.Diff(want, lines); d != "" {
		t.Errorf("elements (-want +got):\n%s", d)
	}
	if _, err := parseSacct("2_0|"+name+"|COMPLETED|0:0|1|n", aRun, 1, 2); err == nil {
		t.Error("a cut answer is no error")
	}
}

func FuzzSacct(f *testing.F) {
	f.Add("2_0|dz-" + aRun + "-7|CANCELLED by 1001|0:0|1|n1\n2_[8-9%2]|dz-" + aRun + "-7|PENDING|0:0|1|None assigned\n")
	f.Fuzz(func(t *testing.T, s string) {
		got, _ := parseSacct(s, aRun, 1001, 64030)
		for _, e := range got.Elements {
			if checkTag(e.Tag) != nil || jobID(e.Array) == "" || e.Last < e.First || e.Word == "" {
				t.Fatalf("%q gives %+v", s, e)
			}
		}
	})
}

func TestTheIdOfASubmissionIsFoundInWhatSbatchSays(t *testing.T) {
	for said, want := range map[string]string{
		"123\n": "123", "123;west\n": "123", "Submitted batch job 123\n": "123", "Submitted batch job 123 on cluster west\r\n": "123",
		"sbatch wrapper 4.2\nPlease cite us\n123\n": "123", "123\r\n": "123", "7 jobs in the queue\n123\n": "123",
		"Welcome to Cluster 2\n--> Checking allocation 12345 ... OK\n--> limit: 50 jobs\n\n4711\n\n": "4711", "4711  \r\nSee you at http://hpc/4712\r\n": "4711",
		"4711\nSubmitted batch job 4711\n":  "4711",
		"job 12 of max 50 accepted: 4711\n": "", "4711\n4712\n": "", "4711\n0\n": "", "4711;a b\n": "", "Submitted batch job 4711 to somebody\n": "",
		"": "", "0\n": "", "-3\n": "", "12a\n": "", "job 123 submitted\n": "", "1234567890123456789\n": "",
		// A wrapper's number, and whose?
		"Submitted batch job 123\n17\n": "", "17\n123\n": "", "123\n123\n": "123",
	} {
		if got := submittedID(said); got != want {
			t.Errorf("%q: %q, want %q", said, got, want)
		}
	}
}

func TestOnlyNamesOfTheRunAreOurs(t *testing.T) {
	for name, want := range map[string]string{
		"dz-" + aRun + "-1": "1", "lab-dz-" + aRun + "-27": "27", nameOf("my-pre.fix", aRun, "9"): "9",
		"dz-zzzz2345-1": "", "dz-" + aRun: "", "dz-" + aRun + "-": "", "dz-" + aRun + "-1-2": "", "xdz-" + aRun + "-1": "", "dz-" + aRun + "-1 ": "", "dz-" + aRun + "-1\n": "",
		strings.Repeat("p", 40) + "-dz-" + aRun + "-1": "",
	} {
		if got, ours := tagOf(name, aRun); ours != (want != "") || ours && got != want {
			t.Errorf("%q: %q, %v, want %q", name, got, ours, want)
		}
	}
}

func TestEveryStateIsSaidInPlainWordsAndUnknownOnesProveNothing(t *testing.T) {
	for word, s := range states {
		if s.plain == "" {
			t.Errorf("%s has no plain words", word)
		}
		if s.state == launcher.Ended && slices.Contains([]string{"NODE_FAIL", "BOOT_FAIL", "REQUEUED", "COMPLETING", "REVOKED", "SUSPENDED"}, word) {
			t.Errorf("%s counts as an end, and the job may run again", word)
		}
	}
	for _, word := range []string{"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "OUT_OF_MEMORY", "PREEMPTED", "DEADLINE"} {
		if s, _, _ := stateOf(word, "n1"); s != launcher.Ended {
			t.Errorf("%s is %v, want an end", word, s)
		}
	}
	if s, word, _ := stateOf("cancelled+", ""); s != launcher.Ended || word != "CANCELLED" {
		t.Errorf("a cut word is %v %s", s, word)
	}
	if s, word, end := stateOf("SHINY_NEW", "n1"); s != launcher.Unknown || word != "SHINY_NEW" || end != (launcher.End{}) || !strings.Contains(Plain(word), "does not know") {
		t.Errorf("an unknown word is %v %s %+v", s, word, end)
	}
	if _, _, end := stateOf("TIMEOUT", "n1"); end.Cause != launcher.TimeLimit {
		t.Errorf("TIMEOUT ends by %v", end.Cause)
	}
	if _, _, end := stateOf("DEADLINE", ""); end.Cause != launcher.NeverStarted {
		t.Errorf("DEADLINE before the start ends by %v", end.Cause)
	}
}

func TestReasonsAreSaidInPlainWordsAndThoseThatNeverEndAreKnown(t *testing.T) {
	never := []string{
		"PartitionTimeLimit", "PartitionNodeLimit", "PartitionConfig", "BadConstraints", "InvalidAccount", "InvalidQOS", "DependencyNeverSatisfied",
		"AssocMaxWallDurationPerJobLimit", "QOSMaxMemoryPerJob", "QOSMaxWallDurationPerJobLimit", "QOSMaxCpuPerJobLimit", "QOSMaxNodePerJobLimit", "QOSMinGRES", "AssocMaxCpuPerJobLimit", "QOSMaxCpuPerNode",
	}
	waits := []string{
		"Resources", "Priority", "JobArrayTaskLimit", "Licenses", "BeginTime", "PartitionDown", "PartitionInactive", "ReqNodeNotAvail", "ReqNodeNotAvail, UnavailableNodes:n4", "(Resources)",
		"QOSMaxJobsPerUserLimit", "AssocGrpCpuLimit", "QOSGrpNodeLimit", "QOSMaxCpuPerUserLimit", "AssocGrpCPUMinutesLimit", "AssocGrpCPURunMinutesLimit", "QOSMaxGRESPerUser", "AssocMaxJobsLimit", "QOSGrpGRES", "AssocGrpWallLimit",
		"Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions", "launch failed requeued held", "job requeued in held state",
	}
	for i, word := range slices.Concat(never, waits) {
		r := reasonOf(word)
		if r.Never != (i < len(never)) || r.Failed != (word == "launch failed requeued held") || r.Plain == "" || strings.HasPrefix(r.Plain, "Slurm says") {
			t.Errorf("%s: %+v", word, r)
		}
	}
	if r := reasonOf("SomethingOfVersion99"); r.Never || r.Plain != "Slurm says: SomethingOfVersion99" {
		t.Errorf("an unknown reason is %+v", r)
	}
	for _, word := range []string{"", "None", "(null)", "N/A"} {
		if r := reasonOf(word); r != (launcher.Reason{}) {
			t.Errorf("%q is the reason %+v", word, r)
		}
	}
}
