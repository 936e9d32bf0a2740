package rundir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
)

const epochFile = "epoch"

// TakenOverError says that another coordinator has begun a newer epoch of the run.
type TakenOverError struct {
	Path         string // of the run directory
	Epoch, Newer uint64
	By           Owner // who holds the lock now; zero if not known
}

func (e *TakenOverError) Error() string {
	by := ""
	if e.By.Host != "" {
		by = fmt.Sprintf(" by pid %d on %s", e.By.PID, e.By.Host)
	}
	return fmt.Sprintf("%s: the run was taken over%s: it is in epoch %d now, this coordinator was epoch %d", e.Path, by, e.Newer, e.Epoch)
}

// Epoch is the present epoch of the run; 0 before the first.
func (d *Dir) Epoch() (uint64, error) {
	path := d.join(epochFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, explain("read", path, err)
	}
	epoch, err := strconv.ParseUint(strings.TrimSpace(string(data)), 10, 64)
	if err != nil || epoch == 0 {
		return 0, fmt.Errorf("%s: %q is no epoch; the file was damaged: write the highest number of the files in %s into it", path, data, d.JournalDir())
	}
	return epoch, nil
}

// NextEpoch durably raises the epoch and returns it. The caller holds the
// lock; should two call it at once all the same, the journal of an epoch can be created by one of them only.
func (d *Dir) NextEpoch() (uint64, error) {
	epoch, err := d.Epoch()
	if err != nil {
		return 0, err
	}
	epoch++
	return epoch, d.write(epochFile, []byte(strconv.FormatUint(epoch, 10)+"\n"))
}

// CheckEpoch gives a *TakenOverError if the run is in a newer epoch. It reads
// one small file, so that it can be called before each commit.
func (d *Dir) CheckEpoch(epoch uint64) error {
	now, err := d.Epoch()
	if err != nil {
		return err
	}
	if now > epoch {
		by, _ := readOwner(d.join(lockFile))
		return &TakenOverError{d.path, epoch, now, by}
	}
	return nil
}
