package coordinator

import (
	"example.org/daisy/internal/api"
	"example.org/daisy/internal/job"
	"example.org/daisy/internal/rundir"
	"example.org/daisy/internal/stats"
	"example.org/daisy/scheduler"
)

// specs has, by the task's position in the pipeline, what a worker is told of it.
type specs []api.TaskSpec

func makeSpecs(j *job.Job, p *scheduler.Pipeline, dir *rundir.Dir) specs {
	out := make(specs, len(p.Tasks()))
	for i, t := range p.Tasks() {
		jt, grid := j.Task(t.ID), t.Grid.Spec()
		out[i] = api.TaskSpec{
			Index: i, ID: t.ID,
			TotalRead: grid.TotalRead, Read: grid.Read, Write: grid.Write,
			Fit: grid.Fit.String(), ReadWriteConflict: grid.ReadWriteConflict,
			Runner: jt.Runner.Kind.String(), Argv: jt.Runner.Argv, Python: jt.Runner.Python, PythonBlock: jt.Runner.Block, Check: jt.Check, Env: jt.Env, Dir: j.Dir,
			TimeoutSeconds:     jt.Timeout.Seconds(),
			CPUMilli:           jt.Requires.Get("cpu"),
			MemoryBytes:        jt.Requires.Get("memory"),
			GPUs:               gpus(jt.Requires),
			MaxBlocksPerWorker: jt.MaxBlocksPerWorker,
			ResourceTracking:   jt.ResourceTracking,
			EnforceMemory:      jt.EnforceMemory,
		}
		if dir != nil {
			out[i].RunDir = dir.Path()
		}
	}
	return out
}

// gpus is the number of whole devices that an amount of gpu, in thousandths, needs.
func gpus(r scheduler.Resources) int { return int((r.Get("gpu") + 999) / 1000) }

func taskInfos(j *job.Job, p *scheduler.Pipeline) []stats.TaskInfo {
	infos := make([]stats.TaskInfo, len(p.Tasks()))
	for i, t := range p.Tasks() {
		jt := j.Task(t.ID)
		infos[i] = stats.TaskInfo{
			ID: t.ID, Blocks: t.Grid.Len(), UnwrittenAtEnd: t.Grid.Unwritten().Slice(), Requires: jt.Requires, MemoryEnforced: jt.EnforceMemory,
			MaxWorkers: jt.MaxWorkers, Timeout: jt.Timeout,
		}
	}
	return infos
}
