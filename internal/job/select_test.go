package job

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"example.org/daisy/geom"
	"example.org/daisy/scheduler"
)

// chainJob is three tasks in two dimensions, each of which reads a little more than it writes, and one apart.
func chainJob(t testing.TB) *Job {
	j := &Job{}
	for i, id := range []string{"a", "b", "c", "apart"} {
		write := geom.Roi{Offset: geom.Fill(2, 0), Shape: geom.Fill(2, int64(4+i))}
		g, err := geom.NewGrid(geom.GridSpec{TotalRead: geom.Roi{Offset: geom.Fill(2, -1), Shape: geom.Fill(2, 62)}, Read: write.Grow(geom.Fill(2, 1), geom.Fill(2, 1)), Write: write, Fit: geom.Shrink, ReadWriteConflict: i == 1})
		if err != nil {
			t.Fatal(err)
		}
		task := Task{ID: id, Grid: g}
		if i == 1 || i == 2 {
			task.After = []string{j.Tasks[i-1].ID}
		}
		j.Tasks = append(j.Tasks, task)
	}
	return j
}

func left(j *Job, id string) (blocks []int64) {
	t := j.Task(id)
	for b := range t.Grid.Len() {
		if !t.Mask.Get(b) {
			blocks = append(blocks, b)
		}
	}
	return blocks
}

// TestWhatIsSelectedHasAllThatItNeeds: the blocks that write into the region, and exactly the closure of what they wait for.
func TestWhatIsSelectedHasAllThatItNeeds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		j := chainJob(nil)
		roi := geom.Roi{Offset: geom.Coord(rapid.Int64Range(-9, 69).Draw(t, "y"), rapid.Int64Range(-9, 69).Draw(t, "x")),
			Shape: geom.Coord(rapid.Int64Range(1, 20).Draw(t, "height"), rapid.Int64Range(1, 20).Draw(t, "width"))}
		n, err := j.Select(Selection{Roi: roi, HasRoi: true})
		if err != nil {
			t.Fatal(err)
		}
		p, _ := j.Pipeline()
		total, wanted := int64(0), map[[2]int64]bool{}
		var need func(task int, b int64)
		need = func(task int, b int64) {
			if !wanted[[2]int64{int64(task), b}] {
				wanted[[2]int64{int64(task), b}] = true
				scheduler.Dependencies(p, task, b, need)
			}
		}
		for i, task := range p.Tasks() {
			for b := range task.Grid.Len() {
				if task.Grid.WriteRoi(b).Intersects(roi) {
					need(i, b)
				}
			}
		}
		for i, task := range p.Tasks() {
			for b := range task.Grid.Len() {
				selected := !task.Mask.Get(b)
				if selected != wanted[[2]int64{int64(i), b}] {
					t.Fatalf("block %d of %s: selected %v", b, task.ID, selected)
				}
				if selected {
					total++
				}
			}
		}
		if n != total {
			t.Fatalf("said %d, are %d", n, total)
		}
	})
}

func TestOnlyTakesWholeTasksAndLimitTheFirstBlocksOfTheLastOnes(t *testing.T) {
	j := chainJob(t)
	if _, err := j.Select(Selection{Only: []string{"b"}}); err != nil {
		t.Fatal(err)
	}
	if len(left(j, "a"))+len(left(j, "c"))+len(left(j, "apart")) != 0 || int64(len(left(j, "b"))) != j.Task("b").Grid.Len() {
		t.Errorf("only b: %v %v %v %v", left(j, "a"), left(j, "b"), left(j, "c"), left(j, "apart"))
	}

	j = chainJob(t)
	if _, err := j.Select(Selection{Limit: 2}); err != nil {
		t.Fatal(err)
	}
	if got := left(j, "c"); !slices.Equal(got, []int64{0, 1}) {
		t.Errorf("c: %v", got)
	}
	if got := left(j, "apart"); !slices.Equal(got, []int64{0, 1}) {
		t.Errorf("apart: %v", got)
	}
	if n := len(left(j, "a")); n == 0 || int64(n) == j.Task("a").Grid.Len() {
		t.Errorf("of a, %d blocks are needed", n)
	}

	j = chainJob(t)
	if n, err := j.Select(Selection{Only: []string{"a"}, Limit: 3}); n != 3 || err != nil || len(left(j, "a")) != 3 {
		t.Errorf("3 of a: %d, %v", n, err)
	}

	j = chainJob(t)
	if _, err := j.Select(Selection{Only: []string{"apar"}}); err == nil || err.Error() != `there is no task "apar"; did you mean "apart"?` {
		t.Errorf("got %v", err)
	}
	if _, err := j.Select(Selection{HasRoi: true, Roi: geom.Roi{Offset: geom.Coord(0), Shape: geom.Coord(1)}}); err == nil {
		t.Error("a region of another dimension is accepted")
	}
}

func TestASkipMaskHoldsBesideASelection(t *testing.T) {
	j := chainJob(t)
	mask := scheduler.NewBitmap(j.Task("a").Grid.Len())
	mask.Set(1)
	j.Task("a").Mask = mask
	if n, err := j.Select(Selection{Only: []string{"a"}, Limit: 3}); n != 2 || err != nil || !slices.Equal(left(j, "a"), []int64{0, 2}) {
		t.Errorf("%d left: %v, %v", n, left(j, "a"), err)
	}
}
