package slurm

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// What people want to know of a cluster before a run: each of these asks one command once, and none is needed by a run.

// A Partition is one as "scontrol show partition" has it.
type Partition struct {
	Name    string
	Default bool
	// State is "UP" where jobs may be submitted and start.
	State string
	// MaxTime is the longest time of a job, DefaultTime what one gets that asks for none; 0 = no limit, or not set.
	MaxTime, DefaultTime time.Duration
	// Accounts and QOS may use it, DenyAccounts and DenyQOS may not; nil = all, and none.
	Accounts, DenyAccounts, QOS, DenyQOS []string
	// Exclusive: jobs get whole nodes.
	Exclusive bool
	Memory    MemoryLimits
}

// MemoryLimits are in MiB; 0 = not set.
type MemoryLimits struct{ DefPerCPU, DefPerNode, MaxPerCPU, MaxPerNode int64 }

// Over is the limits, those of rest where it has none of its own.
func (m MemoryLimits) Over(rest MemoryLimits) MemoryLimits {
	if m.DefPerCPU == 0 && m.DefPerNode == 0 {
		m.DefPerCPU, m.DefPerNode = rest.DefPerCPU, rest.DefPerNode
	}
	if m.MaxPerCPU == 0 && m.MaxPerNode == 0 {
		m.MaxPerCPU, m.MaxPerNode = rest.MaxPerCPU, rest.MaxPerNode
	}
	return m
}

func (m *MemoryLimits) read(key, value string) {
	for name, into := range map[string]*int64{"DefMemPerCPU": &m.DefPerCPU, "DefMemPerNode": &m.DefPerNode, "MaxMemPerCPU": &m.MaxPerCPU, "MaxMemPerNode": &m.MaxPerNode} {
		if n, err := strconv.ParseInt(value, 10, 64); key == name && err == nil {
			*into = n
		}
	}
}

// A Node is one as "scontrol show node" has it.
type Node struct {
	Name string
	// Arch is as uname has it, "x86_64"; "" where the node has never been up.
	Arch string
	// State has flags behind "+" ("IDLE+DRAIN").
	State      string
	CPUs       int64
	MemoryMiB  int64
	GPUs       map[string]int64 // by type, "" where they have none
	Features   []string
	Partitions []string
}

// Up: jobs can start on it as it is.
func (n *Node) Up() bool {
	for word := range strings.SplitSeq(n.State, "+") {
		for _, bad := range []string{"DOWN", "DRAIN", "FAIL", "MAINT", "NO_RESPOND", "NOT_RESPONDING", "UNKNOWN"} {
			if strings.HasPrefix(word, bad) { // not POWERED_DOWN and POWERING_DOWN: it is switched on when it is needed
				return false
			}
		}
	}
	return !strings.Contains(n.State, "*")
}

// GPUsOf is how many GPUs of a type it has, of all types for "".
func (n *Node) GPUsOf(kind string) (sum int64) {
	for k, count := range n.GPUs {
		if kind == "" || k == kind {
			sum += count
		}
	}
	return sum
}

// Find says where a command is.
func (l *Launcher) Find(name string) (string, error) { return l.find(name) }

// isUp is found in "Slurmctld(primary) at vm is UP" and in "Slurmctld(primary/backup) at a/b are DOWN/UP".
var isUp = regexp.MustCompile(`(?:is |are |/)UP\b`)

// Ping asks whether a controller is up. It returns Slurm's words.
func (l *Launcher) Ping(ctx context.Context) (string, error) {
	got, err := l.run(ctx, "scontrol", l.on("ping")...)
	var said []string
	for line := range strings.Lines(got.stdout) {
		if line = strings.Join(strings.Fields(line), " "); strings.HasPrefix(line, "Slurmctld") {
			said = append(said, line)
		}
	}
	words := strings.Join(said, "; ")
	if err == nil && !isUp.MatchString(words) {
		err = fmt.Errorf("scontrol ping said: %s", clip(got.stdout))
	}
	return words, err
}

// Munge has munge make a credential, on the socket that the site uses.
func (l *Launcher) Munge(ctx context.Context, site Site) error {
	args := []string{"-n"}
	if site.MungeSocket != "" {
		args = append(args, "-S", site.MungeSocket)
	}
	_, err := l.run(ctx, "munge", args...)
	return err
}

