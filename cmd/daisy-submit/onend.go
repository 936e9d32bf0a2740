package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"time"

	"example.org/daisy/internal/coordinator"
	"example.org/daisy/internal/units"
)

// onEndBound is how long the command at the end of a run may take.
const onEndBound = 5 * time.Minute

// onEnd runs the command that the job wants run at the end. That it fails is said, and changes nothing about the run.
func (r *jobRun) onEnd(ctx context.Context, result coordinator.Result) {
	argv := r.job.OnEnd
	if argv == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, onEndBound)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = r.job.Dir
	run := result.Stats.Run
	cmd.Env = append(os.Environ(), "DAISY_RUN_ID="+run.ID, "DAISY_RUN_NAME="+run.Name, "DAISY_RUN_STATE="+run.State,
		"DAISY_EXIT_STATUS="+strconv.Itoa(result.ExitStatus))
	if run.Directory != nil {
		cmd.Env = append(cmd.Env, "DAISY_RUN_DIR="+*run.Directory)
	}
	cmd.Stdout, cmd.Stderr = r.stderr, r.stderr // the tables and JSON lines of stdout stay alone
	cmd.WaitDelay = time.Second                 // what it leaves running may keep its output open
	err := cmd.Run()
	switch {
	case err == nil || errors.Is(err, exec.ErrWaitDelay):
	case ctx.Err() != nil:
		fmt.Fprintf(r.stderr, "daisy-submit: on_end: %q was ended after %s; put what takes longer into the background\n", argv[0], units.Duration(onEndBound))
	default:
		fmt.Fprintf(r.stderr, "daisy-submit: on_end: %q: %v\n", argv[0], err)
	}
}
