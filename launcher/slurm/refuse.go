package slurm

import (
	"errors"
	"fmt"
	"strings"

	"example.org/daisy/launcher"
)

// phrases of Slurm, in any letter case, and what they say of a submission. The first that is found decides, so those that leave open
// whether the job exists come first.
var phrases = []struct {
	text   string
	unsure bool
	kind   launcher.RefusalKind
	plain  string
}{
	{text: "Socket timed out", unsure: true},
	{text: "Zero Bytes were transmitted", unsure: true},
	{text: "Message receive failure", unsure: true},
	{text: "Message send failure", unsure: true},
	{text: "shutdown failure", unsure: true},
	{text: "slurm controller (receive failure)", unsure: true},
	{text: "slurm controller (send failure)", unsure: true},
	{text: "Unexpected message received", unsure: true},
	{text: "Header lengths are longer", unsure: true},
	{text: "Insane message length", unsure: true},
	{text: "Connection reset by peer", unsure: true},
	{text: "Connection timed out", unsure: true},
	{text: "Broken pipe", unsure: true},
	{text: "Transport endpoint is not connected", unsure: true},
	{text: "Protocol error", unsure: true},

	{"Unable to contact slurm controller", false, launcher.RefusedForNow, "the controller of Slurm does not answer"},
	{"Communication connection failure", false, launcher.RefusedForNow, "the controller of Slurm does not answer"},
	{"Connection refused", false, launcher.RefusedForNow, "the controller of Slurm does not answer"},
	{"standby mode", false, launcher.RefusedForNow, "the controller of Slurm is being replaced"},
	{"Could not establish a configuration source", false, launcher.RefusedForNow, "the configuration of Slurm cannot be fetched"},
	{"Munge encode failed", false, launcher.RefusedForNow, "munge does not answer on this machine"},
	{"authentication", false, launcher.RefusedForNow, "this machine cannot prove to Slurm who you are (munge, or clocks that differ)"},
	{"Invalid credential", false, launcher.RefusedForNow, "this machine cannot prove to Slurm who you are (munge, or clocks that differ)"},
	{"Slurm temporarily unable to accept job", false, launcher.RefusedForNow, "Slurm has as many jobs as it can hold"},
	{"I/O error writing script/environment", false, launcher.RefusedForNow, "the controller of Slurm cannot keep batch scripts: its disk may be full"},
	{"Unable to create job record", false, launcher.RefusedForNow, "Slurm has as many jobs as it can hold"},
	{"reservation not usable now", false, launcher.RefusedForNow, "the reservation has not begun, or is over"},
	{"QOS usage threshold", false, launcher.RefusedForNow, "the QOS has been used too much of late"},
	{"Resource temporarily unavailable", false, launcher.RefusedForNow, ""},
	{"Required partition not available", false, launcher.RefusedForNow, "the partition takes no jobs at the moment"},
	{"Slurmdbd is not", false, launcher.RefusedForNow, ""},
	{"Transition already in progress", false, launcher.RefusedForNow, ""},

	{"SubmitJob", false, launcher.RefusedForLimits, "no more jobs of yours may be in the queue"},
	{"Invalid job array specification", false, launcher.RefusedForLimits, "the array is larger than the site allows (MaxArraySize)"},
	{"Job size specification needs to be", false, launcher.RefusedForLimits, ""},

	{"QOSMaxWall", false, launcher.RefusedForGood, "it asks for more time than the QOS gives: lower time"},
	{"AssocMaxWall", false, launcher.RefusedForGood, "it asks for more time than your account may use: lower time"},
	{"QOSMaxMemory", false, launcher.RefusedForGood, "it asks for more memory than the QOS gives to one job"},
	{"QOSMax", false, launcher.RefusedForGood, "it asks for more than the QOS gives to one job"},
	{"QOSMin", false, launcher.RefusedForGood, "it asks for less than the QOS wants of a job"},
	{"AssocMax", false, launcher.RefusedForGood, "it asks for more than your account may use"},
	// Without a word for which limit it is, waiting may help.
	{"Job violates accounting/QOS policy", false, launcher.RefusedForLimits, "a limit of your account or the QOS"},

	{"Invalid partition name", false, launcher.RefusedForGood, "there is no such partition: sinfo lists them"},
	{"Invalid account", false, launcher.RefusedForGood, "change account or partition: sacctmgr show assoc user=$USER lists yours"},
	{"Invalid qos", false, launcher.RefusedForGood, "change qos: sacctmgr show assoc user=$USER lists yours"},
	{"Requested node configuration is not available", false, launcher.RefusedForGood, "no node that may be used has so many cores, so much memory or so many GPUs"},
	{"Invalid generic resource", false, launcher.RefusedForGood, "the cluster has no such GPUs or other gres"},
	{"Invalid feature", false, launcher.RefusedForGood, "no node has the features of constraint: sinfo -o '%f %N' lists them"},
	{"Invalid node name", false, launcher.RefusedForGood, "there is no node of nodelist or exclude: sinfo -N lists them"},
	{"Invalid license", false, launcher.RefusedForGood, "the cluster has no such licences: scontrol show licenses lists them"},
	{"Requested time limit is invalid", false, launcher.RefusedForGood, "change time: sinfo -o '%P %l' lists what partitions give"},
	{"group not permitted", false, launcher.RefusedForGood, "you may not use the partition"},
	{"Access/permission denied", false, launcher.RefusedForGood, "you may not submit from here, or not so"},
}

// refusalOf judges a failed sbatch by what it wrote. The error is *launcher.Refusal, or wraps launcher.ErrUnsure.
func refusalOf(stderr string, failed error) error {
	words := wordsOf(stderr)
	lower := strings.ToLower(stderr)
	final := submissionFailed(stderr)
	if !errors.Is(failed, errStatus) && !final { // cut short, perhaps in the middle of another try
		return fmt.Errorf("%w (sbatch: %w)", launcher.ErrUnsure, failed)
	}
	for _, p := range phrases {
		if !strings.Contains(lower, strings.ToLower(p.text)) {
			continue
		}
		if p.unsure {
			return fmt.Errorf("%w (sbatch said: %s)", launcher.ErrUnsure, words)
		}
		if p.plain != "" {
			words += ": " + p.plain
		}
		return &launcher.Refusal{Kind: p.kind, Text: words}
	}
	if !strings.Contains(lower, "sbatch:") && !final { // whoever spoke, it was not sbatch
		return fmt.Errorf("%w (%w)", launcher.ErrUnsure, failed)
	}
	return &launcher.Refusal{Kind: launcher.RefusedForGood, Text: words}
}

// submissionFailed: sbatch said that it has come to its end without a job.
func submissionFailed(stderr string) bool {
	return strings.Contains(strings.ToLower(stderr), "submission failed")
}

// wordsOf is what a command said, in one line without its own name and without what Slurm says of every refusal.
func wordsOf(stderr string) string {
	var said []string
	for line := range strings.Lines(stderr) {
		line = strings.TrimSpace(line)
		for _, name := range []string{"sbatch", "squeue", "scancel", "scontrol", "sacct"} {
			line = strings.TrimPrefix(line, name+": ")
		}
		line = strings.TrimPrefix(line, "error: ")
		line = strings.TrimPrefix(line, "fatal: ")
		line = strings.TrimPrefix(line, "Batch job submission failed: ")
		if line != "" && (len(said) == 0 || said[len(said)-1] != line) {
			said = append(said, line)
		}
	}
	text := strings.Join(said, "; ")
	if len(text) > 600 {
		text = "…" + text[len(text)-600:]
	}
	return strings.ToValidUTF8(text, "?")
}
