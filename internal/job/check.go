package job

import (
	"fmt"
	"maps"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"

	"example.org/daisy/internal/units"
	"example.org/daisy/scheduler"
)

// An Error is something wrong with a job: what is wrong, then what is allowed.
type Error struct {
	// At is the position in Tasks of the task that is wrong, -1 for the run as a whole.
	At int
	// Task is its id.
	Task string
	// Key is that of the job file which has to change; below tables it has dots ("run.command").
	Key  string
	Text string
}

func (e *Error) Error() string {
	where := "run: "
	if e.At >= 0 {
		where = fmt.Sprintf("task %q: ", e.Task)
	}
	if e.Key != "" {
		where += e.Key + ": "
	}
	return where + e.Text
}

// checking collects what is wrong.
type checking struct {
	job  *Job
	errs []error
}

func (c *checking) run(key, format string, args ...any) {
	c.errs = append(c.errs, &Error{At: -1, Key: key, Text: fmt.Sprintf(format, args...)})
}

func (c *checking) task(at int, key, format string, args ...any) {
	c.errs = append(c.errs, &Error{At: at, Task: c.job.Tasks[at].ID, Key: key, Text: fmt.Sprintf(format, args...)})
}

// Check makes every check that needs no file and returns all that is wrong, each an *Error; it adds to Warnings. The machine
// gives the budget where the job gives none; what is 0 in it is not judged.
func (j *Job) Check(m Machine) []error {
	c := &checking{job: j}
	c.runKeys()
	if len(j.Tasks) == 0 {
		c.run("", "no task; a job has at least one")
	}
	for i := range j.Tasks {
		c.taskKeys(i)
	}
	c.edges()
	c.budget(m)
	c.errs = append(c.errs, chunkRaces(j.Tasks)...)
	return c.errs
}

// longestName bounds names and ids, which become names of files together with a date or a number.
const longestName = 64

// CheckName says what is wrong with the name of a run or the id of a task, nil if nothing: names become those of files and folders.
func CheckName(name string) error {
	const allowed = `1 to 64 letters a-z and A-Z, digits, "_", "-" and ".", beginning with a letter, a digit or "_"`
	switch {
	case name == "":
		return fmt.Errorf("empty; allowed are %s", allowed)
	case len(name) > longestName:
		return fmt.Errorf("%d characters long; allowed are %s", len(name), allowed)
	}
	for _, r := range name {
		if !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-' || r == '.') {
			return fmt.Errorf("%q has the character %q; allowed are %s", name, r, allowed)
		}
	}
	if name[0] == '.' || name[0] == '-' {
		return fmt.Errorf("%q begins with %q; allowed are %s", name, name[:1], allowed)
	}
	return nil
}

func (c *checking) runKeys() {
	j := c.job
	if err := CheckName(j.Name); err != nil {
		c.run("name", "%v", err)
	}
	if !slices.Contains(Launchers, j.Launcher) {
		c.run("launcher", "unknown launcher %q; allowed are \"local\", \"serial\" and \"slurm\"", j.Launcher)
	}
	if j.Listen != "" && j.Listen != "localhost" && net.ParseIP(j.Listen) == nil {
		c.run("listen", "%q is not an IP address; allowed are \"localhost\", an IP address of this machine, and \"0.0.0.0\" for all that it has", j.Listen)
	}
	for _, a := range j.Addresses {
		if err := checkAddress(a); err != nil {
			c.run("addresses", "%v", err)
		}
	}
	if j.PortLow < 0 || j.PortHigh > 65535 || j.PortLow > j.PortHigh {
		c.run("port", "%d-%d is no range of ports; ports are 0 to 65535, the lower one first", j.PortLow, j.PortHigh)
	}
	if j.MaxFailures < 0 {
		c.run("max_failures", "%d is below 0; 0 is no limit", j.MaxFailures)
	}
}

