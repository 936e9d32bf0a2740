package slurm

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/daisy/launcher"
)

// request asks for workers that do nothing.
func request(count int) launcher.Request {
	return launcher.Request{
		Tag: "3", Count: count, Argv: []string{"/bin/true"}, Dir: "/", CPUMilli: 1000,
		LogPath: func(w launcher.Worker) string { return "/tmp/" + w.String() + ".log" },
	}
}

// planned is the command line for a request, without what is always there.
func planned(t *testing.T, r launcher.Request, options map[string][]string) (args []string, s Submission, err error) {
	t.Helper()
	l, err := New(Config{Run: aRun, Dir: "/runs/r/scripts", Base: t.TempDir(), Env: []string{"PATH=/bin"}})
	if err != nil {
		t.Fatal(err)
	}
	r.Options = options
	s, err = l.Plan(r, usualSite)
	if err != nil {
		return nil, s, err
	}
	always := []string{
		"sbatch", "--parsable", "--job-name=dz-" + aRun + "-3", "--output=/tmp/3.%a.log", "--open-mode=append", "--chdir=/", "--export=ALL", "--signal=B:USR1@90",
		"--nodes=1", "--ntasks=1", "--cpus-per-task=1", "--no-requeue", "/runs/r/scripts/dz-" + aRun + "-3.sbatch",
	}
	return slices.DeleteFunc(slices.Clone(s.Argv), func(a string) bool { return slices.Contains(always, a) }), s, nil
}

func TestOptionsBecomeThoseOfSbatch(t *testing.T) {
	few := request(1)
	big := request(8)
	big.CPUMilli, big.MemoryBytes, big.GPUs, big.Exclude = 2500, 3<<30+1, 2, []string{"n9"}
	filling := big
	filling.Fill = true
	three, eight := big, big
	three.Throttle, eight.Throttle = 3, 8
	for _, c := range []struct {
		r       launcher.Request
		options map[string][]string
		want    string
	}{
		{few, nil, "--array=0-0"},
		{big, nil, "--array=0-7 --cpus-per-task=3 --mem=3073M --gres=gpu:2 --exclude=n9"},
		{three, map[string][]string{"memory_option": {"mem-per-cpu"}, "gpu_option": {"gpus-per-node"}, "array_limit": {"8"}}, "--array=0-7%3 --cpus-per-task=3 --mem-per-cpu=1025M --gpus-per-node=2 --exclude=n9"},
		{eight, map[string][]string{"memory_option": {"none"}, "gres": {"shard:1", "gpu:a100"}, "array_limit": {"8"}}, "--array=0-7 --cpus-per-task=3 --gres=gpu:a100:2,shard:1 --exclude=n9"},
		{big, map[string][]string{"gres": {"gpu:a100"}, "gpu_option": {"gpus-per-node"}, "exclude": {"n[1-2]", "n4"}}, "--array=0-7 --cpus-per-task=3 --mem=3073M --gpus-per-node=a100:2 --exclude=n[1-2],n4,n9"},
		{few, map[string][]string{"partition": {"a,b"}, "account": {"acc"}, "qos": {"q"}, "time": {"90m"}, "constraint": {"a&b"}, "nodelist": {"n1"}, "reservation": {"r"}, "licenses": {"m:1", "k"}, "nice": {"-5"}, "begin": {"now+1hour"}, "hint": {"nomultithread"}},
			"--array=0-0 --time=0-01:30:00 --partition=a,b --account=acc --qos=q --constraint=a&b --nodelist=n1 --reservation=r --licenses=m:1,k --nice=-5 --begin=now+1hour --hint=nomultithread"},
		// What stands for an account is text, whatever it looks like.
		{few, map[string][]string{"account": {"00123"}}, "--array=0-0 --account=00123"},
		{few, map[string][]string{"account": {"(null)"}}, "--array=0-0 --account=(null)"},
		// Memory goes with the cores, of which a whole node has more.
		{filling, nil, "--array=0-7 --cpus-per-task=3 --mem-per-cpu=1025M --gres=gpu:2 --exclude=n9"},
		{filling, map[string][]string{"memory_option": {"mem"}}, "--array=0-7 --cpus-per-task=3 --mem=3073M --gres=gpu:2 --exclude=n9"},
		{few, map[string][]string{"arrays": {"false"}}, "--output=/tmp/3.0.log"},
		{few, map[string][]string{"requeue": {"true"}, "launch": {"srun"}, "prefix": {"lab"}}, "--job-name=lab-dz-" + aRun + "-3 --signal=USR1@90 --array=0-0 --requeue /runs/r/scripts/lab-dz-" + aRun + "-3.sbatch"},
		{few, map[string][]string{"options": {"--exclusive", "-p", "gpu", "-t2:00:00", "--comment=a b", "-n1", "--nodes=1", "--nice", "--gres=shard:1,nic:2", "-x", "n3"}},
			"--array=0-0 --gres=shard:1,nic:2 --time=0-02:00:00 --partition=gpu --exclude=n3 --nice=100 --exclusive --comment=a b"},
	} {
		args, _, err := planned(t, c.r, c.options)
		if got := strings.Join(args, " "); err != nil || got != c.want {
			t.Errorf("%v:\n got %s\nwant %s (%v)", c.options, got, c.want, err)
		}
	}
}

