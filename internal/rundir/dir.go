package rundir

import (
	"crypto/rand"
	"encoding/base32"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Version is the format version of run directories that this package makes.
const Version = 1

const (
	runFile    = "run.json"
	jobFile    = "job.toml"
	secretFile = "secret"
	statsFile  = "stats.json"
	roomFile   = "stats.json.room"
	latestLink = "latest"
	binDir     = "bin"
	journalDir = "journal"
	logsDir    = "logs"
	masksDir   = "masks"
	outboxDir  = "outbox"
	scriptsDir = "scripts"
)

// Dir is a run directory that exists.
type Dir struct {
	path      string
	identity  identity
	warnings  []string
	latestWas string // what the link "latest" led to before this run was made; "" if to nothing
}

// identity is the content of run.json.
type identity struct {
	Version int       `json:"version"`
	RunID   string    `json:"run_id"`
	Name    string    `json:"name"`
	Created time.Time `json:"created"`
}

// Create makes a run directory: explicit itself if that is not empty (it must
// not exist, or be an empty directory), else parent/name-<local time>, with a
// number behind it when two runs begin in one second. Beside the latter the
// symbolic link "latest" is replaced to lead to it; where that fails, Warnings
// says so. The name may be any text; what paths do not like is replaced.
func Create(parent, name, explicit string) (*Dir, error) {
	return create(parent, name, explicit, time.Now())
}

func create(parent, name, explicit string, now time.Time) (_ *Dir, err error) {
	var path string
	if explicit != "" {
		path, err = makeExplicit(explicit)
	} else {
		path, err = makeNamed(parent, name, now)
	}
	if err != nil {
		return nil, err
	}
	if err := claim(path); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = os.RemoveAll(path) // it was new or empty
		}
	}()
	d := &Dir{path: path, identity: identity{Version, newRunID(), name, now.UTC().Truncate(time.Second)}}
	for _, sub := range []string{journalDir, logsDir, outboxDir} {
		if err := os.Mkdir(d.join(sub), 0o700); err != nil {
			return nil, explain("make the run directory", d.join(sub), err)
		}
	}
	if err := d.write(secretFile, []byte(newSecret()+"\n")); err != nil {
		return nil, err
	}
	if err := d.holdRoom(); err != nil {
		return nil, err
	}
	// Last, so that what has a run.json is whole.
	about, err := json.MarshalIndent(d.identity, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", d.join(runFile), err)
	}
	if err := d.write(runFile, append(about, '\n')); err != nil {
		return nil, err
	}
	if explicit == "" {
		d.latestWas, _ = os.Readlink(d.latestPath())
		if err := pointLatest(d.latestPath(), filepath.Base(path)); err != nil {
			d.warnings = append(d.warnings, err.Error())
		}
	}
	return d, nil
}

// claim takes an empty directory for one run by making the first thing in it. Two may have found it empty at once; what is in it
// belongs to the one that comes first, and the other may remove nothing.
func claim(path string) error {
	first := filepath.Join(path, binDir)
	err := os.Mkdir(first, 0o700)
	if err == nil {
		return nil
	}
	_ = os.Remove(path) // does nothing unless it is empty
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("another run began in %s just now; give another --run-dir", path)
	}
	return explain("make the run directory", first, err)
}

