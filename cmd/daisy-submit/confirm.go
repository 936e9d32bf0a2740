package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/urfave/cli/v2"
	"golang.org/x/term"
)

// confirm asks for a yes. Without a terminal nobody can answer, and --yes is needed.
func confirm(c *cli.Context, question string) error {
	in, isFile := c.App.Reader.(*os.File)
	if isFile && !term.IsTerminal(int(in.Fd())) {
		return usage("there is no terminal to ask on; give --yes")
	}
	fmt.Fprintf(c.App.ErrWriter, "%s [y/N] ", question)
	answer, _ := bufio.NewReader(c.App.Reader).ReadString('\n')
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return &statusError{exitIncomplete, errors.New("nothing was changed")}
}
