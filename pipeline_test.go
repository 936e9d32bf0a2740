package daisy_test

import (
	"testing"

	"example.org/daisy"
)

func TestAPartThatIsNilIsRefused(t *testing.T) {
	t.Parallel()
	var noTask *daisy.Task
	var noPipeline *daisy.Pipeline
	for name, none := range map[string]daisy.Part{"nil": nil, "a nil task": noTask, "a nil pipeline": noPipeline} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			work := line("work", 2, nothing)
			wantRefused(t, none, "nothing to run")
			wantRefused(t, daisy.Sequence(none), "part 1 of 1", "is nil")
			wantRefused(t, daisy.Parallel(none), "part 1 of 1", "is nil")
			wantRefused(t, daisy.Sequence(work, daisy.Parallel(work, none)), "part 2 of 2", "is nil")
		})
	}
}

func TestAPipelineWithoutPartsIsRefused(t *testing.T) {
	t.Parallel()
	wantRefused(t, &daisy.Pipeline{}, "no parts", "Sequence or Parallel")
	wantRefused(t, daisy.Sequence(line("work", 2, nothing), &daisy.Pipeline{}), "no parts", "Sequence or Parallel")
	wantRefused(t, daisy.Sequence(), "no task")
	wantRefused(t, daisy.Parallel(), "no task")
}
