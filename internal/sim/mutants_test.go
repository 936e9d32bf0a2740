package sim

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var faults = flag.String("faults", "few", "the deliberate faults that TestDeliberateFaultsAreCaught builds in: few, all, or names with commas")

// few are built in by a plain go test: each takes a build.
var few = []string{"counts-before-commit", "no-fsync"}

// TestDeliberateFaultsAreCaught builds the simulation with one fault in the code that it runs, and expects it to fail within the number
// of seeds that the fault's file states. A simulation that finds nothing in a broken program proves nothing about a sound one.
func TestDeliberateFaultsAreCaught(t *testing.T) {
	if testing.Short() && *faults == "few" {
		t.Skip("each takes a build")
	}
	paths, err := filepath.Glob("testdata/faults/*.patch")
	if err != nil || len(paths) < 25 {
		t.Fatalf("%d faults, %v", len(paths), err)
	}
	wanted := few
	if *faults != "few" {
		wanted = strings.Split(*faults, ",")
	}
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), ".patch")
		run := *faults == "all"
		for _, w := range wanted {
			run = run || w == name
		}
		if run {
			t.Run(name, func(t *testing.T) { catch(t, path) })
		}
	}
}

// catch builds and runs one.
func catch(t *testing.T, path string) {
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	within := 0
	for line := range strings.Lines(string(text)) {
		_, _ = fmt.Sscanf(line, "Seeds: %d", &within)
	}
	if within == 0 {
		t.Fatalf("%s does not say within how many seeds it is caught (Seeds: N)", path)
	}
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	program := filepath.Join(dir, "sim.test")
	build := exec.Command("go", "test", "-c", "-overlay", overlay(t, root, dir, text), "-o", program, ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("it does not build: %v\n%s", err, out)
	}
	start := time.Now()
	out, err := exec.Command(program, "-test.run", "^TestSeeds$", "-test.timeout", "10m", "-stop=1", fmt.Sprintf("-seeds=%d", within)).CombinedOutput()
	if err == nil {
		t.Fatalf("%d seeds do not catch it:\n%s", within, text)
	}
	first := ""
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "seed ") || strings.HasPrefix(line, "panic:") {
			first = strings.TrimSpace(line)
			break
		}
	}
	t.Logf("caught in %v: %s", time.Since(start).Round(time.Millisecond), first)
}

// overlay applies a patch to copies of the files that it names, and returns the file that puts them in the place of the real ones.
func overlay(t *testing.T, root, dir string, patch []byte) string {
	replace := map[string]string{}
	for line := range strings.Lines(string(patch)) {
		name, is := strings.CutPrefix(strings.TrimSpace(line), "--- a/")
		if !is {
			continue
		}
		data, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		copied := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(copied), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(copied, data, 0o666); err != nil {
			t.Fatal(err)
		}
		replace[filepath.Join(root, name)] = copied
	}
	apply := exec.Command("git", "apply", "-")
	apply.Dir, apply.Stdin = dir, strings.NewReader(string(patch))
	apply.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir))
	if out, err := apply.CombinedOutput(); err != nil {
		t.Fatalf("the patch does not apply any more; make it anew: %v\n%s", err, out)
	}
	data, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(path, data, 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}
