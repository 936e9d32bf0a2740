package main

import (
	"context"
	"debug/elf"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"example.org/daisy/internal/coordinator"
	"example.org/daisy/internal/job"
	"example.org/daisy/internal/units"
	"example.org/daisy/launcher"
	"example.org/daisy/launcher/slurm"
)

// askTime bounds each question that doctor and plan ask Slurm.
const askTime = 20 * time.Second

// A cluster is what Slurm says of itself, as far as it answers.
type cluster struct {
	launcher   *slurm.Launcher
	site       slurm.Site
	partitions []slurm.Partition
	nodes      []slurm.Node
	// assocs are the accounts that this user may use, longest the times that QOS give; nil where the accounting says nothing.
	assocs  []slurm.Association
	longest map[string]time.Duration
}

// examineSlurm looks at Slurm, and whether it can run the tasks of a job (nil: of none in particular).
func examineSlurm(ctx context.Context, j *job.Job, l *slurm.Launcher, worker string) (checks []finding, cl *cluster) {
	add := func(f ...finding) { checks = append(checks, f...) }
	cl = &cluster{launcher: l}
	tools := true
	for _, name := range []string{"sbatch", "squeue", "scancel", "scontrol"} {
		path, err := l.Find(name)
		if err != nil {
			tools = false
			add(is(name, missing, "not in PATH", err.Error()))
			continue
		}
		add(is(name, fine, path, ""))
	}
	if path, err := l.Find("sacct"); err != nil {
		add(is("sacct", warning, "not in PATH", "how jobs ended stays unknown where the queue does not say; a run goes on without it"))
	} else {
		add(is("sacct", fine, path, ""))
	}
	if !tools {
		return checks, nil
	}
	said, err := l.Ping(ctx)
	if err == nil {
		cl.site, err = l.Site(ctx)
	}
	if err != nil && slurm.Unconfigured(err) {
		add(is("controller", missing, "not known", err.Error()+": "+slurm.HowToConfigure))
		return checks, nil
	}
	if err != nil {
		add(is("controller", missing, "does not answer", err.Error()+": try again later, and ask the site if it stays so (scontrol ping). Runs that go on wait for it"))
		if cl.site.Munge {
			add(mungeFinding(ctx, cl))
		}
		return checks, nil
	}
	add(is("controller", fine, fmt.Sprintf("%s; Slurm %s, cluster %s", said, cl.site.Version, cl.site.Cluster), ""))
	if cl.site.Munge {
		add(mungeFinding(ctx, cl))
	}
	add(siteFindings(cl.site)...)
	if cl.partitions, err = l.Partitions(ctx); err == nil {
		cl.nodes, err = l.Nodes(ctx)
	}
	if err != nil {
		add(is("partitions", warning, "not known", err.Error()+": what the site's partitions and nodes allow could not be compared with the job"))
		return checks, cl
	}
	add(partitionsFinding(cl))
	if cl.assocs, cl.longest, err = l.Associations(ctx); err != nil {
		cl.assocs = nil
		add(is("accounts", warning, "not known", fmt.Sprintf("%v: account and qos could not be checked; sbatch will", err)))
	} else {
		add(is("accounts", fine, accountsOf(cl.assocs), ""))
	}
	if j == nil {
		return append(checks, archFinding("architecture", worker, cl.nodes)), cl
	}
	for i := range j.Tasks {
		add(cl.taskFindings(j, &j.Tasks[i], worker)...)
	}
	return checks, cl
}

func mungeFinding(ctx context.Context, cl *cluster) finding {
	const check = "munge"
	if _, err := cl.launcher.Find("munge"); err != nil {
		return is(check, fine, "its command is not in PATH; the controller knows who you are", "")
	}
	if err := cl.launcher.Munge(ctx, cl.site); err != nil {
		return is(check, missing, "does not work", err.Error()+": commands of Slurm fail or hang without it; the machine's administrator starts it (systemctl status munge)")
	}
	return is(check, fine, "works", "")
}

// leastKillWait is what a worker needs between SIGTERM and SIGKILL to give its blocks back in good order.
const leastKillWait = 10 * time.Second

