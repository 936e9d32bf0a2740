// Command daisy-submit runs blocks over a volume too large for one process: see "daisy-submit help".
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/urfave/cli/v2"

	"example.org/daisy/internal/job"
	"example.org/daisy/internal/process"
)

// Exit statuses, the same for every command; the help of each lists its own.
const (
	exitOK             = 0   // every block succeeded or was skipped
	exitIncomplete     = 1   // some did not
	exitUsage          = 2   // the job file or the command line is wrong: nothing was started
	exitInfrastructure = 3   // cannot start workers, cannot listen, cannot write
	exitBroken         = 4   // of simulate: an invariant was broken, which is a fault of this program
	exitInterrupted    = 130 // by Ctrl-C; by another signal, 128 and its number
)

// statusError is an error with the status to exit with. An empty text prints nothing: all has been said.
type statusError struct {
	status int
	err    error
}

func (e *statusError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e *statusError) Unwrap() error { return e.err }

func usage(format string, args ...any) error {
	return &statusError{exitUsage, fmt.Errorf(format, args...)}
}

func infrastructure(err error) error { return &statusError{exitInfrastructure, err} }

func main() {
	process.RunLimited()
	os.Exit(run(os.Args, os.Stdout, os.Stderr))
}

// run is the whole program but for the process that it runs in.
func run(args []string, stdout, stderr io.Writer) int {
	if len(args) > 1 && args[1] == "--version" {
		args = append([]string{args[0], "version"}, args[2:]...)
	}
	args = helpFirst(args)
	app := newApp(stdout, stderr)
	err := app.RunContext(context.Background(), flagsFirst(app, args))
	if err == nil {
		return exitOK
	}
	if text := err.Error(); text != "" {
		fmt.Fprintln(stderr, "daisy-submit: "+strings.ReplaceAll(text, "\n", "\n  "))
	}
	var s *statusError
	if errors.As(err, &s) {
		return s.status
	}
	return exitInfrastructure
}

func newApp(stdout, stderr io.Writer) *cli.App {
	app := &cli.App{
		Name:      "daisy-submit",
		Usage:     "run blocks over a volume too large for one process",
		UsageText: "daisy-submit COMMAND [ARGUMENTS]\n\nA first run:  daisy-submit run job.toml",
		Writer:    stdout, ErrWriter: stderr,
		HideVersion:               true,
		HideHelpCommand:           true,
		DisableSliceFlagSeparator: true,
		ExitErrHandler:            func(*cli.Context, error) {},
		OnUsageError:              onUsageError,
		Action: func(c *cli.Context) error {
			if c.NArg() == 0 {
				return cli.ShowAppHelp(c)
			}
			name, names := c.Args().First(), []string(nil)
			for _, command := range c.App.Commands {
				names = append(names, command.Name)
			}
			if near := job.Nearest(name, names); near != "" {
				return usage("there is no command %q%s daisy-submit --help lists all", name, near)
			}
			return usage("there is no command %q; daisy-submit --help lists them", name)
		},
		Commands: []*cli.Command{runCommand(), retryCommand(), resetCommand(), migrateCommand(), planCommand(), renderCommand(), simulateCommand(), statusCommand(), blocksCommand(), workersCommand(), eventsCommand(), attachCommand(), setCommand(), stopCommand(), excludeCommand(), includeCommand(), drainCommand(), cancelCommand(), statsCommand(), logsCommand(), runsCommand(), runBlockCommand(), initCommand(), doctorCommand(), completionCommand(), versionCommand()},
	}
	for _, c := range app.Commands {
		c.OnUsageError = onUsageError
		c.HideHelpCommand = true
		c.CustomHelpTemplate = helpTemplate
	}
	return app
}

const helpTemplate = `{{.HelpName}} - {{.Usage}}

USAGE
   {{.UsageText}}

OPTIONS{{range .VisibleFlags}}
   {{.}}{{end}}

{{.Description}}
`

// flagsFirst moves flags that stand behind positional arguments before them: package flag would take them for arguments.
// "--" ends the flags.
func flagsFirst(app *cli.App, args []string) []string {
	if len(args) < 3 {
		return args
	}
	command := app.Command(args[1])
	if command == nil {
		return args
	}
	takesValue := map[string]bool{}
	for _, f := range command.Flags {
		_, isBool := f.(*cli.BoolFlag)
		for _, n := range f.Names() {
			takesValue[n] = !isBool
		}
	}
	var flags, rest []string
	for i := 2; i < len(args); i++ {
		a := args[i]
		if a == "--" {
			rest = append(rest, args[i+1:]...)
			break
		}
		if len(a) < 2 || a[0] != '-' {
			rest = append(rest, a)
			continue
		}
		flags = append(flags, a)
		name := strings.TrimLeft(a, "-")
		if !takesValue[name] { // "--flag=value" is one argument and not in the map
			continue
		}
		if i+1 == len(args) {
			return append([]string{args[0], args[1]}, flags...) // without "--" behind it, which would be taken for the value
		}
		i++
		flags = append(flags, args[i])
	}
	out := append([]string{args[0], args[1]}, flags...)
	return append(append(out, "--"), rest...)
}

// oneArgument is the one positional argument of a command.
func oneArgument(c *cli.Context, what string) (string, error) {
	switch {
	case c.NArg() == 0 || c.Args().First() == "":
		return "", usage("%s needs %s; see daisy-submit %s --help", c.Command.Name, what, c.Command.Name)
	case c.NArg() > 1:
		return "", usage("%s takes one argument, %s; too many: %s", c.Command.Name, what, strings.Join(c.Args().Slice()[1:], " "))
	}
	return c.Args().First(), nil
}
