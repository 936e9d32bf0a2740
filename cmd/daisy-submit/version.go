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
		UsageText:   "daisy-submit version [--json]",
		Description: "EXAMPLE\n   daisy-submit version\n\n" + exitStatuses,
		Flags:       []cli.Flag{&cli.BoolFlag{Name: "json", Usage: "as JSON: version, go, protocol"}},
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