// Partitions asks for all that this user may see.
func (l *Launcher) Partitions(ctx context.Context) ([]Partition, error) {
	got, err := l.run(ctx, "scontrol", l.on("-o", "show", "partition")...)
	if err != nil {
		return nil, err
	}
	return parsePartitions(got.stdout), nil
}

// Nodes asks for all nodes: some hundred bytes for each.
func (l *Launcher) Nodes(ctx context.Context) ([]Node, error) {
	got, err := l.run(ctx, "scontrol", l.on("-o", "show", "node")...)
	if err != nil {
		return nil, err
	}
	return parseNodes(got.stdout), nil
}

// pairStart is where a pair KEY=VALUE begins in a line of "scontrol -o show"; values may hold blanks.
var pairStart = regexp.MustCompile(`(?:^|\s)([A-Z][A-Za-z_/]*)=`)

func pairs(line string) map[string]string {
	at := pairStart.FindAllStringSubmatchIndex(line, -1)
	m := map[string]string{}
	for i, p := range at {
		end := len(line)
		if i+1 < len(at) {
			end = at[i+1][0]
		}
		if key := line[p[2]:p[3]]; m[key] == "" {
			m[key] = strings.TrimSpace(line[p[1]:end])
		}
	}
	return m
}

// names reads a list by commas; nil for all, and for none.
func names(value string) []string {
	switch value {
	case "", "ALL", "(null)", "N/A":
		return nil
	}
	return strings.Split(value, ",")
}

func parsePartitions(answer string) (list []Partition) {
	for line := range strings.Lines(answer) {
		m := pairs(line)
		if m["PartitionName"] == "" {
			continue
		}
		p := Partition{
			Name: m["PartitionName"], Default: m["Default"] == "YES", State: m["State"], MaxTime: timeOf(m["MaxTime"]), DefaultTime: timeOf(m["DefaultTime"]),
			Accounts: names(m["AllowAccounts"]), DenyAccounts: names(m["DenyAccounts"]), QOS: names(m["AllowQos"]), DenyQOS: names(m["DenyQos"]),
			Exclusive: m["OverSubscribe"] == "EXCLUSIVE" || m["Shared"] == "EXCLUSIVE",
		}
		for key, value := range m {
			p.Memory.read(key, value)
		}
		list = append(list, p)
	}
	return list
}

// timeOf reads a time of Slurm; 0 for UNLIMITED, NONE and what is no time.
func timeOf(s string) time.Duration {
	if n, err := number(s); err == nil { // minutes
		return time.Duration(n) * time.Minute
	}
	if s == "" || !strings.ContainsAny(s, ":-") {
		return 0
	}
	d, err := ParseTime(s)
	if err != nil {
		return 0
	}
	return d
}

func parseNodes(answer string) (list []Node) {
	for line := range strings.Lines(answer) {
		m := pairs(line)
		if m["NodeName"] == "" {
			continue
		}
		n := Node{Name: m["NodeName"], Arch: m["Arch"], State: m["State"], Features: names(m["AvailableFeatures"]), Partitions: names(m["Partitions"]), GPUs: map[string]int64{}}
		cpus := m["CPUEfctv"] // without cores that are kept for the system
		if cpus == "" {
			cpus = m["CPUTot"]
		}
		n.CPUs, _ = strconv.ParseInt(cpus, 10, 64)
		n.MemoryMiB, _ = strconv.ParseInt(m["RealMemory"], 10, 64)
		reserved, _ := strconv.ParseInt(m["MemSpecLimit"], 10, 64)
		n.MemoryMiB -= reserved
		for _, g := range gresList(m["Gres"]) {
			parts := strings.Split(g, ":")
			count, err := strconv.ParseInt(parts[len(parts)-1], 10, 64)
			if parts[0] != "gpu" || err != nil {
				continue
			}
			kind := ""
			if len(parts) > 2 {
				kind = parts[1]
			}
			n.GPUs[kind] += count
		}
		list = append(list, n)
	}
	return list
}

// inBrackets is what Slurm adds to a gres: "gpu:a100:4(S:0-1)".
var inBrackets = regexp.MustCompile(`\([^)]*\)`)

func gresList(value string) []string { return names(inBrackets.ReplaceAllString(value, "")) }

// An Association is what the accounting lets this user do under one account.
type Association struct {
	Account, Partition string
	QOS                []string
}

