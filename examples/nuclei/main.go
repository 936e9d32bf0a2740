// Command nuclei segments cell nuclei in a real fluorescence volume, block by block.
//
// It is the user code of the pipeline in nuclei.toml. The steps smooth, label, stitch and relabel are stream workers:
// started once per slot, they read one block a line and answer each (stream.go). The commands prepare and verify stand
// before and after the run.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
)

const usage = `nuclei: the user code of the example pipeline in nuclei.toml

  nuclei prepare [--dir DIR] [--fresh]   make the output arrays (--fresh: remove all earlier results first)
  nuclei verify  [--dir DIR]             compare the results with the reference, draw a slice
  nuclei smooth | label | stitch | relabel  [--dir DIR]
                                         stream workers, started by daisy: blocks on stdin, one JSON a line,
                                         answers on the descriptor that DAISY_ANSWER_FD names

DIR is the folder of nuclei.toml (default: the current one).
`

// errUsage marks errors of the command line, which end with exit status 2.
var errUsage = errors.New("wrong usage")

func main() {
	err := run(os.Args[1:], os.Stdin, os.Stdout)
	switch {
	case err == nil:
	case errors.Is(err, errUsage):
		fmt.Fprintf(os.Stderr, "nuclei: %v\n\n%s", err, usage)
		os.Exit(2)
	default:
		fmt.Fprintf(os.Stderr, "nuclei: %v\n", err)
		os.Exit(1)
	}
}

func run(args []string, stdin io.Reader, stdout io.Writer) error {
	if len(args) == 0 {
		return fmt.Errorf("%w: no command given", errUsage)
	}
	command := args[0]
	if command == "help" || command == "-h" || command == "--help" {
		_, err := io.WriteString(stdout, usage)
		return err
	}
	flags := flag.NewFlagSet(command, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	dir := flags.String("dir", ".", "")
	fresh := false
	if command == "prepare" {
		flags.BoolVar(&fresh, "fresh", false, "")
	}
	if err := flags.Parse(args[1:]); err != nil {
		return fmt.Errorf("%w: %s: %v", errUsage, command, err)
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("%w: %s takes no argument %q", errUsage, command, flags.Arg(0))
	}

	p := project{dir: *dir}
	switch command {
	case "prepare":
		return prepare(p, fresh, stdout)
	case "verify":
		return verify(p, stdout)
	}
	step, ok := p.steps()[command]
	if !ok {
		return fmt.Errorf("%w: unknown command %q", errUsage, command)
	}
	answers, err := answerFile(os.Getenv("DAISY_ANSWER_FD"))
	if err != nil {
		return fmt.Errorf("%s: %w", command, err)
	}
	defer answers.Close()
	return serve(stdin, answers, stdout, command, step)
}
