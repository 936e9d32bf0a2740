package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
)

// hostile is a block of a hostileJob.
func hostile(b block) error {
	acts := os.Getenv("E2E_ACT")
	if b.index == 1 {
		for act := range strings.FieldsSeq(acts) {
			if err := misdeed(act, b); err != nil {
				return err
			}
		}
	}
	switch {
	case acts == "flood":
		return ask(b)
	case acts == "chdir" && b.index == 2:
		return os.WriteFile("here", nil, 0o600)
	}
	return nil
}

func misdeed(act string, b block) error {
	switch act {
	case "flood":
		chunk := bytes.Repeat([]byte("x"), 1<<20)
		for range 1 << 10 {
			if _, err := os.Stdout.Write(chunk); err != nil {
				return err
			}
		}
	case "daemon":
		// Forks twice, is in a session of its own, and holds nothing open.
		cmd := exec.Command("sh", "-c", "setsid "+quoteShell(self())+" </dev/null >/dev/null 2>&1 3>&- &")
		cmd.Env = append(os.Environ(), "E2E_ROLE=sit")
		return cmd.Run()
	case "ask":
		return ask(b)
	case "close":
		for fd := range 4 { // 3 is for the answers of a stream
			_ = syscall.Close(fd)
		}
	case "deaf":
		signal.Ignore(syscall.SIGTERM)
	case "hang":
		hang()
	case "exit":
		os.Exit(0)
	case "answer-twice":
		return answer(b.lease)
	case "answer-another":
		return answer("1.999999")
	case "binary":
		var every []byte
		for i := range 256 {
			every = append(every, byte(i))
		}
		_, _ = os.Stdout.Write(append(bytes.Repeat(every, 100), "the end"...))
		return errors.New("said \x1b[2J\xff")
	case "disk":
		f, err := os.Create(filepath.Join(os.Getenv("TMPDIR"), "scratch"))
		if err != nil {
			return err
		}
		_, err = f.Write(make([]byte, 2<<20))
		_, _ = fmt.Println(err)
		return err
	case "chdir":
		return os.Chdir(os.Getenv("E2E_DIRECTORY"))
	}
	return nil
}

// answer answers for a lease on the descriptor of a stream.
func answer(lease string) error {
	_, err := syscall.Write(3, fmt.Appendf(nil, "{\"lease\":%q,\"ok\":true}\n", lease))
	return err
}