// Associations asks the accounting for those of this user, and for the longest times of all QOS that have one.
func (l *Launcher) Associations(ctx context.Context) (list []Association, longest map[string]time.Duration, err error) {
	got, err := l.run(ctx, "sacctmgr", "-n", "-P", "show", "assoc", "user="+l.user, "format=Account,Partition,QOS")
	if err != nil {
		return nil, nil, err
	}
	for line := range strings.Lines(got.stdout) {
		if f := strings.Split(strings.TrimSpace(line), "|"); len(f) == 3 {
			list = append(list, Association{f[0], f[1], names(f[2])})
		}
	}
	if got, err = l.run(ctx, "sacctmgr", "-n", "-P", "show", "qos", "format=Name,MaxWall"); err != nil {
		return list, nil, err
	}
	longest = map[string]time.Duration{}
	for line := range strings.Lines(got.stdout) {
		name, wall, _ := strings.Cut(strings.TrimSpace(line), "|")
		if d := timeOf(wall); d > 0 {
			longest[name] = d
		}
	}
	return list, longest, nil
}

// A Forecast is what sbatch --test-only says of a submission: how many cores one worker would get, where, and when.
type Forecast struct {
	Start            time.Time
	CPUs             int64
	Nodes, Partition string
}

var forecast = regexp.MustCompile(`to start at (\S+) using (\d+) processors on (?:nodes )?(\S+)(?: in partition (\S+))?`)

// TestOnly asks sbatch what it would make of a submission, which is not made. It uses up a job id. The error is a *launcher.Refusal where
// Slurm would refuse.
func (l *Launcher) TestOnly(ctx context.Context, s Submission) (Forecast, error) {
	path, err := l.find("sbatch")
	if err != nil {
		return Forecast{}, err
	}
	args := slices.Clone(s.Argv[1 : len(s.Argv)-1])
	cmd := exec.Command(path, append([]string{"--test-only"}, args...)...)
	// Its file does not exist before the run. Without the time zone of this process, in which the answer would be read, sbatch may write in another.
	cmd.Env, cmd.Stdin = append(slices.Clone(s.Env), secondsFormat), strings.NewReader(string(s.Script))
	got, err := l.finish(ctx, "sbatch", cmd, cmd.Start)
	if err != nil {
		return Forecast{}, refusalOf(strings.ReplaceAll(got.stderr, "allocation failure: ", "sbatch: error: "), err)
	}
	m := forecast.FindStringSubmatch(got.stderr + got.stdout)
	if m == nil {
		return Forecast{}, errors.New("sbatch --test-only said what is not understood: " + clip(got.stderr+got.stdout))
	}
	f := Forecast{Nodes: m[3], Partition: m[4]}
	f.CPUs, _ = strconv.ParseInt(m[2], 10, 64)
	seconds, err := strconv.ParseInt(m[1], 10, 64)
	if err != nil {
		return f, fmt.Errorf("sbatch --test-only gave the time %s, which is not in seconds since 1970, though %s asked for that", clip(m[1]), secondsFormat)
	}
	f.Start = time.Unix(seconds, 0)
	return f, nil
}

// ExpandNodes makes names of a list of nodes as Slurm writes it ("n[1-3,07],m"). What is no such list, or one of more than mostNodes,
// stands for itself.
func ExpandNodes(list string) (nodes []string) {
	depth, start := 0, 0
	for i, c := range list + "," {
		switch {
		case c == '[':
			depth++
		case c == ']':
			depth--
		case c == ',' && depth == 0:
			part, ok := expandOne(list[start:i])
			if !ok {
				part = []string{list[start:i]}
			}
			nodes = append(nodes, part...)
			start = i + 1
		}
	}
	if depth != 0 {
		return []string{list}
	}
	return nodes
}

// mostNodes bounds what a name with brackets may stand for.
const mostNodes = 100_000

func expandOne(s string) (nodes []string, ok bool) {
	before, rest, has := strings.Cut(s, "[")
	if !has {
		return []string{s}, true
	}
	inside, after, closed := strings.Cut(rest, "]")
	ends, ok := expandOne(after)
	if !closed || !ok {
		return nil, false
	}
	for part := range strings.SplitSeq(inside, ",") {
		low, high, isRange := strings.Cut(part, "-")
		if !isRange {
			high = low
		}
		a, err := number(low)
		b, err2 := number(high)
		if err != nil || err2 != nil || len(nodes)+max(b-a+1, 0)*len(ends) > mostNodes {
			return nil, false
		}
		for ; a <= b; a++ {
			for _, end := range ends {
				nodes = append(nodes, fmt.Sprintf("%s%0*d%s", before, len(low), a, end))
			}
		}
	}
	return nodes, true
}
