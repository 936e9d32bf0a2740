package process

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

// CheckCommand finds all that is wrong with a command before it is started: argv[0] is an absolute path of a program, env is of entries
// NAME=VALUE, and dir is the absolute path of a folder.
func CheckCommand(argv, env []string, dir string) error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if len(argv) == 0 {
		fault("it names no program")
	} else if !strings.HasPrefix(argv[0], "/") {
		fault("the program %q is not an absolute path", argv[0])
	} else if _, err := LookPath(argv[0], dir, ""); err != nil {
		faults = append(faults, err)
	}
	for _, s := range slices.Concat(argv, env) {
		if strings.IndexByte(s, 0) >= 0 {
			fault("%q has a zero byte, which no program can be given", s)
		}
	}
	for _, entry := range env {
		if strings.Index(entry, "=") < 1 {
			fault("the environment entry %q is not NAME=VALUE", entry)
		}
	}
	if info, err := os.Stat(dir); err != nil {
		fault("working directory: %w", err)
	} else if !info.IsDir() || !strings.HasPrefix(dir, "/") {
		fault("the working directory %q is not an absolute path of a folder", dir)
	}
	return errors.Join(faults...)
}
