package main

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
	"github.com/google/go-cmp/cmp"
)

// newProject is a copy of this example without results; the data are linked, not copied.
func newProject(t *testing.T) project {
	t.Helper()
	p := project{dir: t.TempDir()}
	data, err := filepath.Abs("data")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(data, p.path("data")); err != nil {
		t.Fatal(err)
	}
	job, err := os.ReadFile("nuclei.toml")
	if err != nil {
		t.Fatal(err)
	}
	write(t, p.path("nuclei.toml"), string(job))
	return p
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := writeFile(path, []byte(text)); err != nil {
		t.Fatal(err)
	}
}

func TestTheDataAreThoseOfTheirChecksums(t *testing.T) {
	file, err := os.Open("data/SHA256SUMS")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	files := 0
	for in := bufio.NewScanner(file); in.Scan(); files++ {
		want, name, _ := strings.Cut(in.Text(), "  ")
		content, err := os.ReadFile(filepath.Join("data", name))
		if err != nil {
			t.Error(err)
			continue
		}
		sum := sha256.Sum256(content)
		if got := hex.EncodeToString(sum[:]); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
	if want := 128 + 4 + 2; files != want {
		t.Errorf("SHA256SUMS has %d files, want %d", files, want)
	}
}

func TestTheJobFileFitsTheProgram(t *testing.T) {
	var job struct {
		Run struct {
			Tracking string `toml:"tracking"`
		} `toml:"run"`
		Task []struct {
			ID     string   `toml:"id"`
			After  []string `toml:"after"`
			Array  string   `toml:"array"`
			Output string   `toml:"output"`
			Block  struct {
				Shape   []int `toml:"shape"`
				Context []int `toml:"context"`
			} `toml:"block"`
			Run struct {
				Stream []string `toml:"stream"`
			} `toml:"run"`
		} `toml:"task"`
	}
	if _, err := toml.DecodeFile("nuclei.toml", &job); err != nil {
		t.Fatal(err)
	}
	p := project{}
	if got, want := job.Run.Tracking, p.tracking(); got != want {
		t.Errorf("run.tracking: got %q, want %q", got, want)
	}
	type task struct {
		ID, Step, Array, Output string
		After                   []string
		Shape, Context          []int
	}
	var got []task
	for _, read := range job.Task {
		got = append(got, task{read.ID, read.Run.Stream[1], read.Array, read.Output, read.After, read.Block.Shape, read.Block.Context})
	}
	chunk := []int{32, 32, 32}
	want := []task{
		{"smooth", "smooth", p.source(), p.smoothed(), nil, chunk, []int{gaussContext, gaussContext, gaussContext}},
		{"label", "label", p.smoothed(), p.labelsBlocks(), []string{"smooth"}, chunk, nil},
		{"stitch", "stitch", p.labelsBlocks(), "", []string{"label"}, []int{60, 256, 256}, nil},
		{"relabel", "relabel", p.labelsBlocks(), p.labels(), []string{"stitch"}, chunk, nil},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("tasks (-want +got):\n%s", diff)
	}
}
