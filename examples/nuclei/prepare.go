package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// prepare makes the output arrays: metadata only, the chunks come from the blocks. What is there already is kept, so
// that a second run skips it; with fresh, everything under out/ is removed first.
//
// Done marks without the arrays that they speak of would make a run skip blocks whose results are gone: they are
// removed.
func prepare(p project, fresh bool, log io.Writer) error {
	if err := p.check(); err != nil {
		return err
	}
	source, err := openArray[uint8](p.source())
	if err != nil {
		return err
	}
	if fresh {
		if err := os.RemoveAll(p.path("out")); err != nil {
			return err
		}
		fmt.Fprintf(log, "%s: removed, as --fresh says (results, done marks, runs)\n", p.path("out"))
	}

	outputs := []struct {
		path     string
		metadata []byte
	}{
		{p.smoothed(), encodeMetadata[uint8](source.shape, source.chunks)},
		{p.labelsBlocks(), encodeMetadata[int64](source.shape, source.chunks)},
		{p.labels(), encodeMetadata[int32](source.shape, source.chunks)},
	}
	var missing []int
	for i, output := range outputs {
		file := filepath.Join(output.path, metadataFile)
		there, err := exists(file)
		if err != nil {
			return err
		}
		if !there {
			missing = append(missing, i)
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if !bytes.Equal(text, output.metadata) {
			return fmt.Errorf("%s is not as this program makes it; start over with `nuclei prepare --fresh`", file)
		}
	}
	if len(missing) == 0 {
		fmt.Fprintf(log, "%s: the arrays are there already and are kept\n", p.path("out"))
		return nil
	}
	marks, err := exists(p.tracking())
	if err != nil {
		return err
	}
	if marks {
		// Before the arrays are made: if this is interrupted between the two, the next prepare still sees it.
		if err := os.RemoveAll(p.tracking()); err != nil {
			return err
		}
		fmt.Fprintf(log, "%s: removed, because %s is missing: all blocks will run again\n", p.tracking(), outputs[missing[0]].path)
	}
	for _, i := range missing {
		if err := writeFile(filepath.Join(outputs[i].path, metadataFile), outputs[i].metadata); err != nil {
			return err
		}
		fmt.Fprintf(log, "%s: made, empty, %d x %d x %d voxels\n", outputs[i].path, source.shape[0], source.shape[1], source.shape[2])
	}
	return nil
}
