package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"example.org/daisy/internal/api"
	"example.org/daisy/internal/jobfile"
	"example.org/daisy/internal/rundir"
	"example.org/daisy/internal/units"
)

func logsCommand() *cli.Command {
	return &cli.Command{
		Name: "logs", Usage: "print what workers and user code have written",
		UsageText: "daisy-submit logs [RUN_DIR] [OPTIONS]",
		Description: `Prints the logs of the workers of a run, or of some blocks of it. Lines of user code begin with [TASK BLOCK #ATTEMPT], those of
the worker itself with [worker]. Control characters are shown as �; the files in logs/ of the run directory have them.
` + runDirUsage + `

EXAMPLE
   daisy-submit logs latest --failed

EXIT STATUS
   0    what there is was printed
   2    the command line is wrong, or there is no such run, worker or block
   3    a log could not be read, or the answer not written
`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "block", Usage: "only `BLOCK`: an id, as 17, or a position in the grid, as 0,1,4"},
			&cli.StringFlag{Name: "task", Usage: "only blocks of task `ID`"},
			&cli.StringFlag{Name: "worker", Usage: "only the log of worker `W`, as 1.0"},
			&cli.BoolFlag{Name: "failed", Usage: "the end of what failed blocks have written; while the run goes on, that of failed attempts"},
			&cli.BoolFlag{Name: "follow", Aliases: []string{"f"}, Usage: "go on until the run has ended"},
			&cli.BoolFlag{Name: "json", Usage: "JSON lines, in the shape of docs/cli.md"},
		},
		Action: func(c *cli.Context) error {
			dir, err := runArgument(c)
			if err != nil {
				return err
			}
			l := &logView{dir: dir, task: c.String("task"), json: c.Bool("json"), out: bufio.NewWriter(c.App.Writer), notes: c.App.ErrWriter}
			if err := l.choose(c.String("worker"), c.String("block")); err != nil {
				return &statusError{exitUsage, err}
			}
			switch failed, follow := c.Bool("failed"), c.Bool("follow"); {
			case failed && follow:
				return usage("--failed and --follow cannot be given together")
			case failed:
				err = l.failures()
			default:
				err = l.print(c.Context, follow)
			}
			if err != nil {
				return infrastructure(err)
			}
			return nil
		},
	}
}

// A logView prints logs of a run.
type logView struct {
	dir   *rundir.Dir
	task  string // "" = all
	file  string // of the only worker, "" = all
	block *wantedBlock
	json  bool
	out   *bufio.Writer
	notes io.Writer

	last string // the worker whose lines were printed last
}

// wantedBlock is one block in each task: names has how logs call it.
type wantedBlock struct {
	any   string            // in every task that names does not have
	names map[string]string // by task
}

func (b *wantedBlock) is(task, name string) bool {
	if own, ok := b.names[task]; ok {
		return name == own
	}
	return name == b.any
}

// choose reads --worker, --block and --task. A run whose job cannot be read any more has whatever its logs have.
func (l *logView) choose(worker, block string) error {
	if worker != "" {
		file := filepath.Base(l.dir.LogPath(worker))
		if !exists(filepath.Join(l.dir.LogsDir(), file)) {
			files, err := l.files()
			if err != nil {
				return err
			}
			var names []string
			for _, f := range files {
				names = append(names, workerOf(f))
			}
			return fmt.Errorf("%s has no log of a worker %q; there are: %s", l.dir.LogsDir(), worker, dash(strings.Join(names, ", ")))
		}
		l.file = file
	}
	if block == "" && l.task == "" {
		return nil
	}
	j, unread := jobfile.LoadFrozen(l.dir.JobPath(), nil, jobfile.Options{Machine: machine(), Mask: l.dir.MaskPath})
	if l.task != "" && unread == nil {
		if err := checkTask(l.task, j.TaskIDs()); err != nil {
			return err
		}
	}
	if block == "" {
		return nil
	}
	b, err := parseBlock(block)
	switch {
	case err != nil:
		return err
	case unread == nil:
		l.block, err = b.inLogs(j, l.task)
		return err
	case b.index != nil:
		return fmt.Errorf("positions are found with the job of the run, which cannot be read; give the id of the block instead: %w", unread)
	default:
		l.block = &wantedBlock{any: strconv.FormatUint(b.id, 10)}
		return nil
	}
}

// A logLine is a line of a log, taken apart.
type logLine struct {
	worker  string
	task    string // "" for lines of the worker itself
	block   string // as the log calls it
	attempt string
	text    string
	raw     string
}

