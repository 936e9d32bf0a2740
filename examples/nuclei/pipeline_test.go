package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"image/png"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// gridBlocks cuts a volume into the blocks of a task, as daisy does with fit = "shrink".
func gridBlocks(volume, shape point, context int) []block {
	var blocks []block
	extent := box{Shape: volume}
	for z := 0; z*shape[0] < volume[0]; z++ {
		for y := 0; y*shape[1] < volume[1]; y++ {
			for x := 0; x*shape[2] < volume[2]; x++ {
				whole := box{Offset: point{z * shape[0], y * shape[1], x * shape[2]}, Shape: shape}
				blocks = append(blocks, block{
					Index:   point{z, y, x},
					Read:    whole.grow(context).intersect(extent.grow(context)),
					Write:   whole.intersect(extent),
					Attempt: 1,
					Lease:   fmt.Sprintf("1.%d", len(blocks)+1),
				})
			}
		}
	}
	return blocks
}

// stream sends blocks to a worker in this process and returns its answers.
func stream(t *testing.T, name string, do step, blocks []block) []answer {
	t.Helper()
	var in, out bytes.Buffer
	for _, b := range blocks {
		if err := json.NewEncoder(&in).Encode(b); err != nil {
			t.Fatal(err)
		}
	}
	if err := serve(&in, &out, io.Discard, name, do); err != nil {
		t.Errorf("%s: %v", name, err)
	}
	var answers []answer
	for decode := json.NewDecoder(&out); decode.More(); {
		var a answer
		if err := decode.Decode(&a); err != nil {
			t.Fatal(err)
		}
		answers = append(answers, a)
	}
	if len(answers) != len(blocks) {
		t.Fatalf("%s: %d answers to %d blocks", name, len(answers), len(blocks))
	}
	for i, a := range answers {
		if a.Lease != blocks[i].Lease {
			t.Errorf("%s: answer %d is for lease %s, want %s", name, i, a.Lease, blocks[i].Lease)
		}
	}
	return answers
}

// runTask does the blocks in an order of chance, by two workers at the same time.
func runTask(t *testing.T, name string, do step, blocks []block) {
	t.Helper()
	rand.Shuffle(len(blocks), func(i, j int) { blocks[i], blocks[j] = blocks[j], blocks[i] })
	var workers sync.WaitGroup
	for _, part := range [][]block{blocks[:len(blocks)/2], blocks[len(blocks)/2:]} {
		workers.Go(func() {
			for i, a := range stream(t, name, do, part) {
				if !a.OK {
					t.Errorf("%s block %v: %s", name, part[i].Index, a.Error)
				}
			}
		})
	}
	workers.Wait()
}

func runPipeline(t *testing.T, p project) {
	t.Helper()
	volume, chunk, steps := point{60, 256, 256}, point{32, 32, 32}, p.steps()
	runTask(t, "smooth", steps["smooth"], gridBlocks(volume, chunk, gaussContext))
	runTask(t, "label", steps["label"], gridBlocks(volume, chunk, 0))
	runTask(t, "stitch", steps["stitch"], gridBlocks(volume, volume, 0))
	runTask(t, "relabel", steps["relabel"], gridBlocks(volume, chunk, 0))
	if t.Failed() {
		t.FailNow()
	}
}

func TestTheBlocksInAnyOrderGiveTheBytesOfTheReference(t *testing.T) {
	p := newProject(t)
	if err := prepare(p, false, io.Discard); err != nil {
		t.Fatal(err)
	}
	runPipeline(t, p)

	var out strings.Builder
	if err := verify(p, &out); err != nil {
		t.Fatal(err)
	}
	want := "nuclei    2347f2e9…  ok\nsmoothed  89e764fa…  ok\nlabels    1544cdbe…  ok\n22 components\n" + p.slice() + "\n"
	if got := out.String(); got != want {
		t.Errorf("verify printed\n%s\nwant\n%s", got, want)
	}
	file, err := os.Open(p.slice())
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	picture, err := png.Decode(file)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := picture.Bounds().Dx(), 3*256*sliceZoom+2*sliceGap; got != want {
		t.Errorf("the slice is %d wide, want %d", got, want)
	}
	if left, err := filepath.Glob(p.path("out/*/*/*/.*tmp*")); err != nil || len(left) != 0 {
		t.Errorf("temporary files are left: %v, %v", left, err)
	}

	t.Run("a block that runs again changes nothing", func(t *testing.T) {
		again := gridBlocks(point{60, 256, 256}, point{32, 32, 32}, gaussContext)[:3]
		runTask(t, "smooth", p.smooth, again)
		if err := verify(p, io.Discard); err != nil {
			t.Error(err)
		}
	})
	t.Run("without stitching there are 209 components", func(t *testing.T) {
		labels, err := openArray[int64](p.labelsBlocks())
		if err != nil {
			t.Fatal(err)
		}
		v, err := labels.read(labels.extent())
		if err != nil {
			t.Fatal(err)
		}
		ids := map[int64]bool{}
		for _, id := range v.data {
			ids[id] = true
		}
		if got := len(ids) - 1; got != 209 {
			t.Errorf("got %d ids in the blocks, want 209", got)
		}
	})
	// From here on the results are damaged.
	t.Run("a wrong byte fails verify, which names the array and both sums", func(t *testing.T) {
		damage(t, filepath.Join(p.smoothed(), "0", "3", "5"))
		damage(t, filepath.Join(p.labels(), "1", "0", "7"))
		var out strings.Builder
		err := verify(p, &out)
		if err == nil {
			t.Fatal("verify accepts a wrong byte")
		}
		for _, want := range []string{
			"THE RESULT IS WRONG",
			p.smoothed() + ": wrong bytes\n  expected sha256 89e764fa7b7e2d19604bcc968f6b766b4f376b019dd7a9cd05d2db67c0043ee3\n  got      sha256 ",
			p.labels() + ": wrong bytes\n  expected sha256 1544cdbe40c2d115481345095c5954e747e202833682d4e05ff0c429c4b8e142\n  got      sha256 ",
			"make demo ARGS=--fresh",
		} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("the error\n%v\ndoes not say\n%s", err, want)
			}
		}
		if got := out.String(); !strings.Contains(got, "nuclei    2347f2e9…  ok\n") || strings.Count(got, "WRONG") != 2 {
			t.Errorf("verify printed\n%s", got)
		}
	})
	t.Run("a missing chunk fails verify", func(t *testing.T) {
		chunk := filepath.Join(p.labels(), "0", "0", "0")
		if err := os.Remove(chunk); err != nil {
			t.Fatal(err)
		}
		err := verify(p, io.Discard)
		if err == nil || !strings.Contains(err.Error(), "chunk "+chunk+" is missing") {
			t.Errorf("got %v", err)
		}
	})
}

// damage changes one byte in the middle of a file.
func damage(t *testing.T, path string) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	content[len(content)/2] ^= 1
	if err := os.WriteFile(path, content, 0o644); err != nil {
		t.Fatal(err)
	}
}
