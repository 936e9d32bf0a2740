package process

import (
	"runtime"

	"golang.org/x/sys/unix"
)

func machine() Machine {
	memory, _ := unix.SysctlUint64("hw.memsize") // 0 = not known
	return Machine{Cores: runtime.NumCPU(), MemoryBytes: int64(memory)}
}
