// Package jobfile reads a job file (TOML) into a checked job. Every error says the file, the line, the table, the key, what is wrong
// and what is allowed, and all errors of a file are reported at once. docs/job-file.md describes the format.
package jobfile

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/BurntSushi/toml"

	"example.org/daisy/internal/job"
)

// Options are what the command line says beside the job file.
type Options struct {
	// Launcher takes the place of run.launcher if it is not "".
	Launcher string
	// MaxWorkers caps max_workers of every task if it is above 0.
	MaxWorkers int64
	// Selection is the part of the blocks that are to be run.
	Selection job.Selection
	// Machine is what a run without resources may use, and what is warned about.
	Machine job.Machine
	// CheckPython imports the function of a python task, when nothing else is wrong with the file. The error says what to change,
	// the warning is for people. nil = nothing is imported.
	CheckPython func(j *job.Job, t *job.Task) (warning string, err error)
	// CheckSlurm finds all that is wrong with the options of a task for Slurm, by key; relative paths start at dir. nil = only the types of
	// the values are checked.
	CheckSlurm func(dir string, options map[string][]string) (faults, warnings []OptionFault)
	// CheckCoordinator does the same with those of the job that is the coordinator.
	CheckCoordinator func(options map[string][]string) (faults, warnings []OptionFault)
	// Mask is the path of the copy of a task's mask in a run directory, which is read in place of the mask where there is one. nil = there are
	// no copies.
	Mask func(task string) (path string)
	// Below are files of defaults, the first above the next; see ReadBelow.
	Below []Below
}

// maxFile bounds a job file.
const maxFile = 1 << 20

// Load reads and checks the job file at path, with sets ("task.ID.KEY=VALUE", "run.KEY=VALUE") laid over it. An error is
// *Errors, with all that is wrong. The arrays, masks and programs that the file names are looked up too; nothing is started.
func Load(path string, sets []string, opts Options) (*job.Job, error) {
	source, err := read(path)
	if err != nil {
		return nil, failure(path, 0, "%v", err)
	}
	folder := filepath.Dir(path)
	if keepOpen(path) {
		folder = "."
	}
	dir, err := filepath.Abs(folder)
	if err != nil {
		return nil, failure(path, 0, "%v", err)
	}
	if !utf8.ValidString(dir) { // workers could not be told where it is
		return nil, failure(path, 0, "it is in %q, whose name is not UTF-8: rename the folder, or move the job file", dir)
	}
	return load(source, path, dir, sets, opts)
}

// load reads and checks the text of a job file that stands, or stood, in dir.
func load(source []byte, path, dir string, sets []string, opts Options) (*job.Job, error) {
	l := &loader{file: path, errs: &Errors{}, opts: opts, job: &job.Job{File: path, Dir: dir}}
	if err := l.parse(string(source)); err != nil {
		return nil, err
	}
	l.applySets(sets)
	l.spreadSlurm()
	var caps []table
	for _, b := range opts.Below {
		if c, ok := l.fill(b); ok {
			caps = append(caps, c)
		}
	}
	l.readDocument()
	for _, c := range caps {
		l.limit(c)
	}
	for _, err := range l.job.Check(opts.Machine) {
		l.reportJob(err)
	}
	if len(l.errs.List) == 0 && !opts.Selection.IsAll() {
		l.job.Selection = opts.Selection
		var err error
		if l.job.Selected, err = l.job.Select(opts.Selection); err != nil {
			l.errs.List = append(l.errs.List, &Error{File: l.file, Argument: opts.Selection.String(), Text: err.Error()})
		} else if l.job.Selected == 0 {
			l.errs.List = append(l.errs.List, &Error{File: l.file, Argument: opts.Selection.String(), Text: "no block is selected"})
		}
	}
	if len(l.errs.List) == 0 && opts.CheckPython != nil {
		l.checkPython()
	}
	if len(l.errs.List) > 0 {
		l.errs.sort(l.file)
		return nil, l.errs
	}
	l.job.Frozen = Frozen(source, path, dir, sets, opts)
	return l.job, nil
}

