package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// atOnce lets blocks run until want of them run at once, then ends them one by one, and gives the most that ever ran at once.
func atOnce(d *director, blocks, want int) (most int, all []*visit) {
	d.t.Helper()
	var running []*visit
	for range blocks {
		v := d.next()
		all = append(all, v)
		running = append(running, v)
		most = max(most, len(running))
		if len(running) == want {
			running[0].ok()
			<-running[0].gone // before the coordinator hears of it, and so before the next one may start
			running = running[1:]
		}
	}
	for _, v := range running {
		v.ok()
	}
	return most, all
}

func TestBlocksThatRunNeverExceedTheBudget(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		run, task string
		most      int
	}{
		"cores":           {"resources = { cpu = 2 }", "", 2},
		"parts of cores":  {"resources = { cpu = 1 }", "requires = { cpu = 0.5 }", 2},
		"memory":          {`resources = { cpu = 8, memory = "2GiB" }`, `requires = { memory = "1GiB" }`, 2},
		"licences":        {"resources = { cpu = 8, licence = 3 }", "requires = { licence = 1 }", 3},
		"workers":         {"resources = { cpu = 8 }", "max_workers = 2", 2},
		"slots":           {"resources = { cpu = 8 }", "max_workers = 3\nslots = 3", 3},
		"slots of cores":  {"resources = { cpu = 4 }", "requires = { cpu = 2 }\nslots = 2", 2},
		"blocks a worker": {"resources = { cpu = 2 }", "max_blocks_per_worker = 2", 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDirector(t)
			dir, path := writeJob(t, job(c.run, blocks("work", 8)+d.code("command")+c.task))
			s := start(t, dir, "run", path, "--run-dir", "out")
			most, _ := atOnce(d, 8, c.most)
			if r := s.wait(); r.status != 0 {
				t.Fatalf("exit status %d", r.status)
			}
			stats := statsOf(t, dir+"/out")
			w := task(t, stats, "work")
			if most != c.most || w.MaxConcurrency != int64(c.most) {
				t.Errorf("at most %d ran at once, the statistics say %d; want %d", most, w.MaxConcurrency, c.most)
			}
			if name == "blocks a worker" {
				for _, row := range stats.Workers {
					if row.Processed > 2 {
						t.Errorf("worker %s served %d blocks", row.ID, row.Processed)
					}
				}
			}
		})
	}
}

func TestTwoTasksShareTheBudget(t *testing.T) {
	t.Parallel()
	d := newDirector(t)
	dir, path := writeJob(t, job("resources = { cpu = 3 }",
		blocks("small", 5)+d.code("command"), blocks("large", 3)+d.code("command")+"requires = { cpu = 2 }"))
	s := start(t, dir, "run", path, "--run-dir", "out")
	cores := map[string]int{"small": 1, "large": 2}
	used := 0
	var running []*visit
	for range 8 {
		v := d.next()
		if used += cores[v.Task]; used > 3 {
			t.Errorf("%d cores of 3 are used", used)
		}
		running = append(running, v)
		for used >= 2 { // until any of them fits
			running[0].ok()
			<-running[0].gone
			used -= cores[running[0].Task]
			running = running[1:]
		}
	}
	for _, v := range running {
		v.ok()
	}
	if r := s.wait(); r.status != 0 {
		t.Errorf("exit status %d", r.status)
	}
}

func TestEachSlotHasItsOwnGPUs(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		task  string
		each  int
		slots int
	}{
		"two workers":            {"requires = { gpu = 1 }", 1, 2},
		"one worker, two slots":  {"requires = { gpu = 1 }\nslots = 2", 1, 2},
		"one worker of two GPUs": {"requires = { gpu = 2 }", 2, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDirector(t)
			dir, path := writeJob(t, job("resources = { cpu = 4, gpu = 2 }", blocks("work", 4)+d.code("command")+c.task))
			s := prepare(t, dir, "run", path, "--run-dir", "out")
			s.cmd.Env = append(os.Environ(), "CUDA_VISIBLE_DEVICES=4,GPU-7")
			s.begin()
			var running []*visit
			for range 4 {
				v := d.next()
				if v.GPUs != v.CUDA || len(strings.Split(v.GPUs, ",")) != c.each {
					t.Errorf("block %s has DAISY_GPUS %q, CUDA_VISIBLE_DEVICES %q", v.Index, v.GPUs, v.CUDA)
				}
				seen := map[string]bool{}
				running = append(running, v)
				for _, r := range running {
					for _, gpu := range strings.Split(r.GPUs, ",") {
						if seen[gpu] || gpu != "4" && gpu != "GPU-7" {
							t.Errorf("GPU %q is given to two blocks, or to none of ours", gpu)
						}
						seen[gpu] = true
					}
				}
				if len(running) == c.slots {
					running[0].ok()
					<-running[0].gone
					running = running[1:]
				}
			}
			for _, v := range running {
				v.ok()
			}
			if r := s.wait(); r.status != 0 {
				t.Errorf("exit status %d", r.status)
			}
		})
	}
}

func TestARequirementAboveTheBudgetStartsNothing(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ run, task, want string }{
		{"resources = { cpu = 2 }", "requires = { cpu = 3 }", "cpu"},
		{`resources = { cpu = 2, memory = "1GiB" }`, `requires = { memory = "2GiB" }`, "memory"},
		{"resources = { cpu = 2 }", "requires = { licence = 1 }", "licence"},
		{"resources = { cpu = 2 }", "slots = 3", "slots"},
	} {
		dir, path := writeJob(t, job(c.run, blocks("work", 1)+shell("true")+c.task))
		r := wantStatus(t, 2, dir, "run", path)
		wantText(t, r.stderr, fmt.Sprintf("%s:", path), "work", c.want)
		if exists(dir + "/runs") {
			t.Errorf("%s: a run directory was made", c.task)
		}
	}
}
