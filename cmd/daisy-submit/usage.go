package main

import (
	"regexp"
	"strings"

	"github.com/urfave/cli/v2"
)

// helpFirst makes "help run" the same as "run --help".
func helpFirst(args []string) []string {
	if len(args) < 2 || args[1] != "help" {
		return args
	}
	if len(args) == 2 || strings.HasPrefix(args[2], "-") {
		return []string{args[0], "--help"}
	}
	return []string{args[0], args[2], "--help"}
}

func onUsageError(c *cli.Context, err error, _ bool) error {
	name := "daisy-submit"
	if c.Command != nil && c.Command.Name != "" && c.Command.Name != name {
		name += " " + c.Command.Name
	}
	return usage("%s; see %s --help", plainly(err.Error()), name)
}

// flagErrors are what package flag says, and how people say it.
var flagErrors = []struct {
	theirs *regexp.Regexp
	ours   string
}{
	{regexp.MustCompile(`^flag provided but not defined: -(?P<option>.+)$`), "there is no option $option"},
	{regexp.MustCompile(`^flag needs an argument: -(?P<option>.+)$`), "$option needs a value behind it"},
	{regexp.MustCompile(`^invalid boolean value (?P<value>".*") for -(?P<option>[^:]+): .*$`), "$option takes no value, and $value was given"},
	{regexp.MustCompile(`^invalid value (?P<value>".*") for flag -(?P<option>[^:]+): (?:parse error|value out of range)$`), "$option takes a number, and $value is none that it can take"},
	{regexp.MustCompile(`^invalid value (?P<value>".*") for flag -(?P<option>[^:]+): (?P<why>.*)$`), "$option $value: $why"},
	{regexp.MustCompile(`^bad flag syntax: (?P<value>.+)$`), "$value is no option"},
}

// plainly says an error of package flag in the words of the command line.
func plainly(text string) string {
	for _, e := range flagErrors {
		m := e.theirs.FindStringSubmatch(text)
		if m == nil {
			continue
		}
		ours := e.ours
		for i, name := range e.theirs.SubexpNames() {
			if name == "option" {
				m[i] = dashed(m[i])
			}
			if name != "" {
				ours = strings.ReplaceAll(ours, "$"+name, m[i])
			}
		}
		return ours
	}
	return text
}

// dashed is an option as the help has it: --limit, but -f.
func dashed(option string) string {
	if len(option) == 1 {
		return "-" + option
	}
	return "--" + option
}
