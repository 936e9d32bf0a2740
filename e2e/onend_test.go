package e2e

import (
	"strings"
	"testing"
)

func TestACommandAtTheEndOfARunIsToldHowItEnded(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]int{"true": 0, "false": 1} {
		dir, path := writeJob(t, job("name = \"x\"\non_end = { command = [\"sh\", \"-c\", \"echo $DAISY_RUN_NAME $DAISY_RUN_STATE $DAISY_EXIT_STATUS $DAISY_RUN_DIR > ended; echo said; exit 5\"] }",
			blocks("work", 1)+shell(line)+"max_retries = 0"))
		r := wantStatus(t, want, dir, "run", path, "--run-dir", "out")
		state := map[int]string{0: "done 0", 1: "failed 1"}[want]
		if got := strings.TrimSpace(readFile(t, dir+"/ended")); got != "x "+state+" "+dir+"/out" {
			t.Errorf("it was told %q", got)
		}
		wantText(t, r.stderr, "said\n", `on_end: "sh": exit status 5`)
		if strings.Contains(r.stdout, "said") {
			t.Error("what it prints is among the tables")
		}
	}
}

func TestAJobWhoseCommandAtTheEndIsMissingIsRefused(t *testing.T) {
	t.Parallel()
	dir, path := writeJob(t, job("on_end = { command = [\"./nothing\"] }", blocks("work", 1)+shell("touch ran")))
	wantText(t, wantStatus(t, 2, dir, "run", path).stderr, "on_end.command", "there is no file")
	if exists(dir + "/ran") {
		t.Error("a block ran")
	}
}
