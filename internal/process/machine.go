package process

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A Machine is what this process may use of the machine that it runs on.
type Machine struct {
	// Cores: those that it may run on (affinity), and no more than its cgroup's quota, rounded down, at least 1.
	Cores int
	// MemoryBytes: the machine's memory, or its cgroup's limit if that is lower; 0 if not known.
	MemoryBytes int64
	// GPUs are the devices by the names that CUDA_VISIBLE_DEVICES understands: those of that variable if it is set, else the
	// numbers from 0 of the NVIDIA devices in /dev.
	GPUs []string
}

// ThisMachine looks at the machine now.
func ThisMachine() Machine {
	visible, set := os.LookupEnv("CUDA_VISIBLE_DEVICES")
	m := machine()
	m.Cores = max(m.Cores, 1)
	m.GPUs = gpus("/dev", visible, set)
	return m
}

// gpus: as CUDA does, what follows an invalid entry is not visible. Repeated devices count once.
func gpus(dev, visible string, set bool) []string {
	var devices []string
	if set {
		for name := range strings.SplitSeq(visible, ",") {
			name = strings.TrimSpace(name)
			if name == "" || strings.HasPrefix(name, "-") || name == "NoDevFiles" {
				break
			}
			if !slices.Contains(devices, name) {
				devices = append(devices, name)
			}
		}
		return devices
	}
	found, _ := filepath.Glob(filepath.Join(dev, "nvidia[0-9]*")) // the pattern is well-formed
	for _, path := range found {
		if _, err := strconv.ParseUint(strings.TrimPrefix(filepath.Base(path), "nvidia"), 10, 16); err == nil {
			devices = append(devices, strconv.Itoa(len(devices)))
		}
	}
	return devices
}
