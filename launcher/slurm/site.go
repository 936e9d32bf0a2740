package slurm

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Site is what the configuration of a cluster says.
type Site struct {
	// Version is that of Slurm, Cluster the name of the cluster.
	Version, Cluster string
	// KillWait is the time between SIGTERM and SIGKILL, MessageTimeout what a message to the controller may take, MinJobAge how long
	// ended jobs stay known.
	KillWait, MessageTimeout, MinJobAge time.Duration
	// MaxArraySize is one more than the largest element of an array, 0 if not known.
	MaxArraySize int
	// SlurmUID is the user that Slurm itself runs as, -1 if not known.
	SlurmUID int
	// Munge: it is munge that says who a user is, on MungeSocket if that is not the usual one.
	Munge       bool
	MungeSocket string
	// Memory is what holds for partitions that say nothing else.
	Memory MemoryLimits
}

// usualSite is what Slurm has where nobody changed it.
var usualSite = Site{KillWait: 30 * time.Second, MessageTimeout: 10 * time.Second, MinJobAge: 300 * time.Second, SlurmUID: -1}

// Site asks for the configuration, once.
func (l *Launcher) Site(ctx context.Context) (Site, error) {
	l.mu.Lock()
	known := l.site
	l.mu.Unlock()
	if known != nil {
		return *known, nil
	}
	got, err := l.run(ctx, "scontrol", l.on("show", "config")...)
	if err != nil {
		return usualSite, err
	}
	s := parseSite(got.stdout)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.site = &s
	l.noArrays = l.noArrays || s.MaxArraySize == 1
	return s, nil
}

// parseSite reads "scontrol show config"; what it does not say is as usual.
func parseSite(answer string) Site {
	s := usualSite
	for line := range strings.Lines(answer) {
		key, value, ok := strings.Cut(line, "=")
		if !ok {
			continue
		}
		value = strings.TrimSpace(value)
		word, _, _ := strings.Cut(value, " ")
		seconds := func(into *time.Duration) {
			if n, err := number(word); err == nil {
				*into = time.Duration(n) * time.Second
			}
		}
		switch strings.TrimSpace(key) {
		case "SLURM_VERSION":
			s.Version = word
		case "ClusterName":
			s.Cluster = word
		case "KillWait":
			seconds(&s.KillWait)
		case "MessageTimeout":
			seconds(&s.MessageTimeout)
		case "MinJobAge":
			seconds(&s.MinJobAge)
		case "MaxArraySize":
			if n, err := strconv.Atoi(word); err == nil && n > 0 {
				s.MaxArraySize = n
			}
		case "SlurmUser": // "slurm(64030)"
			_, id, _ := strings.Cut(word, "(")
			if n, err := strconv.Atoi(strings.TrimSuffix(id, ")")); err == nil {
				s.SlurmUID = n
			}
		case "AuthType":
			s.Munge = word == "auth/munge"
		case "AuthInfo": // "socket=/run/munge/munge.socket.2,cred_expire=10"
			for part := range strings.SplitSeq(word, ",") {
				if path, ok := strings.CutPrefix(part, "socket="); ok {
					s.MungeSocket = path
				}
			}
		default:
			s.Memory.read(strings.TrimSpace(key), word)
		}
	}
	return s
}

// on adds the cluster to the arguments of a command other than sbatch.
func (l *Launcher) on(args ...string) []string {
	if l.cfg.Cluster == "" {
		return args
	}
	return append([]string{"-M", l.cfg.Cluster}, args...)
}

func keys(m map[string]string) string {
	return strings.Join(slices.Sorted(maps.Keys(m)), ", ")
}
