package fleet

import (
	"slices"

	"example.org/daisy/scheduler"
)

// A Kind is what makes workers alike: a worker may move between tasks of equal kinds.
type Kind struct {
	// Requires is what one slot needs.
	Requires scheduler.Resources
	// Env is the environment that the task adds, sorted.
	Env []string
	// Options are those of the launcher and the runner that cannot change while a worker lives.
	Options string
}

// Classes numbers the kinds: equal kinds get equal numbers, from 0.
func Classes(kinds []Kind) []int {
	classes := make([]int, len(kinds))
	next := 0
	for i, k := range kinds {
		same := slices.IndexFunc(kinds[:i], func(o Kind) bool { return k.equal(o) })
		if same >= 0 {
			classes[i] = classes[same]
			continue
		}
		classes[i] = next
		next++
	}
	return classes
}

func (k Kind) equal(o Kind) bool {
	return k.Options == o.Options && slices.Equal(k.Env, o.Env) && k.Requires.String() == o.Requires.String()
}
