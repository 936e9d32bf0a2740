package coordinator

import (
	"bufio"
	"container/list"
	"context"
	"net"
	"sync"
	"time"

	"example.org/daisy/internal/daisywire"
	"example.org/daisy/internal/process"
)

// mostQuiet is how many connections of this machine there may be that have not said anything.
const mostQuiet = 1024

// quietConns are the connections of this machine that have said nothing yet, in a run with clients of daisy. Such a client connects
// first, and then loads its model for as long as that takes. One too many ends the oldest.
type quietConns struct {
	mu   sync.Mutex
	list list.List // of net.Conn
}

// add takes a connection in. The function that it returns takes it out again.
func (q *quietConns) add(c net.Conn) (out func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.list.Len() >= mostQuiet {
		_ = q.list.Remove(q.list.Front()).(net.Conn).Close()
	}
	e := q.list.PushBack(c)
	return func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.list.Remove(e) // nothing if it was the oldest
	}
}

// sniffClient is sniff for a connection of this machine, which may be a client of daisy. Those of this user have time to say so; others
// are strangers.
func (l *listener) sniffClient(c net.Conn) {
	counted := &countedConn{Conn: c, l: l, r: bufio.NewReaderSize(c, 4096)}
	counted.told.Store(true) // it has no place among the strangers yet
	stop := context.AfterFunc(l.ctx, func() { _ = c.Close() })
	defer stop()
	own := process.CheckPeerUser(c) == nil
	if own {
		out := l.quiet.add(c)
		_, err := counted.r.Peek(1)
		out()
		if err != nil {
			_ = counted.Close()
			return
		}
		head, _ := counted.r.Peek(counted.r.Buffered())
		switch {
		case daisywire.IsDaisy1(head):
			l.daisy1()
			_ = counted.Close()
			return
		case head[0] == 0:
			l.daisy(counted)
			return
		}
	}
	if !l.hasRoom() {
		_ = counted.Close()
		return
	}
	counted.told.Store(false)
	_ = c.SetReadDeadline(time.Now().Add(sniffTimeout))
	l.letIn(counted)
}