func TestTheScriptHasWhatTheOptionsSay(t *testing.T) {
	r := request(1)
	r.Env = []string{"A=1", "SLURM_JOB_ID=7", "SBATCH_PARTITION=x", "SLURM_CONF=/c", "odd.name=2", "DAISY_TAG=other", "PATH=/own"}
	_, s, err := planned(t, r, map[string][]string{"launch": {"srun"}, "login_env": {"true"}, "setup": {"module load cuda"}})
	if err != nil {
		t.Fatal(err)
	}
	script := string(s.Script)
	for _, want := range []string{"#!/bin/bash -l\n", "\nmodule load cuda\n", "\nexec srun ", " /usr/bin/env 'odd.name=2' nice -n 0 /bin/true\n"} {
		if !strings.Contains(script, want) {
			t.Errorf("the script lacks %q:\n%s", want, script)
		}
	}
	if got := strings.Join(s.Env, " "); got != "PATH=/own A=1 SLURM_CONF=/c DAISY_KILL_WAIT=30" {
		t.Errorf("environment %s", got)
	}
}

func TestEveryFaultOfTheOptionsIsFoundAtOnce(t *testing.T) {
	for _, c := range []struct {
		key   string
		value []string
		says  string
	}{
		{"partitoin", []string{"x"}, "unknown key"},
		{"partition", []string{"a b"}, "blank"},
		{"partition", []string{""}, "empty"},
		{"partition", []string{"a", "b"}, "takes one"},
		{"account", []string{"a\x00"}, "zero byte"},
		{"qos", []string{"a\nb"}, "line break"},
		{"time", []string{"90"}, "no unit"}, {"time", []string{"1:2:3:4"}, "wall time"}, {"time", []string{"5s"}, "less than a minute"}, {"time", []string{"-1:00"}, "wall time"}, {"time", []string{"x-1"}, "wall time"},
		{"nice", []string{"high"}, "integer"},
		{"cluster", []string{"a,b"}, "more than one"},
		{"nodelist", []string{"n1", "n2"}, "2 nodes"}, {"nodelist", []string{"n[1-4]"}, "4 nodes"}, {"nodelist", []string{"n1,n2"}, "2 nodes"}, {"options", []string{"-w", "n[1-2]"}, "2 nodes"},
		{"gres", []string{"gpu:2"}, "requires.gpu"}, {"gres", []string{"gpu:a100:2"}, "requires.gpu"}, {"gres", []string{"a,b"}, "list"}, {"gres", []string{"a::1"}, "name:type"},
		{"array_limit", []string{"0"}, "integer from 1"},
		{"arrays", []string{"yes"}, "neither"},
		{"launch", []string{"mpirun"}, "srun"}, {"memory_option", []string{"x"}, "mem-per-cpu"}, {"gpu_option", []string{"x"}, "gres"},
		{"prefix", []string{"a b"}, "blank"}, {"prefix", []string{"é"}, "letters"}, {"prefix", []string{strings.Repeat("p", 29)}, "28"},
		{"setup", []string{"if true; then"}, "not valid shell"},
		{"template", []string{"none.tmpl"}, "no file"},
		{"wrap", []string{""}, "program"},
		{"options", []string{"--array=0-3"}, "reserved"}, {"options", []string{"-a", "0-3"}, "reserved"}, {"options", []string{"--arr=1"}, "in full"}, {"options", []string{"-J", "x"}, "reserved"},
		{"options", []string{"--wrap=x"}, "setup"}, {"options", []string{"--export=NONE"}, "env"}, {"options", []string{"-N2"}, "one node"}, {"options", []string{"--ntasks=4"}, "one task"}, {"options", []string{"-n", "4"}, "one task"},
		{"options", []string{"--hold"}, "never starts"}, {"options", []string{"-H"}, "never starts"}, {"options", []string{"--mem=4G"}, "requires.memory"}, {"options", []string{"-c", "4"}, "requires.cpu"}, {"options", []string{"-G1"}, "requires.gpu"},
		{"options", []string{"-M", "west"}, "cluster"}, {"options", []string{":"}, "several parts"}, {"options", []string{"gpu"}, "no option"}, {"options", []string{"--partition gpu"}, "blank"}, {"options", []string{"--exclusive", "script.sh"}, "no option"},
		{"options", []string{"-p", "a", "--partition=b"}, "give one"}, {"options", []string{"--signal=TERM@5"}, "reserved"}, {"options", []string{"--uid=0"}, "reserved"}, {"options", []string{"--open-mode=truncate"}, "reserved"},
		{"options", []string{"--time=7"}, "no unit"}, {"options", []string{"--requeue"}, "key requeue"}, {"options", []string{"--test-only"}, "reserved"}, {"options", []string{"-"}, "no option"}, {"options", []string{"--"}, "no option"},
	} {
		_, faults, _ := ParseOptions(map[string][]string{c.key: c.value}, func(p string) string { return "/nowhere/" + p })
		if len(faults) != 1 || !strings.Contains(faults[0].Text, c.says) {
			t.Errorf("%s = %q: %+v, want one about %q", c.key, c.value, faults, c.says)
		}
	}
	for range 20 { // of several that it can be, the same each time
		if _, faults, _ := ParseOptions(map[string][]string{"options": {"--gpu=1"}}, nil); len(faults) != 1 || !strings.Contains(faults[0].Text, "can be read as --gpus, which") {
			t.Fatalf("--gpu: %+v", faults)
		}
	}
	_, faults, _ := ParseOptions(map[string][]string{"time": {"9"}, "arrays": {"x"}, "options": {"--hold", "ok", "--array=1"}, "partition": {"p"}}, nil)
	if len(faults) != 5 || faults[2].Item != 1 {
		t.Errorf("%d faults: %+v", len(faults), faults)
	}
	_, faults, _ = ParseOptions(map[string][]string{"options": {"-p", "a"}, "partition": {"b"}}, nil)
	if len(faults) != 1 || !strings.Contains(faults[0].Text, "there is the key partition too") {
		t.Errorf("an option and its key: %+v", faults)
	}
}

