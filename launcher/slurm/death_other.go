//go:build !linux

package slurm

import "os/exec"

// There is no such signal here; limits and the lock have to do.
func dieWithParent(*exec.Cmd) {}

func onOneThread(f func() (answer, error)) (answer, error) { return f() }

func startOf(int) string { return "-" }
