package report

import (
	"bytes"
	"strings"
	"testing"

	"example.org/daisy/internal/api"
)

func TestOfManyFailuresAFewAreShownAndTheOthersCounted(t *testing.T) {
	s := failedRun()
	for i := range s.Tasks { // one task shows its first failure in full, the other does not
		s.Tasks[i].Failed, s.Tasks[i].Failures = 150, nil
		for k := range 100 {
			s.Tasks[i].Failures = append(s.Tasks[i].Failures, api.BlockFailure{Index: []int64{int64(k)}, Attempts: 1, Message: "no good"})
		}
	}
	for _, format := range []Format{Table, Markdown} {
		var b bytes.Buffer
		if err := Tables(&b, s, format); err != nil {
			t.Fatal(err)
		}
		for task, more := range map[string]string{"predict": "… and 144 more", "agglomerate": "… and 145 more"} {
			if n := strings.Count(b.String(), `of "`+task+`" failed after`); n == 0 || n > 10 {
				t.Errorf("%s shows %d failures of %s, want at most 10", format, n, task)
			}
			if !strings.Contains(b.String(), more) {
				t.Errorf("%s does not say %q of %s", format, more, task)
			}
		}
	}
}

func TestTheOnlyAttemptIsNotTheLastOfSeveral(t *testing.T) {
	worker := "1.0"
	for attempts, want := range map[int64]string{
		1: `block at (3) of "a" failed after 1 attempt, on worker 1.0: no good`,
		3: `block at (3) of "a" failed after 3 attempts, the last on worker 1.0: no good`,
	} {
		if got := failureText("a", &api.BlockFailure{Index: []int64{3}, Attempts: attempts, Worker: &worker, Message: "no good"}); got != want {
			t.Errorf("got %s", got)
		}
	}
}
