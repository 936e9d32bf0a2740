package main

import (
	"encoding/json"
	"fmt"
	"runtime"

	"github.com/urfave/cli/v2"

	"example.org/daisy/internal/version"
	"example.org/daisy/internal/wire"
)

func versionCommand() *cli.Command {
	return &cli.Command{
		Name: "version", Usage: "print the version",
		UsageText: "daisy-submit version [--json]",
		Description: `Prints the version of this program, of Go, and of the protocol that it speaks with workers. --version is the same.

EXAMPLE
   daisy-submit version

EXIT STATUS
   0    the version was printed
   2    the command line is wrong
   3    it could not be written
`,
		Flags: []cli.Flag{&cli.BoolFlag{Name: "json", Usage: "as JSON: version, go, protocol"}},
		Action: func(c *cli.Context) error {
			if c.NArg() > 0 {
				return usage("version takes no arguments")
			}
			if c.Bool("json") {
				return json.NewEncoder(c.App.Writer).Encode(map[string]any{"version": version.String(), "go": runtime.Version(), "protocol": wire.Version})
			}
			_, err := fmt.Fprintf(c.App.Writer, "daisy-submit %s (%s, worker protocol %d)\n", version.String(), runtime.Version(), wire.Version)
			return err
		},
	}
}
