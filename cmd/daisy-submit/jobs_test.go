package main

import (
	"bytes"
	"strings"
	"testing"

	"example.org/daisy/internal/api"
)

func TestJobsAreSaidInSlurmsWordsAndInPlainOnes(t *testing.T) {
	hour := 3600.0
	jobs := []api.LiveJob{
		{Job: pointer("4711"), Submission: "1", Task: "predict", Pending: 5, Running: 3, Connected: 2, Nodes: []string{"a", "b", "c", "d", "e", "f"}, Waits: []api.LiveWaiting{
			{Workers: 4, Reason: pointer("Priority"), Meaning: pointer("other jobs go first"), StartsInSeconds: &hour},
		}},
		{Submission: "2", Task: "label", Unsure: true, Asked: 2},
		{Job: pointer("4712"), Submission: "3", Task: "label", Asked: 7},
	}
	var b bytes.Buffer
	if err := writeJobs(&b, jobs); err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(b.String()) {
		got = append(got, strings.Join(strings.Fields(line), " "))
	}
	for _, want := range []string{
		"4711 predict 3 running - on a, b, c, d and 2 more; 1 not connected",
		"4711 predict 4 pending Priority other jobs go first in 1h00m",
		"4711 predict 1 pending - -",
		"submission 2 label 2 unsure - the batch system has not said whether it took them -",
		"4712 label 7 asked for - the batch system has not shown them yet -",
	} {
		found := false
		for _, line := range got {
			found = found || line == want
		}
		if !found {
			t.Errorf("there is no line %q in\n%s", want, b.String())
		}
	}
	b.Reset()
	if err := writeJobs(&b, nil); err != nil || b.Len() > 0 {
		t.Errorf("without jobs: %q, %v", b.String(), err)
	}
	for range 30 {
		jobs = append(jobs, jobs[0])
	}
	if _ = writeJobs(&b, jobs); !strings.Contains(b.String(), "… and 55 more rows") {
		t.Errorf("of many:\n%s", b.String())
	}
}
