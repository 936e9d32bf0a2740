package jobfile_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"example.org/daisy/internal/job"
	"example.org/daisy/internal/jobfile"
)

// Each file in testdata/load has job files with what is said of them: all errors, or a summary of the job. Lines that
// begin with "--" before the job are arguments of the command line. Beside the job lie arrays/, tool.sh and notes.txt.
func TestJobFilesAreReadOrRefusedWithEveryError(t *testing.T) {
	t.Setenv("PATH", "/usr/bin:/bin")
	arrays, err := filepath.Abs("testdata/arrays")
	if err != nil {
		t.Fatal(err)
	}
	masks, err := filepath.Abs("testdata/masks")
	if err != nil {
		t.Fatal(err)
	}
	datadriven.Walk(t, "testdata/load", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			dir := t.TempDir()
			must := func(err error) {
				if err != nil {
					t.Fatal(err)
				}
			}
			must(os.Symlink(arrays, filepath.Join(dir, "arrays")))
			must(os.Symlink(masks, filepath.Join(dir, "masks")))
			must(os.WriteFile(filepath.Join(dir, "tool.sh"), []byte("#!/bin/sh\n"), 0o755))
			must(os.WriteFile(filepath.Join(dir, "notes.txt"), []byte("no program\n"), 0o644))
			opts := jobfile.Options{Machine: job.Machine{Cores: 8, MemoryBytes: 16 << 30, GPUs: 1}}
			text, sets := d.Input, []string(nil)
			for strings.HasPrefix(text, "--") {
				line, rest, _ := strings.Cut(text, "\n")
				name, value, _ := strings.Cut(line, " ")
				switch text = rest; name {
				case "--set":
					sets = append(sets, value)
				case "--launcher":
					opts.Launcher = value
				case "--max-workers":
					n, err := strconv.ParseInt(value, 10, 64)
					must(err)
					opts.MaxWorkers = n
				default:
					t.Fatalf("%s: unknown argument %s", d.Pos, line)
				}
			}
			file := filepath.Join(dir, "job.toml")
			if d.Cmd != "missing" {
				must(os.WriteFile(file, []byte(text), 0o644))
			}
			j, err := jobfile.Load(file, sets, opts)
			out := ""
			if err != nil {
				out = err.Error()
			} else {
				out = summary(j)
			}
			out = strings.ReplaceAll(out, dir, "$DIR")
			return strings.ReplaceAll(out, "$DIR/job.toml", "job.toml") + "\n"
		})
	})
}

// summary shows what differs from the defaults, one line a task.
func summary(j *job.Job) string {
	var b strings.Builder
	fmt.Fprintf(&b, "run %s: %s", j.Name, j.Launcher)
	if j.HasResources {
		fmt.Fprintf(&b, ", %v", j.Resources)
	}
	if j.Tracking != "" {
		fmt.Fprintf(&b, ", tracking %s", j.Tracking)
	}
	for i := range j.Tasks {
		t := &j.Tasks[i]
		fmt.Fprintf(&b, "\n%s: %v blocks, read %v, write %v, block %v -%v +%v, %v, %d levels", t.ID, t.Grid.Shape(), t.Grid.TotalRead(),
			t.Grid.TotalWrite(), t.Grid.BlockShape(), t.Grid.ContextLow(), t.Grid.ContextHigh(), t.Grid.Spec().Fit, t.Grid.Levels())
		fmt.Fprintf(&b, "; %v %q; %v", t.Runner.Kind, t.Runner.Argv, t.Requires)
		if t.Runner.Python != "" {
			fmt.Fprintf(&b, "; python %s", t.Runner.Python)
		}
		if t.Runner.Block != "" {
			fmt.Fprintf(&b, "; blocks of %s", t.Runner.Block)
		}
		if t.After != nil {
			fmt.Fprintf(&b, "; after %v", t.After)
		}
		if t.Check != nil {
			fmt.Fprintf(&b, "; check %q", t.Check)
		}
		if t.MaxWorkers > 0 {
			fmt.Fprintf(&b, "; max_workers %d", t.MaxWorkers)
		}
		if t.Fill {
			fmt.Fprintf(&b, "; fills from %d slot", t.Slots)
		}
		if t.ResourceTracking {
			b.WriteString("; resource tracking")
		}
		if t.EnforceMemory {
			b.WriteString("; memory enforced")
		}
		if t.Env != nil {
			fmt.Fprintf(&b, "; env %q", t.Env)
		}
		if t.Mask != nil {
			fmt.Fprintf(&b, "; %d masked", t.Mask.Count())
		}
		if t.Output != nil {
			fmt.Fprintf(&b, "; output %s %v chunks %v", t.Output.Format, t.Output.Shape, t.Output.Chunks)
		}
	}
	for _, w := range j.Warnings {
		fmt.Fprintf(&b, "\nwarning: %s", w)
	}
	return b.String()
}