func checkAddress(a string) error {
	host := a
	if h, port, err := net.SplitHostPort(a); err == nil {
		host = h
		if p, err := strconv.Atoi(port); err != nil || p < 1 || p > 65535 {
			return fmt.Errorf("%q has no port from 1 to 65535; an address is \"host\" or \"host:port\"", a)
		}
	} else if strings.Contains(a, ":") && net.ParseIP(a) == nil {
		return fmt.Errorf("%q is no address; an address is \"host\" or \"host:port\", with an IPv6 address in brackets before a port", a)
	}
	if host == "" || strings.ContainsAny(host, " \t/@") {
		return fmt.Errorf("%q names no host; an address is \"host\" or \"host:port\"", a)
	}
	return nil
}

func (c *checking) taskKeys(i int) {
	t := &c.job.Tasks[i]
	if err := CheckName(t.ID); err != nil {
		c.task(i, "id", "%v", err)
	}
	for k := range i {
		switch other := c.job.Tasks[k].ID; {
		case other == t.ID && t.ID != "":
			c.task(i, "id", "the id %q is that of the %s task already; ids are unique", t.ID, ordinal(k+1))
		case strings.EqualFold(other, t.ID) && t.ID != "":
			c.task(i, "id", "the ids %q and %q differ only in case, and some file systems do not tell them apart", other, t.ID)
		}
	}
	switch {
	case t.Grid == nil:
		c.task(i, "grid", "no blocks are described")
	case t.Grid.Len() == 0:
		c.task(i, "fit", "\"valid\" leaves no block: blocks of %v do not fit into the total write region %v; allowed are a smaller block, fit = \"shrink\" or \"overhang\"",
			t.Grid.BlockShape(), t.Grid.TotalWrite())
	}
	switch t.Runner.Kind {
	case RunnerCommand, RunnerStream, RunnerDaisy:
		if len(t.Runner.Argv) == 0 || t.Runner.Argv[0] == "" {
			c.task(i, "run."+t.Runner.Kind.String(), "names no program; allowed is a list of a program and its arguments")
		}
	case RunnerPython:
		if err := checkReference(t.Runner.Python); err != nil {
			c.task(i, "run.python", "%v", err)
		}
	case RunnerFunc:
		if t.Runner.Func == nil {
			c.task(i, "run", "the function is nil")
		}
	case RunnerClients:
		c.clients(i, t)
	default:
		c.task(i, "run", "missing; allowed are { command = [..] }, a process for each block, { stream = [..] }, a process for each slot, { python = \"module:function\" }, { daisy = [..] }, a worker script of daisy 2, and { clients = \"daisy\" }, scripts that you start yourself")
	}
	if t.Runner.Kind == RunnerDaisy || t.Runner.Kind == RunnerClients {
		c.ids(i, t)
	}
	c.numbers(i, t)
	if t.EnforceMemory {
		c.memory(i, t)
	}
	for _, kv := range t.Env {
		name, value, _ := strings.Cut(kv, "=")
		if err := checkVariable(name, value); err != nil {
			c.task(i, "env."+name, "%v", err)
		}
	}
}

// ids: a client of daisy knows a block by its spatial id, which has 64 bits. The last block has the largest.
func (c *checking) ids(i int, t *Task) {
	if t.Grid == nil || t.Grid.Len() == 0 {
		return
	}
	last := t.Grid.Len() - 1
	if _, fits := t.Grid.ID(last); !fits {
		c.task(i, "run."+t.Runner.Kind.String(), "daisy's number of the block at %v has more than 64 bits, which its clients cannot hold; give larger blocks, or run it as { stream = [..] } or { python = \"module:function\" }",
			t.Grid.CellIndex(last))
	}
}

