package worker

import "testing"

func TestWhatEndsABlockEndsItWhetherItHasBegunOrNot(t *testing.T) {
	for name, tc := range map[string]struct {
		end  func(c *crew, b Block)
		want error
	}{
		"taken away": {(*crew).taken, errTaken},
		"stopped":    {func(c *crew, _ Block) { c.halt() }, errStopped},
		"another":    {func(c *crew, _ Block) { c.taken(Block{held: &heldBlock{}}) }, nil},
	} {
		for _, begun := range []bool{false, true} {
			c := &crew{early: map[*heldBlock]bool{}}
			a := &attempt{slot: &slot{crew: c}, held: &heldBlock{}}
			a.ctx.watcher = unwatched{}
			c.all = []*slot{a.slot}
			if begun {
				c.begin(a)
			}
			tc.end(c, Block{held: a.held})
			if !begun {
				c.begin(a)
			}
			if got := a.ctx.ended(); got != tc.want {
				t.Errorf("%s, begun before that %v: it ended because of %v, want %v", name, begun, got, tc.want)
			}
		}
	}
}