func siteFindings(s slurm.Site) (list []finding) {
	f := is("KillWait", fine, units.Duration(s.KillWait), "")
	if s.KillWait < leastKillWait {
		f = is("KillWait", warning, units.Duration(s.KillWait), "workers that are cancelled or preempted have only this long to give their blocks back; blocks that are lost are run again. Where time limits end workers they are warned a minute earlier")
	}
	list = append(list, f)
	switch {
	case s.MaxArraySize == 1:
		f = is("MaxArraySize", warning, "1: no job arrays", "each worker will be a job of its own, one a second; nothing has to be changed (arrays = false says it beforehand)")
	case s.MaxArraySize == 0:
		f = is("MaxArraySize", warning, "not known", "if arrays are refused, smaller ones are tried, and jobs without an array at last")
	default:
		f = is("MaxArraySize", fine, fmt.Sprintf("%s workers in one submission", units.Count(int64(s.MaxArraySize))), "")
	}
	return append(list, f)
}

func partitionsFinding(cl *cluster) finding {
	var list []string
	for _, p := range cl.partitions {
		text := p.Name
		var notes []string
		if p.Default {
			notes = append(notes, "default")
		}
		if p.State != "UP" {
			notes = append(notes, p.State)
		}
		if p.MaxTime > 0 {
			notes = append(notes, "up to "+units.WriteDuration(p.MaxTime))
		}
		if notes != nil {
			text += " (" + strings.Join(notes, ", ") + ")"
		}
		list = append(list, text)
	}
	if list == nil {
		return is("partitions", missing, "none that you may see", "ask the site for an account that may use one")
	}
	return is("partitions", fine, strings.Join(list, ", "), "")
}

func accountsOf(assocs []slurm.Association) string {
	var list []string
	for _, a := range assocs {
		text := a.Account
		if len(a.QOS) > 0 {
			text += " (QOS " + strings.Join(a.QOS, ", ") + ")"
		}
		list = append(list, text)
	}
	if list == nil {
		return "the accounting has none for you"
	}
	return strings.Join(list, ", ")
}

// taskFindings compares what a worker of a task asks for with what the cluster gives.
func (cl *cluster) taskFindings(j *job.Job, t *job.Task, worker string) (list []finding) {
	o, _, _ := slurm.ParseOptions(t.Options, func(path string) string { return inFolder(j.Dir, path) })
	r := coordinator.RequestFor(j, t, "1", 1, nil, "")
	about := func(what string) string { return "task " + t.ID + ": " + what }
	parts, f := cl.partitionsOf(&o, about("partition"))
	list = append(list, f)
	if parts == nil {
		return list
	}
	list = append(list, cl.accountFinding(&o, parts, about("account")), cl.timeFinding(&o, parts, about("time")), cl.memoryFinding(&o, r, parts, about("memory")))
	fitting, f := cl.fitFinding(&o, r, parts, about("nodes"))
	list = append(list, f)
	if fitting != nil {
		list = append(list, archFinding(about("architecture"), worker, fitting))
	}
	if slices.ContainsFunc(parts, func(p slurm.Partition) bool { return p.Exclusive }) && !t.Fill {
		list = append(list, is(about("OverSubscribe"), warning, "EXCLUSIVE: each worker gets a whole node, whatever it asks for",
			"all of the node is charged: let one worker use it, with slots = \"fill\" of the task"))
	}
	return list
}

