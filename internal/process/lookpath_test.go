package process

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAProgramIsFoundOrTheErrorSaysWhereItWasLookedFor(t *testing.T) {
	dir, bin := t.TempDir(), t.TempDir()
	for path, mode := range map[string]os.FileMode{
		filepath.Join(dir, "here"): 0o700, filepath.Join(bin, "tool"): 0o700, filepath.Join(bin, "data"): 0o600,
	} {
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"), mode); err != nil {
			t.Fatal(err)
		}
	}
	path := "relative:" + bin
	for _, test := range []struct{ name, want, says string }{
		{"tool", bin + "/tool", ""},
		{"./here", dir + "/here", ""},
		{bin + "/tool", bin + "/tool", ""},
		{"", "", "no program named"},
		{"none", "", `cannot find the program "none" in PATH (` + bin + `)`},
		{"data", "", bin + "/data is not executable (chmod +x)"},
		{"here", "", `there is one in ` + dir + `: write "./here"`},
		{"./none", "", `cannot run "./none": ` + dir + `/none does not exist`},
		{dir, "", "is a folder"},
		{bin + "/data", "", "is not executable (chmod +x)"},
	} {
		got, err := LookPath(test.name, dir, path)
		if got != test.want || (err == nil) != (test.says == "") || err != nil && !strings.Contains(err.Error(), test.says) {
			t.Errorf("LookPath(%q) = %q, %v, want %q and an error with %q", test.name, got, err, test.want, test.says)
		}
	}
	if _, err := LookPath("tool", dir, ""); err == nil || !strings.Contains(err.Error(), "PATH is empty") {
		t.Errorf("with an empty PATH: %v", err)
	}
}
