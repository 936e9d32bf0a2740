package rundir

import (
	"fmt"
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxName is the longest safe name in bytes: with a time, a number and a
// suffix it stays under the 255 of file systems, and under the 143 of encrypted ones.
const maxName = 100

// SafeName makes one path element of any text: letters, digits, '.', '_' and
// '-' stay, every run of other characters becomes one '-', it does not begin with
// a '.' or '-', is at most 100 bytes long, and "run" if nothing is left.
func SafeName(name string) string {
	var b strings.Builder
	dash := false
	for _, r := range name {
		if r == utf8.RuneError || !(unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.Is(unicode.Mn, r) || strings.ContainsRune("._-", r)) {
			r = '-'
		}
		if r == '-' && dash || b.Len() == 0 && (r == '.' || r == '-') {
			continue
		}
		dash = r == '-'
		if b.Len()+utf8.RuneLen(r) > maxName {
			break
		}
		b.WriteRune(r)
	}
	safe := strings.TrimRight(b.String(), "-.")
	if safe == "" {
		return "run"
	}
	return safe
}

// absolute refuses what no script or log could carry.
func absolute(path string) (string, error) {
	if path == "" {
		return "", fmt.Errorf("the run directory has an empty path")
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("find the run directory %s: %w", path, err)
	}
	if strings.ContainsFunc(abs, unicode.IsControl) {
		return "", fmt.Errorf("the run directory %q has a control character in its path; use another directory", abs)
	}
	if !utf8.ValidString(abs) {
		return "", fmt.Errorf("the run directory %q has a path that is not UTF-8; use another directory", abs)
	}
	return abs, nil
}
