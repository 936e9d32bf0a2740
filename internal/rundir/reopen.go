package rundir

import (
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
)

// Reopen says that a run which had ended goes on: its statistics would lie. Their space is held for those of the new end.
func (d *Dir) Reopen() error {
	room := d.join(roomFile)
	switch err := os.Rename(d.StatsPath(), room); {
	case errors.Is(err, fs.ErrNotExist):
		return nil // it never ended; the room, if any, is still there
	case err != nil:
		return explain("rename", d.StatsPath(), err)
	}
	f, err := os.OpenFile(room, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return explain("write", room, err)
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() < statsRoom {
		_, _ = io.CopyN(f, rand.Reader, statsRoom-info.Size()) // a smaller room is one, too
	}
	return syncDir(d.path)
}
