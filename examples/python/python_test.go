package python

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"example.org/daisy/internal/testenv"
)

// edges counts what edges.py is to find.
func edges() int {
	pixel := func(r, c int) bool { return (r-24)*(r-24)+(c-32)*(c-32) < 15*15 }
	n := 0
	for r := range 48 {
		for c := range 64 {
			if pixel(max(r-1, 0), c) != pixel(r, c) || pixel(r, max(c-1, 0)) != pixel(r, c) {
				n++
			}
		}
	}
	return n
}

func TestTheEdgesAreThoseOfThePicture(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		testenv.Unavailable(t, err.Error())
	}
	dir := t.TempDir()
	build := exec.Command("go", "build", "-o", dir+"/bin/", "example.org/daisy/cmd/daisy-submit", "example.org/daisy/cmd/daisy-worker")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the programs: %v\n%s", err, out)
	}
	for _, name := range []string{"edges.toml", "edges.py"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(read(t, name)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, launcher := range []string{"local", "serial"} {
		run := exec.CommandContext(t.Context(), filepath.Join(dir, "bin", "daisy-submit"), "run", filepath.Join(dir, "edges.toml"), "--launcher", launcher)
		if out, err := run.CombinedOutput(); err != nil {
			t.Fatalf("daisy-submit run: %v\n%s", err, out)
		}
		summary := filepath.Join(dir, "out", "summary.txt")
		want := fmt.Sprintf("%d edges\n", edges())
		if got := read(t, summary); got != want {
			t.Errorf("%s: got %q, want %q", launcher, got, want)
		}
		if !strings.Contains(read(t, "README.md"), want) {
			t.Errorf("README.md does not say %q", want)
		}
		if err := os.Remove(summary); err != nil {
			t.Fatal(err)
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