// parseLine takes the mark of a line apart; what has none is the worker's own.
func parseLine(worker string, raw []byte) logLine {
	line := logLine{worker: worker, text: string(raw), raw: string(raw)}
	mark, text, ok := strings.Cut(line.raw, "] ")
	mark, opened := strings.CutPrefix(mark, "[")
	if !ok || !opened {
		return line
	}
	if mark == "worker" {
		line.text = text
		if rest, ok := strings.CutPrefix(text, "block "); ok { // "block predict 17 #1: failed: …" is about that block
			if label, _, ok := strings.Cut(rest, ": "); ok {
				line.task, line.block, line.attempt, _ = parseLabel(label)
				line.text = line.raw[len("[worker] "):]
			}
		}
		return line
	}
	if task, block, attempt, ok := parseLabel(mark); ok {
		line.task, line.block, line.attempt, line.text = task, block, attempt, text
	}
	return line
}

// parseLabel takes "predict 17 #1" or "predict (0, 1) #1" apart.
func parseLabel(label string) (task, block, attempt string, ok bool) {
	task, rest, ok := strings.Cut(label, " ")
	at := strings.LastIndex(rest, " #")
	if !ok || at < 0 {
		return "", "", "", false
	}
	if _, err := strconv.ParseUint(rest[at+2:], 10, 32); err != nil {
		return "", "", "", false
	}
	return task, rest[:at], rest[at+2:], true
}

func (l *logView) wants(line logLine) bool {
	return (l.task == "" || line.task == l.task) && (l.block == nil || line.task != "" && l.block.is(line.task, line.block))
}

func workerOf(file string) string { return strings.TrimSuffix(file, ".log") }

// files are the logs, workers in the order in which they were submitted.
func (l *logView) files() ([]string, error) {
	entries, err := os.ReadDir(l.dir.LogsDir())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // removed to save space
	}
	if err != nil {
		return nil, err
	}
	var files []string
	for _, e := range entries {
		if e.Type().IsRegular() && strings.HasSuffix(e.Name(), ".log") && (l.file == "" || e.Name() == l.file) {
			files = append(files, e.Name())
		}
	}
	slices.SortFunc(files, byNumbers)
	return files, nil
}

// byNumbers sorts "2.0" before "10.0".
func byNumbers(a, b string) int {
	as, bs := strings.Split(a, "."), strings.Split(b, ".")
	for i := range min(len(as), len(bs)) {
		x, errX := strconv.Atoi(as[i])
		y, errY := strconv.Atoi(bs[i])
		if errX == nil && errY == nil && x != y {
			return x - y
		}
		if c := strings.Compare(as[i], bs[i]); c != 0 {
			return c
		}
	}
	return len(as) - len(bs)
}

// followEvery is how often a log is looked at again.
const followEvery = 250 * time.Millisecond

// print prints the logs as they are, and with follow what comes until the run has ended.
func (l *logView) print(ctx context.Context, follow bool) error {
	open := map[string]*openLog{}
	defer func() {
		for _, o := range open {
			_ = o.file.Close()
		}
	}()
	printed := 0
	for {
		_, alive := l.dir.Coordinated() // before the last look
		last := !follow || !alive
		files, err := l.files()
		if err != nil {
			return err
		}
		for _, name := range files {
			o := open[name]
			if o == nil {
				file, err := os.Open(filepath.Join(l.dir.LogsDir(), name))
				if err != nil {
					return err
				}
				o = &openLog{file: file}
				open[name] = o
			}
			n, err := l.printNew(workerOf(name), o, last)
			if err != nil {
				return err
			}
			printed += n
			if !follow {
				_ = o.file.Close()
			}
		}
		if err := l.out.Flush(); err != nil {
			return err
		}
		if last {
			l.sayIfNothing(len(files), printed)
			return nil
		}
		select {
		case <-time.After(followEvery):
		case <-ctx.Done():
			return nil
		}
	}
}

func (l *logView) sayIfNothing(files, printed int) {
	switch {
	case printed > 0:
	case files == 0:
		fmt.Fprintf(l.notes, "daisy-submit: %s has no logs: no worker has started, or the run was serial and printed what its code wrote, or they were removed\n", l.dir.LogsDir())
	default:
		fmt.Fprintf(l.notes, "daisy-submit: no such line in %s\n", units.Plural(int64(files), "log"))
	}
}