func makeExplicit(explicit string) (string, error) {
	path, err := absolute(explicit)
	if err != nil {
		return "", err
	}
	switch about, err := readIdentity(path); {
	case err == nil:
		return "", fmt.Errorf("%s holds run %s already; give another --run-dir", path, about.RunID)
	case !errors.Is(err, fs.ErrNotExist) && !isNotDirectory(err):
		return "", fmt.Errorf("%w; give another --run-dir", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return "", explain("make the run directory", path, err)
	}
	err = os.Mkdir(path, 0o700)
	if err == nil {
		return path, nil
	}
	if !errors.Is(err, fs.ErrExist) {
		return "", explain("make the run directory", path, err)
	}
	info, err := os.Stat(path)
	if err != nil {
		return "", explain("use the run directory", path, err)
	}
	if !info.IsDir() {
		return "", fmt.Errorf("%s is a file, not a directory; give another --run-dir", path)
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return "", explain("use the run directory", path, err)
	}
	if len(entries) > 0 {
		return "", fmt.Errorf("%s is not empty (it has %q) and is no run directory; give another --run-dir", path, entries[0].Name())
	}
	if err := os.Chmod(path, 0o700); err != nil {
		return "", explain("make the run directory private", path, err)
	}
	return path, nil
}

func makeNamed(parent, name string, now time.Time) (string, error) {
	parent, err := absolute(parent)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(parent, 0o777); err != nil {
		return "", explain("make the directory for runs", parent, err)
	}
	base := filepath.Join(parent, SafeName(name)+"-"+now.Format("2006-01-02T15-04-05"))
	const most = 1000 // runs of one name in one second
	for n := 1; n <= most; n++ {
		path := base
		if n > 1 {
			path += "-" + strconv.Itoa(n)
		}
		err := os.Mkdir(path, 0o700)
		if err == nil {
			return path, nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return "", explain("make the run directory", path, err)
		}
	}
	return "", fmt.Errorf("make the run directory: %s and %d more of that name exist already; give a --run-dir", base, most-1)
}

// Discard removes a run directory. Where the link "latest" leads to it, it leads where it did before the run was made if this
// Dir is from Create and that is still there, and goes otherwise. Nobody may coordinate the run.
func (d *Dir) Discard() error {
	link := d.latestPath()
	if to, err := os.Readlink(link); err == nil && to == filepath.Base(d.path) {
		if d.latestWas != "" {
			err = pointLatest(link, d.latestWas)
		}
		if _, gone := os.Stat(link); err == nil && (d.latestWas == "" || gone != nil) {
			err = os.Remove(link)
		}
		if err != nil {
			return err
		}
	}
	return os.RemoveAll(d.path)
}

func (d *Dir) latestPath() string { return filepath.Join(filepath.Dir(d.path), latestLink) }

// pointLatest makes the link lead to a run directory beside it.
func pointLatest(link, to string) error {
	if info, err := os.Lstat(link); err == nil && info.Mode()&fs.ModeSymlink == 0 {
		return fmt.Errorf("%s is not a symbolic link, so it was left as it is; rename it if it is to lead to the latest run", link)
	}
	temp := filepath.Join(filepath.Dir(link), ".latest-"+newRunID())
	if err := os.Symlink(to, temp); err != nil {
		return explain("make the link", link, err)
	}
	if err := os.Rename(temp, link); err != nil {
		_ = os.Remove(temp)
		return explain("make the link", link, err)
	}
	return nil
}

// Open opens a run directory that Create has made; path may be the link "latest".
func Open(path string) (*Dir, error) {
	path, err := absolute(path)
	if err != nil {
		return nil, err
	}
	// The link "latest" may lead elsewhere while the run goes on.
	real, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no run directory %s", path)
	}
	if err != nil {
		return nil, explain("open the run directory", path, err)
	}
	about, err := readIdentity(real)
	if errors.Is(err, fs.ErrNotExist) || isNotDirectory(err) {
		return nil, fmt.Errorf("%s is no run directory: it has no %s", real, runFile)
	}
	if err != nil {
		return nil, err
	}
	return &Dir{path: real, identity: about}, nil
}

func readIdentity(path string) (identity, error) {
	var about identity
	file := filepath.Join(path, runFile)
	data, err := os.ReadFile(file)
	if err != nil {
		return about, explain("read", file, err)
	}
	if err := json.Unmarshal(data, &about); err != nil {
		return about, fmt.Errorf("%s cannot be read: %w", file, err)
	}
	if about.Version != Version {
		return about, fmt.Errorf("%s has format version %d, and this program knows version %d; use the version of daisy that made the run", file, about.Version, Version)
	}
	if about.RunID == "" {
		return about, fmt.Errorf("%s has no run_id", file)
	}
	return about, nil
}

// Path is the absolute path of the directory.
func (d *Dir) Path() string { return d.path }

// RunID is short, random, and stays the same over resumes.
func (d *Dir) RunID() string { return d.identity.RunID }

// Name is the run's name as the job gave it.
func (d *Dir) Name() string { return d.identity.Name }

// Created is when the directory was made, UTC, to the second.
func (d *Dir) Created() time.Time { return d.identity.Created }

