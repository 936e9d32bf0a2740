package worker

import (
	"net"
	"testing"
	"time"

	"example.org/daisy/geom"
	"example.org/daisy/internal/daisywire"
)

// A client that ends without having read that it has a block can do the block no harm.
func TestARelayTellsWhetherABlockWasEverRead(t *testing.T) {
	roi := geom.Roi{Offset: geom.Coord(0), Shape: geom.Coord(10)}
	for name, read := range map[string]bool{"read": true, "unread": false} {
		t.Run(name, func(t *testing.T) {
			r, err := newRelay("predict")
			if err != nil {
				t.Fatal(err)
			}
			defer r.close()
			r.serve(func(net.Conn) error { return nil }, t.Logf)
			t.Setenv(daisywire.Variable, r.variable("1", false)[len(daisywire.Variable)+1:])
			c := dialRelay()
			c.ask("predict")
			select {
			case r.offers <- daisywire.Grant{SpatialID: 7, Read: roi, Write: roi}:
			case <-time.After(soon):
				t.Fatal("nobody asks")
			}
			if read {
				if m, ok := c.next(); !ok || m.Block.SpatialID != 7 {
					t.Errorf("got %+v", m)
				}
			}
			c.conn.Close()
			select {
			case end := <-r.ends:
				if end.Outcome != daisywire.Lost || end.unread == read {
					t.Errorf("got %+v", end)
				}
			case <-time.After(soon):
				t.Fatal("the block has no end")
			}
		})
	}
}

// Without more to do, whoever asks is told so, also one that comes late.
func TestARelayWithoutMoreBlocksSendsItsClientsAway(t *testing.T) {
	r, err := newRelay("predict")
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	r.serve(func(net.Conn) error { return nil }, t.Logf)
	t.Setenv(daisywire.Variable, r.variable("1", false)[len(daisywire.Variable)+1:])
	early := dialRelay()
	early.ask("predict")
	r.noMore()
	r.noMore()
	late := dialRelay()
	late.ask("predict")
	for _, c := range []*client{early, late} {
		_ = c.conn.SetDeadline(time.Now().Add(soon))
		if m, ok := c.next(); !ok || m.Kind != daisywire.RequestShutdown {
			t.Errorf("got %+v", m)
		}
	}
}
