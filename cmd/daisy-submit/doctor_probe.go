package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.org/daisy/internal/coordinator"
	"example.org/daisy/internal/job"
	"example.org/daisy/internal/units"
	"example.org/daisy/launcher"
	"example.org/daisy/launcher/slurm"
)

// probeScript looks at the coordinator's machine from a node. Its arguments are the worker's program, a file to write, how many options of
// sbatch follow with which a coordinator would be submitted from there (0 = that is not tried), those, and addresses.
const probeScript = `#!/bin/bash
echo "daisy-probe node ${SLURMD_NODENAME:-$HOSTNAME}"
echo "daisy-probe clock $(date +%s)"
if said=$("$1" --version 2>&1); then echo "daisy-probe runs ${said//$'\n'/ }"; else echo "daisy-probe fails ${said//$'\n'/ }"; fi
if said=$(head -c 1048576 /dev/zero 2>&1 >"$2"); then echo "daisy-probe writes"; else echo "daisy-probe full ${said//$'\n'/ }"; fi
options=$3
shift 3
if [ "$options" -gt 0 ]; then
	if said=$(timeout 60 sbatch --test-only "${@:1:options}" --wrap true 2>&1); then echo "daisy-probe submits"; else echo "daisy-probe refused ${said//$'\n'/ }"; fi
	shift "$options"
fi
for address; do
	host=${address%:*} port=${address##*:}
	host=${host#[}
	if said=$(timeout 5 bash -c 'exec 3<>"/dev/tcp/$0/$1"' "${host%]}" "$port" 2>&1); then
		echo "daisy-probe reached $address"
	else
		said=${said##*: }
		echo "daisy-probe unreached $address: ${said:-no answer within 5 s}"
	fi
done
echo "daisy-probe end"
`

// How long a probe may take from its submission on, and how long after its end what it wrote may take to be seen here.
const (
	probeTime = 5 * time.Minute
	seenTime  = 30 * time.Second
)

// A prober submits a short job for each kind of worker of a job.
type prober struct {
	job         *job.Job
	dir, worker string
	// time and seen take the place of probeTime and seenTime, if they are not 0.
	time, seen time.Duration
}

func (p *prober) findings(ctx context.Context) (list []finding) {
	if p.time == 0 {
		p.time, p.seen = probeTime, seenTime
	}
	var kinds []string
	submit, err := p.submission()
	if err != nil {
		list = append(list, is("nodes submit", missing, "the coordinator cannot be a job", err.Error()))
	}
	for i := range p.job.Tasks {
		t := &p.job.Tasks[i]
		kind := fmt.Sprint(t.Options, t.Requires.Get("gpu") > 0)
		if slices.Contains(kinds, kind) {
			continue
		}
		kinds = append(kinds, kind)
		of, err := p.probe(ctx, t, submit)
		submit = nil // once is enough
		if err != nil {
			of = append(of, is("probe of "+t.ID, missing, "it could not be made", err.Error()))
		}
		list = append(list, of...)
	}
	return list
}

// submission are the options with which a coordinator that is a job would be submitted.
func (p *prober) submission() ([]string, error) {
	l, err := slurm.New(slurm.Config{Run: someRun, Dir: string(filepath.Separator), Base: p.job.Dir})
	if err != nil {
		return nil, err
	}
	s, err := planCoordinator(l, p.job, "/", "/daisy-submit", "/dev/null", nil)
	if err != nil {
		return nil, err
	}
	return s.Argv[1 : len(s.Argv)-1], nil
}

