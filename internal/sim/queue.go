package sim

type BatchConfig struct{}

func newQueue(w *World) launching { return newProcesses(w) }
