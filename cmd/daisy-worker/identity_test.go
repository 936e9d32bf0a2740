package main

import (
	"strings"
	"testing"

	"example.org/daisy/internal/worker"
)

func TestWhoAWorkerIs(t *testing.T) {
	slurm := map[string]string{
		"SLURM_JOB_ID": "4806", "SLURM_ARRAY_JOB_ID": "4711", "SLURM_ARRAY_TASK_ID": "49", "SLURM_RESTART_COUNT": "1", "SLURM_JOB_NAME": "dz-k3v9x2qa-12",
	}
	with := func(env map[string]string, more ...string) map[string]string {
		out := map[string]string{}
		for k, v := range env {
			out[k] = v
		}
		for _, kv := range more {
			k, v, _ := strings.Cut(kv, "=")
			out[k] = v
		}
		return out
	}
	byHand := worker.Config{Identity: worker.Identity{Name: "mine"}}
	for name, c := range map[string]struct {
		env  map[string]string
		cfg  worker.Config
		want worker.Identity
		err  string
	}{
		"by hand":                      {nil, byHand, byHand.Identity, ""},
		"by a local launcher":          {map[string]string{"DAISY_TAG": "3", "DAISY_ELEMENT": "2"}, worker.Config{}, worker.Identity{Tag: "3", Element: 2}, ""},
		"by the name of its job alone": {slurm, worker.Config{}, worker.Identity{Tag: "12", Element: 49, Array: "4711", Restart: 1}, ""},
		"by its script and its job":    {with(slurm, "DAISY_TAG=13"), worker.Config{}, worker.Identity{Tag: "13", Element: 49, Array: "4711", Restart: 1}, ""},
		"by its script, which says it all": {
			with(slurm, "DAISY_TAG=13", "DAISY_ELEMENT=5", "DAISY_ARRAY=99", "DAISY_RESTART=0"), worker.Config{}, worker.Identity{Tag: "13", Element: 5, Array: "99"}, "",
		},
		"by hand in the job of a worker": {slurm, byHand, byHand.Identity, ""},
		"by hand and by a launcher":      {map[string]string{"DAISY_TAG": "3"}, byHand, worker.Identity{}, "--name and --task are for a worker that no launcher started"},
		"a tag and nothing else":         {map[string]string{"DAISY_TAG": "3"}, worker.Config{}, worker.Identity{}, `DAISY_ELEMENT is "": it must be a number from 0`},
		"no number":                      {map[string]string{"DAISY_TAG": "3", "DAISY_ELEMENT": "0", "DAISY_RESTART": "-1"}, worker.Config{}, worker.Identity{}, `DAISY_RESTART is "-1": it must be a number from 0`},
	} {
		getenv := func(k string) string { return c.env[k] }
		job, err := worker.SlurmJob(getenv)
		if err != nil {
			t.Fatal(err)
		}
		c.cfg.Job = job
		err = identify(&c.cfg, getenv)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil || c.cfg.Identity != c.want {
			t.Errorf("%s: it is %+v, %v, want %+v", name, c.cfg.Identity, err, c.want)
		}
	}
}

func TestAJobWhoseNumbersAreNoneIsAWrongEnvironment(t *testing.T) {
	status, _, stderr := call(map[string]string{"SLURM_JOB_ID": "1", "SLURM_ARRAY_TASK_ID": "x"}, "--run-dir", t.TempDir())
	if status != 2 || stderr != "daisy-worker: SLURM_ARRAY_TASK_ID is \"x\": it must be a number from 0\n" {
		t.Errorf("status %d, %q", status, stderr)
	}
}