// Warnings says what could not be made and is not needed, as whole sentences.
func (d *Dir) Warnings() []string { return slices.Clone(d.warnings) }

func (d *Dir) join(name string) string { return filepath.Join(d.path, name) }

// JobPath is where the frozen job file is.
func (d *Dir) JobPath() string { return d.join(jobFile) }

// WorkerPath is where CopyWorker puts the worker binary.
func (d *Dir) WorkerPath() string { return filepath.Join(d.path, binDir, workerName) }

// JournalDir is the directory of the journal.
func (d *Dir) JournalDir() string { return d.join(journalDir) }

// LogsDir is the directory of the workers' logs.
func (d *Dir) LogsDir() string { return d.join(logsDir) }

// OutboxDir is where workers leave results that they could not deliver.
func (d *Dir) OutboxDir() string { return d.join(outboxDir) }

// ScriptsPath is where batch scripts are, if the run has any.
func (d *Dir) ScriptsPath() string { return d.join(scriptsDir) }

// MakeScripts makes ScriptsPath if it is not there.
func (d *Dir) MakeScripts() error {
	if err := os.MkdirAll(d.ScriptsPath(), 0o700); err != nil {
		return explain("make the folder for batch scripts", d.ScriptsPath(), err)
	}
	return nil
}

// StatsPath is where the statistics are.
func (d *Dir) StatsPath() string { return d.join(statsFile) }

// DiscoveryPath is the file that tells workers where the coordinator listens.
func (d *Dir) DiscoveryPath() string { return d.join(discoveryFile) }

// LogPath is the log file of a worker. Any id gives a file in LogsDir.
func (d *Dir) LogPath(workerID string) string {
	return filepath.Join(d.path, logsDir, SafeName(workerID)+".log")
}

// WriteJob freezes the job file.
func (d *Dir) WriteJob(job []byte) error { return d.write(jobFile, job) }

// Secret is what gives access to the run: 64 hexadecimal digits.
func (d *Dir) Secret() (string, error) { return ReadSecret(d.path) }

// ReadSecret reads the secret of the run directory at path, which needs no run.json.
func ReadSecret(path string) (string, error) {
	file := filepath.Join(path, secretFile)
	data, err := os.ReadFile(file)
	if err != nil {
		return "", explain("read the run's secret", file, err)
	}
	secret := strings.TrimSpace(string(data))
	if len(secret) < 32 {
		return "", fmt.Errorf("read the run's secret: %s has %d characters, and at least 32 are needed; the file was damaged: restore it or start a new run", file, len(secret))
	}
	return secret, nil
}

// Unfinished gives the earlier runs of this name in parent, oldest first, that did not end: their statistics are missing or
// say that the run is still going, and nobody coordinates them. Runs in explicit directories elsewhere are not seen.
func Unfinished(parent, name string) []string {
	entries, err := os.ReadDir(parent)
	if err != nil {
		return nil // no directory of runs: none unfinished
	}
	var found []*Dir
	for _, e := range entries {
		if !e.IsDir() || !strings.HasPrefix(e.Name(), SafeName(name)+"-") {
			continue
		}
		d, err := Open(filepath.Join(parent, e.Name()))
		if err != nil || d.Name() != name || d.Finished() {
			continue
		}
		if _, alive := d.Coordinated(); !alive {
			found = append(found, d)
		}
	}
	slices.SortStableFunc(found, func(a, b *Dir) int { return a.Created().Compare(b.Created()) })
	var paths []string
	for _, d := range found {
		paths = append(paths, d.path)
	}
	return paths
}

// Finished reports whether stats.json is there and says that the run has ended.
func (d *Dir) Finished() bool {
	data, err := os.ReadFile(d.StatsPath())
	if err != nil {
		return false
	}
	var stats struct {
		Run struct {
			State string `json:"state"`
		} `json:"run"`
	}
	return json.Unmarshal(data, &stats) == nil && stats.Run.State != "" && stats.Run.State != "running"
}

// newRunID is 8 characters of a-z and 2-7: 40 random bits.
func newRunID() string {
	var b [5]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	return strings.ToLower(base32.StdEncoding.EncodeToString(b[:]))
}

func newSecret() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	return hex.EncodeToString(b[:])
}
