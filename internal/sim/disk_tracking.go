package sim

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"example.org/daisy/internal/tracking"
)

// A trackingDisk is the same disk as tracking sees it: with folders, and files that are written in the middle.
type trackingDisk struct {
	*memDisk
	owner *coordinator // who uses it; nil = somebody who only looks
}

// OpenFile opens a file, or makes one.
func (d trackingDisk) OpenFile(name string, flag int, _ fs.FileMode) (tracking.File, error) {
	d.step()
	f := d.files[name]
	switch {
	case f == nil && flag&os.O_CREATE == 0:
		return nil, noFile("open", name, fs.ErrNotExist)
	case f != nil && flag&os.O_EXCL != 0:
		return nil, noFile("open", name, fs.ErrExist)
	case f == nil && d.full:
		return nil, noFile("open", name, syscall.ENOSPC)
	case f == nil:
		f = &memFile{disk: d.memDisk}
		d.rename(name, f)
	}
	return &handle{memFile: f, name: name}, nil
}

// A handle is an open file.
type handle struct {
	*memFile
	name string
	at   int
}

func (h *handle) Read(b []byte) (int, error) {
	if h.at >= len(h.data) {
		return 0, io.EOF
	}
	n := copy(b, h.data[h.at:])
	h.at += n
	return n, nil
}

func (h *handle) ReadAt(b []byte, at int64) (int, error) {
	if at >= int64(len(h.data)) {
		return 0, io.EOF
	}
	n := copy(b, h.data[at:])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

func (h *handle) WriteAt(b []byte, at int64) (int, error) {
	h.disk.step()
	if h.disk.full {
		n := h.disk.rng.IntN(len(b) + 1)
		h.put(b[:n], int(at))
		return n, noFile("write", h.name, syscall.ENOSPC)
	}
	h.put(b, int(at))
	return len(b), nil
}

func (h *handle) Stat() (fs.FileInfo, error) { return info{h.memFile, h.name}, nil }

// info is what there is to know of a file.
type info struct {
	f    *memFile
	name string
}

func (i info) Name() string       { return path.Base(i.name) }
func (i info) Size() int64        { return int64(len(i.f.data)) }
func (i info) ModTime() time.Time { return time.Time{} }
func (i info) IsDir() bool        { return i.f.dir }
func (i info) Sys() any           { return nil }
func (i info) Mode() fs.FileMode {
	if i.f.dir {
		return fs.ModeDir
	}
	return 0
}

// Lstat says what a name is.
func (d trackingDisk) Lstat(name string) (fs.FileInfo, error) {
	if f := d.files[name]; f != nil {
		return info{f, name}, nil
	}
	return nil, noFile("lstat", name, fs.ErrNotExist)
}

// Mkdir makes a folder that must not be there.
func (d trackingDisk) Mkdir(name string, _ fs.FileMode) error {
	d.step()
	if d.files[name] != nil {
		return noFile("mkdir", name, fs.ErrExist)
	}
	if d.full {
		return noFile("mkdir", name, syscall.ENOSPC)
	}
	d.rename(name, &memFile{disk: d.memDisk, dir: true})
	return nil
}

// MkdirAll makes a folder and those above it.
func (d trackingDisk) MkdirAll(name string, perm fs.FileMode) error {
	if name == "/" || d.files[name] != nil {
		return nil
	}
	if err := d.MkdirAll(path.Dir(name), perm); err != nil {
		return err
	}
	return d.Mkdir(name, perm)
}

// under lists a name and everything below it, sorted.
func (d trackingDisk) under(name string) (list []string) {
	for n := range d.files {
		if n == name || strings.HasPrefix(n, name+"/") {
			list = append(list, n)
		}
	}
	slices.Sort(list)
	return list
}

// RemoveAll removes a name and everything below it.
func (d trackingDisk) RemoveAll(name string) error {
	d.step()
	for _, n := range d.under(name) {
		d.rename(n, nil)
	}
	return nil
}

// Rename moves a folder with everything in it, at once.
func (d trackingDisk) Rename(from, to string) error {
	d.step()
	list := d.under(from)
	if len(list) == 0 {
		return noFile("rename", from, fs.ErrNotExist)
	}
	first := len(d.changes)
	for _, n := range list {
		f := d.files[n]
		d.rename(n, nil)
		d.rename(to+strings.TrimPrefix(n, from), f)
	}
	for i := first + 1; i < len(d.changes); i++ {
		d.changes[i].with = true
	}
	return nil
}

// Any reports whether there is anything in a folder.
func (d trackingDisk) Any(dir string) (bool, error) {
	list := d.under(dir)
	if len(list) == 0 {
		return false, noFile("open", dir, fs.ErrNotExist)
	}
	return len(list) > 1, nil
}

// SyncDir makes names durable.
func (d trackingDisk) SyncDir(dir string) error { return d.Sync(dir) }

// errLocked: another coordinator that lives has the group.
var errLocked = errors.New("another coordinator has locked it")

// Lock gives a group to one coordinator.
func (d trackingDisk) Lock(dir, _ string) (tracking.Lock, error) {
	if owner := d.locks[dir]; owner != nil && !owner.dead && owner != d.owner {
		return nil, errLocked
	}
	d.locks[dir] = d.owner
	return groupLock{d, dir}, nil
}

type groupLock struct {
	d   trackingDisk
	dir string
}

func (l groupLock) Release() error {
	if l.d.locks[l.dir] == l.d.owner {
		delete(l.d.locks, l.dir)
	}
	return nil
}