func TestAnOwnTemplateMayNotHaveReservedDirectives(t *testing.T) {
	dir := t.TempDir()
	write := func(text string) map[string][]string {
		path := filepath.Join(dir, "own.tmpl")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return map[string][]string{"template": {"own.tmpl"}}
	}
	at := func(p string) string { return filepath.Join(dir, p) }
	_, faults, warnings := ParseOptions(write("#!/bin/bash\n#SBATCH --array=1-4\n#SBATCH -p gpu --ntasks 2\n{{.Setup}}\nexec {{.Worker}}\n"), at)
	if len(faults) != 2 || !strings.HasPrefix(faults[0].Text, "line 2: --array=1-4 is reserved") || !strings.HasPrefix(faults[1].Text, "line 3: --ntasks=2 is reserved") || warnings != nil {
		t.Errorf("faults %+v, warnings %+v", faults, warnings)
	}
	// As Slurm 22.05 reads them: quotes hide no option, and are part of none.
	_, faults, _ = ParseOptions(write("#!/bin/bash\n#SBATCH --comment=\"my run\" -C 'a&b' --mail-user=\"a@b\" # \"note\"\n#SBATCH \"--array=0-3\"\n{{.Setup}}\nexec {{.Worker}}\n"), at)
	if len(faults) != 1 || !strings.HasPrefix(faults[0].Text, "line 3: --array=0-3 is reserved") {
		t.Errorf("with quotes: %+v", faults)
	}
	o, faults, warnings := ParseOptions(write("#!/bin/bash\n#SBATCH -p gpu\n{{.Setup}}\n{{.Worker}}\n"), at)
	if faults != nil || len(warnings) != 1 || o.Script == nil {
		t.Errorf("faults %+v, warnings %+v", faults, warnings)
	}
}

