package jobfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"example.org/daisy/internal/job"
)

// program reads a program with its arguments and looks for it: below the job file's folder if it has a slash, else in PATH (the
// task's own, if env sets one). A program with a slash becomes absolute; one of PATH stays a name, as PATH holds where it runs too.
func (t table) program(key string, task *job.Task) ([]string, bool) {
	argv, ok := t.strings(key)
	if !ok {
		return nil, false
	}
	if len(argv) == 0 || argv[0] == "" {
		t.fail(key, "names no program; allowed is a list of a program and its arguments")
		return nil, false
	}
	for i, a := range argv {
		if strings.ContainsRune(a, 0) {
			t.failItem(key, i, "item %d has a NUL character, which no argument can hold", i+1)
			return nil, false
		}
	}
	if key == "command" { // arguments of a stream have no placeholders
		t.warnOfPlaceholders(key, argv)
	}
	if strings.Contains(argv[0], "{") {
		return argv, true // a placeholder: which program it is depends on the block
	}
	name, err := t.locate(argv[0])
	if err != nil {
		t.failItem(key, 0, "%v", err)
		return nil, false
	}
	argv[0] = name
	return argv, true
}

// locate looks for a program, and gives the name by which the worker finds it.
func (t table) locate(name string) (string, error) {
	if t.at >= 0 && len(t.load.job.Tasks[t.at].Wrap) > 0 { // what is there is there inside of what wraps it
		if strings.Contains(name, "/") {
			name = t.load.absolute(name)
		}
		return name, nil
	}
	if !strings.Contains(name, "/") {
		return name, lookInPath(name, t.load.pathOf(t.at))
	}
	path := t.load.absolute(name)
	switch err := executable(path); {
	case errors.Is(err, os.ErrNotExist):
		return "", fmt.Errorf("%q cannot be run: there is no file %s; paths are relative to the job file", name, path)
	case err != nil:
		return "", fmt.Errorf("%q cannot be run: %w", name, err)
	}
	return path, nil
}

// pathOf is the PATH that the code of a task sees.
func (l *loader) pathOf(at int) string {
	list, _ := items(l.doc["task"])
	if at < 0 || at >= len(list) {
		return os.Getenv("PATH") // of the run itself
	}
	if m, ok := list[at].(map[string]any); ok {
		if env, ok := m["env"].(map[string]any); ok {
			if path, ok := env["PATH"].(string); ok {
				return path
			}
		}
	}
	return os.Getenv("PATH")
}

func lookInPath(name, path string) error {
	var unfit error
	for _, dir := range filepath.SplitList(path) {
		if !filepath.IsAbs(dir) {
			continue // relative to the working directory, which is another one on the worker
		}
		err := executable(filepath.Join(dir, name))
		if err == nil {
			return nil
		}
		if unfit == nil && !errors.Is(err, os.ErrNotExist) {
			unfit = err
		}
	}
	if unfit != nil {
		return fmt.Errorf("%q cannot be run: %w", name, unfit)
	}
	return fmt.Errorf("there is no program %q in PATH (%s); give its path, relative to the job file with a slash in it (\"./%s\"), or install it", name, path, name)
}

// executable says why a file cannot be run, nil if it can; os.ErrNotExist where there is none.
func executable(path string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return err
	case info.IsDir():
		return fmt.Errorf("%s is a folder", path)
	case info.Mode()&0o111 == 0:
		return fmt.Errorf("%s is not executable; chmod +x %s, or put its interpreter before it", path, path)
	}
	return nil
}
