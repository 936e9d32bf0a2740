package jobfile

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"example.org/daisy/internal/job"
)

// Frozen is the job file as a run keeps it: its text, and above it in comments where it came from and what the command line added.
func Frozen(source []byte, path, dir string, sets []string, opts Options) []byte {
	var b bytes.Buffer
	if _, handed := descriptor(path); !handed {
		path = filepath.Join(dir, filepath.Base(path))
	}
	fmt.Fprintf(&b, "# The job file %q as it was at the start of the run; relative paths start at %q.\n", path, dir)
	for _, s := range sets {
		fmt.Fprintf(&b, "# --set %q\n", s)
	}
	if opts.Launcher != "" {
		fmt.Fprintf(&b, "# --launcher %q\n", opts.Launcher)
	}
	if opts.MaxWorkers > 0 {
		fmt.Fprintf(&b, "# --max-workers %d\n", opts.MaxWorkers)
	}
	for _, f := range opts.Selection.Flags() {
		fmt.Fprintf(&b, "# %s %q\n", f[0], f[1])
	}
	for _, f := range opts.Below {
		fmt.Fprintf(&b, "# %s %q %q\n", defaultsFlag(f), f.Path, f.Text)
	}
	b.WriteByte('\n')
	b.Write(bytes.TrimPrefix(source, []byte("\xef\xbb\xbf")))
	return b.Bytes()
}

// defaultsFlag begins the line of a file of defaults.
func defaultsFlag(b Below) string {
	if b.Site {
		return "site-defaults"
	}
	return "user-defaults"
}

// LoadFrozen reads the job file that a run keeps, as the command line and the files of defaults were then, with more sets laid over
// it.
func LoadFrozen(path string, sets []string, opts Options) (*job.Job, error) {
	source, err := read(path)
	if err != nil {
		return nil, failure(path, 0, "%v", err)
	}
	head, text, _ := strings.Cut(string(source), "\n\n")
	var original, dir string
	var before []string
	opts.Below, opts.Selection = nil, job.Selection{}
	for i, line := range strings.Split(head, "\n") {
		if i == 0 {
			rest, ok := strings.CutPrefix(line, "# The job file ")
			if original, rest, ok = unquoted(rest, ok); ok {
				rest, ok = strings.CutPrefix(rest, " as it was at the start of the run; relative paths start at ")
				dir, _, ok = unquoted(rest, ok)
			}
			if !ok {
				return nil, failure(path, 1, "%v", errHead)
			}
			continue
		}
		flag, value, _ := strings.Cut(strings.TrimPrefix(line, "# "), " ")
		if text, _, ok := unquoted(value, true); ok {
			if known, err := opts.Selection.SetFlag(flag, text); err != nil {
				return nil, failure(path, i+1, "%v", errHead)
			} else if known {
				continue
			}
		}
		switch flag {
		case "--set":
			set, err := strconv.Unquote(value)
			if err != nil {
				return nil, failure(path, i+1, "%v", errHead)
			}
			before = append(before, set)
		case "site-defaults", "user-defaults":
			below := Below{Site: flag == "site-defaults"}
			at, rest, ok := unquoted(value, true)
			if ok {
				below.Path = at
				below.Text, _, ok = unquoted(strings.TrimPrefix(rest, " "), ok)
			}
			if !ok {
				return nil, failure(path, i+1, "%v", errHead)
			}
			opts.Below = append(opts.Below, below)
		case "--launcher":
			if opts.Launcher == "" {
				if opts.Launcher, err = strconv.Unquote(value); err != nil {
					return nil, failure(path, i+1, "%v", errHead)
				}
			}
		case "--max-workers":
			if opts.MaxWorkers == 0 {
				if opts.MaxWorkers, err = strconv.ParseInt(value, 10, 64); err != nil {
					return nil, failure(path, i+1, "%v", errHead)
				}
			}
		}
	}
	return load([]byte(text), original, dir, append(before, sets...), opts)
}

var errHead = errors.New("the comments above the job file, from which a run is resumed, were changed; restore them, or give the job file beside --resume")

// unquoted takes a quoted text from the begin of s.
func unquoted(s string, ok bool) (text, rest string, _ bool) {
	if !ok {
		return "", "", false
	}
	quoted, err := strconv.QuotedPrefix(s)
	if err != nil {
		return "", "", false
	}
	text, err = strconv.Unquote(quoted)
	return text, s[len(quoted):], err == nil
}
