package slurm

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// An option is one option of sbatch: its long name where it is known, else the letter, and its value.
type option struct {
	name, value string
	hasValue    bool
}

// String is the option as one word of a command line.
func (o option) String() string {
	dash := "--"
	if len(o.name) == 1 {
		dash = "-"
		if o.hasValue {
			return dash + o.name + o.value
		}
	}
	if o.hasValue {
		return dash + o.name + "=" + o.value
	}
	return dash + o.name
}

// short are the letters of options that matter here.
var short = map[byte]string{
	'a': "array", 'A': "account", 'b': "begin", 'B': "extra-node-info", 'c': "cpus-per-task", 'C': "constraint", 'd': "dependency", 'D': "chdir", 'e': "error",
	'F': "nodefile", 'G': "gpus", 'H': "hold", 'i': "input", 'J': "job-name", 'k': "no-kill", 'L': "licenses", 'm': "distribution", 'M': "clusters", 'n': "ntasks",
	'N': "nodes", 'o': "output", 'O': "overcommit", 'p': "partition", 'q': "qos", 'Q': "quiet", 's': "oversubscribe", 'S': "core-spec", 't': "time",
	'v': "verbose", 'V': "version", 'w': "nodelist", 'W': "wait", 'x': "exclude", 'h': "help",
}

// flags are the known options that have no value of their own, or one only behind "=".
var flags = []string{
	"hold", "no-kill", "overcommit", "quiet", "oversubscribe", "verbose", "version", "wait", "help", "usage", "parsable", "requeue", "no-requeue", "test-only",
	"contiguous", "exclusive", "get-user-env", "ignore-pbs", "kill-on-invalid-dep", "nice", "reboot", "spread-job", "use-min-nodes",
}

// keyed are the options that have a key of their own; given among the options they count as that key.
var keyed = map[string]string{
	"partition": "partition", "account": "account", "qos": "qos", "time": "time", "nodelist": "nodelist", "constraint": "constraint", "gres": "gres",
	"exclude": "exclude", "reservation": "reservation", "nice": "nice", "licenses": "licenses", "begin": "begin", "hint": "hint",
}

// refused are the options that would break the launcher, each with what to do instead.
var refused = map[string]string{
	"array": "the launcher makes the arrays; max_workers of the task says how many", "job-name": "jobs are found again by their names; use the key prefix",
	"output": "logs of workers are in the run directory", "error": "logs of workers are in the run directory", "input": "a worker reads nothing",
	"export": "use env of the task", "export-file": "use env of the task", "get-user-env": "use the key login_env", "requeue": "use the key requeue", "no-requeue": "use the key requeue",
	"open-mode": "logs are appended to", "parsable": "it is always given", "wait": "the launcher must not wait", "test-only": "nothing would be submitted", "wrap": "use the key setup",
	"chdir": "workers run in the folder of the job file", "signal": "the launcher needs it", "hold": "a held job never starts", "uid": "jobs are yours", "gid": "jobs are yours",
	"clusters": "use the key cluster", "cluster": "use the key cluster", "help": "nothing would be submitted", "usage": "nothing would be submitted", "version": "nothing would be submitted",
	"cpus-per-task": "use requires.cpu and slots of the task", "mem": "use requires.memory of the task", "mem-per-cpu": "use requires.memory of the task and the key memory_option",
	"mem-per-gpu": "use requires.memory of the task", "gpus": "use requires.gpu of the task", "gpus-per-node": "use requires.gpu of the task and the key gpu_option",
	"gpus-per-task": "use requires.gpu of the task", "gpus-per-socket": "use requires.gpu of the task", "cpus-per-gpu": "use requires.cpu of the task",
	"ntasks-per-node": "a worker is one task", "ntasks-per-core": "a worker is one task", "ntasks-per-socket": "a worker is one task", "ntasks-per-gpu": "a worker is one task",
	"het-group": "a worker is one job", "quiet": "its messages are needed",
}

