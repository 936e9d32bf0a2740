// Package version says which version of the program this is.
package version

import "runtime/debug"

// Version is that of the last release, or of the one to come.
const Version = "0.1.0"

// String is the version with the revision that the program was built from, where the build knows it.
func String() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return Version
	}
	var revision, dirty string
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision" && len(s.Value) >= 12:
			revision = "+" + s.Value[:12]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = ".modified"
		}
	}
	return Version + revision + dirty
}