// clients: what the coordinator cannot see to, as it does not start them, is not asked for.
func (c *checking) clients(i int, t *Task) {
	const instead = "; let the script see to it, or start it as run = { daisy = [..] }"
	switch {
	case c.job.Launcher == "serial":
		c.task(i, "run.clients", "with launcher \"serial\" nobody can connect; use \"local\"")
	case c.job.Launcher == "slurm":
		c.task(i, "run.clients", "clients that come by themselves are served on the coordinator's own machine only; with launcher \"slurm\" have their script started where the jobs run, by run = { daisy = [..] }")
	case c.job.Listen != "" && c.job.Listen != "localhost":
		if ip := net.ParseIP(c.job.Listen); ip == nil || !ip.IsLoopback() && !ip.IsUnspecified() {
			c.task(i, "run.clients", "clients of daisy are served on this machine's own addresses only, and listen is %q; allowed with them are \"localhost\" and \"0.0.0.0\"", c.job.Listen)
		}
	}
	if t.Check != nil {
		c.task(i, "check", "a client of daisy that comes by itself runs none"+instead)
	}
	if len(t.Env) > 0 {
		c.task(i, "env", "a client that comes by itself has its own environment"+instead)
	}
	if t.Slots != 1 {
		c.task(i, "slots", "a client that comes by itself asks for as many blocks as it likes; leave it out, and limit them with max_workers")
	}
	if t.MaxBlocksPerWorker != 0 {
		c.task(i, "max_blocks_per_worker", "nothing takes the place of a client that comes by itself"+instead)
	}
	if t.EnforceMemory {
		c.task(i, "enforce_memory", "the memory of a client that comes by itself cannot be limited"+instead)
	}
}

// memory: what is to be enforced is there, and can be.
func (c *checking) memory(i int, t *Task) {
	if t.Requires.Get("memory") == 0 {
		c.task(i, "enforce_memory", "there is no limit to enforce; give requires = { memory = \"4GiB\" } too")
	}
	if t.Runner.Kind == RunnerFunc {
		c.task(i, "enforce_memory", "the memory of a Go function cannot be limited, as it is that of the whole program; leave it out, or make the function a program of its own")
	}
}

func (c *checking) numbers(i int, t *Task) {
	atLeast := func(key string, v, least int64) {
		if v < least {
			c.task(i, key, "%d is too small; allowed is %d or more", v, least)
		}
	}
	atLeast("slots", int64(t.Slots), 1)
	atLeast("max_workers", t.MaxWorkers, 0)
	atLeast("max_blocks_per_worker", t.MaxBlocksPerWorker, 0)
	atLeast("max_retries", int64(t.MaxRetries), 0)
	atLeast("max_lost", int64(t.MaxLost), 1)
	atLeast("max_worker_restarts", int64(t.MaxWorkerRestarts), 1)
	if t.Timeout < 0 {
		c.task(i, "timeout", "%v is negative; \"0s\" is no timeout", t.Timeout)
	}
	if t.RetryBackoff < 0 {
		c.task(i, "retry_backoff", "%v is negative; \"0s\" is no pause", t.RetryBackoff)
	}
	if t.MaxWorkers > 0 && t.Slots > 0 && t.MaxWorkers < int64(t.Slots) {
		c.task(i, "max_workers", "%d is less than the %d slots of one worker, and max_workers counts slots; allowed is %d or more, or fewer slots",
			t.MaxWorkers, t.Slots, t.Slots)
	}
}

func checkVariable(name, value string) error {
	for k, r := range name {
		if !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r == '_' || k > 0 && r >= '0' && r <= '9') {
			return fmt.Errorf("%q is not the name of a variable; allowed are letters, digits and \"_\", not beginning with a digit", name)
		}
	}
	switch {
	case name == "":
		return fmt.Errorf("a variable has no name; allowed are letters, digits and \"_\"")
	case strings.HasPrefix(name, "DAISY_"):
		return fmt.Errorf("variables that begin with DAISY_ are set for each block; choose another name")
	case strings.ContainsRune(value, 0):
		return fmt.Errorf("the value has a NUL character, which no environment can hold")
	}
	return nil
}

