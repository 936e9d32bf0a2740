package worker

import (
	"bytes"
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"example.org/daisy/internal/api"
	"example.org/daisy/internal/process"
	"example.org/daisy/internal/units"
)

// The program of a python task: the module of sdk/python, and behind it what imports the user's function and calls it.
var (
	//go:embed daisy_worker.py
	pythonSDK string
	//go:embed python_run.py
	pythonRun string

	pythonProgram = pythonSDK + "\x00" + pythonRun
)

// pythonStub reads that program from standard input, in front of the blocks: so there is no file of it that could be missing or
// of another version. Python 2 can read the stub, in order to be told that it is too old.
const pythonStub = `import os,sys
if sys.version_info<(3,8):sys.exit("Python 3.8 or later is needed; %s is Python %s"%(sys.executable,sys.version.split()[0]))
n=int(sys.argv[1]);s=b""
while len(s)<n:
 p=os.read(0,n-len(s))
 if not p:sys.exit("standard input ended too early")
 s+=p
sdk,s=s.split(b"\0")
exec(compile(s,"<daisy>","exec"))`

// Modes of the program.
const (
	pythonRuns   = "run"
	pythonChecks = "check"
)

// pythonArgv is the command of a python task. The specification has the interpreter in Argv.
func pythonArgv(spec *api.TaskSpec, mode string) []string {
	target, function := spec.Python, ""
	if i := strings.LastIndexByte(target, ':'); i >= 0 {
		target, function = target[:i], target[i+1:]
	}
	return append(append([]string(nil), spec.Argv...), "-c", pythonStub, strconv.Itoa(len(pythonProgram)), mode, target, function, spec.PythonBlock)
}

// pythonCheckTime bounds the import of user code before the run. Large libraries on a cold network file system take a minute.
const pythonCheckTime = 2 * time.Minute

// CheckPython imports the function of a python task as a worker would: with the same interpreter, environment and working
// directory. The error says what to change. The warning, "" if there is none, says that another virtual environment is active.
// It takes 2 minutes at most. inherited is the environment of a worker.
func CheckPython(ctx context.Context, spec api.TaskSpec, inherited []string) (warning string, err error) {
	return checkPython(ctx, spec, inherited, pythonCheckTime)
}

func checkPython(ctx context.Context, spec api.TaskSpec, inherited []string, limit time.Duration) (warning string, err error) {
	run := "check-" + rand.Text()
	at := place{runID: run, workerID: "check"}
	env := append(slotEnvironment(inherited, &Task{Spec: spec}, at), "DAISY_ANSWER_FD=3")
	argv := pythonArgv(&spec, pythonChecks)
	if argv[0], err = process.LookPath(argv[0], spec.Dir, variable(env, "PATH")); err != nil {
		return "", err
	}
	answers, answersEnd, err := os.Pipe()
	if err != nil {
		return "", fmt.Errorf("make a pipe for the answer: %w", err)
	}
	defer answers.Close()
	output, outputEnd, err := os.Pipe()
	if err != nil {
		answersEnd.Close()
		return "", fmt.Errorf("make a pipe for the output: %w", err)
	}
	defer output.Close()
	spawner, err := process.NewSpawner()
	if err == nil {
		defer func() {
			ending, cancel := context.WithTimeout(context.Background(), longestKillGrace)
			defer cancel()
			err = errors.Join(err, spawner.Close(ending))
		}()
	}
	var p *process.Process
	if err == nil {
		p, err = spawner.Start(process.Config{
			Argv: argv, Env: env, Dir: spec.Dir, Input: []byte(pythonProgram), Stdout: outputEnd, Stderr: outputEnd, ExtraFiles: []*os.File{answersEnd},
			Markers: []string{"DAISY_RUN_ID=" + run, "DAISY_WORKER_ID=check"},
		})
	}
	answersEnd.Close()
	outputEnd.Close()
	if err != nil {
		return "", err
	}
	said, printed := readAll(answers), readEnd(output)
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	select {
	case <-p.Done():
	case <-limited.Done():
	}
	late := limited.Err() != nil
	// Whatever it has started is ended too, so that both pipes end.
	err = p.Kill(context.Background())
	result := p.Wait()
	for _, end := range []*os.File{answers, output} {
		_ = end.SetReadDeadline(time.Now().Add(lateAnswer)) // one that nobody finds may hold the other end
	}
	answer, tail := <-said, <-printed
	var got struct {
		Import  *string `json:"import"`
		Warning string  `json:"warning"`
	}
	switch {
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case json.Unmarshal(answer, &got) == nil && got.Import != nil && *got.Import == "":
		return got.Warning, err
	case got.Import != nil:
		return "", errors.New(*got.Import)
	case late:
		return "", fmt.Errorf("importing it with %s takes more than %s: what takes long, or waits for something, belongs into the function, or below if __name__ == \"__main__\":%s",
			argv[0], units.Duration(limit), lastWords(tail))
	default:
		return "", fmt.Errorf("%s ended while it imported it: %v; is it no Python interpreter, or does what it imports end it?%s", argv[0], result, lastWords(tail))
	}
}

// readAll reads to the end, up to what an answer may take.
func readAll(from io.Reader) <-chan []byte {
	all := make(chan []byte, 1)
	go func() { // ends when the other end is closed, with the processes that have it
		text, _ := io.ReadAll(io.LimitReader(from, maxStreamAnswer)) // what is cut short is no answer
		all <- text
	}()
	return all
}

// readEnd keeps the end of an output.
func readEnd(from io.Reader) <-chan string {
	end := make(chan string, 1)
	go func() { // as readAll
		var kept []byte
		buf := make([]byte, 4096)
		for {
			n, err := from.Read(buf)
			if kept = append(kept, buf[:n]...); len(kept) > 2*maxTail {
				kept = append(kept[:0], kept[len(kept)-maxTail:]...)
			}
			if err != nil {
				end <- string(bytes.TrimSpace(kept))
				return
			}
		}
	}()
	return end
}

// lastWords is the last line of an output, as the end of a message.
func lastWords(output string) string {
	if output == "" {
		return ""
	}
	line := api.OneLine(api.Printable(output[strings.LastIndexByte(output, '\n')+1:]))
	return fmt.Sprintf("; its last words: %.500q", line)
}
