package jobfile_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.org/daisy/internal/job"
	"example.org/daisy/internal/jobfile"
)

// slurmTask is a task that is right, without its Slurm options.
const slurmTask = `[[task]]
id = "ID"
total = { offset = [0], shape = [30] }
block = { shape = [10] }
run = { command = ["true", "{block_id}"] }
max_workers = 3
`

// loadSlurm loads a job file with tasks a and b and what stands in slurm behind each.
func loadSlurm(t *testing.T, shared, a, b string, sets []string, o jobfile.Options) (*job.Job, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "job.toml")
	text := "[run]\nlauncher = \"slurm\"\n" + shared + "\n" + strings.Replace(slurmTask, "ID", "a", 1) + a + "\n" + strings.Replace(slurmTask, "ID", "b", 1) + b + "\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	j, err := jobfile.Load(file, sets, o)
	if err != nil {
		err = errorsOf(strings.ReplaceAll(err.Error(), filepath.Dir(file)+"/", ""))
	}
	return j, err
}

type errorsOf string

func (e errorsOf) Error() string { return string(e) }

func TestOptionsOfSlurmReachTheTaskAndThoseOfAllStandBelowItsOwn(t *testing.T) {
	j, err := loadSlurm(t, `[slurm]
partition = "cpu"
gres = ["shard:1", "nic:2"]
nice = 5
login_env = true
`, `[task.slurm]
partition = "gpu"
options = ["--exclusive"]
`, "", []string{"task.b.slurm.account=2026", "slurm.qos=long"}, jobfile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	common := map[string][]string{"gres": {"shard:1", "nic:2"}, "nice": {"5"}, "login_env": {"true"}, "qos": {"long"}}
	want := func(more map[string][]string) map[string][]string {
		for k, v := range common {
			more[k] = v
		}
		return more
	}
	if d := cmp.Diff(want(map[string][]string{"partition": {"gpu"}, "options": {"--exclusive"}}), j.Tasks[0].Options); d != "" {
		t.Errorf("task a (-want +got):\n%s", d)
	}
	if d := cmp.Diff(want(map[string][]string{"partition": {"cpu"}, "account": {"2026"}}), j.Tasks[1].Options); d != "" {
		t.Errorf("task b (-want +got):\n%s", d)
	}
	if j.Tasks[0].LauncherClass() == j.Tasks[1].LauncherClass() {
		t.Error("tasks with other options are of one class")
	}
	if j.Listen != "0.0.0.0" {
		t.Errorf("the coordinator listens on %s, which nodes cannot reach", j.Listen)
	}
}

func TestDefaultsOfTheUserStandBelowTheOptionsOfTheJob(t *testing.T) {
	below := []jobfile.Below{{Path: "daisy.toml", Text: "[task.slurm]\naccount = \"mine\"\npartition = \"debug\"\n"}}
	j, err := loadSlurm(t, "[slurm]\npartition = \"cpu\"", "", "", nil, jobfile.Options{Below: below})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(map[string][]string{"account": {"mine"}, "partition": {"cpu"}}, j.Tasks[1].Options); d != "" {
		t.Errorf("options (-want +got):\n%s", d)
	}
}

func TestWhatIsWrongWithOptionsOfSlurmIsSaidOnceAtItsLine(t *testing.T) {
	_, err := loadSlurm(t, `[slurm]
partition = 7
acount = "x"
qos = "no"
`, `[task.slurm]
nice = "x"
wrap = "apptainer exec 'a b'"
exclude = [1]
options = ["--a", "--array=1"]
requeue = 1
`, `slurm = 4
`, nil, jobfile.Options{CheckSlurm: func(_ string, o map[string][]string) (faults, warnings []jobfile.OptionFault) {
		if o["qos"] != nil {
			faults = append(faults, jobfile.OptionFault{Key: "qos", Item: -1, Text: "no such"})
		}
		if o["options"] != nil {
			faults = append(faults, jobfile.OptionFault{Key: "options", Item: 1, Text: "reserved"})
		}
		return faults, nil
	}})
	want := strings.TrimSpace(`
job.toml:4: slurm: partition: found the integer 7, wanted a string
job.toml:5: slurm: unknown key "acount"; did you mean "account"?
job.toml:6: slurm: qos: no such
job.toml:15: task "a": slurm.nice: found the string "x", wanted an integer
job.toml:16: task "a": slurm.wrap: "apptainer exec 'a b'" has characters of a shell, which does not read it; write a list of words, as in ["apptainer", "exec", "my image.sif"]
job.toml:17: task "a": slurm.exclude: item 1 is the integer 1, wanted a string
job.toml:18: task "a": slurm.options: reserved
job.toml:19: task "a": slurm.requeue: found the integer 1, wanted true or false
job.toml:27: task "b": slurm: found the integer 4, wanted a table such as { partition = "gpu", time = "12h" }`)
	if err == nil {
		t.Fatal("no error")
	}
	if d := cmp.Diff(want, err.Error()); d != "" {
		t.Errorf("errors (-want +got):\n%s", d)
	}
}

func TestWithAnotherLauncherOptionsOfSlurmHaveNoEffect(t *testing.T) {
	fail := func(string, map[string][]string) (faults, warnings []jobfile.OptionFault) {
		return []jobfile.OptionFault{{"partition", -1, "asked"}}, nil
	}
	j, err := loadSlurm(t, "[slurm]\npartition = \"cpu\"\nwrap = \"apptainer exec x\"", "", "", nil, jobfile.Options{Launcher: "local", CheckSlurm: fail, Machine: job.Machine{Cores: 1}})
	if err != nil {
		t.Fatal(err)
	}
	if j.Tasks[0].Options != nil || j.Tasks[0].Runner.Argv[0] != "true" {
		t.Errorf("task %+v", j.Tasks[0])
	}
}

func TestAWrapStandsBeforeTheCommandsWhoseProgramsAreInside(t *testing.T) {
	j, err := loadSlurm(t, "[slurm]\nwrap = \"apptainer exec img.sif\"", "check = { command = [\"only-inside\"] }", "[task.slurm]\nwrap = [\"srun\", \"a b\"]", nil, jobfile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	got := [][]string{j.Tasks[0].Runner.Argv, j.Tasks[0].Check, j.Tasks[1].Runner.Argv}
	want := [][]string{{"apptainer", "exec", "img.sif", "true", "{block_id}"}, {"apptainer", "exec", "img.sif", "only-inside"}, {"srun", "a b", "true", "{block_id}"}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("commands (-want +got):\n%s", d)
	}
}

func TestTheCoordinatorHasATableOfItsOwn(t *testing.T) {
	check := func(o map[string][]string) (faults, warnings []jobfile.OptionFault) {
		if o["time"] != nil && o["time"][0] == "never" {
			faults = append(faults, jobfile.OptionFault{Key: "time", Item: -1, Text: "no time"})
		}
		return faults, nil
	}
	const own = "[slurm]\npartition = \"cpu\"\n[slurm.coordinator]\ntime = \"2d\"\ncpu = 2\nexclude = [\"n1\"]"
	j, err := loadSlurm(t, own, "", "", []string{"slurm.coordinator.memory=4GiB"}, jobfile.Options{CheckCoordinator: check})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(map[string][]string{"time": {"2d"}, "cpu": {"2"}, "exclude": {"n1"}, "memory": {"4GiB"}}, j.Coordinator); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	for _, task := range j.Tasks {
		if d := cmp.Diff(map[string][]string{"partition": {"cpu"}}, task.Options); d != "" {
			t.Errorf("task %s (-want +got):\n%s", task.ID, d)
		}
	}
	if j, err := loadSlurm(t, own, "", "", nil, jobfile.Options{Launcher: "local", CheckCoordinator: check, Machine: job.Machine{Cores: 1}}); err != nil || j.Coordinator != nil {
		t.Errorf("with another launcher: %v, %v", j, err)
	}
	_, err = loadSlurm(t, "[slurm.coordinator]\ntime = \"never\"\ncpu = \"2\"\nslots = 2", "[task.slurm]\ncoordinator = { cpu = 1 }", "", nil, jobfile.Options{CheckCoordinator: check})
	want := strings.TrimSpace(`
job.toml:4: slurm: coordinator.time: no time
job.toml:5: slurm: coordinator.cpu: found the string "2", wanted an integer
job.toml:6: slurm: coordinator: unknown key "slots"; it is a key of [[task]]
job.toml:14: task "a": slurm.coordinator: a run has one coordinator: write [slurm.coordinator], once for all tasks`)
	if err == nil {
		t.Fatal("no error")
	}
	if d := cmp.Diff(want, err.Error()); d != "" {
		t.Errorf("errors (-want +got):\n%s", d)
	}
}
