//go:build unix && !linux && !darwin

package process

import "runtime"

func machine() Machine { return Machine{Cores: runtime.NumCPU()} }
