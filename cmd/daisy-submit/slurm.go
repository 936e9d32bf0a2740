package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"example.org/daisy/internal/job"
	"example.org/daisy/internal/jobfile"
	"example.org/daisy/internal/rundir"
	"example.org/daisy/launcher/slurm"
)

// checkSlurm finds what is wrong with the options of a task for Slurm.
func checkSlurm(dir string, options map[string][]string) (faults, warnings []jobfile.OptionFault) {
	_, f, w := slurm.ParseOptions(options, func(path string) string {
		if filepath.IsAbs(path) {
			return path
		}
		return filepath.Join(dir, path)
	})
	for _, x := range f {
		faults = append(faults, jobfile.OptionFault(x))
	}
	for _, x := range w {
		warnings = append(warnings, jobfile.OptionFault(x))
	}
	return faults, warnings
}

// clusterOf is the one cluster that all tasks name, "" for the default.
func clusterOf(j *job.Job) (string, error) {
	cluster := func(t *job.Task) string {
		if v := t.Options["cluster"]; len(v) == 1 {
			return v[0]
		}
		return ""
	}
	for i := range j.Tasks {
		if a, b := cluster(&j.Tasks[0]), cluster(&j.Tasks[i]); a != b {
			return "", usage("tasks %q and %q name the clusters %q and %q: the workers of a run are on one; write cluster in [slurm], for all", j.Tasks[0].ID, j.Tasks[i].ID, a, b)
		}
	}
	named := cluster(&j.Tasks[0])
	if in := os.Getenv("SLURM_CLUSTERS"); named == "" && (strings.Contains(in, ",") || in == "all") {
		return "", usage("SLURM_CLUSTERS is %q, more than one cluster: all workers of a run are on one; write cluster in [slurm], or set SLURM_CLUSTERS to one", in)
	}
	return named, nil
}

// slurmLauncher is the launcher of a run.
func slurmLauncher(j *job.Job, dir *rundir.Dir) (*slurm.Launcher, error) {
	cluster, err := clusterOf(j)
	if err != nil {
		return nil, err
	}
	if err := dir.MakeScripts(); err != nil {
		return nil, err
	}
	l, err := slurm.New(slurm.Config{
		Run: dir.RunID(), Begun: dir.Created(), Dir: dir.ScriptsPath(), Base: j.Dir, Cluster: cluster, Env: slurm.Environment(os.Environ()),
	})
	if err != nil {
		return nil, fmt.Errorf("the launcher: %w", err)
	}
	return l, nil
}

// slurmDoctor asks Slurm questions for people, for a job or (nil) for none. It submits nothing.
func slurmDoctor(j *job.Job) (*slurm.Launcher, error) {
	c := slurm.Config{Run: someRun, Dir: string(filepath.Separator), Env: slurm.Environment(os.Environ()), Limit: askTime}
	if j != nil {
		var err error
		if c.Cluster, err = clusterOf(j); err != nil {
			return nil, err
		}
		c.Base = j.Dir
	}
	l, err := slurm.New(c)
	if err != nil {
		return nil, infrastructure(err)
	}
	return l, nil
}