// edges checks After: names, cycles, and that linked tasks have the same axes.
func (c *checking) edges() {
	tasks := c.job.Tasks
	at := map[string]int{}
	for i, t := range tasks {
		if _, dup := at[t.ID]; !dup {
			at[t.ID] = i
		}
	}
	up := make([][]int, len(tasks))
	for i, t := range tasks {
		for _, name := range t.After {
			k, ok := at[name]
			switch {
			case !ok:
				c.task(i, "after", "there is no task %q%s", name, Nearest(name, slices.Sorted(maps.Keys(at))))
			case name == t.ID:
				c.task(i, "after", "the task comes after itself; name other tasks only")
			default:
				up[i] = append(up[i], k)
				if a, b := tasks[k].Grid, t.Grid; a != nil && b != nil && a.Dims() != b.Dims() {
					c.task(i, "after", "blocks have %d dimensions, those of task %q have %d; linked tasks have the same", b.Dims(), name, a.Dims())
				}
			}
		}
	}
	if cycle := findCycle(up); cycle != nil {
		// The chain reads in the order of the run, from what would come first; it is reported where it begins in the file.
		first := slices.Index(cycle, slices.Min(cycle))
		names := make([]string, 0, len(cycle)+1)
		for k := range len(cycle) + 1 {
			names = append(names, tasks[cycle[(first+k)%len(cycle)]].ID)
		}
		c.task(cycle[first], "after", "tasks wait for each other in a cycle: %s; take one of these links out", strings.Join(names, " after "))
	}
}

// findCycle returns one cycle of positions, each after the next one and the last after the first; nil if there is none.
func findCycle(up [][]int) []int {
	const white, grey, black = 0, 1, 2
	colour := make([]int, len(up))
	var path, cycle []int
	var visit func(int) bool
	visit = func(i int) bool {
		colour[i] = grey
		path = append(path, i)
		for _, k := range up[i] {
			if colour[k] == grey {
				cycle = slices.Clone(path[slices.Index(path, k):])
				return true
			}
			if colour[k] == white && visit(k) {
				return true
			}
		}
		path = path[:len(path)-1]
		colour[i] = black
		return false
	}
	for i := range up {
		if colour[i] == white && visit(i) {
			return cycle
		}
	}
	return nil
}

// unknownMemory stands for the memory of a machine that could not be found out: it bounds nothing.
const unknownMemory = int64(1) << 60

// Budget is what the workers of the run may use together: as given, else all of the machine, or what they can take at most where the
// run is Unlimited.
func (j *Job) Budget(m Machine) scheduler.Resources {
	if j.HasResources {
		return j.Resources
	}
	if j.Unlimited() {
		return j.demand()
	}
	memory := m.MemoryBytes
	if memory <= 0 {
		memory = unknownMemory
	}
	return scheduler.NewResources(map[string]int64{"cpu": int64(max(m.Cores, 1)) * 1000, "memory": memory, "gpu": int64(m.GPUs) * 1000})
}

// demand is what max_workers of all tasks take together.
func (j *Job) demand() scheduler.Resources {
	all := map[string]int64{}
	for _, t := range j.Tasks {
		most := t.Requires.Times(t.MaxWorkers)
		for _, name := range most.Names() {
			if all[name] += most.Get(name); all[name] < 0 {
				all[name] = math.MaxInt64
			}
		}
	}
	return scheduler.NewResources(all)
}

