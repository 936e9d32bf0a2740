// Package slurm asks Slurm for workers, which are elements of job arrays: it renders their batch scripts, runs sbatch, squeue, scontrol,
// scancel and sacct, and reads what they say, for Slurm 18 to 25. It decides nothing: it is a launcher.Queue.
//
// Every submission has a name that holds the run and the tag (name.go), by which its jobs are found again. What is not of the run
// is never touched. Commands run with a time limit and an environment in which nothing of a surrounding job is left (command.go).
package slurm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"example.org/daisy/launcher"
)

// Config says for whom the launcher works and where its files are.
type Config struct {
	// Run is the id of the run, part of every job's name: letters and digits, the same over resumes.
	Run string
	// Begun is when the run began, the first time.
	Begun time.Time
	// Dir is a folder, on a file system that the nodes share, that takes the scripts and the lock of submissions. It must exist.
	Dir string
	// Base is where relative paths of the options start.
	Base string
	// Env is the environment of the commands, and of sbatch what the job's own is added to; see Environment.
	Env []string
	// Cluster is the cluster that is asked, "" for the default.
	Cluster string
	// UID is the user whose jobs they are; nil = this process's.
	UID *int
	// Limit takes the place of the longest times that commands get, if it is not 0.
	Limit time.Duration
}

// Launcher implements launcher.Queue.
type Launcher struct {
	cfg        Config
	uid        int
	user       string
	commandEnv []string
	scripts    string

	// changing is full while a call changes something: one at a time.
	changing chan struct{}

	mu       sync.Mutex
	lateTo   time.Time // until then a submission without an answer may still appear
	closed   bool
	noArrays bool // the site has none
	site     *Site
	arrays   map[string]string     // by tag
	notes    map[string]submission // by tag
}

var _ launcher.Queue = (*Launcher)(nil)

// New makes a launcher. It asks nobody anything.
func New(c Config) (*Launcher, error) {
	if err := checkTag(c.Run); err != nil || !filepath.IsAbs(c.Dir) {
		return nil, fmt.Errorf("a launcher for Slurm needs a run of letters and digits and an absolute folder, not %q and %q", c.Run, c.Dir)
	}
	l := &Launcher{cfg: c, uid: os.Getuid(), scripts: c.Dir, changing: make(chan struct{}, 1), arrays: map[string]string{}, notes: map[string]submission{}}
	if c.UID != nil {
		l.uid = *c.UID
	}
	l.user = strconv.Itoa(l.uid)
	if u, err := user.LookupId(l.user); err == nil {
		l.user = u.Username
	}
	// The last three decide how squeue writes lists, times and words.
	l.commandEnv = append(append([]string{}, c.Env...), "SLURM_BITSTR_LEN=0", secondsFormat, "LC_ALL=C")
	return l, nil
}

// change waits until no other call changes something, for as long as there is time.
func (l *Launcher) change(ctx context.Context) (done func(), err error) {
	select {
	case l.changing <- struct{}{}:
		return func() { <-l.changing }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("another call that changes something has no answer yet: %w", context.Cause(ctx))
	}
}

// secondsFormat has commands write times as seconds since 1970, which have no zone.
const secondsFormat = "SLURM_TIME_FORMAT=%s"

// Name is "slurm".
func (l *Launcher) Name() string { return "slurm" }

// Defaults are the properties of every launcher for Slurm.
var Defaults = launcher.Properties{Queue: true, IdleTimeout: 2 * time.Minute, AbandonAfter: 15 * time.Minute}

// Properties: many nodes, ends that are known late, 2 min of patience with idle workers, 15 min with silent ones, and what the site
// gives messages, once Check has asked for it.
func (l *Launcher) Properties() launcher.Properties {
	p := Defaults
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.site != nil {
		p.MessageTimeout = l.site.MessageTimeout
	}
	return p
}

// Watch does nothing: a Queue is asked.
func (l *Launcher) Watch(func(launcher.Status)) {}

// Bind says which array a tag stands for.
func (l *Launcher) Bind(tag, array string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.arrays[tag] = array
}

// needed are the commands without which nothing works.
var needed = []string{"sbatch", "squeue", "scancel", "scontrol"}

// Check looks for the commands of Slurm and asks its controller once. All that is missing is told at once.
func (l *Launcher) Check(ctx context.Context) error {
	if err := l.findAll(needed); err != nil {
		return err
	}
	if info, err := os.Stat(l.scripts); err != nil {
		return fmt.Errorf("the folder for batch scripts is not there: %w", err)
	} else if !info.IsDir() {
		return fmt.Errorf("%s is to be the folder for batch scripts, and is a file", l.scripts)
	}
	if _, err := l.Site(ctx); err != nil {
		if Unconfigured(err) {
			return fmt.Errorf("%w. %s", err, HowToConfigure)
		}
		return fmt.Errorf("the controller of Slurm does not answer: %w. Look at it with: scontrol ping", err)
	}
	return nil
}