// probe tries the workers of one task, and whether submit could be given to sbatch there.
func (p *prober) probe(ctx context.Context, t *job.Task, submit []string) (list []finding, err error) {
	check := "probe of " + t.ID
	dir, err := trialFolder(p.dir)
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	script, program, log := filepath.Join(dir, "probe.sh"), filepath.Join(dir, "daisy-worker"), filepath.Join(dir, "1.0.log")
	text, err := os.ReadFile(p.worker)
	err = errors.Join(err, os.WriteFile(program, text, 0o700), os.WriteFile(script, []byte(probeScript), 0o600)) //nolint:gosec // it is to be run
	if err != nil {
		return nil, err
	}
	tcp, addresses, err := coordinator.Reach(p.job)
	if err != nil {
		return nil, err
	}
	defer tcp.Close()
	go greet(tcp)

	cluster, err := clusterOf(p.job)
	if err != nil {
		return nil, err
	}
	l, err := slurm.New(slurm.Config{Run: strings.ToLower(rand.Text()[:8]), Begun: time.Now(), Dir: dir, Base: p.job.Dir, Cluster: cluster, Env: slurm.Environment(os.Environ()), Limit: askTime})
	if err != nil {
		return nil, err
	}
	defer func() { // whatever comes: no job of it stays
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTime)
		defer cancel()
		err = errors.Join(err, l.Close(ending))
	}()
	r := coordinator.RequestFor(p.job, t, "1", 1, nil, "")
	r.Argv = append([]string{"/bin/bash", script, program, filepath.Join(dir, "written"), strconv.Itoa(len(submit))}, append(slices.Clone(submit), addresses...)...)
	r.Env, r.LogPath = slurm.Environment(os.Environ()), func(w launcher.Worker) string { return filepath.Join(dir, "1."+strconv.Itoa(w.Element)+".log") }
	r.CPUMilli, r.MemoryBytes, r.GPUs, r.Options = 1000, 0, min(r.GPUs, 1), map[string][]string{}
	for key, value := range t.Options {
		r.Options[key] = value
	}
	if o, _, _ := slurm.ParseOptions(t.Options, func(path string) string { return inFolder(p.job.Dir, path) }); o.Time == 0 || t.Options["time"] != nil {
		r.Options["time"] = []string{"2m"} // if --time is not among the options, which would be one too many
	}
	if _, err := l.Submit(ctx, r); err != nil && !errors.Is(err, launcher.ErrUnsure) { // else it is waited for, and cancelled if it comes
		return []finding{is(check, missing, "Slurm does not take it", err.Error())}, nil
	}
	said, state := p.wait(ctx, l, log)
	return judgeProbe(check, said, state, dir, time.Now()), nil
}

// greet takes connections, so that who connects is not left without an answer.
func greet(tcp net.Listener) {
	for {
		conn, err := tcp.Accept()
		if err != nil {
			return
		}
		_ = conn.Close()
	}
}

// wait waits until the probe has written all, or cannot any more. state is what Slurm says of the job, if it was asked.
func (p *prober) wait(ctx context.Context, l *slurm.Launcher, log string) (said string, state launcher.Element) {
	ctx, cancel := context.WithTimeout(ctx, p.time)
	defer cancel()
	const askEvery = 5 * time.Second
	asked, ended := time.Now(), time.Time{}
	for {
		_, _ = os.ReadDir(filepath.Dir(log)) // network file systems look again
		text, _ := os.ReadFile(log)
		said = string(text)
		if strings.Contains(said, "daisy-probe end\n") || !ended.IsZero() && time.Since(ended) > p.seen {
			return said, state
		}
		if ended.IsZero() && time.Since(asked) >= min(askEvery, p.time/4) {
			asked = time.Now()
			if list, err := l.List(ctx); err == nil && len(list.Elements) > 0 {
				if state = list.Elements[0]; state.State == launcher.Ended {
					ended = time.Now()
				}
			}
		}
		select {
		case <-ctx.Done():
			return said, state
		case <-time.After(250 * time.Millisecond):
		}
	}
}

