package jobfile_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.org/daisy/internal/job"
	"example.org/daisy/internal/jobfile"
)

const docs = "../../docs/job-file.md"

// row is how a key stands in the documentation.
func row(k jobfile.Key) string {
	if k.Instead != "" {
		return fmt.Sprintf("| `%s` | %s | %s |", k.Name, k.Meaning, k.Instead)
	}
	value := k.Default
	switch {
	case value == "none" || value == "required" || strings.HasPrefix(value, "no ") || strings.HasPrefix(value, "all") || strings.HasPrefix(value, "any ") || strings.HasPrefix(value, "name ") || strings.HasPrefix(value, "the ") || value == "yours" || value == "now":
	default:
		value = "`" + value + "`"
	}
	name := "`" + k.Name + "`"
	if strings.Contains(k.Name, " ") {
		name = k.Name
	}
	return fmt.Sprintf("| %s | %s | %s | %s |", name, k.Type, value, k.Meaning)
}

// The documentation has a section for each table of keys, whose rows are the keys of this version in the order of Keys, and one for
// those that are not in it.
func TestTheDocumentationHasEveryKeyWithTypeDefaultAndMeaning(t *testing.T) {
	text, err := os.ReadFile(docs)
	if err != nil {
		t.Fatal(err)
	}
	headings := map[string]string{
		"[run]": "run", "[[task]]": "task", "Slurm": "slurm", "The coordinator as a job": "coordinator", "Blocks": "block", "Contexts": "context", "Regions": "region", "Commands": "command",
		"Amounts": "amounts", "Not in this version": "later",
	}
	got, section := map[string][]string{}, ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\n")
		if title, ok := strings.CutPrefix(line, "## "); ok {
			section = headings[strings.Trim(title, "`")]
		}
		if strings.HasPrefix(line, "| ") && !strings.HasPrefix(line, "| key ") {
			got[section] = append(got[section], line)
		}
	}
	want := map[string][]string{}
	for _, k := range jobfile.Keys() {
		table := k.Table
		if k.Instead != "" {
			table = "later"
		}
		want[table] = append(want[table], row(k))
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s and the code differ: -code +docs\n%s", docs, d)
	}
}

// The examples of the documentation are job files that work.
func TestTheExamplesOfTheDocumentationAreAccepted(t *testing.T) {
	text, err := os.ReadFile(docs)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.WriteFile(filepath.Join(dir, "predict.sh"), nil, 0o755))
	for name, meta := range map[string]string{
		"brain.zarr/raw":    `{"zarr_format":2,"shape":[1000,1000,1000],"chunks":[64,64,64],"dtype":"|u1"}`,
		"brain.zarr/affs":   `{"zarr_format":2,"shape":[3,1000,1000,1000],"chunks":[3,64,64,64],"dtype":"|u1"}`,
		"brain.zarr/labels": `{"zarr_format":2,"shape":[1000,1000,1000],"chunks":[64,64,64],"dtype":"<u8"}`,
	} {
		must(os.MkdirAll(filepath.Join(dir, name), 0o755))
		must(os.WriteFile(filepath.Join(dir, name, ".zarray"), []byte(meta), 0o644))
	}
	blocks := regexp.MustCompile("(?s)```toml\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	if len(blocks) == 0 {
		t.Fatal("no examples")
	}
	for _, b := range blocks {
		file := filepath.Join(dir, "segment.toml")
		must(os.WriteFile(file, []byte(b[1]), 0o644))
		j, err := jobfile.Load(file, nil, jobfile.Options{Machine: job.Machine{Cores: 64, MemoryBytes: 512 << 30, GPUs: 4}})
		if err != nil {
			t.Errorf("%v\n%s", err, b[1])
			continue
		}
		if _, err := j.Pipeline(); err != nil {
			t.Error(err)
		}
	}
}
