package rundir

import (
	"io"
	"math"
	"os"
	"path/filepath"
)

// MaskPath is where CopyMask puts the mask of a task.
func (d *Dir) MaskPath(task string) string { return filepath.Join(d.path, masksDir, task+".npy") }

// CopyMask keeps the mask of a task, a file at src, for a resume: the run is one of these blocks, whatever becomes of the file.
func (d *Dir) CopyMask(task, src string) error {
	in, err := os.Open(src)
	if err != nil {
		return explain("copy the mask", src, err)
	}
	defer in.Close()
	dst := d.MaskPath(task)
	if err := os.MkdirAll(filepath.Dir(dst), 0o700); err != nil {
		return explain("make the folder for masks", filepath.Dir(dst), err)
	}
	out, err := newReplacement(dst, 0o600)
	if err != nil {
		return err
	}
	defer out.discard()
	// From its begin also where the descriptor is one that was read already, as that of /dev/fd may be.
	if _, err := io.Copy(out, io.NewSectionReader(in, 0, math.MaxInt64)); err != nil {
		return explain("copy the mask", src, err)
	}
	return out.replace()
}
