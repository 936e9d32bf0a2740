package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"example.org/daisy/internal/job"
)

func TestThePlanSetsTheBytesOfABlockBesideItsMemory(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("in.zarr/.zarray", `{"zarr_format":2,"shape":[1000,1000,1000],"chunks":[100,100,100],"dtype":"<u2","compressor":null,"fill_value":0,"order":"C","filters":null}`)
	write("out.zarr/.zarray", `{"zarr_format":2,"shape":[1000,1000,1000],"chunks":[100,100,100],"dtype":"<f4","compressor":null,"fill_value":0,"order":"C","filters":null}`)
	for memory, warns := range map[string]bool{"": false, `requires = { memory = "1GiB" }`: false, `requires = { memory = "5MiB" }`: true} {
		path := write("job.toml", "[[task]]\nid = \"a\"\narray = \"in.zarr\"\noutput = \"out.zarr\"\nblock = { shape = [100, 100, 100], context = 10 }\nrun = { command = [\"true\"] }\n"+memory+"\n")
		p := planOf(t, path)
		// 120^3 of 2 bytes, 100^3 of 4 bytes.
		if task := p.Tasks[0]; task.ReadBytes == nil || *task.ReadBytes != 3_456_000 || task.WriteBytes == nil || *task.WriteBytes != 4_000_000 {
			t.Errorf("a block reads %v and writes %v bytes", task.ReadBytes, task.WriteBytes)
		}
		want := `task "a": a block reads 3.3MiB of its array and writes 3.8MiB of its output, and requires.memory is 5MiB`
		if warned := strings.Contains(strings.Join(p.Warnings, "\n"), want); warned != warns {
			t.Errorf("with %q: %q", memory, p.Warnings)
		}
		_, stdout, _ := call("plan", path)
		for _, part := range []string{"3.3MiB", "3.8MiB"} {
			if !strings.Contains(stdout, part) {
				t.Errorf("there is no %s in\n%s", part, stdout)
			}
		}
	}
}

func TestBytesOfABlockThatAreNotKnownAreNotSaid(t *testing.T) {
	if got := blockBytes(nil, []int64{10}); got != nil {
		t.Errorf("of no array %d", *got)
	}
	if got := blockBytes(&job.Volume{DType: "string"}, []int64{10}); got != nil {
		t.Errorf("of an array of no known type %d", *got)
	}
	if got := blockBytes(&job.Volume{DType: "<f8"}, []int64{1 << 40, 1 << 40}); got != nil {
		t.Errorf("of a block beyond all numbers %d", *got)
	}
}

func TestHowLargeAnElementOfATypeIs(t *testing.T) {
	for dtype, want := range map[string]int64{
		"|u1": 1, "<u2": 2, ">f8": 8, "<c16": 16, "|b1": 1, "|V12": 12, "uint8": 1, "int64": 8, "float16": 2, "complex128": 16, "bool": 1, "r24": 3,
		"": 0, "string": 0, "<U5": 0, "[(\"x\",\"<f4\")]": 0, "float": 0, "u": 0, "datetime64[ns]": 0, "<M8": 0,
	} {
		if got := elementBytes(dtype); got != want {
			t.Errorf("%s: %d bytes, want %d", dtype, got, want)
		}
	}
}