// TestMailOfWorkersIsPassedOnWithAWarning: R09.
func TestMailOfWorkersIsPassedOnWithAWarning(t *testing.T) {
	o, faults, warnings := ParseOptions(map[string][]string{"options": {"--mail-type=ALL,ARRAY_TASKS", "--mail-user=a@b"}}, nil)
	if faults != nil || !slices.Equal(o.Extra, []string{"--mail-type=ALL,ARRAY_TASKS", "--mail-user=a@b"}) {
		t.Errorf("%v, faults %+v", o.Extra, faults)
	}
	if len(warnings) != 2 || !strings.Contains(warnings[0].Text, "with ARRAY_TASKS each of them sends mail of its own; for a message about the run use on_end") ||
		strings.Contains(warnings[1].Text, "ARRAY_TASKS") {
		t.Errorf("warnings %+v", warnings)
	}
}

func TestDirectivesThatSbatchDoesNotReadAreFaults(t *testing.T) {
	dir := t.TempDir()
	for text, want := range map[string]string{
		"#!/bin/bash\n# comment\n\n#SBATCH -p gpu\n{{.Setup}}\nexec {{.Worker}}\n":                                "",
		"#!/bin/bash\n{{if .Login}}\n# of a login shell\n{{end}}\n#SBATCH -p gpu\n{{.Setup}}\nexec {{.Worker}}\n": "",
		"#!/bin/bash\n#SBATCH -p gpu\nset -e\n#SBATCH -t 5\n{{.Setup}}\nexec {{.Worker}}\n":                       "line 4: sbatch does not read #SBATCH behind the first command",
		"#!/bin/bash\n{{.Setup}}\n  #SBATCH -t 5\nexec {{.Worker}}\n":                                             "line 3: sbatch does not read",
	} {
		if err := os.WriteFile(filepath.Join(dir, "own.tmpl"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, faults, _ := ParseOptions(map[string][]string{"template": {"own.tmpl"}}, func(p string) string { return filepath.Join(dir, p) })
		if (len(faults) == 0) != (want == "") || want != "" && !strings.HasPrefix(faults[0].Text, want) {
			t.Errorf("%q: faults %+v, want %q", text, faults, want)
		}
	}
}

func TestWallTimesAreReadAsPeopleAndAsSlurmWriteThem(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"90m": 90 * time.Minute, "12h": 12 * time.Hour, "2d": 48 * time.Hour, "1:30:00": 90 * time.Minute, "30:00": 30 * time.Minute, "2-12": 60 * time.Hour, "2-12:30": 60*time.Hour + 30*time.Minute,
		"1-00:00:30": 24*time.Hour + 30*time.Second, "100:00:00": 100 * time.Hour,
	} {
		if got, err := ParseTime(text); got != want || err != nil {
			t.Errorf("%s: %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"200000-00:00:00", "106752-00:00", "40000-00:00", "4000000-00:00:00", "36501d"} {
		if got, err := ParseTime(text); err == nil {
			t.Errorf("%s is %v", text, got)
		}
	}
	for d, want := range map[time.Duration]string{time.Minute: "0-00:01:00", 61 * time.Second: "0-00:02:00", 60 * time.Hour: "2-12:00:00"} {
		if got := writeTime(d); got != want {
			t.Errorf("%v is written %s, want %s", d, got, want)
		}
	}
}

func TestALongValueIsNotRepeatedWhole(t *testing.T) {
	long := strings.Repeat("x", 10_000)
	for _, key := range Keys() {
		if key == "template" { // the system's error has the path
			continue
		}
		_, faults, _ := ParseOptions(map[string][]string{key: {long}}, func(p string) string { return p })
		for _, f := range faults {
			if len(f.Text) > 1000 {
				t.Errorf("%s: %d bytes: %.100s", key, len(f.Text), f.Text)
			}
		}
	}
}

func FuzzTime(f *testing.F) {
	for _, s := range []string{"90m", "1:30:00", "2-12", "30:00", "-"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		d, err := ParseTime(s)
		if err != nil {
			return
		}
		again, err := ParseTime(writeTime(d))
		if err != nil || again < d || again >= d+time.Minute {
			t.Errorf("%q is %v, written %s, read back as %v, %v", s, d, writeTime(d), again, err)
		}
	})
}

func FuzzOptions(f *testing.F) {
	f.Add("--exclusive", "-p", "gpu")
	f.Add("-n", "1", "--nice")
	f.Fuzz(func(t *testing.T, a, b, c string) {
		o, faults, _ := ParseOptions(map[string][]string{"options": {a, b, c}}, nil)
		if faults != nil {
			return
		}
		// What is passed on reads as the same options, and as no reserved one.
		for _, x := range o.Extra {
			opt, used, err := readOption([]string{x})
			if err != nil || used != 1 || reserved(opt) != nil {
				t.Errorf("%q %q %q passes on %q", a, b, c, x)
			}
		}
	})
}
