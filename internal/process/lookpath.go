package process

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// LookPath gives the absolute path of the program name: with a slash in it, that file, relative to dir; else the first
// executable of that name in the folders of path (the value of a PATH variable). Relative folders in path are not searched:
// what they mean changes with the working directory. The error says where it was looked for, and what was there instead.
func LookPath(name, dir, path string) (string, error) {
	if name == "" {
		return "", fmt.Errorf("no program named")
	}
	if strings.Contains(name, "/") {
		file := name
		if !filepath.IsAbs(file) {
			file = filepath.Join(dir, file)
		}
		if reason := whyNotExecutable(file); reason != "" {
			return "", fmt.Errorf("cannot run %q: %s %s", name, file, reason)
		}
		return file, nil
	}
	var near string
	var searched []string
	for _, folder := range filepath.SplitList(path) {
		if !filepath.IsAbs(folder) {
			continue
		}
		file := filepath.Join(folder, name)
		reason := whyNotExecutable(file)
		if reason == "" {
			return file, nil
		}
		if reason != notThere && near == "" {
			near = fmt.Sprintf("; %s %s", file, reason)
		}
		searched = append(searched, folder)
	}
	if len(searched) == 0 {
		return "", fmt.Errorf("cannot find the program %q: PATH is empty", name)
	}
	hint := ""
	if whyNotExecutable(filepath.Join(dir, name)) == "" {
		hint = fmt.Sprintf("; there is one in %s: write %q", dir, "./"+name)
	}
	return "", fmt.Errorf("cannot find the program %q in PATH (%s)%s%s", name, strings.Join(searched, ":"), near, hint)
}

const notThere = "does not exist"

// whyNotExecutable is empty if the file can be run.
func whyNotExecutable(file string) string {
	info, err := os.Stat(file)
	switch {
	case os.IsNotExist(err):
		return notThere
	case err != nil:
		return "cannot be looked at: " + err.Error()
	case info.IsDir():
		return "is a folder"
	case info.Mode()&0o111 == 0 || unix.Access(file, unix.X_OK) != nil:
		return "is not executable (chmod +x)"
	}
	return ""
}
