package e2e

import (
	"fmt"
	"strings"
	"testing"
)

// TestABlockThatTakesMoreMemoryThanIsEnforcedHasNotSucceeded holds with both ways of enforcing: this machine may have either.
func TestABlockThatTakesMoreMemoryThanIsEnforcedHasNotSucceeded(t *testing.T) {
	t.Parallel()
	const keys = "requires = { cpu = 1, memory = \"200MiB\" }\nmax_retries = 0\n"
	const code = "head -c 400000000 /dev/zero | tail -c 400000000 > /dev/null || exit 1"
	only1 := shell("test {index} != 1 || { " + code + "; }")
	for _, launcher := range []string{"local", "serial"} {
		for enforced, want := range map[bool]int{false: 0, true: 1} {
			t.Run(fmt.Sprintf("%s, enforced %v", launcher, enforced), func(t *testing.T) {
				t.Parallel()
				dir, path := writeJob(t, job(`resources = { cpu = 1, memory = "1GiB" }`, blocks("work", 2)+keys+only1+fmt.Sprintf("enforce_memory = %v\n", enforced)))
				r := wantStatus(t, want, dir, "run", path, "--run-dir", "out", "--launcher", launcher)
				said := strings.Contains(r.stderr, `task "work": `) && strings.Contains(r.stderr, "200MiB")
				work := task(t, statsOf(t, dir+"/out"), "work")
				if said != enforced || work.Success != int64(2-want) || work.Failed != int64(want) {
					t.Errorf("%d succeeded, %d failed, and it was said beforehand: %v", work.Success, work.Failed, said)
				}
				if enforced && !strings.Contains(work.Failures[0].Message, "the enforced limit of 200MiB") {
					t.Errorf("the message is %q", work.Failures[0].Message)
				}
			})
		}
	}
}

func TestABlockInTheForegroundIsUnderTheLimitToo(t *testing.T) {
	t.Parallel()
	for enforced, want := range map[bool]int{false: 0, true: 3} {
		dir, path := writeJob(t, job("", blocks("work", 1)+"requires = { memory = \"200MiB\" }\n"+
			shell("head -c 400000000 /dev/zero | tail -c 400000000 > /dev/null || exit 3")+fmt.Sprintf("enforce_memory = %v\n", enforced)))
		if r := run(t, dir, "run-block", path, "work", "0"); r.status != want && (!enforced || r.status != 128+9) {
			t.Errorf("enforced %v: exit status %d, want %d\n%s", enforced, r.status, want, r.all())
		}
	}
}
