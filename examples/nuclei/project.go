package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// project is the folder of the job file, with the input under data/ and everything that is made under out/.
type project struct{ dir string }

func (p project) path(name string) string { return filepath.Join(p.dir, filepath.FromSlash(name)) }

func (p project) source() string       { return p.path("data/nuclei.v2.zarr/0") }
func (p project) smoothed() string     { return p.path("out/smoothed.zarr") }      // uint8
func (p project) labelsBlocks() string { return p.path("out/labels_blocks.zarr") } // int64, ids of labelBlock
func (p project) labels() string       { return p.path("out/labels.zarr") }        // int32, final numbers
func (p project) numbers() string      { return p.path("out/numbers.txt") }        // the table of stitch
func (p project) tracking() string     { return p.path("out/tracking") }           // done marks, kept by daisy
func (p project) slice() string        { return p.path("out/slice.png") }

// blockIDs is the list of the ids that one block has found.
func (p project) blockIDs(index point) string {
	return p.path(fmt.Sprintf("out/block_ids/%d.%d.%d.txt", index[0], index[1], index[2]))
}

// check finds a wrong --dir before anything is made or removed there.
func (p project) check() error {
	job := p.path("nuclei.toml")
	if _, err := os.Stat(job); err != nil {
		return fmt.Errorf("no job file %s: give the folder of nuclei.toml with --dir", job)
	}
	return nil
}

func exists(path string) (bool, error) {
	_, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}
