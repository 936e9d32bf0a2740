package jobfile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// An Error is one thing that is wrong with a job file.
type Error struct {
	// File is the job file as the user named it and Line the line in it, from 1; 0 where the file as a whole is meant.
	File string
	Line int
	// Argument is the command-line argument that is wrong ("--set run.grace=1"), "" if it is the file.
	Argument string
	// Where is the table: `task "predict"`, "run", or "" outside of them. Key is the key in it, "" if there is none.
	Where, Key string
	// Text says what is wrong, then what is allowed.
	Text string

	argumentAt int // the place of Argument on the command line
}

// Error is `segment.toml:14: task "predict": max_workers: …`; for an argument `--set task.predict.max_workers=x: …` in place of
// the file and line.
func (e *Error) Error() string {
	var parts []string
	switch {
	case e.Argument != "":
		parts = append(parts, e.Argument)
	case e.Line > 0:
		parts = append(parts, fmt.Sprintf("%s:%d", e.File, e.Line))
	default:
		parts = append(parts, e.File)
	}
	for _, p := range []string{e.Where, e.Key, e.Text} {
		if p != "" {
			parts = append(parts, p)
		}
	}
	return strings.Join(parts, ": ")
}

// Errors are all that is wrong with a job file, in the order of its lines, those of the command line last.
type Errors struct{ List []*Error }

func (e *Errors) Error() string {
	lines := make([]string, len(e.List))
	for i, one := range e.List {
		lines[i] = one.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap gives errors.As the single errors.
func (e *Errors) Unwrap() []error {
	list := make([]error, len(e.List))
	for i, one := range e.List {
		list[i] = one
	}
	return list
}

// sort puts those of the file main before those of files of defaults.
func (e *Errors) sort(main string) {
	slices.SortStableFunc(e.List, func(a, b *Error) int {
		if (a.Argument == "") != (b.Argument == "") {
			if a.Argument == "" {
				return -1
			}
			return 1
		}
		if a.File != b.File && (a.File == main || b.File == main) {
			if a.File == main {
				return -1
			}
			return 1
		}
		if a.File != b.File {
			return 0 // as they came
		}
		if a.argumentAt != b.argumentAt {
			return cmp.Compare(a.argumentAt, b.argumentAt)
		}
		return cmp.Compare(a.Line, b.Line)
	})
}

func failure(file string, line int, format string, args ...any) *Errors {
	return &Errors{List: []*Error{{File: file, Line: line, Text: fmt.Sprintf(format, args...)}}}
}
