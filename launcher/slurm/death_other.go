//go:build !linux

package slurm

import "os/exec"

// There is no such signal here; limits and the lock have to do.
func dieWithParent(*exec.Cmd) {}

func onOneThread(f func()) { f() }

func startOf(int) string { return "-" }
