package slurm

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"example.org/daisy/internal/slurmlab"
	"example.org/daisy/launcher"
	"example.org/daisy/launcher/launchertest"
)

func TestMain(m *testing.M) { launchertest.Main(m) }

// labRun is the id of the runs of these tests.
const labRun = "abcd2345"

// folder is one that alice can read and write, as on a shared file system.
func folder(t testing.TB, l *slurmlab.Lab) string {
	t.Helper()
	dir, err := os.MkdirTemp(l.Home("alice"), "run ")
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err == nil {
		err = os.Chown(dir, l.UID("alice"), -1)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// asAlice is a launcher of alice's in a lab.
func asAlice(t testing.TB, lab *slurmlab.Lab, run string, change ...func(*Config)) *Launcher {
	t.Helper()
	uid := lab.UID("alice")
	c := Config{Run: run, Begun: time.Now(), Dir: folder(t, lab), Env: lab.Environment("alice"), UID: &uid, Limit: 20 * time.Second}
	c.Env[0] = "PATH=" + lab.As("alice") + ":/usr/bin:/bin"
	for _, f := range change {
		f(&c)
	}
	l, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// polled is a Queue whose listings become statuses: what the suite expects of every launcher. It knows no patience and no doubt, which
// the fleet has.
type polled struct {
	*Launcher
	t    testing.TB
	stop chan struct{}
	done sync.WaitGroup

	mu     sync.Mutex
	watch  func(launcher.Status)
	states map[launcher.Worker]launcher.State
	ours   map[launcher.Worker]bool
	arrays map[string]int // by tag, how many elements
}

func poll(t testing.TB, l *Launcher) *polled {
	p := &polled{Launcher: l, t: t, stop: make(chan struct{}), states: map[launcher.Worker]launcher.State{}, ours: map[launcher.Worker]bool{}, arrays: map[string]int{}}
	p.done.Go(func() {
		for {
			select {
			case <-p.stop:
				return
			case <-time.After(200 * time.Millisecond):
				p.look(context.Background())
			}
		}
	})
	return p
}

func (p *polled) Watch(f func(launcher.Status)) { p.watch = f }

func (p *polled) Submit(ctx context.Context, r launcher.Request) (string, error) {
	if r.GPUs > 0 { // two other nodes have some, too
		r.Options = map[string][]string{"nodelist": {"n3"}}
	}
	array, err := p.Launcher.Submit(ctx, r)
	if err == nil {
		p.Bind(r.Tag, array)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.arrays[r.Tag] = r.Count
	}
	return array, err
}

func (p *polled) Cancel(ctx context.Context, workers ...launcher.Worker) error {
	p.mu.Lock()
	for _, w := range workers {
		if p.states[w] != launcher.Ended {
			p.ours[w] = true
		}
	}
	p.mu.Unlock()
	return p.Launcher.Cancel(ctx, workers...)
}

func (p *polled) Kill(ctx context.Context, workers ...launcher.Worker) error {
	return p.Cancel(ctx, workers...)
}

func (p *polled) Close(ctx context.Context) error {
	p.mu.Lock()
	for tag, n := range p.arrays {
		for i := range n {
			if w := (launcher.Worker{Tag: tag, Element: i}); p.states[w] != launcher.Ended {
				p.ours[w] = true
			}
		}
	}
	p.mu.Unlock()
	err := p.Launcher.Close(ctx)
	select {
	case <-p.stop:
		return err
	default:
		close(p.stop)
	}
	p.done.Wait()
	p.look(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	for tag, n := range p.arrays { // what was pending leaves no trace
		for i := range n {
			p.tell(launcher.Status{Worker: launcher.Worker{Tag: tag, Element: i}, State: launcher.Ended, End: launcher.End{Cause: launcher.NeverStarted}})
		}
	}
	return err
}

func (p *polled) look(ctx context.Context) {
	list, err := p.List(ctx)
	if err != nil {
		p.t.Logf("squeue: %v", err)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	seen := map[launcher.Worker]bool{}
	for _, e := range list.Elements {
		for i := e.First; i <= e.Last; i++ {
			w := launcher.Worker{Tag: e.Tag, Element: i}
			seen[w] = true
			if e.State != launcher.Unknown {
				p.tell(launcher.Status{Worker: w, State: e.State, Node: e.Node, End: e.End})
			}
		}
	}
	for w, ours := range p.ours {
		if ours && !seen[w] && p.states[w] == launcher.Pending {
			p.tell(launcher.Status{Worker: w, State: launcher.Ended, End: launcher.End{Cause: launcher.NeverStarted}})
		}
	}
}

func (p *polled) tell(s launcher.Status) {
	if s.State <= p.states[s.Worker] {
		return
	}
	p.states[s.Worker] = s.State
	s.End.Ours = s.State == launcher.Ended && p.ours[s.Worker]
	p.watch(s)
}

// own is this test's program where users of the lab can run it.
func own(t testing.TB, lab *slurmlab.Lab) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	from, err := os.Open(self)
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	path := filepath.Join(lab.Dir, "worker=program")
	to, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	if _, err := io.Copy(to, from); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestOnSlurmTheLauncherConforms(t *testing.T) {
	lab := slurmlab.Start(t, slurmlab.Options{})
	n := 0
	launchertest.Run(t, func(t *testing.T) launcher.Launcher {
		n++
		return poll(t, asAlice(t, lab, labRun+string(rune('a'+n)), func(c *Config) { c.Env = append(c.Env, "SLURM_JOB_ID=1", "SBATCH_PARTITION=nope") }))
	}, launchertest.Options{GPUs: 2, Batch: true, NodeVariable: "SLURMD_NODENAME", Dir: func(t *testing.T) string { return folder(t, lab) }, Program: own(t, lab)})
	if left := lab.Run("root", "squeue", "-h"); left != "" {
		t.Errorf("jobs are left:\n%s", left)
	}
}
