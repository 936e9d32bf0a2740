//go:build race

package sim

func init() { raced = true }