func (c *checking) budget(m Machine) {
	j := c.job
	if j.Unlimited() {
		c.unlimited()
		return
	}
	if j.Launcher == "slurm" {
		m = Machine{} // it is not the one that the workers are on
	}
	if !j.HasResources && m.Cores <= 0 {
		return // nothing is known to compare with
	}
	budget, whose := j.Budget(m), "this machine has"
	if j.HasResources {
		whose = "the run's resources have"
		j.warnAboveMachine(m)
	}
	for i, t := range j.Tasks {
		slots := int64(max(t.Slots, 1))
		for _, name := range t.Requires.Names() {
			key := "requires." + name
			need, have := t.Requires.Get(name), budget.Get(name)
			all := t.Requires.Times(slots).Get(name)
			allText, haveText := amounts(name, all, have)
			switch {
			case need < 0:
				c.task(i, key, "%s is negative; allowed is 0 or more", name)
			case name == "gpu" && need%1000 != 0:
				c.task(i, key, "gpu = %s is not whole; GPUs are given to slots one by one", amount(name, need))
			case need == 0:
			case !budget.Has(name) && j.HasResources:
				c.task(i, key, "%s = %s, but the run's resources (%v) have no %s; add it to resources of [run] or require none",
					name, amount(name, need), budget, name)
			case !budget.Has(name):
				c.task(i, key, "%s = %s, but a machine has cpu, memory and gpu only; give the run's %s in resources of [run]", name, amount(name, need), name)
			case all > have && slots > 1:
				c.task(i, key, "a worker needs %s = %s (%d slots of %s), and %s %s; require less, use fewer slots, or raise resources of [run]",
					name, allText, slots, amount(name, need), whose, haveText)
			case all > have:
				c.task(i, key, "%s = %s, and %s %s; require less or raise resources of [run]", name, allText, whose, haveText)
			}
		}
		if t.Requires.IsZero() && t.MaxWorkers == 0 {
			c.task(i, "requires", "nothing is required and there is no max_workers, so that nothing bounds the number of workers; give one of them")
		}
	}
}

// unlimited: without a budget each task has to say how many workers it may have.
func (c *checking) unlimited() {
	for i, t := range c.job.Tasks {
		for _, name := range t.Requires.Names() {
			need := t.Requires.Get(name)
			switch {
			case need < 0:
				c.task(i, "requires."+name, "%s is negative; allowed is 0 or more", name)
			case name == "gpu" && need%1000 != 0:
				c.task(i, "requires.gpu", "gpu = %s is not whole; GPUs are given to slots one by one", amount(name, need))
			}
		}
		if t.MaxWorkers == 0 {
			c.task(i, "max_workers", "missing; with launcher \"slurm\" each task has it, or [run] has resources: nothing else bounds the number of workers")
		}
	}
}

func (j *Job) warnAboveMachine(m Machine) {
	for _, r := range []struct {
		name  string
		known bool
		have  int64
	}{
		{"cpu", m.Cores > 0, int64(m.Cores) * 1000},
		{"memory", m.MemoryBytes > 0, m.MemoryBytes},
		{"gpu", m.Cores > 0, int64(m.GPUs) * 1000},
	} {
		if given := j.Resources.Get(r.name); r.known && given > r.have {
			givenText, haveText := amounts(r.name, given, r.have)
			j.Warnings = append(j.Warnings, fmt.Sprintf("resources: %s = %s is more than this machine has (%s); its workers will share what there is",
				r.name, givenText, haveText))
		}
	}
}

// amount prints one amount as a job file has it: "4", "0.5", "16GiB".
func amount(name string, n int64) string {
	_, text, _ := strings.Cut(scheduler.NewResources(map[string]int64{name: n}).String(), "=")
	return text
}

// amounts prints two amounts that are compared. Those of memory are rounded for people as long as they still differ.
func amounts(name string, a, b int64) (string, string) {
	if x, y := units.Size(a), units.Size(b); name == "memory" && x != y {
		return x, y
	}
	return amount(name, a), amount(name, b)
}

func ordinal(n int) string {
	if n%100 < 11 || n%100 > 13 {
		switch n % 10 {
		case 1:
			return fmt.Sprintf("%dst", n)
		case 2:
			return fmt.Sprintf("%dnd", n)
		case 3:
			return fmt.Sprintf("%drd", n)
		}
	}
	return fmt.Sprintf("%dth", n)
}
