package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/urfave/cli/v2"
)

func completionCommand() *cli.Command {
	return &cli.Command{
		Name: "completion", Usage: "print a script that completes commands and options in a shell",
		UsageText: "daisy-submit completion bash|zsh|fish",
		Description: `Prints the script for one shell. For good: in ~/.bashrc the line of the example; in ~/.zshrc, behind compinit, the same with
zsh; for fish, daisy-submit completion fish > ~/.config/fish/completions/daisy-submit.fish

EXAMPLE
   daisy-submit completion bash > ~/.daisy-completion && source ~/.daisy-completion

EXIT STATUS
   0    the script was printed
   2    the command line is wrong
   3    it could not be written
`,
		Action: func(c *cli.Context) error {
			shell, err := oneArgument(c, "a shell: bash, zsh or fish")
			if err != nil {
				return err
			}
			write, known := map[string]func(io.Writer, []completed) error{"bash": completeBash, "zsh": completeZsh, "fish": completeFish}[shell]
			if !known {
				return usage("there is no completion for %q; allowed are bash, zsh and fish", shell)
			}
			if err := write(c.App.Writer, completions(c.App)); err != nil {
				return infrastructure(err)
			}
			return nil
		},
	}
}

// completed is a command with what can stand behind it.
type completed struct {
	name, usage string
	words       []string // its first argument is one of these
	flags       []completedFlag
}

type completedFlag struct {
	name, short, usage string
	takesValue         bool
	values             []string // it takes one of these
}

// valuesOf are the values of options that have only a few, and of arguments by the name of the command.
var valuesOf = map[string][]string{
	"launcher": {"local", "serial"}, "format": {"table", "markdown", "csv", "json"}, "completion": {"bash", "zsh", "fish"},
}

func completions(app *cli.App) []completed {
	var list []completed
	for _, c := range app.Commands {
		one := completed{name: c.Name, usage: c.Usage, words: valuesOf[c.Name]}
		for _, f := range c.Flags {
			names := f.Names()
			if names[0] == "help" {
				continue // made by the cli
			}
			_, isBool := f.(*cli.BoolFlag)
			flag := completedFlag{name: names[0], takesValue: !isBool, values: valuesOf[names[0]]}
			if len(names) > 1 && len(names[1]) == 1 {
				flag.short = names[1]
			}
			if d, ok := f.(cli.DocGenerationFlag); ok {
				flag.usage = strings.ReplaceAll(d.GetUsage(), "`", "")
			}
			one.flags = append(one.flags, flag)
		}
		one.flags = append(one.flags, completedFlag{name: "help", short: "h", usage: "show help"})
		list = append(list, one)
	}
	return list
}

// names are the options as they are written.
func (c completed) names() []string {
	var names []string
	for _, f := range c.flags {
		names = append(names, "--"+f.name)
	}
	return names
}

// withValues are the options of all commands that take one of a few values, each once.
func withValues(list []completed) []completedFlag {
	var flags []completedFlag
	seen := map[string]bool{}
	for _, c := range list {
		for _, f := range c.flags {
			if f.values != nil && !seen[f.name] {
				seen[f.name] = true
				flags = append(flags, f)
			}
		}
	}
	return flags
}

// quoted is a word of bash and zsh.
func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

