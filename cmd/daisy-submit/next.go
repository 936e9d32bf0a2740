package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"example.org/daisy/internal/api"
)

// plainWord is one that a shell takes as it is.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)

// command is a command line of this program that can be pasted into a shell. The program is named as it was called where it may
// not be on PATH.
func command(args ...string) string {
	const name = "daisy-submit"
	words := []string{name}
	if called := os.Args[0]; filepath.Base(called) == name && called != name {
		words[0] = called
	}
	words = append(words, args...)
	for i, w := range words {
		if !plainWord.MatchString(w) {
			words[i] = quoted(w)
		}
	}
	return strings.Join(words, " ")
}

// next is a line that says how to go on, with a command to paste; why becomes a comment in it.
func next(why string, args ...string) string {
	line := "next: " + command(args...)
	if why != "" {
		line += "   # " + why
	}
	return line
}

// nextOf says how to go on with a run that has ended, a line each; none if all went well, or nothing was begun.
func nextOf(s *api.Stats) []string {
	if s.Run.Directory == nil || s.Run.ExitStatus == nil || *s.Run.ExitStatus == exitOK {
		return nil
	}
	dir := *s.Run.Directory
	abandoned, failed := int64(0), int64(0)
	for _, t := range s.Tasks {
		abandoned, failed = abandoned+t.Abandoned, failed+t.Failed
	}
	switch {
	case *s.Run.ExitStatus == exitUsage: // nothing could start, so there is nothing to go on with
		if s.Run.JobFile == nil {
			return nil
		}
		return []string{
			next("after a change of the job file: what Slurm says of it", "plan", *s.Run.JobFile, "--test-only"),
			next("then a new run, as nothing of this one was run", "run", *s.Run.JobFile),
		}
	case failed > 0:
		return []string{
			next("what failed, and why", "logs", dir, "--failed"),
			next("after a fix: those blocks, and what is left", "retry", dir),
		}
	case abandoned > 0 || *s.Run.ExitStatus == exitInfrastructure:
		return []string{next("what is left", "run", "--resume", dir)}
	}
	return nil
}

// said is a command within a sentence.
func said(args ...string) string { return fmt.Sprintf("\"%s\"", command(args...)) }