// readOption reads one option from the front of words and how many of them it takes.
func readOption(words []string) (o option, used int, err error) {
	w := words[0]
	next := func() bool { return len(words) > 1 && !strings.HasPrefix(words[1], "-") }
	switch {
	case strings.ContainsAny(w, " \t") && !strings.Contains(strings.SplitN(w, " ", 2)[0], "="):
		return o, 1, fmt.Errorf("%s has a blank in it; write an option with its value as one item, as in \"--partition=gpu\"", clip(w))
	case w == ":":
		return o, 1, fmt.Errorf("\":\" makes a job of several parts, and a worker is one job")
	case w == "--" || w == "-" || !strings.HasPrefix(w, "-"):
		return o, 1, fmt.Errorf("%s is no option of sbatch: those begin with - or --, and values stand behind \"=\"", clip(w))
	case strings.HasPrefix(w, "--"):
		o.name, o.value, o.hasValue = strings.Cut(w[2:], "=")
	default:
		o.name, o.value = w[1:2], w[2:]
		if long, known := short[w[1]]; known {
			o.name = long
		}
		o.hasValue = o.value != ""
	}
	if o.hasValue || !next() {
		return o, 1, nil
	}
	if slices.Contains(flags, o.name) {
		return o, 1, nil // what follows is judged by itself
	}
	o.value, o.hasValue = words[1], true
	return o, 2, nil
}

// reserved says why an option cannot be passed on, nil if it can.
func reserved(o option) error {
	if why, bad := refused[o.name]; bad {
		return fmt.Errorf("%s is reserved: %s", o, why)
	}
	switch o.name {
	case "ntasks", "nodes":
		if o.value != "1" && o.value != "1-1" {
			return fmt.Errorf("%s is reserved: a worker is one task on one node, and max_workers says how many there are", o)
		}
	}
	// sbatch takes the beginning of a name for the name.
	for _, name := range slices.Sorted(maps.Keys(refused)) {
		if _, isKeyed := keyed[o.name]; !isKeyed && len(o.name) > 1 && strings.HasPrefix(name, o.name) && !slices.Contains(whole, o.name) {
			return fmt.Errorf("%s can be read as --%s, which is reserved; write options in full", o, name)
		}
	}
	return nil
}

// mailOfEach says that an option has every worker send mail, which an array does only if it is told to.
func mailOfEach(o option) string {
	if strings.Contains(strings.ToUpper(o.value), "ARRAY_TASKS") {
		return ", and with ARRAY_TASKS each of them sends mail of its own"
	}
	return ""
}

// whole are options that the beginning of a reserved one is in full.
var whole = []string{"ntasks", "nodes"}

// absorb takes the options apart: those that have a key go to it, the others are passed on.
func (p *parsing) absorb(o *Options) {
	words := p.given["options"]
	given := make(map[string][]string, len(p.given))
	for k, v := range p.given {
		given[k] = v
	}
	from := map[string]string{} // keys that an option gave
	for i := 0; i < len(words); {
		opt, used, err := readOption(words[i:])
		if err == nil {
			err = reserved(opt)
		}
		key, isKeyed := keyed[opt.name]
		_, twice := given[key]
		switch {
		case err != nil:
			p.fail("options", i, "%v", err)
		case opt.name == "ntasks" || opt.name == "nodes": // 1, which is always given
		case isKeyed && twice && from[key] != "":
			p.fail("options", i, "%s comes after %s; give one of them", opt, from[key])
		case isKeyed && twice:
			p.fail("options", i, "%s, and there is the key %s too; give one of them", opt, key)
		case isKeyed:
			from[key] = opt.String()
			given[key] = []string{opt.value}
			if key == "nice" && !opt.hasValue {
				given[key] = []string{"100"} // what sbatch takes
			}
			if slices.Contains([]string{"gres", "licenses"}, key) {
				given[key] = strings.Split(opt.value, ",")
			}
		default:
			o.Extra = append(o.Extra, opt.String())
			if strings.HasPrefix(opt.name, "mail-") {
				p.warn("options", i, "%s: workers end as a matter of course, and there are many%s; for a message about the run use on_end", opt, mailOfEach(opt))
			}
		}
		i += used
	}
	p.given = given
}