func completeBash(w io.Writer, list []completed) error {
	var b strings.Builder
	var names []string
	for _, c := range list {
		names = append(names, c.name)
	}
	fmt.Fprintf(&b, "# Completion of daisy-submit for bash.\n_daisy_submit() {\n\tlocal cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} words=\n\tCOMPREPLY=()\n")
	fmt.Fprintf(&b, "\tif [ \"$COMP_CWORD\" -eq 1 ]; then\n\t\twords=%s\n\telse\n\t\tcase $prev in\n", quoted(strings.Join(names, " ")))
	for _, f := range withValues(list) {
		fmt.Fprintf(&b, "\t\t--%s) words=%s ;;\n", f.name, quoted(strings.Join(f.values, " ")))
	}
	b.WriteString("\t\tesac\n\t\tif [[ $cur == -* ]]; then\n\t\t\tcase ${COMP_WORDS[1]} in\n")
	for _, c := range list {
		fmt.Fprintf(&b, "\t\t\t%s) words=%s ;;\n", c.name, quoted(strings.Join(c.names(), " ")))
	}
	b.WriteString("\t\t\tesac\n\t\telif [ \"$COMP_CWORD\" -eq 2 ]; then\n\t\t\tcase ${COMP_WORDS[1]} in\n")
	for _, c := range list {
		if c.words != nil {
			fmt.Fprintf(&b, "\t\t\t%s) words=%s ;;\n", c.name, quoted(strings.Join(c.words, " ")))
		}
	}
	b.WriteString("\t\t\tesac\n\t\tfi\n\tfi\n\tif [ -n \"$words\" ]; then\n\t\tCOMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n\tfi\n}\ncomplete -o default -F _daisy_submit daisy-submit\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func completeZsh(w io.Writer, list []completed) error {
	described := func(name, usage string) string {
		return quoted(strings.ReplaceAll(name, ":", `\:`) + ":" + usage)
	}
	var b strings.Builder
	b.WriteString("#compdef daisy-submit\n# Completion of daisy-submit for zsh.\n_daisy_submit() {\n\tlocal -a commands flags values\n\tcommands=(\n")
	for _, c := range list {
		fmt.Fprintf(&b, "\t\t%s\n", described(c.name, c.usage))
	}
	b.WriteString("\t)\n\tif (( CURRENT == 2 )); then\n\t\t_describe command commands\n\t\treturn\n\tfi\n\tcase $words[CURRENT-1] in\n")
	for _, f := range withValues(list) {
		fmt.Fprintf(&b, "\t--%s) values=(%s) ;;\n", f.name, strings.Join(f.values, " "))
	}
	b.WriteString("\tesac\n\tcase $words[2] in\n")
	for _, c := range list {
		fmt.Fprintf(&b, "\t%s)\n", c.name)
		if c.words != nil {
			fmt.Fprintf(&b, "\t\t(( CURRENT == 3 )) && values=(%s)\n", strings.Join(c.words, " "))
		}
		b.WriteString("\t\tflags=(\n")
		for _, f := range c.flags {
			fmt.Fprintf(&b, "\t\t\t%s\n", described("--"+f.name, f.usage))
		}
		b.WriteString("\t\t) ;;\n")
	}
	b.WriteString("\tesac\n\tif [[ $words[CURRENT] == -* ]]; then\n\t\t_describe option flags\n\telif (( $#values )); then\n\t\tcompadd -a values\n\telse\n\t\t_files\n\tfi\n}\n" +
		"if [[ $funcstack[1] == _daisy_submit ]]; then\n\t_daisy_submit \"$@\"\nelse\n\tcompdef _daisy_submit daisy-submit\nfi\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func completeFish(w io.Writer, list []completed) error {
	fish := func(s string) string { return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(s) + "'" }
	var b strings.Builder
	b.WriteString("# Completion of daisy-submit for fish.\n")
	for _, c := range list {
		fmt.Fprintf(&b, "complete -c daisy-submit -n __fish_use_subcommand -f -a %s -d %s\n", c.name, fish(c.usage))
	}
	for _, c := range list {
		after := "complete -c daisy-submit -n " + fish("__fish_seen_subcommand_from "+c.name)
		if c.words != nil {
			fmt.Fprintf(&b, "%s -f -a %s\n", after, fish(strings.Join(c.words, " ")))
		}
		for _, f := range c.flags {
			fmt.Fprintf(&b, "%s -l %s", after, f.name)
			if f.short != "" {
				fmt.Fprintf(&b, " -s %s", f.short)
			}
			switch {
			case f.values != nil:
				fmt.Fprintf(&b, " -x -a %s", fish(strings.Join(f.values, " ")))
			case f.takesValue:
				b.WriteString(" -r")
			}
			fmt.Fprintf(&b, " -d %s\n", fish(f.usage))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