func read(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, errors.New("there is no such file; give the path of a job file")
	case err != nil:
		return nil, err
	case info.IsDir():
		return nil, errors.New("a folder, not a job file; give the path of a job file")
	case !info.Mode().IsRegular():
		return nil, errors.New("not a regular file; a job file is read more than once")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxFile {
		return nil, errors.New("larger than 1 MiB; that is no job file")
	}
	return data, nil
}

// loader is one reading of one file.
type loader struct {
	file string
	opts Options
	doc  map[string]any
	root *node
	job  *job.Job
	errs *Errors
	// wrong has the keys that were reported, so that a check that stumbles over the same one is silent.
	wrong []wrongKey
}

// parse decodes the text; a syntax error is the only one then, as nothing after it can be trusted.
func (l *loader) parse(text string) error {
	doc, root, err := decode(l.file, text)
	if err != nil {
		return err
	}
	l.doc, l.root = doc, root
	return nil
}

// decode reads TOML with the places of its keys.
func decode(file, text string) (doc map[string]any, root *node, _ *Errors) {
	root, deepAt := positions(text)
	if deepAt > 0 {
		return nil, nil, failure(file, deepAt, "nested more than %d levels deep; that is no job file", deepest)
	}
	doc, err := decodeTOML(text)
	if err != nil {
		var syntax toml.ParseError
		if errors.As(err, &syntax) {
			return nil, nil, failure(file, syntax.Position.Line, "%s", strings.TrimSuffix(syntax.Message, "."))
		}
		return nil, nil, failure(file, 0, "%s", strings.TrimPrefix(err.Error(), "toml: "))
	}
	if doc == nil {
		doc = map[string]any{}
	}
	return doc, root, nil
}

// readDocument takes the document apart: [run] first, as paths and the launcher hold for all tasks.
func (l *loader) readDocument() {
	for _, key := range slices.Sorted(maps.Keys(l.doc)) {
		switch {
		case key == "run" || key == "task" || key == "slurm":
		case slices.Contains([]string{"tasks", "Task", "TASK", "Run", "RUN"}, key):
			l.report(l.root.key(key), -1, "", "", fmt.Sprintf("unknown table %q; did you mean %q?", key, strings.TrimSuffix(strings.ToLower(key), "s")))
		default:
			hint := "; allowed are [run], [slurm] and [[task]]"
			for _, t := range [][2]string{{"run", "[run]"}, {"task", "[[task]]"}, {"slurm", "[slurm] or [task.slurm]"}} {
				if _, ok := keysOf(t[0])[key]; ok {
					hint = fmt.Sprintf("; it is a key of %s, so write it below that header", t[1])
					break
				}
			}
			l.report(l.root.key(key), -1, "", "", fmt.Sprintf("unknown key %q%s", key, hint))
		}
	}
	run := table{load: l, at: -1, where: "run", m: map[string]any{}, n: l.root}
	if v, ok := l.doc["run"]; ok {
		m, ok := v.(map[string]any)
		if !ok {
			l.report(l.root.key("run"), -1, "", "run", fmt.Sprintf("found %s, wanted the table [run]", found(v)))
		} else {
			run.m, run.n = m, l.root.key("run")
		}
	}
	l.readRun(run)
	l.readCoordinator()
	l.readTasks()
}

