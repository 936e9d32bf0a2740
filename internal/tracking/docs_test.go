package tracking

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"example.org/daisy/geom"
	"github.com/google/go-cmp/cmp"
)

func page(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/tracking.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The task of the page is "label" of examples/nuclei.
func labels(t *testing.T) *geom.Grid {
	t.Helper()
	block := geom.Roi{Offset: geom.Coord(0, 0, 0), Shape: geom.Coord(32, 32, 32)}
	return mustGrid(t, geom.GridSpec{
		TotalRead: geom.Roi{Offset: geom.Coord(0, 0, 0), Shape: geom.Coord(60, 256, 256)}, Read: block, Write: block, Fit: geom.Shrink,
	})
}

func TestTheFilesOfTheDocumentationAreThoseThatAreWritten(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "label")
	mustClose(t, mustOpen(t, dir, labels(t)))
	written := snapshot(t, dir)
	shown := map[string]int{}
	for _, part := range strings.Split(page(t), "```json\n")[1:] {
		text, _, closed := strings.Cut(part, "```")
		if !closed {
			t.Fatal("docs/tracking.md has a file without an end")
		}
		for name, data := range written {
			if string(data) == text {
				shown[name]++
			}
		}
	}
	if diff := cmp.Diff(map[string]int{"zarr.json": 1, "done/zarr.json": 1}, shown); diff != "" {
		t.Errorf("files that docs/tracking.md shows as they are: -want +got\n%s", diff)
	}
	for name := range written {
		if !strings.Contains(page(t), "| `"+name+"` |") {
			t.Errorf("docs/tracking.md lacks the file %s", name)
		}
	}
}

func TestTheHashOfTheDocumentationIsMadeOfItsBytes(t *testing.T) {
	_, shown, _ := strings.Cut(page(t), "begins with\n\n    ")
	shown, _, _ = strings.Cut(shown, "\n")
	if got := hashedBytes(groupPrefix, labels(t).Spec()); !strings.HasPrefix(strings.ReplaceAll(strings.ReplaceAll(string(got), "\n", `\n`), "\x00", `\0`), shown) || shown == "" {
		t.Errorf("docs/tracking.md hashes %q, and the code %q", shown, got)
	}
	if hash := Hash(labels(t)); !strings.Contains(page(t), "    "+hash+"\n") {
		t.Errorf("docs/tracking.md lacks the hash %s", hash)
	}
}
