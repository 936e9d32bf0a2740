package slurm

import (
	"errors"
	"fmt"
	"testing"

	"example.org/daisy/launcher"
)

// unsure stands for launcher.ErrUnsure among the kinds of refusals.
const unsure launcher.RefusalKind = 99

// Texts as Slurm 22.05 wrote them, but for those marked as invented after its sources or from reports of other versions.
func TestEveryRefusalIsJudgedByItsText(t *testing.T) {
	const failed = "sbatch: error: Batch job submission failed: "
	const policy = failed + "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)\n"
	for _, c := range []struct {
		stderr string
		want   launcher.RefusalKind
	}{
		{"sbatch: error: invalid partition specified: nope\n" + failed + "Invalid partition name specified\n", launcher.RefusedForGood},
		{"sbatch: error: Memory specification can not be satisfied\n" + failed + "Requested node configuration is not available\n", launcher.RefusedForGood},
		{"sbatch: error: CPU count per node can not be satisfied\n" + failed + "Requested node configuration is not available\n", launcher.RefusedForGood},
		{"sbatch: error: Invalid generic resource (gres) specification\n", launcher.RefusedForGood},
		{failed + "Invalid job array specification\n", launcher.RefusedForLimits},
		{"sbatch: error: Invalid --time specification\n", launcher.RefusedForGood},
		{failed + "Invalid qos specification\n", launcher.RefusedForGood},
		{failed + "Invalid account or account/partition combination specified\n", launcher.RefusedForGood},
		{failed + "Invalid feature specification\n", launcher.RefusedForGood},
		{failed + "Invalid node name specified\n", launcher.RefusedForGood},
		{"sbatch: error: QOSMaxMemoryPerJob\n" + policy, launcher.RefusedForGood},
		{"sbatch: error: QOSMaxWallDurationPerJobLimit\n" + policy, launcher.RefusedForGood},
		{"sbatch: error: QOSMaxSubmitJobPerUserLimit\n" + policy, launcher.RefusedForLimits},
		{policy, launcher.RefusedForLimits},
		{failed + "Requested time limit is invalid (missing or exceeds some limit)\n", launcher.RefusedForGood},
		{failed + "Node count specification invalid\n", launcher.RefusedForGood},
		{failed + "More processors requested than permitted\n", launcher.RefusedForGood},
		{failed + "Job dependency problem\n", launcher.RefusedForGood},
		{failed + "Pathname of a file, directory or other parameter too long\n", launcher.RefusedForGood},
		{failed + "Access/permission denied\n", launcher.RefusedForGood},
		{"sbatch: error: Batch script is empty!\n", launcher.RefusedForGood},
		{"sbatch: unrecognized option '--bogus'\nTry \"sbatch --help\" for more information\n", launcher.RefusedForGood},
		{failed + "Unable to contact slurm controller (connect failure)\n", launcher.RefusedForNow},
		{failed + "Socket timed out on send/recv operation\n", unsure},
		{failed + "Required partition not available (inactive or drain)\n", launcher.RefusedForNow},

		// As its library has them:
		{failed + "I/O error writing script/environment to file\n", launcher.RefusedForNow},
		{failed + "Unable to create job record, try again\n", launcher.RefusedForNow},
		{failed + "Requested reservation not usable now\n", launcher.RefusedForNow},
		{failed + "Requested account has breached requested QOS usage threshold\n", launcher.RefusedForNow},
		{failed + "Requested reservation is invalid\n", launcher.RefusedForGood},

		// Invented:
		{"sbatch: error: AssocMaxSubmitJobLimit\n" + policy, launcher.RefusedForLimits},
		{"sbatch: error: AssocGrpSubmitJobsLimit\n" + policy, launcher.RefusedForLimits},
		{"sbatch: error: QOSMinGRES\n" + policy, launcher.RefusedForGood},
		{failed + "Zero Bytes were transmitted or received\n", unsure},
		{failed + "Connection reset by peer\n", unsure},
		{failed + "Communication connection failure\n", launcher.RefusedForNow},
		{failed + "Unable to contact slurm controller (receive failure)\n", unsure},
		{failed + "Unable to contact slurm controller (send failure)\n", unsure},
		{failed + "Message send failure\n", unsure},
		{failed + "Slurm backup controller in standby mode\n", launcher.RefusedForNow},
		{failed + "Protocol authentication error\n", launcher.RefusedForNow},
		{"sbatch: error: Munge encode failed: Failed to access \"/run/munge/munge.socket.2\": No such file or directory\nsbatch: error: authentication: Invalid authentication credential\n", launcher.RefusedForNow},
		{"sbatch: fatal: Could not establish a configuration source\n", launcher.RefusedForNow},
		{"sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying\n" + failed + "Resource temporarily unavailable\n", launcher.RefusedForNow},
		{"sbatch: lua: jobs without a project are refused\n" + failed + "Unspecified error\n", launcher.RefusedForGood},
		{failed + "User's group not permitted to use this partition\n", launcher.RefusedForGood},
		{"", unsure},
		{"the wrapper of this site is broken\n", unsure},
	} {
		err := refusalOf(c.stderr, fmt.Errorf("%w with status 1", errStatus))
		var r *launcher.Refusal
		got := unsure
		if errors.As(err, &r) {
			got = r.Kind
		} else if !errors.Is(err, launcher.ErrUnsure) {
			t.Fatalf("%q: %v is neither", c.stderr, err)
		}
		if got != c.want {
			t.Errorf("%q: kind %d, want %d (%v)", c.stderr, got, c.want, err)
		}
	}
}

func TestWhatWasCutShortMayHaveBeenAcceptedUnlessSlurmHadSpokenItsLastWord(t *testing.T) {
	cut := errors.New("no answer within 1m0s")
	for stderr, want := range map[string]bool{
		"": true,
		"sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying\n":                                  true,
		"sbatch: error: Batch job submission failed: Invalid qos specification\n":                                         false,
		"sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)\n":              false,
		"sbatch: error: Batch job submission failed: Socket timed out on send/recv operation\n":                           true,
		"sbatch: error: Unable to contact slurm controller (connect failure), sleeping and retrying (an invented line)\n": true,
	} {
		if err := refusalOf(stderr, cut); errors.Is(err, launcher.ErrUnsure) != want {
			t.Errorf("%q: %v", stderr, err)
		}
	}
}

func TestARefusalSaysWhatSlurmSaidAndWhatToDo(t *testing.T) {
	err := refusalOf("sbatch: error: invalid partition specified: nope\nsbatch: error: Batch job submission failed: Invalid partition name specified\n", errStatus)
	want := "invalid partition specified: nope; Invalid partition name specified: there is no such partition: sinfo lists them"
	if err.Error() != want {
		t.Errorf("%q, want %q", err, want)
	}
}

func FuzzRefusal(f *testing.F) {
	f.Add("sbatch: error: Batch job submission failed: Invalid qos specification\n")
	f.Add("\xff\x00")
	f.Fuzz(func(t *testing.T, s string) {
		err := refusalOf(s, errStatus)
		var r *launcher.Refusal
		if !errors.As(err, &r) && !errors.Is(err, launcher.ErrUnsure) || len(err.Error()) > 1200 {
			t.Errorf("%q: %v", s, err)
		}
	})
}