func (l *loader) readTasks() {
	v, ok := l.doc["task"]
	if !ok {
		text := "no task; a job file has at least one [[task]]"
		if len(l.doc) == 0 {
			text = "the file has no keys; a job file has at least one [[task]]"
		}
		l.report(nil, -1, "", "", text)
		l.wrong = append(l.wrong, wrongKey{-1, ""})
		return
	}
	list, ok := items(v)
	if !ok {
		wanted := "[[task]]"
		if _, isTable := v.(map[string]any); isTable {
			wanted = "a list of tables; write [[task]] with two brackets"
		}
		l.report(l.root.key("task"), -1, "", "task", fmt.Sprintf("found %s, wanted %s", found(v), wanted))
		l.wrong = append(l.wrong, wrongKey{-1, ""})
		return
	}
	l.job.Tasks = make([]job.Task, len(list))
	if len(list) == 0 {
		l.report(l.root.key("task"), -1, "", "task", "the list is empty; a job file has at least one [[task]]")
		l.wrong = append(l.wrong, wrongKey{-1, ""})
	}
	for i, item := range list {
		n := l.root.key("task").item(i)
		m, ok := item.(map[string]any)
		if !ok {
			l.report(n, i, fmt.Sprintf("task %d", i+1), "", fmt.Sprintf("found %s, wanted a table", found(item)))
			m = map[string]any{}
		}
		l.readTask(i, m, n)
	}
}

// report adds an error at a place in the file, or at the argument that gave the value.
func (l *loader) report(n *node, at int, where, key, text string) {
	l.add(n, where, key, text)
	l.wrong = append(l.wrong, wrongKey{at, key})
}

func (l *loader) add(n *node, where, key, text string) {
	e := &Error{File: l.file, Where: where, Key: key, Text: text}
	if n != nil {
		e.Line, e.Argument, e.argumentAt = n.line, n.argument, n.argumentAt
		if n.shared && n.file == "" { // one value, and one error of it for all tasks
			e.Where, e.Key = "slurm", strings.TrimSuffix(strings.TrimPrefix(key, "slurm"), ".")
			e.Key = strings.TrimPrefix(e.Key, ".")
			if slices.ContainsFunc(l.errs.List, func(o *Error) bool { return *o == *e }) {
				return
			}
		}
		if n.file != "" {
			e.File = n.file
			if strings.HasPrefix(where, "task ") { // one default, and one error of it for each task
				e.Where = "task"
			}
			if slices.ContainsFunc(l.errs.List, func(o *Error) bool { return *o == *e }) {
				return
			}
		}
	}
	l.errs.List = append(l.errs.List, e)
}

// wrongKey is a key that was reported, of the task at a position or of [run] (-1).
type wrongKey struct {
	at  int
	key string
}

// isWrong tells whether a key, one above it or one below it was reported.
func (l *loader) isWrong(at int, key string) bool {
	return slices.ContainsFunc(l.wrong, func(w wrongKey) bool {
		return w.at == at && (w.key == key || strings.HasPrefix(key, w.key+".") || strings.HasPrefix(w.key, key+"."))
	})
}

// reportJob adds an error of the checks on the job as a whole at the key that it names, unless that key is wrong already.
func (l *loader) reportJob(err error) {
	var e *job.Error
	if !errors.As(err, &e) {
		l.add(nil, "", "", err.Error())
		return
	}
	if e.Key == "grid" || l.isWrong(e.At, e.Key) {
		return // without a grid some key of the region was wrong
	}
	if e.At >= 0 && e.Key == "max_workers" && l.opts.MaxWorkers > 0 && l.job.Tasks[e.At].MaxWorkers == l.opts.MaxWorkers {
		l.add(&node{argument: fmt.Sprintf("--max-workers %d", l.opts.MaxWorkers)}, fmt.Sprintf("task %q", e.Task), "", e.Text)
		return
	}
	n, where := l.root.key("run"), "run"
	if e.At >= 0 {
		n, where = l.root.key("task").item(e.At), l.where(e.At)
	}
	for k := range strings.SplitSeq(e.Key, ".") {
		below := n.key(k)
		if below == nil {
			break
		}
		n = below
	}
	l.add(n, where, e.Key, e.Text)
}

// where names a task in messages, by its position if it has no usable id.
func (l *loader) where(at int) string {
	if id := l.job.Tasks[at].ID; id != "" {
		return fmt.Sprintf("task %q", id)
	}
	return fmt.Sprintf("task %d", at+1)
}
