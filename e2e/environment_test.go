package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestUserCodeIsToldEverythingAboutItsBlock(t *testing.T) {
	t.Parallel()
	placeholders := []string{"block_id", "task_id", "index", "read_offset", "read_shape", "read_end", "write_offset", "write_shape", "write_end", "attempt", "lease", "worker_id", "slot", "run_id", "run_dir"}
	var args []string
	for _, p := range placeholders {
		args = append(args, fmt.Sprintf("%q", p+"={"+p+"}"))
	}
	dir, path := writeJob(t, job("resources = { cpu = 3, memory = \"1GiB\" }",
		fmt.Sprintf(`id = "work"
total = { offset = [100, -7], shape = [20, 14] }
block = { shape = [8, 4], context = { low = [1, 2], high = 3 } }
read_write_conflict = false
requires = { cpu = 2.5, memory = "512MiB" }
run = { command = [%s, %s, "a b", "{}", "{unknown}", "$HOME", "*"] }
env = { E2E_ROLE = "env", MKL_NUM_THREADS = "7", WORD = "two words" }
`, quote(self()), strings.Join(args, ", "))))
	s := prepare(t, t.TempDir(), "run", path, "--run-dir", dir+"/out")
	s.cmd.Env = append(os.Environ(), "DAISY_BLOCK_ID=999", "DAISY_GPUS=9", "SLURM_CPU_BIND=none", "FROM_OUTSIDE=yes", "OMP_NUM_THREADS=")
	s.cmd.Env = withoutVariable(s.cmd.Env, "OMP_NUM_THREADS")
	s.begin()
	if r := s.wait(); r.status != 0 {
		t.Fatalf("exit status %d", r.status)
	}
	stats := statsOf(t, dir+"/out")

	// The block at (1, 0): write region [109:117, -5:-1], read region one and two before and three behind.
	files, err := filepath.Glob(dir + "/report-*.json")
	if err != nil || len(files) != int(task(t, stats, "work").Blocks) {
		t.Fatalf("reports %v, %v", files, err)
	}
	var got report
	for _, f := range files {
		var r report
		if err := json.Unmarshal([]byte(readFile(t, f)), &r); err != nil {
			t.Fatal(err)
		}
		if r.Env["DAISY_BLOCK_INDEX"] == "1,0" {
			got = r
		}
	}
	if got.Env == nil {
		t.Fatal("no block has the index 1,0")
	}
	lease, worker := got.Env["DAISY_LEASE"], got.Env["DAISY_WORKER_ID"]
	known := false
	for _, w := range stats.Workers {
		known = known || w.ID == worker
	}
	if !known || !strings.HasPrefix(lease, "1.") {
		t.Errorf("worker %q, lease %q", worker, lease)
	}
	values := map[string]string{
		"block_id": got.Env["DAISY_BLOCK_ID"], "task_id": "work", "index": "1,0",
		"read_offset": "108,-7", "read_shape": "12,9", "read_end": "120,2",
		"write_offset": "109,-5", "write_shape": "8,4", "write_end": "117,-1",
		"attempt": "1", "lease": lease, "worker_id": worker, "slot": "0", "run_id": stats.Run.ID, "run_dir": *stats.Run.Directory,
	}
	var wantArgs []string
	for _, p := range placeholders {
		wantArgs = append(wantArgs, p+"="+values[p])
	}
	if diff := cmp.Diff(append(wantArgs, "a b", "{}", "{unknown}", "$HOME", "*"), got.Args); diff != "" {
		t.Errorf("arguments (-want +got):\n%s", diff)
	}
	wantEnv := map[string]string{
		"DAISY_CPUS": "2.5", "DAISY_MEMORY_BYTES": "536870912", "DAISY_GPUS": "",
		"OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2", "NUMEXPR_NUM_THREADS": "2", "NUMBA_NUM_THREADS": "2", "MKL_NUM_THREADS": "7",
		"WORD": "two words", "FROM_OUTSIDE": "yes", "SLURM_CPU_BIND": "", "DAISY_ANSWER_FD": "",
		"DAISY_BLOCK_INDEX": "1,0",
	}
	for name, value := range values {
		if name != "index" {
			wantEnv["DAISY_"+strings.ToUpper(name)] = value
		}
	}
	for name, want := range wantEnv {
		if got.Env[name] != want {
			t.Errorf("%s = %q, want %q", name, got.Env[name], want)
		}
	}
	id := got.Env["DAISY_BLOCK_ID"]
	wantInput := fmt.Sprintf(`{"task":"work","block":%s,"index":[1,0],"read":{"offset":[108,-7],"shape":[12,9]},"write":{"offset":[109,-5],"shape":[8,4]},"attempt":1,"lease":%q}`, id, lease)
	if diff := cmp.Diff(wantInput, string(got.Input)); diff != "" {
		t.Errorf("standard input (-want +got):\n%s", diff)
	}
	if got.Dir != dir {
		t.Errorf("the working directory is %s, want that of the job file, %s", got.Dir, dir)
	}
}

func withoutVariable(env []string, name string) []string {
	var out []string
	for _, e := range env {
		if !strings.HasPrefix(e, name+"=") {
			out = append(out, e)
		}
	}
	return out
}
