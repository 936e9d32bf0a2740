package slurm

import (
	"fmt"
	"strings"
)

// longestName bounds the names of jobs: some sites' tools cut longer ones.
const longestName = 48

// nameOf is the job name of a submission: PREFIX-dz-RUN-TAG. It is public, and how jobs of the run are found again.
func nameOf(prefix, run, tag string) string {
	name := "dz-" + run + "-" + tag
	if prefix != "" {
		name = prefix + "-" + name
	}
	return name
}

// tagOf finds the tag in a job name, if it is one of the run. The prefix is not compared: it can change with a resume.
func tagOf(name, run string) (tag string, ours bool) {
	mark := "dz-" + run + "-"
	at := strings.LastIndex(name, mark)
	if run == "" || at < 0 || at > 0 && name[at-1] != '-' {
		return "", false
	}
	tag = name[at+len(mark):]
	return tag, checkTag(tag) == nil && len(name) <= longestName && named(name)
}

// checkTag: tags are numbers of submissions.
func checkTag(tag string) error {
	if tag == "" || len(tag) > 12 || !named(tag) || strings.Contains(tag, "-") {
		return fmt.Errorf("the tag %s is not 1 to 12 letters and digits", clip(tag))
	}
	return nil
}

// named: all characters are those that names have everywhere.
func named(s string) bool {
	for _, r := range s {
		if !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '_' || r == '-') {
			return false
		}
	}
	return true
}