// judgeProbe reads what the probe wrote, and what Slurm said of its job.
func judgeProbe(check, said string, state launcher.Element, dir string, now time.Time) (list []finding) {
	lines := map[string][]string{}
	for line := range strings.Lines(said) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), "daisy-probe "); ok {
			word, value, _ := strings.Cut(rest, " ")
			lines[word] = append(lines[word], value)
		}
	}
	slurmSays := state.Word
	if state.Reason.Word != "" {
		slurmSays += ", " + state.Reason.Word + ": " + state.Reason.Plain
	}
	if lines["node"] == nil {
		switch {
		case said != "":
			return []finding{is(check, missing, "the batch script failed: "+lastLine(said), "its setup, or its folder: the nodes have to see the folder of the job file, and "+dir)}
		case state.State == launcher.Ended:
			return []finding{is(check, missing, fmt.Sprintf("a job ran on %s (%s), and nothing that it wrote is seen here", orNode(state.Node), slurmSays),
				"nodes do not see "+filepath.Dir(dir)+": keep run directories on a file system of the whole cluster (directory in [run])")}
		case state.State == launcher.Running:
			return []finding{is(check, missing, fmt.Sprintf("a job runs on %s, and nothing that it writes is seen here", orNode(state.Node)), "nodes do not see "+filepath.Dir(dir)+", or its file system is slow: keep run directories on a file system of the whole cluster")}
		case slurmSays == "":
			slurmSays = "squeue did not show it"
		}
		return []finding{is(check, warning, "it did not start in time, and was cancelled ("+slurmSays+")", "nothing was found out: try again when nodes are free")}
	}
	node := lines["node"][0]
	list = append(list, is(check, fine, "a job ran on "+node+", and sees the run directory", ""))
	switch {
	case lines["runs"] != nil:
		list = append(list, is(check+": program", fine, lines["runs"][0]+" runs there", ""))
	case lines["fails"] != nil:
		list = append(list, is(check+": program", missing, "the worker does not run there: "+lines["fails"][0], "a file system that is mounted noexec on nodes needs another directory for runs; a program of another architecture has to be built for the nodes"))
	}
	if lines["full"] != nil {
		list = append(list, is(check+": space", missing, "1 MiB cannot be written there: "+lines["full"][0], "free space, or look at your quota on that file system"))
	}
	switch {
	case lines["submits"] != nil:
		list = append(list, is("nodes submit", fine, node+" may, so that the coordinator can be a job (--coordinator job)", ""))
	case lines["refused"] != nil:
		list = append(list, is("nodes submit", warning, node+" may not: "+lines["refused"][0], "only a run with --coordinator job needs it: leave the coordinator on a login node (--detach), or change [slurm.coordinator] if that is what Slurm refuses"))
	}
	switch reached, not := lines["reached"], lines["unreached"]; {
	case reached == nil && lines["end"] != nil:
		list = append(list, is(check+": addresses", missing, "the node reaches this machine by none: "+strings.Join(not, "; "),
			"a firewall is in between, or names differ: ask the site which ports are open and write port = \"LOW-HIGH\" or addresses in [run], or run daisy-submit on a machine that nodes reach, or inside of a job"))
	case not != nil:
		list = append(list, is(check+": addresses", fine, fmt.Sprintf("reached %s; not %s", strings.Join(reached, ", "), strings.Join(not, "; ")), ""))
	case reached != nil:
		list = append(list, is(check+": addresses", fine, "reached "+strings.Join(reached, ", "), ""))
	}
	if n, err := strconv.ParseInt(strings.Join(lines["clock"], ""), 10, 64); err == nil {
		if apart := now.Sub(time.Unix(n, 0)).Abs(); apart > time.Minute { // the log may have taken some time to be seen
			list = append(list, is(check+": clock", warning, fmt.Sprintf("%s from that of %s", units.Duration(apart), node), "set the clocks: Slurm refuses who is too far off, and times in logs would be wrong"))
		}
	}
	return list
}

func orNode(node string) string {
	if node == "" {
		return "a node"
	}
	return node
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}
