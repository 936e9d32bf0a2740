package jobfile

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"example.org/daisy/internal/job"
)

// defaultInterpreter is looked for in PATH, where an active virtual environment comes first.
const defaultInterpreter = "python3"

// python reads a python runner, with the path of a file made absolute, and looks for the file and the interpreter. The form of the
// reference is checked with the job, and whether it can be imported after that.
func (t table) python() (job.Runner, bool) {
	ref, ok := t.text("python")
	if !ok {
		return job.Runner{}, false
	}
	interpreter := defaultInterpreter
	if t.has("interpreter") {
		if interpreter, ok = t.text("interpreter"); !ok {
			return job.Runner{}, false
		}
	}
	block := ""
	if t.has("block") {
		if block, ok = t.text("block"); !ok {
			return job.Runner{}, false
		}
		if !packageName.MatchString(block) {
			t.fail("block", "%q is not the name of a package; wanted one that has Block, Roi and BlockStatus as daisy 2 has them, such as \"daisy\"", block)
		}
	}
	key := "interpreter"
	if !t.has(key) {
		key = "python"
	}
	found, err := t.locate(interpreter)
	if err != nil {
		t.fail(key, "%v", err)
	}
	if target, function, isFile := job.SplitReference(ref); isFile && function != "" {
		path := t.load.absolute(target)
		switch info, err := os.Stat(path); {
		case errors.Is(err, os.ErrNotExist):
			t.fail("python", "there is no file %s; paths are relative to the job file%s", path, nearestFile(path))
		case err != nil:
			t.fail("python", "%v", err)
		case info.IsDir():
			t.fail("python", "%s is a folder; wanted a Python file", path)
		}
		ref = path + ":" + function
	}
	return job.Runner{Kind: job.RunnerPython, Argv: []string{found}, Python: ref, Block: block}, err == nil
}

// packageName is a name that Python can import.
var packageName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$`)

// nearestFile names a Python file of the same folder that was perhaps meant.
func nearestFile(path string) string {
	files, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "*.py")) // without a folder there is nothing to propose
	names := make([]string, len(files))
	for i, f := range files {
		names[i] = filepath.Base(f)
	}
	if hint := job.Nearest(filepath.Base(path), names); strings.HasPrefix(hint, "; did") {
		return hint
	}
	return ""
}

// importsAtOnce bounds the Python processes of the check; large libraries take seconds of a core each.
const importsAtOnce = 4

// checkPython imports the functions of all python tasks and reports those that cannot be.
func (l *loader) checkPython() {
	tasks := l.job.Tasks
	warnings, errs := make([]string, len(tasks)), make([]error, len(tasks))
	places := make(chan struct{}, importsAtOnce)
	var checks sync.WaitGroup
	for i := range tasks {
		if tasks[i].Runner.Kind != job.RunnerPython || len(tasks[i].Wrap) > 0 {
			continue
		}
		checks.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			warnings[i], errs[i] = l.opts.CheckPython(l.job, &tasks[i])
		})
	}
	checks.Wait()
	for i, err := range errs {
		if err != nil {
			l.reportJob(&job.Error{At: i, Task: tasks[i].ID, Key: "run.python", Text: err.Error()})
		}
		// Whoever names an interpreter means it.
		if warnings[i] != "" && tasks[i].Runner.Argv[0] == defaultInterpreter {
			l.job.Warnings = append(l.job.Warnings, l.where(i)+": run.python: "+warnings[i])
		}
	}
}
