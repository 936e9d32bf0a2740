package rundir

import (
	"crypto/rand"
	"fmt"
	"io"
	"os"
)

// statsRoom is how much space is held for stats.json from the start, so that a disk that fills up does not cost a run its
// statistics. It is enough for some thousand workers, or for a dozen tasks whose failed blocks all had much to say.
const statsRoom = 2 << 20

// holdRoom fills the room with bytes that no file system packs or leaves out.
func (d *Dir) holdRoom() error {
	path := d.join(roomFile)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return explain("write", path, err)
	}
	_, err = io.CopyN(f, rand.Reader, statsRoom)
	if cerr := f.Close(); err == nil {
		err = cerr // NFS may report a full disk only here
	}
	if err != nil {
		return explain("write", path, err)
	}
	return nil
}

// WriteStats replaces stats.json. The first time it needs no space on the disk, within the limit of statsRoom.
func (d *Dir) WriteStats(stats []byte) error {
	if d.writeIntoRoom(stats) == nil {
		return nil
	}
	// There is no room any more, or it was too small and is free now.
	if err := d.write(statsFile, stats); err != nil {
		return fmt.Errorf("%w%s. The statistics are in no file: the tables that are printed are all there is", err, Shortage(err, d.path, int64(len(stats))))
	}
	return nil
}

// writeIntoRoom writes over the room, so that nobody else can take its space, and makes it stats.json.
func (d *Dir) writeIntoRoom(stats []byte) error {
	room, err := os.OpenFile(d.join(roomFile), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	f := &replacement{File: room, path: d.StatsPath()}
	defer f.discard()
	if _, err := f.Write(stats); err != nil {
		return err
	}
	if err := f.Truncate(int64(len(stats))); err != nil {
		return err
	}
	return f.replace()
}
