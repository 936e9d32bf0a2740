package process

import (
	"os"
	"path/filepath"
	"testing"
)

func TestKillsForLackOfMemoryAreCountedInTheNearestCgroupThatSaysThem(t *testing.T) {
	for name, c := range map[string]struct {
		cgroups string
		files   map[string]string
		want    int64
	}{
		"its own":    {"0::/a/b\n", map[string]string{"a/b": "low 0\noom 9\noom_kill 3\noom_group_kill 4\n", "a": "oom_kill 5\n"}, 3},
		"above":      {"0::/a/b\n", map[string]string{"a": "oom_kill 5\n"}, 5},
		"container":  {"0::/host/only\n", map[string]string{"": "oom_kill 6\n"}, 6},
		"version 1":  {"4:memory:/a\n", map[string]string{"a": "oom_kill 5\n"}, 0},
		"not there":  {"0::/\n", nil, 0},
		"old kernel": {"0::/a\n", map[string]string{"a": "oom 5\n"}, 0},
	} {
		root := t.TempDir()
		write := func(path, text string) {
			t.Helper()
			path = filepath.Join(root, path)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write("proc/self/cgroup", c.cgroups)
		for dir, text := range c.files {
			write(filepath.Join("sys/fs/cgroup", dir, "memory.events"), text)
		}
		m := OpenMemoryKills(root)
		if got := m.Count(); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
		m.Close()
	}
}