// Close ends every job of the run that is left, and waits until they are gone. Jobs that Slurm is cleaning up after are waited for as
// long as there is time, and are no error: on a node that has failed that takes until somebody looks at it. Slurm is asked after 1 s, 2 s and
// so on, at most every 5 s, and at most three times to end what is left of an array, a second between two calls.
func (l *Launcher) Close(ctx context.Context) error {
	l.mu.Lock()
	l.closed = true
	used := len(l.notes) > 0 || len(l.arrays) > 0
	l.mu.Unlock()
	if !used {
		return nil
	}
	return l.EndAll(ctx)
}

// EndAll is Close for who has asked for none of the workers itself.
func (l *Launcher) EndAll(ctx context.Context) error {
	err := endAll(ctx, l.live, l.cancelArrays)
	if errors.Is(err, errNotKnown) {
		err = fmt.Errorf("%w; squeue -u %s shows them (names with dz-%s)", err, l.user, l.cfg.Run)
	}
	return err
}

var errNotKnown = errors.New("it is not known whether jobs of this run are left, as Slurm gives no answer that can be used")

// endAll cancels what live says is left, arrays with their tags, until nothing is.
func endAll(ctx context.Context, live func(context.Context) (left map[string]string, ending bool, err error), cancel func(ctx context.Context, left map[string]string, arrays []string) error) error {
	var before map[string]string
	tries := map[string]int{}
	for asked := 1; ; asked++ {
		left, ending, err := live(ctx)
		if err != nil && ctx.Err() != nil && before != nil {
			left, err = before, nil // the time was over while it was asked
		}
		before = left
		if err == nil && len(left) == 0 && !ending {
			return nil
		}
		// Once more when it has had the time to go: what was submitted while it was cancelled is missed the first time.
		due := slices.DeleteFunc(slices.Sorted(maps.Keys(left)), func(array string) bool {
			n := tries[array]
			return n >= closeTries || n > 0 && asked%closeAgain != 0
		})
		together := 1
		if len(due) > closeSingly {
			together = closeTogether
		}
		for i := 0; i < len(due); i += together {
			if i > 0 && !rest(ctx, closeGap) {
				break
			}
			group := due[i:min(i+together, len(due))]
			for _, array := range group {
				tries[array]++
			}
			err = errors.Join(err, cancel(ctx, left, group))
		}
		if !rest(ctx, min(time.Duration(asked)*closeGap, longestCloseGap)) {
			if err == nil && len(left) == 0 {
				return nil
			}
			if len(left) == 0 {
				return fmt.Errorf("%w: %w", errNotKnown, err)
			}
			return errors.Join(fmt.Errorf("jobs %s have not ended: %w", keys(left), context.Cause(ctx)), err)
		}
	}
}

const (
	// closeGap is between two calls of Close that change something, and before its second question; longestCloseGap between two questions.
	closeGap, longestCloseGap = time.Second, 5 * time.Second
	// closeTries is how often it ends an array, once in closeAgain questions.
	closeTries, closeAgain = 3, 4
	// Up to closeSingly arrays are ended one by one, by their names too; of more, closeTogether with one call.
	closeSingly, closeTogether = 5, 200
)

// cancelArrays ends arrays of the run that a listing has just shown to be left, with their tags.
func (l *Launcher) cancelArrays(ctx context.Context, left map[string]string, arrays []string) error {
	if len(arrays) == 1 {
		return l.CancelArray(ctx, left[arrays[0]], arrays[0])
	}
	return l.scancel(ctx, append([]string{"-u", l.user}, arrays...)...)
}

// rest waits, and reports whether there is time left.
func rest(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// live are the arrays of the run of which something waits or runs, with their tags, and whether others are on their way out, or may be on their way in.
func (l *Launcher) live(ctx context.Context) (left map[string]string, ending bool, err error) {
	list, err := l.List(ctx)
	l.mu.Lock()
	ending = time.Now().Before(l.lateTo)
	l.mu.Unlock()
	left = map[string]string{}
	for _, e := range list.Elements {
		switch {
		case e.State == launcher.Ended || e.End.Cause == launcher.NodeFailed:
		case e.Word == "COMPLETING" || e.Word == "STAGE_OUT":
			ending = true
		default:
			left[e.Array] = e.Tag
		}
	}
	return left, ending, err
}
