package main

import (
	"strings"
	"testing"
)

func TestHelpOfACommandIsThereInBothOrders(t *testing.T) {
	for _, command := range []string{"run", "set", "version"} {
		_, want, _ := call(command, "--help")
		if status, got, said := call("help", command); status != exitOK || got != want || got == "" {
			t.Errorf("help %s: status %d, %q; %s", command, status, got, said)
		}
	}
	_, want, _ := call("--help")
	for _, args := range [][]string{{"help"}, {"help", "--help"}, {"-h"}, nil} {
		if status, got, said := call(args...); status != exitOK || got != want || !strings.Contains(got, "daisy-submit COMMAND") {
			t.Errorf("%v: status %d, %q; %s", args, status, got, said)
		}
	}
	if status, _, stderr := call("help", "rum"); status != exitUsage || !strings.Contains(stderr, `there is no command "rum"; did you mean "run"? daisy-submit --help lists all`) {
		t.Errorf("status %d: %s", status, stderr)
	}
}

func TestACommandThatIsLikeNoneHasNoSuggestion(t *testing.T) {
	if status, _, stderr := call("xylophone"); status != exitUsage || stderr != "daisy-submit: there is no command \"xylophone\"; daisy-submit --help lists them\n" {
		t.Errorf("status %d: %s", status, stderr)
	}
}

func TestAWrongOptionIsSaidInTheWordsOfTheHelp(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"run", "--frobnicate", "x"}, "there is no option --frobnicate; see daisy-submit run --help"},
		{[]string{"run", "-frobnicate=7"}, "there is no option --frobnicate; see daisy-submit run --help"},
		{[]string{"logs", "-z"}, "there is no option -z; see daisy-submit logs --help"},
		{[]string{"--foo"}, "there is no option --foo; see daisy-submit --help"},
		{[]string{"run", "job.toml", "--limit", "x"}, `--limit takes a number, and "x" is none that it can take; see daisy-submit run --help`},
		{[]string{"blocks", "--limit=99999999999999999999"}, `--limit takes a number, and "99999999999999999999" is none that it can take; see daisy-submit blocks --help`},
		{[]string{"run", "job.toml", "--limit"}, "--limit needs a value behind it; see daisy-submit run --help"},
		{[]string{"status", "--json=maybe"}, `--json takes no value, and "maybe" was given; see daisy-submit status --help`},
		{[]string{"status", "---json"}, "---json is no option; see daisy-submit status --help"},
	} {
		status, stdout, stderr := call(c.args...)
		if status != exitUsage || stdout != "" || stderr != "daisy-submit: "+c.want+"\n" {
			t.Errorf("%v: status %d, %q, want %q", c.args, status, stderr, c.want)
		}
	}
}

func TestAnErrorThatPackageFlagDoesNotMakeStaysAsItIs(t *testing.T) {
	for text, want := range map[string]string{
		"the disk is full": "the disk is full",
		`invalid value "3x" for flag -grace: time: unknown unit`: `--grace "3x": time: unknown unit`,
	} {
		if got := plainly(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