func inFolder(dir, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

// partitionsOf are those that jobs of a task may go to: one, or any of several by commas.
func (cl *cluster) partitionsOf(o *slurm.Options, check string) (parts []slurm.Partition, f finding) {
	var all, unknown, down []string
	for _, p := range cl.partitions {
		all = append(all, p.Name)
	}
	if o.Partition == "" {
		for _, p := range cl.partitions {
			if p.Default {
				parts = append(parts, p)
			}
		}
		if parts == nil {
			return nil, is(check, missing, "none is given, and the site has no default", "write partition in [slurm]; there are "+strings.Join(all, ", "))
		}
	} else {
		for name := range strings.SplitSeq(o.Partition, ",") {
			at := slices.IndexFunc(cl.partitions, func(p slurm.Partition) bool { return p.Name == name })
			if at < 0 {
				unknown = append(unknown, name)
				continue
			}
			parts = append(parts, cl.partitions[at])
		}
	}
	if unknown != nil {
		return nil, is(check, missing, fmt.Sprintf("there is no %s that you may see", strings.Join(unknown, ", ")), "change partition; there are "+strings.Join(all, ", "))
	}
	var found []string
	for _, p := range parts {
		found = append(found, p.Name)
		if p.State != "UP" {
			down = append(down, p.Name+" is "+p.State)
		}
	}
	if len(down) == len(parts) {
		return parts, is(check, warning, strings.Join(down, ", "), "jobs wait until it is up again: take another partition, or wait (scontrol show partition says its state)")
	}
	return parts, is(check, fine, strings.Join(found, ", "), "")
}

// named tells whether a list has an account or QOS, whose names Slurm compares without their case.
func named(list []string, name string) bool {
	return slices.ContainsFunc(list, func(other string) bool { return strings.EqualFold(other, name) })
}

func allowed(name string, allow, deny []string) bool {
	return (allow == nil || named(allow, name)) && !named(deny, name)
}

func (cl *cluster) accountFinding(o *slurm.Options, parts []slurm.Partition, check string) finding {
	found := "default account"
	if o.Account != "" {
		found = o.Account
	}
	if o.QOS != "" {
		found += ", QOS " + o.QOS
	}
	if cl.assocs != nil {
		ofAccount := slices.DeleteFunc(slices.Clone(cl.assocs), func(a slurm.Association) bool { return o.Account != "" && !strings.EqualFold(a.Account, o.Account) })
		if len(ofAccount) == 0 && len(cl.assocs) > 0 {
			return is(check, missing, found+": you may not use that account", "change account; yours are "+accountsOf(cl.assocs))
		}
		hasQOS := func(a slurm.Association) bool { return named(a.QOS, o.QOS) }
		if o.QOS != "" && len(ofAccount) > 0 && !slices.ContainsFunc(ofAccount, hasQOS) {
			return is(check, missing, found+": the account may not use that QOS", "change qos; yours are "+accountsOf(ofAccount))
		}
	}
	for _, p := range parts {
		if (o.Account == "" || allowed(o.Account, p.Accounts, p.DenyAccounts)) && (o.QOS == "" || allowed(o.QOS, p.QOS, p.DenyQOS)) {
			return is(check, fine, found, "")
		}
	}
	return is(check, missing, fmt.Sprintf("%s: not allowed in the partition", found), fmt.Sprintf("change account, qos or partition: %s allows the accounts %s and the QOS %s", parts[0].Name, or2(parts[0].Accounts), or2(parts[0].QOS)))
}

// or2 is a list of names, nil being all.
func or2(list []string) string {
	if list == nil {
		return "ALL"
	}
	return strings.Join(list, ", ")
}

func (cl *cluster) timeFinding(o *slurm.Options, parts []slurm.Partition, check string) finding {
	most, name := time.Duration(-1), ""
	for _, p := range parts {
		if p.MaxTime == 0 {
			most, name = 0, p.Name
			break
		}
		if p.MaxTime > most {
			most, name = p.MaxTime, p.Name
		}
	}
	if most > 0 && o.Time > most {
		return is(check, missing, fmt.Sprintf("%s, but partition %s gives %s", units.WriteDuration(o.Time), name, units.WriteDuration(most)),
			fmt.Sprintf("Slurm would refuse such jobs, or take them and never start them: write time = %q or less (workers whose time is over are replaced), or take another partition", units.WriteDuration(most)))
	}
	if limit, known := cl.longest[strings.ToLower(o.QOS)]; known && o.Time > limit {
		return is(check, missing, fmt.Sprintf("%s, but QOS %s gives %s", units.WriteDuration(o.Time), o.QOS, units.WriteDuration(limit)), fmt.Sprintf("write time = %q or less, or change qos", units.WriteDuration(limit)))
	}
	switch {
	case o.Time > 0:
		return is(check, fine, units.WriteDuration(o.Time), "")
	case parts[0].DefaultTime > 0:
		return is(check, fine, fmt.Sprintf("not given: %s gives %s", parts[0].Name, units.WriteDuration(parts[0].DefaultTime)), "")
	case most > 0:
		return is(check, warning, fmt.Sprintf("not given: the longest is taken, %s", units.WriteDuration(most)), "write time: shorter jobs start earlier, as they fit into gaps")
	}
	return is(check, warning, "not given, and the site sets no limit", "write time: jobs with a limit start earlier, as they fit into gaps, and the last block of a worker that hangs is not waited for")
}

// smallMemory is a default that surprises people.
const smallMemory = 2 << 10 // MiB

func (cl *cluster) memoryFinding(o *slurm.Options, r launcher.Request, parts []slurm.Partition, check string) finding {
	m := parts[0].Memory.Over(cl.site.Memory)
	cores := r.Cores()
	const mib = 1 << 20
	asked := (r.MemoryBytes + mib - 1) / mib
	if o.NoMemory {
		asked = 0
	}
	size := func(n int64) string { return units.Size(n * mib) }
	switch {
	case asked == 0 && m.DefPerCPU == 0 && m.DefPerNode == 0:
		return is(check, fine, "not asked for; the site sets no default, so a worker gets that of its node", "")
	case asked == 0:
		given, by := m.DefPerNode, "DefMemPerNode"
		if m.DefPerCPU > 0 {
			given, by = m.DefPerCPU*cores, "DefMemPerCPU"
		}
		found := fmt.Sprintf("not asked for: a worker gets %s (%s)", size(given), by)
		if given < smallMemory {
			return is(check, warning, found, "blocks that need more are killed: write requires.memory of the task")
		}
		return is(check, fine, found, "")
	case m.MaxPerNode > 0 && asked > m.MaxPerNode:
		return is(check, missing, fmt.Sprintf("%s, but a job gets at most %s of a node (MaxMemPerNode)", size(asked), size(m.MaxPerNode)), "require less memory, or fewer slots a worker")
	case m.MaxPerCPU > 0 && asked > m.MaxPerCPU*cores:
		needs := (asked + m.MaxPerCPU - 1) / m.MaxPerCPU
		return is(check, warning, fmt.Sprintf("%s with %s, but the site gives %s to a core (MaxMemPerCPU)", size(asked), units.Plural(cores, "core"), size(m.MaxPerCPU)),
			fmt.Sprintf("Slurm gives %s instead, and charges them: require so many (requires.cpu), so that blocks can use them", units.Plural(needs, "core")))
	}
	return is(check, fine, size(asked), "")
}

// fitFinding looks for nodes that have all that one worker asks for.
func (cl *cluster) fitFinding(o *slurm.Options, r launcher.Request, parts []slurm.Partition, check string) (fitting []slurm.Node, f finding) {
	cores := r.Cores()
	asked := (r.MemoryBytes + 1<<20 - 1) >> 20
	if o.NoMemory {
		asked = 0
	}
	kind := ""
	for _, g := range o.Gres {
		if name, ok := strings.CutPrefix(g, "gpu:"); ok {
			kind = name
		}
	}
	only, not := nodeNames(o.Nodelist), nodeNames(o.Exclude)
	var most slurm.Node
	up, looked := 0, 0
	for _, n := range cl.nodes {
		if !slices.ContainsFunc(parts, func(p slurm.Partition) bool { return slices.Contains(n.Partitions, p.Name) }) || not[n.Name] || only != nil && !only[n.Name] || !hasFeatures(&n, o.Constraint) {
			continue
		}
		looked++
		most.CPUs, most.MemoryMiB = max(most.CPUs, n.CPUs), max(most.MemoryMiB, n.MemoryMiB)
		most.GPUs = map[string]int64{"": max(most.GPUs[""], n.GPUsOf(kind))}
		if n.CPUs < cores || n.MemoryMiB < asked || n.GPUsOf(kind) < int64(r.GPUs) {
			continue
		}
		fitting = append(fitting, n)
		if n.Up() {
			up++
		}
	}
	wants := units.Plural(cores, "core")
	if asked > 0 {
		wants += ", " + units.Size(asked<<20)
	}
	if r.GPUs > 0 {
		wants += fmt.Sprintf(", %s %s", units.Plural(int64(r.GPUs), "GPU"), kind)
		wants = strings.TrimSpace(wants)
	}
	switch {
	case looked == 0:
		return nil, is(check, missing, "none is left by partition, constraint, nodelist and exclude", "change them: sinfo -N -o '%N %P %f' lists nodes with their partitions and features")
	case fitting == nil:
		return nil, is(check, missing, fmt.Sprintf("no node of %d has %s together; at most they have %s, %s, %s", looked, wants, units.Plural(most.CPUs, "core"), units.Size(most.MemoryMiB<<20), units.Plural(most.GPUs[""], "GPU")),
			"require less, give a worker fewer slots, or take another partition")
	case up == 0:
		return fitting, is(check, warning, fmt.Sprintf("%s, and none is up now", units.Plural(int64(len(fitting)), "node")), "jobs wait until one is: sinfo -R says why nodes are down")
	}
	return fitting, is(check, fine, fmt.Sprintf("%s with %s, %d up", units.Plural(int64(len(fitting)), "node"), wants, up), "")
}

// hasFeatures judges constraints of features that are all needed ("a&b"); of others it says yes.
func hasFeatures(n *slurm.Node, constraint string) bool {
	if constraint == "" || strings.ContainsAny(constraint, "|[]()*,") {
		return true
	}
	for f := range strings.SplitSeq(constraint, "&") {
		if !slices.Contains(n.Features, f) {
			return false
		}
	}
	return true
}

// nodeNames are the nodes of lists of Slurm; nil for none.
func nodeNames(lists []string) map[string]bool {
	if len(lists) == 0 {
		return nil
	}
	m := map[string]bool{}
	for _, n := range slurm.ExpandNodes(strings.Join(lists, ",")) {
		m[n] = true
	}
	return m
}

// architectures are the names that nodes have for those of programs.
var architectures = map[elf.Machine][]string{
	elf.EM_X86_64: {"x86_64", "amd64"}, elf.EM_AARCH64: {"aarch64", "arm64"}, elf.EM_PPC64: {"ppc64le", "ppc64"}, elf.EM_RISCV: {"riscv64"}, elf.EM_S390: {"s390x"},
}

// archFinding compares the worker's program with the nodes that it may run on.
func archFinding(check, worker string, nodes []slurm.Node) finding {
	f, err := elf.Open(worker)
	if err != nil {
		return is(check, warning, "not known", fmt.Sprintf("the worker's program %q cannot be read as one of Linux, which nodes run: %v", worker, err))
	}
	defer f.Close()
	mine := architectures[f.Machine]
	count := map[string]int{}
	for _, n := range nodes {
		if n.Arch != "" {
			count[n.Arch]++
		}
	}
	var other, all []string
	for _, arch := range slices.Sorted(maps.Keys(count)) {
		all = append(all, fmt.Sprintf("%s on %s", arch, units.Plural(int64(count[arch]), "node")))
		if !slices.Contains(mine, arch) {
			other = append(other, arch)
		}
	}
	switch {
	case len(all) == 0:
		return is(check, warning, "no node says which it has", "daisy-submit doctor JOB --probe tries it")
	case len(other) == len(all):
		return is(check, missing, fmt.Sprintf("%s; %s is built for %s", strings.Join(all, ", "), filepath.Base(worker), f.Machine), "build the programs for the nodes: GOARCH=arm64 make build, for one")
	case other != nil:
		return is(check, warning, fmt.Sprintf("%s; %s is built for %s", strings.Join(all, ", "), filepath.Base(worker), f.Machine), "workers fail on the others: keep off them with constraint, partition or exclude")
	}
	return is(check, fine, strings.Join(all, ", "), "")
}

// shared are file systems that several machines can have, by their number in statfs, onOne those that one machine has.
var (
	shared = map[uint32]string{
		0x6969: "nfs", 0x0bd00bd0: "lustre", 0x47504653: "gpfs", 0x00c36400: "ceph", 0x19830326: "beegfs", 0xaad7aaea: "panfs", 0x5346414f: "afs", 0x01021997: "9p",
		0xff534d42: "cifs", 0xfe534d42: "smb2", 0x01161970: "gfs2", 0x7461636f: "ocfs2", 0x20030528: "orangefs", 0x65735546: "fuse",
	}
	onOne = map[uint32]string{
		0xef53: "ext4", 0x58465342: "xfs", 0x9123683e: "btrfs", 0x01021994: "tmpfs", 0x794c7630: "overlay", 0x858458f6: "ramfs", 0x2fc12fc1: "zfs", 0xf2f52010: "f2fs", 0xca451a4e: "bcachefs",
	}
)

// sharedFindings are of a folder that nodes have to see, in which they run a program. dir exists.
func sharedFindings(dir string) (list []finding) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		list = append(list, is("shared", warning, "not known", err.Error()))
	} else {
		list = append(list, judgeShared(uint32(s.Type)))
	}
	return append(list, executableFinding(dir))
}

func judgeShared(kind uint32) finding {
	const check = "shared"
	if name, known := shared[kind]; known {
		return is(check, fine, "it is on "+name, "")
	}
	if name, known := onOne[kind]; known {
		return is(check, warning, "it is on "+name+", which is mostly of one machine only", "nodes have to see run directories under the same path: write directory in [run], or give DIR, on a file system of the whole cluster. daisy-submit doctor JOB --probe tries it")
	}
	return is(check, warning, "it is on a file system of the unknown kind 0x"+strconv.FormatUint(uint64(kind), 16), "nodes have to see run directories under the same path; daisy-submit doctor JOB --probe tries it")
}

func executableFinding(dir string) finding {
	const check = "executable"
	path := filepath.Join(dir, "program")
	if err := os.WriteFile(path, []byte("#!/bin/sh\nexit 0\n"), 0o700); err != nil { //nolint:gosec // it is to be run
		return is(check, warning, "not known", err.Error())
	}
	defer os.Remove(path)
	if err := exec.Command(path).Run(); err != nil {
		return is(check, missing, "a program there does not run", err.Error()+": the file system is mounted noexec, and workers run from the run directory: keep run directories elsewhere")
	}
	return is(check, fine, "programs there run", "")
}
