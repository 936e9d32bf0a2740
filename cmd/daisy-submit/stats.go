package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/urfave/cli/v2"

	"example.org/daisy/internal/api"
	"example.org/daisy/internal/report"
	"example.org/daisy/internal/rundir"
	"example.org/daisy/internal/units"
)

func statsCommand() *cli.Command {
	return &cli.Command{
		Name: "stats", Usage: "print the statistics of a run that has ended, or was killed",
		UsageText: "daisy-submit stats [RUN_DIR|latest] [--format table|markdown|csv|json]",
		Description: `Prints what stats.json of a run directory says. Of a run that was killed before it could write one it prints what its
journal says.
` + runDirUsage + `

EXAMPLE
   daisy-submit stats runs/latest --format markdown

EXIT STATUS
   0    the statistics were printed, however the run ended
   2    the command line is wrong, or the run has left no statistics that can be read
   3    they could not be written
`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "format", Value: "table", Usage: "`FORMAT`: table, markdown, csv or json"},
			&cli.BoolFlag{Name: "json", Usage: "the same as --format json"},
		},
		Action: func(c *cli.Context) error {
			name := c.String("format")
			if c.Bool("json") {
				name = "json"
			}
			format, err := report.ParseFormat(name)
			if err != nil {
				return usage("--format: %w", err)
			}
			dir, err := runArgument(c)
			if err != nil {
				return err
			}
			var s api.Stats
			if state, _ := stateOf(dir); state == runKilled && !exists(dir.StatsPath()) {
				s, err = statsOfKilled(c.Context, dir, readForStats)
			} else {
				s, err = readStats(dir)
			}
			if err != nil {
				return &statusError{exitUsage, err}
			}
			if err := report.Tables(c.App.Writer, s, format); err != nil {
				return infrastructure(err)
			}
			return nil
		},
	}
}

func readStats(dir *rundir.Dir) (api.Stats, error) {
	s, err := readStatsFile(dir.StatsPath())
	if errors.Is(err, fs.ErrNotExist) {
		return s, fmt.Errorf("the run in %s has no statistics yet: it has not ended; %s says where it stands", dir.Path(), said("status", dir.Path()))
	}
	return s, err
}

// mostStats is far above the size of the statistics of a hundred thousand workers.
const mostStats = 1 << 30

func readStatsFile(path string) (api.Stats, error) {
	var s api.Stats
	switch info, err := os.Stat(path); {
	case err != nil:
		return s, err
	case !info.Mode().IsRegular():
		return s, fmt.Errorf("%s is not a regular file", path)
	case info.Size() > mostStats:
		return s, fmt.Errorf("%s is larger than %s: these are no statistics", path, units.Size(mostStats))
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(data, &s); err != nil {
		return s, fmt.Errorf("%s is damaged: %w", path, err)
	}
	if s.Version != api.StatsVersion {
		return s, fmt.Errorf("%s has version %d, and this program reads version %d: use the daisy-submit that made it", path, s.Version, api.StatsVersion)
	}
	return s, nil
}
