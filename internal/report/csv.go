package report

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"strconv"
	"strings"
	"time"

	"example.org/daisy/internal/api"
)

// writeCSV writes one table a section, an empty line between two. The first column of every row is the name of its section,
// so that a line filter finds the rows of one; the others are the fields of stats.json, unrounded; no value is an empty cell.
func writeCSV(b *bytes.Buffer, s api.Stats) error {
	r := s.Run
	h := r.WorkerHours
	sections := []csvSection{{
		name: "run",
		head: "id,name,state,message,exit_status,started,ended,wall_seconds,launcher,job_file,directory,logs,worker_hours_used,worker_hours_idle,worker_hours_wasted," +
			"core_hours_granted,core_hours_used,core_hours_idle",
		rows: [][]any{{r.ID, r.Name, r.State, r.Message, r.ExitStatus, r.Started, r.Ended, r.WallSeconds, r.Launcher, r.JobFile, r.Directory, r.Logs, h.Used, h.Idle, h.Wasted,
			r.CoreHours.Granted, r.CoreHours.Used, r.CoreHours.Idle}},
	}, {
		name: "segment", head: "epoch,started,ended,wall_seconds",
	}, {
		name: "change", head: "key,was,now,by",
	}, {
		name: "resource", head: "task,resource,asked,asked_at_start,used,suggested,suggestion",
	}, {
		name: "task",
		head: "id,state,blocks,waiting,ready,leased,success,skipped,failed,orphaned,abandoned,unselected,skipped_not_selected,skipped_done_before,skipped_mask,skipped_check," +
			"processed,retries,reclaimed,timed_out,lost,returned,out_of_memory,timed_out_workers,workers,max_concurrency,timeout_seconds," +
			"block_seconds_mean,block_seconds_p50,block_seconds_p95,block_seconds_max,block_seconds_slope,cpu_busy,peak_rss_bytes,wall_seconds,wasted_seconds,io_read_bytes,io_write_bytes,unwritten_at_end",
	}, {
		name: "histogram", head: "task,upper_seconds,count",
	}, {
		name: "failure", head: "task,block,index,attempts,worker,node,message,log",
	}, {
		name: "worker", head: "task,id,node,slots,processed,failed,busy_seconds,idle_seconds,peak_rss_bytes,end,log," +
			"asked_cores,asked_memory_bytes,asked_gpus,granted_cores,granted_memory_bytes,granted_gpus",
	}, {
		name: "node", head: "node,workers,processed,failed,busy_seconds,idle_seconds,wasted_seconds,peak_rss_bytes,core_hours_granted,core_hours_used,core_hours_idle",
	}, {
		name: "coordinator", head: "cpu_seconds,peak_rss_bytes,bytes_in,bytes_out",
	}}
	add := func(name string, cells ...any) {
		for i := range sections {
			if sections[i].name == name {
				sections[i].rows = append(sections[i].rows, cells)
			}
		}
	}
	for _, x := range r.Segments {
		add("segment", x.Epoch, x.Started, x.Ended, x.WallSeconds)
	}
	for _, x := range r.Changes {
		add("change", x.Key, x.Was, x.Now, x.By)
	}
	for _, x := range r.Resources {
		add("resource", x.Task, x.Resource, x.Asked, x.AskedAtStart, x.Used, x.Suggested, x.Suggestion)
	}
	for _, t := range s.Tasks {
		bs, why := t.BlockSeconds, t.SkippedWhy
		add("task", t.ID, t.State, t.Blocks, t.Waiting, t.Ready, t.Leased, t.Success, t.Skipped, t.Failed, t.Orphaned, t.Abandoned,
			t.Unselected, why.NotSelected, why.DoneBefore, why.Mask, why.Check, t.Processed, t.Retries, t.Reclaimed, t.TimedOut, t.Lost, t.Returned, t.OutOfMemory,
			t.TimedOutWorkers, t.Workers, t.MaxConcurrency, t.TimeoutSeconds, bs.Mean, bs.P50, bs.P95, bs.Max, bs.Slope,
			t.CPUBusy, t.PeakRSSBytes, t.WallSeconds, t.WastedSeconds, t.IOReadBytes, t.IOWriteBytes, spaced(t.UnwrittenAtEnd))
		for _, pair := range bs.Histogram {
			add("histogram", t.ID, pair[0], pair[1])
		}
		for _, f := range t.Failures {
			add("failure", t.ID, f.Block, spaced(f.Index), f.Attempts, f.Worker, f.Node, f.Message, f.Log)
		}
	}
	for _, w := range s.Workers {
		add("worker", w.Task, w.ID, w.Node, w.Slots, w.Processed, w.Failed, w.BusySeconds, w.IdleSeconds, w.PeakRSSBytes, w.End, w.Log,
			w.Asked.Cores, w.Asked.MemoryBytes, w.Asked.GPUs, w.Granted.Cores, w.Granted.MemoryBytes, w.Granted.GPUs)
	}
	for _, n := range s.Nodes {
		add("node", n.Node, n.Workers, n.Processed, n.Failed, n.BusySeconds, n.IdleSeconds, n.WastedSeconds, n.PeakRSSBytes,
			n.CoreHours.Granted, n.CoreHours.Used, n.CoreHours.Idle)
	}
	c := s.Coordinator
	add("coordinator", c.CPUSeconds, c.PeakRSSBytes, c.BytesIn, c.BytesOut)

	for i, section := range sections {
		if i > 0 {
			b.WriteByte('\n')
		}
		if err := section.write(b); err != nil {
			return err
		}
	}
	return nil
}

func spaced(list []int64) string {
	parts := make([]string, len(list))
	for i, v := range list {
		parts[i] = strconv.FormatInt(v, 10)
	}
	return strings.Join(parts, " ")
}

// A csvSection is one flat table.
type csvSection struct {
	name, head string
	rows       [][]any
}

func (s csvSection) write(b *bytes.Buffer) error {
	w := csv.NewWriter(b)
	records := [][]string{append([]string{"section"}, strings.Split(s.head, ",")...)}
	for _, row := range s.rows {
		record := []string{s.name}
		for _, v := range row {
			record = append(record, csvCell(v))
		}
		records = append(records, record)
	}
	return w.WriteAll(records)
}

func csvCell(v any) string {
	switch v := v.(type) {
	case string:
		return api.Printable(v)
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	case time.Time:
		return v.UTC().Format(time.RFC3339Nano)
	case *string:
		return pointed(v)
	case *float64:
		return pointed(v)
	case *time.Time:
		return pointed(v)
	case *int64:
		return pointed(v)
	case *uint64:
		return pointed(v)
	case *int:
		return pointed(v)
	default:
		return fmt.Sprint(v)
	}
}

func pointed[T any](v *T) string {
	if v == nil {
		return ""
	}
	return csvCell(*v)
}