// An openLog is a log of which a part was read.
type openLog struct {
	file    *os.File
	pending []byte // a line whose end is not there yet
}

// longestLine is more than any line of a worker's log has.
const longestLine = 64 << 10

// printNew prints the lines that were not read yet; one without its end only if it is the last look.
func (l *logView) printNew(worker string, o *openLog, last bool) (int, error) {
	printed := 0
	buffer := make([]byte, 64<<10)
	for {
		n, err := o.file.Read(buffer)
		for text := buffer[:n]; len(text) > 0; {
			part, rest, whole := bytes.Cut(text, []byte{'\n'})
			o.pending = append(o.pending, part[:min(len(part), longestLine-len(o.pending))]...)
			if whole {
				printed += l.put(parseLine(worker, o.pending))
				o.pending = o.pending[:0]
			}
			text = rest
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return printed, err
		}
	}
	if last && len(o.pending) > 0 {
		printed += l.put(parseLine(worker, o.pending))
		o.pending = nil
	}
	return printed, nil
}

// put prints a line if it is wanted. Errors come with the flush.
func (l *logView) put(line logLine) int {
	if !l.wants(line) {
		return 0
	}
	if l.json {
		l.encode(jsonLine{
			Worker: line.worker, Task: pointer(line.task), Block: idOf(line.block), Index: indexOf(line.block), Attempt: numberOf(line.attempt), Text: api.Printable(line.text),
		})
		return 1
	}
	if line.worker != l.last && l.file == "" {
		if l.last != "" {
			fmt.Fprintln(l.out)
		}
		fmt.Fprintf(l.out, "==> worker %s <==\n", api.OneLine(line.worker))
	}
	l.last = line.worker
	fmt.Fprintln(l.out, api.Printable(line.raw))
	return 1
}

// jsonLine is a line of logs --json.
type jsonLine struct {
	Worker  string  `json:"worker"`
	Task    *string `json:"task"`
	Block   *uint64 `json:"block"`
	Index   []int64 `json:"index"`
	Attempt *uint64 `json:"attempt"`
	Text    string  `json:"text"`
}

// jsonFailure is a line of logs --failed --json.
type jsonFailure struct {
	Task     string  `json:"task"`
	Block    *uint64 `json:"block"`
	Index    []int64 `json:"index"`
	Attempts int64   `json:"attempts"`
	Final    bool    `json:"final"`
	Worker   *string `json:"worker"`
	Node     *string `json:"node"`
	Message  string  `json:"message"`
	Tail     *string `json:"tail"`
	Log      *string `json:"log"`
}

func (l *logView) encode(v any) { _ = json.NewEncoder(l.out).Encode(v) } // its error comes with the flush

func pointer(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func idOf(block string) *uint64 { return numberOf(block) }

func numberOf(s string) *uint64 {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return nil
	}
	return &n
}

// indexOf reads "(0, 1, 4)"; nil if it is an id.
func indexOf(block string) []int64 {
	inside, ok := strings.CutPrefix(block, "(")
	if !ok {
		return nil
	}
	var index []int64
	for part := range strings.SplitSeq(strings.TrimSuffix(inside, ")"), ",") {
		n, err := strconv.ParseInt(strings.TrimSpace(part), 10, 64)
		if err != nil {
			return nil
		}
		index = append(index, n)
	}
	return index
}

// failures prints the failed blocks of a run that has ended, else the failed attempts that logs have.
func (l *logView) failures() error {
	state, s := stateOf(l.dir)
	if state == runRunning || state == runKilled {
		if !l.json {
			fmt.Fprintf(l.notes, "daisy-submit: the run is %s: these are failed attempts, of which some may be tried again\n", map[string]string{runRunning: "going on", runKilled: "not over"}[state])
		}
		return l.failedAttempts()
	}
	shown := 0
	for _, t := range s.Tasks {
		if l.task != "" && t.ID != l.task {
			continue
		}
		for _, f := range t.Failures {
			if l.block != nil && !l.block.is(t.ID, blockName(f.Block, f.Index)) || l.file != "" && (f.Worker == nil || filepath.Base(l.dir.LogPath(*f.Worker)) != l.file) {
				continue
			}
			l.putFailure(jsonFailure{
				Task: t.ID, Block: f.Block, Index: f.Index, Attempts: f.Attempts, Final: true, Worker: f.Worker, Node: f.Node, Message: f.Message, Tail: f.Tail, Log: f.Log,
			})
			shown++
		}
		if more := t.Failed - int64(len(t.Failures)); more > 0 && l.block == nil {
			fmt.Fprintf(l.notes, "daisy-submit: task %q has %s more that failed; statistics keep the first %d. --block ID prints what the logs have of any\n", t.ID, units.Plural(more, "block"), len(t.Failures))
		}
	}
	if shown == 0 {
		fmt.Fprintln(l.notes, "daisy-submit: no block has failed")
	}
	return l.out.Flush()
}

