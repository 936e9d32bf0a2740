//go:build unix && !linux

package process

const (
	canLimit   = false
	ownProgram = ""
)

func becomeLimited(_, _, _ string, _ []string) (string, error) { return becoming, errNoLimits }
