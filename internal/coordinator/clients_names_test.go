package coordinator

import (
	"net"
	"slices"
	"testing"
	"testing/synctest"

	"example.org/daisy/internal/job"
)

func TestNamesOfClientsComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRun(t, clientTask(t, "a", 9))
		ended := loops(t, c)
		stays := visit(t, c)
		stays.release(stays.acquire("a", 7))
		for range 4 { // the script is started again and again beside the other
			again := visit(t, c)
			again.release(again.acquire("a", 7))
			_ = again.conn.Close()
			synctest.Wait()
		}
		two, three := visit(t, c), visit(t, c)
		two.release(two.acquire("a", 7))
		three.release(three.acquire("a", 7))
		stays.work("a", 7)
		<-ended
		c.closeSessions()
		if got, want := rowsOf(c), append(slices.Repeat([]string{"client-7+2 left 1/0"}, 5), "client-7 left 3/0", "client-7+3 left 1/0"); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
			t.Errorf("the workers are %q, want %q", got, want)
		}
	})
}

func TestTheContextOfClientsNamesAnAddressOfThisMachine(t *testing.T) {
	for listens, want := range map[string]string{"127.0.0.1": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::1": "[%3A%3A1]"} {
		task := clientTask(t, "a", 1)
		task.ResourceTracking = true
		c := &Coordinator{cfg: Config{Job: &job.Job{Tasks: []job.Task{task, lineTask(t, "b", 1, 1)}}}, listener: listenInside()}
		c.listener.tcp = listensAt{net.ParseIP(listens)}
		if got := c.ClientContext("a"); got != "hostname="+want+":port=7000:task_id=a:worker_id=0:logdir=:resource_tracking=1" {
			t.Errorf("listening at %s: %s", listens, got)
		}
		if got := c.ClientContext("b"); got != "" {
			t.Errorf("a task for workers: %s", got)
		}
	}
}

// listensAt is a port that nobody reaches.
type listensAt struct{ ip net.IP }

func (listensAt) Accept() (net.Conn, error) { return nil, net.ErrClosed }
func (listensAt) Close() error              { return nil }
func (l listensAt) Addr() net.Addr          { return &net.TCPAddr{IP: l.ip, Port: 7000} }