func (l *logView) putFailure(f jsonFailure) {
	if l.json {
		l.encode(f)
		return
	}
	if l.last != "" {
		fmt.Fprintln(l.out)
	}
	l.last = "failure"
	where := ""
	if f.Worker != nil {
		where = " on worker " + api.OneLine(*f.Worker)
		if f.Node != nil && *f.Node != "" {
			where += " (" + api.OneLine(*f.Node) + ")"
		}
	}
	what := fmt.Sprintf("attempt %d", f.Attempts)
	if f.Final {
		what = "failed after " + units.Plural(f.Attempts, "attempt")
		switch {
		case where != "" && f.Attempts > 1:
			what += ", the last"
		case where != "":
			what += ","
		}
	}
	at := ""
	if f.Block != nil && len(f.Index) > 0 {
		at = " at (" + numbers(f.Index, ", ") + ")"
	}
	fmt.Fprintf(l.out, "task %s, block %s%s: %s%s: %s\n", f.Task, blockName(f.Block, f.Index), at, what, where, api.OneLine(f.Message))
	if f.Tail != nil && *f.Tail != "" {
		for line := range strings.Lines(api.Printable(*f.Tail)) {
			fmt.Fprintln(l.out, "  | "+strings.TrimSuffix(line, "\n"))
		}
	}
	if f.Log != nil {
		fmt.Fprintln(l.out, "  log: "+*f.Log)
	}
}

const (
	// tailLines and tailBytes bound what is shown of one attempt.
	tailLines = 50
	tailBytes = 8 << 10
	// tailsKept bounds of how many attempts of a log the end is kept at once: those of a worker's slots are open.
	tailsKept = 4096
)

// failedAttempts finds failed attempts in the logs: the worker says of each how it ended, after its output.
func (l *logView) failedAttempts() error {
	files, err := l.files()
	if err != nil {
		return err
	}
	shown := 0
	for _, name := range files {
		n, err := l.failedIn(name)
		if err != nil {
			return err
		}
		shown += n
	}
	if shown == 0 {
		fmt.Fprintln(l.notes, "daisy-submit: no log tells of a failed attempt")
	}
	return l.out.Flush()
}

func (l *logView) failedIn(name string) (int, error) {
	path := filepath.Join(l.dir.LogsDir(), name)
	file, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	worker := workerOf(name)
	type tail struct{ lines []string }
	tails := map[string]*tail{}
	var order []string
	shown := 0
	from := bufio.NewReaderSize(file, longestLine)
	for {
		raw, err := from.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			err = nil
		}
		if len(raw) > 0 {
			line := parseLine(worker, bytes.TrimSuffix(raw, []byte{'\n'}))
			if line.task != "" && l.wants(line) {
				label := line.task + " " + line.block + " #" + line.attempt
				t := tails[label]
				if t == nil {
					t = &tail{}
					tails[label] = t
					if order = append(order, label); len(order) > tailsKept {
						delete(tails, order[0])
						order = order[1:]
					}
				}
				if !strings.HasPrefix(line.raw, "[worker] ") {
					t.lines = append(t.lines, line.text)
					t.lines = t.lines[max(0, len(t.lines)-tailLines):]
				} else if _, how, ok := strings.Cut(line.text, ": "); ok {
					text := strings.Join(t.lines, "\n")
					if len(text) > tailBytes {
						text = "…\n" + text[len(text)-tailBytes:]
					}
					attempt := int64(0)
					if n := numberOf(line.attempt); n != nil {
						attempt = int64(*n)
					}
					text = api.Printable(text)
					l.putFailure(jsonFailure{
						Task: line.task, Block: idOf(line.block), Index: indexOf(line.block), Attempts: attempt, Worker: &worker, Message: api.Printable(how), Tail: pointer(text), Log: &path,
					})
					shown++
				}
			}
		}
		if errors.Is(err, io.EOF) {
			return shown, nil
		}
		if err != nil {
			return shown, err
		}
	}
}
