package jobfile_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.org/daisy/internal/jobfile"
)

func TestWhatHasChangedSinceTheRunBeganIsSaidInTheWordsOfTheJobFile(t *testing.T) {
	const was = `
[run]
name = "n"
tracking = "tracking"
[[task]]
id = "up"
total_write = { offset = [0], shape = [9] }
block = { shape = [1] }
run = { command = ["true"] }
[[task]]
id = "a"
total_write = { offset = [0, 0], shape = [100, 70] }
block = { shape = [30, 30] }
run = { command = ["true", "a b"] }
requires = { memory = "1.5GiB" }
env = { A = "1" }
timeout = "5m"
[[task]]
id = "b"
after = ["up"]
total_write = { offset = [0], shape = [9] }
block = { shape = [1] }
run = { command = ["true"] }
`
	path := write(t, was)
	machine := jobfile.Options{Machine: big}
	job, err := jobfile.Load(path, nil, machine)
	if err != nil {
		t.Fatal(err)
	}
	for set, want := range map[string]string{
		"run.name=m":              `run.name was "n", and is "m" now`,
		"run.launcher=serial":     `run.launcher was "local", and is "serial" now`,
		"run.tracking=marks/here": `run.tracking was "tracking", and is "marks/here" now`,
		"task.a.total_write={offset=[0, 0], shape=[100, 80]}": `task "a": the total write region was { offset = [0, 0], shape = [100, 70] }, and is { offset = [0, 0], shape = [100, 80] } now`,
		"task.a.block.shape=[30, 35]":                         `task "a": block.shape was [30, 30], and is [30, 35] now`,
		"task.a.block.context={low=[1, 0], high=2}":           `task "a": block.context was [0, 0], and is { low = [1, 0], high = [2, 2] } now`,
		"task.a.fit=shrink":                                   `task "a": fit was "valid", and is "shrink" now`,
		"task.a.read_write_conflict=false":                    `task "a": read_write_conflict was true, and is false now`,
		`task.a.run={stream=["true"]}`:                        `task "a": run was { command = ["true", "a b"] }, and is { stream = ["true"] } now`,
		`task.a.check={command=["test", "-e", "x"]}`:          `task "a": check was not given, and is { command = ["test", "-e", "x"] } now`,
		`task.a.requires={cpu=0.5, memory="100MB"}`:           `task "a": requires was { cpu = 1, memory = "1.5GiB" }, and is { cpu = 0.5, memory = "100MB" } now`,
		"task.a.slots=2":                                      `task "a": slots was 1, and is 2 now`,
		`task.a.env={A="1", B="two words"}`:                   `task "a": env was { A = "1" }, and is { A = "1", B = "two words" } now`,
		`task.b.after=[]`:                                     `task "b": after was ["up"], and is [] now`,
		"task.a.timeout=1h":                                   "",
		"task.a.max_retries=9":                                "",
		`run.resources={cpu=2, memory="2GiB"}`:                "",
	} {
		now, err := jobfile.Load(path, []string{set}, machine)
		if err != nil {
			t.Errorf("%s: %v", set, err)
			continue
		}
		var list []string
		if want != "" {
			list = []string{want}
		}
		if d := cmp.Diff(list, job.Changes(now)); d != "" {
			t.Errorf("%s: -want +got\n%s", set, d)
		}
	}
}
