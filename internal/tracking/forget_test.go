package tracking

import (
	"os"
	"path/filepath"
	"testing"

	"example.org/daisy/geom"
)

func TestForgetClearsTheMarksAndKeepsTheHistory(t *testing.T) {
	one := geom.Roi{Offset: geom.Fill(2, 0), Shape: geom.Fill(2, 10)}
	g, err := geom.NewGrid(geom.GridSpec{TotalRead: geom.Roi{Offset: geom.Fill(2, 0), Shape: geom.Coord(30, 40)}, Read: one, Write: one})
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "group")
	if n, err := Forget(dir, g); n != 0 || err != nil {
		t.Errorf("of nothing: %d, %v", n, err)
	}
	if _, err := os.Lstat(dir); err == nil {
		t.Error("a group was made")
	}
	s, err := Open(dir, g)
	if err != nil {
		t.Fatal(err)
	}
	s.MarkDone(3)
	s.MarkDone(11)
	s.AddFailure(3)
	if _, err := Forget(dir, g); err == nil {
		t.Error("it forgets what another run is writing")
	}
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if n, err := Forget(dir, g); n != 2 || err != nil {
		t.Errorf("%d marks, %v", n, err)
	}
	done, err := ReadDone(dir, g)
	if err != nil || done[0] != 0 {
		t.Errorf("%x, %v", done, err)
	}
	if s, err = Open(dir, g); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if n, err := s.FailureCount(3); n != 1 || err != nil {
		t.Errorf("%d failures, %v", n, err)
	}
	s.MarkDone(5)
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	if done, err := s.Done(); err != nil || done[0] != 1<<5 {
		t.Errorf("%x, %v", done, err)
	}
}
