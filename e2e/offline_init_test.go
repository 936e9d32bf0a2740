package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"example.org/daisy/internal/testenv"
)

func TestANewcomerComesFromAnArrayToARunThatFailsAndIsLookedInto(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "cells.zarr"), os.DirFS("../internal/array/testdata/nuclei.v3.zarr")); err != nil {
		t.Fatal(err)
	}
	wantText(t, wantStatus(t, 0, dir, "init", "cells.zarr", "-o", "cells.toml").stdout, "Wrote cells.toml")
	path := filepath.Join(dir, "cells.toml")
	text := readFile(t, path)
	wantText(t, text, `array = "cells.zarr"`)
	wantText(t, wantStatus(t, 2, dir, "init", "-o", "cells.toml").stderr, "is there already")
	if readFile(t, path) != text {
		t.Error("it was overwritten")
	}
	wantText(t, wantStatus(t, 0, dir, "plan", "cells.toml").stdout, "cells.zarr", "Nothing was started")
	wantText(t, wantStatus(t, 0, dir, "run-block", "cells.toml", "blocks", "0,0,0").stdout, "block 0,0,0 reads 0,0,0 ")
	wantStatus(t, 0, dir, "run", "cells.toml")
	wantText(t, wantStatus(t, 0, dir, "logs", "--block", "0").stdout, "block 0,0,0 reads 0,0,0 ")

	broken := strings.Replace(text, `["echo",`, `["sh", "-c", "echo broken in {index}; exit 4",`, 1)
	writeFile(t, path, broken)
	wantStatus(t, 1, dir, "run", "cells.toml")
	wantText(t, wantStatus(t, 0, dir, "logs", "latest", "--failed").stdout, "exit status 4", "  | broken in 0,0,0\n")
	wantText(t, wantStatus(t, 4, dir, "run-block", "cells.toml", "blocks", "0").all(), "broken in 0,0,0", "exit status 4")
	wantText(t, wantStatus(t, 0, dir, "runs").stdout, " done ", " failed ")
}

func TestTheCompletionForBashWorksInBash(t *testing.T) {
	t.Parallel()
	bash, err := exec.LookPath("bash")
	if err != nil {
		testenv.Unavailable(t, err.Error())
	}
	cmd := exec.Command(bash, "--norc", "-c", `set -eu; source <(daisy-submit completion bash); COMP_WORDS=(daisy-submit doc); COMP_CWORD=1; _daisy_submit; echo "${COMPREPLY[@]}"`)
	cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if err != nil || string(out) != "doctor\n" {
		t.Errorf("%v: %s", err, out)
	}
}
