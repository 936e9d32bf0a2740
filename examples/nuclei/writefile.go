package main

import (
	"os"
	"path/filepath"
)

// writeFile writes under a temporary name beside the path and renames, so that a worker that is killed leaves the old
// file or none, never half a file, and a block that runs twice does no harm.
func writeFile(path string, content []byte) error {
	dir, name := filepath.Split(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	file, err := os.CreateTemp(dir, "."+name+".tmp-*")
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	if err == nil {
		err = file.Chmod(0o644) // CreateTemp's 0600 would hide the results from the rest of the group
	}
	if closed := file.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		os.Remove(file.Name())
	}
	return err
}
