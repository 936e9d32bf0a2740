//go:build linux

package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"testing"
	"time"
)

func TestARunWithoutFreeDescriptorsLosesNothing(t *testing.T) {
	t.Parallel()
	const limit, workers = 64, 9
	d := newDirector(t)
	dir, path := writeJob(t, job(fmt.Sprintf("resources = { cpu = %d }\ntracking = \"marks\"", workers), blocks("work", 2*workers)+d.code("command")))
	s := prepare(t, dir, "run", path, "--run-dir", "out")
	s.through(fmt.Sprintf("ulimit -n %d", limit))
	s.begin()
	var first []*visit
	for range workers {
		first = append(first, d.next())
	}
	// Strangers take every descriptor that is left, and say nothing. The coordinator needs one for each commit.
	var where struct{ Addresses []string }
	if err := json.Unmarshal([]byte(readFile(t, dir+"/out/discovery.json")), &where); err != nil {
		t.Fatal(err)
	}
	var strangers []net.Conn
	for range limit {
		conn, err := net.Dial("tcp", where.Addresses[0])
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		strangers = append(strangers, conn)
	}
	awaitDescriptors(t, s.cmd.Process.Pid, limit-1) // the Go runtime leaves one
	for _, v := range first {
		v.ok()
	}
	d.letAllEnd()
	for _, conn := range strangers {
		conn.Close()
	}
	if r := s.wait(); r.status != 0 {
		t.Errorf("exit status %d", r.status)
	}
	wantCounts(t, statsOf(t, dir+"/out"), map[string]counts{"work": {State: "done", Blocks: 2 * workers, Success: 2 * workers, Processed: 2 * workers}})
}

// awaitDescriptors waits until a process has n of them open.
func awaitDescriptors(t testing.TB, pid, n int) {
	t.Helper()
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for until := time.Now().Add(patience); ; <-look.C {
		open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
		if err != nil {
			t.Fatal(err)
		}
		if len(open) >= n {
			return
		}
		if time.Now().After(until) {
			t.Fatalf("process %d has %d descriptors open, and not %d", pid, len(open), n)
		}
	}
}
