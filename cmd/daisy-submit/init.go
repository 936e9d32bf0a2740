package main

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/urfave/cli/v2"

	"example.org/daisy/internal/api"
	"example.org/daisy/internal/array"
	"example.org/daisy/internal/jobfile"
)

func initCommand() *cli.Command {
	return &cli.Command{
		Name: "init", Usage: "write a job file to begin with",
		UsageText: "daisy-submit init [ARRAY] [-o job.toml]",
		Description: `Writes a job file with one task and comments. With ARRAY (Zarr, N5 or an OME-Zarr image) the task covers that array, in blocks
of whole chunks. As it is, its code only says which blocks there are: put your own in its place. A file that is there already is
left as it is.

EXAMPLE
   daisy-submit init brain.zarr/raw -o segment.toml

EXIT STATUS
   0    the file was written
   2    the command line is wrong, the array cannot be read, or the file is there already
   3    the file could not be written
`,
		Flags: []cli.Flag{&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Value: "job.toml", Usage: "write `FILE`"}},
		Action: func(c *cli.Context) error {
			path := c.String("output")
			dir, err := filepath.Abs(filepath.Dir(path))
			if err != nil {
				return infrastructure(err)
			}
			task := madeUpTask
			if c.NArg() > 0 {
				at, err := oneArgument(c, "an array")
				if err != nil {
					return err
				}
				if task, err = arrayTask(at, dir); err != nil {
					return &statusError{exitUsage, err}
				}
			}
			if err := writeNew(path, initHead(path)+task+initTail); err != nil {
				return err
			}
			if _, err := jobfile.Load(path, nil, jobfile.Options{Machine: machine()}); err != nil {
				_ = os.Remove(path) // as if it had never been
				return &statusError{exitUsage, fmt.Errorf("no job can be made of this: %w", err)}
			}
			_, err = fmt.Fprintf(c.App.Writer, "Wrote %s, whose code only prints which blocks there are: put yours into \"run\".\n%s\n", path, next("what it would run", "plan", path))
			if err != nil {
				return infrastructure(err)
			}
			return nil
		},
	}
}

// initHead is the beginning of the job file at path. Its commands are to be pasted where init was called.
func initHead(path string) string {
	var commands strings.Builder
	lines := [][2]string{
		{command("plan", path), "what would run, and whether this file is right"},
		{command("run-block", path, "blocks", "0"), "one block, here, to try the code"},
		{command("run", path), "all of it"},
	}
	for _, l := range lines {
		fmt.Fprintf(&commands, "#   %-*s   # %s\n", len(lines[1][0]), api.OneLine(l[0]), l[1])
	}
	return `# A job: one or more tasks, each of which covers its volume with blocks and runs your code for each block.
# Lines that begin with "# KEY =" are further keys with an example; docs/job-file.md has all of them.
#
` + commands.String() + initKeys
}

const initKeys = `
[run]
# name = "segment"
# launcher = "serial"
# resources = { cpu = 2, memory = "1GiB" }
# tracking = "tracking"

[[task]]
id = "blocks"
`

const madeUpTask = `
# What is written in all, in voxels. In place of it: array = "brain.zarr/raw", the whole of an array on disk.
total_write = { offset = [0, 0, 0], shape = [256, 256, 256] }

# A block writes this much, and reads context voxels more on each side.
block = { shape = [128, 128, 128], context = 0 }
`

const initTail = `
# Blocks at the end of an axis are clipped: all is covered.
fit = "shrink"

# Blocks may run in any order. With a context and in-place writing, true: neighbours then never run at the same time.
read_write_conflict = false

# Your code: a process for each block, which gets the block as arguments, in variables (DAISY_WRITE_OFFSET, …) and as JSON on
# its standard input; exit status 0 is success. docs/programs.md has the rest.
run = { command = ["echo", "block {index} reads {read_offset} {read_shape}, writes {write_offset} {write_shape}"] }

# requires = { cpu = 1, memory = "512MiB" }
# max_workers = 2
# timeout = "10m"
# max_retries = 2
`

// arrayTask is what describes the volume of a task that covers an array. A path below dir is written relative to it.
func arrayTask(path, dir string) (string, error) {
	a, err := array.Open(path)
	if err != nil {
		return "", err
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	if rel, err := filepath.Rel(dir, abs); err == nil && filepath.IsLocal(rel) {
		abs = rel
	}
	name, err := tomlString(abs)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	unit := "chunks"
	if a.Sharded {
		unit = "shards"
	}
	fmt.Fprintf(&b, "\n# %s of %s, shape %v, in %s of %v", a.Format, a.DType, a.Shape, unit, a.Chunks)
	if space := a.SpaceAxes(); len(space) > 0 && len(space) < a.Shape.Dims() {
		if a, err = a.Select(space); err != nil {
			return "", err
		}
		fmt.Fprintf(&b, ".\n# Blocks cover its axes %s of space; \"axes\" takes others", strings.Join(space, ", "))
	}
	if a.VoxelSize != nil {
		fmt.Fprintf(&b, ".\n# Voxels are %s (%s) large; all regions count voxels", strings.Trim(fmt.Sprint(a.VoxelSize), "[]"), dash(strings.Join(a.Units, ", ")))
	}
	fmt.Fprintf(&b, ".\narray = %s\n", name)
	fmt.Fprintf(&b, "\n# A block writes this much, whole %s, and reads context voxels more on each side.\nblock = { shape = [%s], context = 0 }\n", unit, numbers(wholeChunks(a.Shape.Slice(), a.Chunks.Slice()), ", "))
	return b.String(), nil
}

// wholeChunks is a block of about two million voxels in whole chunks.
func wholeChunks(shape, chunks []int64) []int64 {
	extent := math.Round(math.Pow(1<<21, 1/float64(len(shape))))
	block := make([]int64, len(shape))
	for i, c := range chunks {
		c = max(c, 1)
		block[i] = min(max(int64(math.Round(extent/float64(c))), 1)*c, max(shape[i], 1))
	}
	return block
}

// tomlString is a basic string of TOML.
func tomlString(s string) (string, error) {
	if !utf8.ValidString(s) {
		return "", fmt.Errorf("the path %q is not UTF-8, which a job file must be", s)
	}
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r < ' ' || r == 0x7f:
			fmt.Fprintf(&b, `\u%04X`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String(), nil
}

// writeNew writes a file that must not be there yet.
func writeNew(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	switch {
	case errors.Is(err, fs.ErrExist):
		return usage("%s is there already and stays as it is; give another name with -o", path)
	case errors.Is(err, fs.ErrNotExist):
		return usage("the folder of %s is not there; make it, or give another name with -o", path)
	case err != nil:
		return infrastructure(err)
	}
	_, err = f.WriteString(text)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		_ = os.Remove(path)
		return infrastructure(err)
	}
	return nil
}
