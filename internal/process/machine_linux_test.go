package process

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAMachineIsNoBiggerThanItsCgroups(t *testing.T) {
	const meminfo = "MemFree: 1 kB\nMemTotal:       16777216 kB\n"
	for _, test := range []struct {
		name  string
		files map[string]string
		want  Machine
	}{
		{"nothing known", nil, Machine{Cores: 8}},
		{"no limits", map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/user\n",
			"sys/fs/cgroup/user/cpu.max": "max 100000\n", "sys/fs/cgroup/user/memory.max": "max\n",
		}, Machine{Cores: 8, MemoryBytes: 16 << 30}},
		{"version 2, the strictest of all above", map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/job/step\n",
			"sys/fs/cgroup/job/cpu.max": "250000 100000\n", "sys/fs/cgroup/job/step/cpu.max": "400000 100000\n",
			"sys/fs/cgroup/job/memory.max": "8589934592\n", "sys/fs/cgroup/job/step/memory.max": "max\n",
		}, Machine{Cores: 2, MemoryBytes: 8 << 30}},
		{"version 2 in a container", map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/docker/abc\n",
			"sys/fs/cgroup/cpu.max": "50000 100000\n", "sys/fs/cgroup/memory.max": "1073741824\n",
		}, Machine{Cores: 1, MemoryBytes: 1 << 30}},
		{"version 1", map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "4:memory:/job\n3:cpu,cpuacct:/job\n0::/\n",
			"sys/fs/cgroup/cpu/job/cpu.cfs_quota_us": "300000\n", "sys/fs/cgroup/cpu/job/cpu.cfs_period_us": "100000\n",
			"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
			"sys/fs/cgroup/memory/job/memory.limit_in_bytes": "4294967296\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes":     "9223372036854771712\n",
		}, Machine{Cores: 3, MemoryBytes: 4 << 30}},
		{"nonsense", map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "x\n0::/a\n", "sys/fs/cgroup/a/cpu.max": "0 0\n", "sys/fs/cgroup/a/memory.max": "?\n",
		}, Machine{Cores: 8, MemoryBytes: 16 << 30}},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := t.TempDir()
			for name, text := range test.files {
				path := filepath.Join(root, name)
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(test.want, machineAt(root, 8)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if m := ThisMachine(); m.Cores < 1 || m.MemoryBytes < 1<<20 {
		t.Errorf("this machine: %+v", m)
	}
}

func TestGPUsAreTheVisibleOnes(t *testing.T) {
	dev := t.TempDir()
	for _, name := range []string{"nvidia0", "nvidia1", "nvidia10", "nvidiactl", "nvidia-uvm", "nvidia0x"} {
		if err := os.WriteFile(filepath.Join(dev, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		visible string
		set     bool
		want    []string
	}{
		{"", false, []string{"0", "1", "2"}},
		{"", true, nil},
		{"-1", true, nil},
		{"NoDevFiles", true, nil},
		{"2,0", true, []string{"2", "0"}},
		{"1, GPU-5e2a,1", true, []string{"1", "GPU-5e2a"}},
		{"1,-1,0", true, []string{"1"}},
	} {
		if diff := cmp.Diff(test.want, gpus(dev, test.visible, test.set)); diff != "" {
			t.Errorf("CUDA_VISIBLE_DEVICES=%q (set: %v) (-want +got):\n%s", test.visible, test.set, diff)
		}
	}
}
