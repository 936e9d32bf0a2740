package sim

import (
	"bytes"
	"slices"
	"strings"
)

// batchBegins is how a batch of the journal begins.
const batchBegins = "\xdaB\xa7\x01"

// rot changes bytes of the journal that were durable, and reports whether there were any: a bit of a segment or snapshot, or some bytes that become zeros
// or anything else. The end of the newest segments is spared: that a batch was once durable shows only once another one is behind it.
func (d *memDisk) rot(dir string, n int) bool {
	var names, segments []string
	for name, f := range d.files {
		if strings.HasPrefix(name, dir+"/") && !strings.HasSuffix(name, ".tmp") && len(f.undo) == 0 && len(f.lost) == 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		if strings.HasSuffix(name, ".log") {
			segments = append(segments, name)
		}
	}
	if len(names) == 0 {
		return false
	}
	name := names[n%len(names)]
	data := d.files[name].data
	end := len(data)
	if i := slices.Index(segments, name); i >= 0 && i >= len(segments)-2 {
		for range 2 {
			end = max(bytes.LastIndex(data[:end], []byte(batchBegins)), 0)
		}
	}
	if end == 0 {
		return false
	}
	at := d.rng.IntN(end)
	if d.rng.IntN(3) == 0 { // in the header
		at = d.rng.IntN(min(end, 52))
	}
	switch size := min(1+d.rng.IntN(sector), end-at); d.rng.IntN(3) {
	case 0:
		data[at] ^= 1 << d.rng.IntN(8)
	case 1:
		clear(data[at : at+size])
	default:
		for i := range size {
			data[at+i] = byte(d.rng.Uint32())
		}
	}
	d.rotten = true
	return true
}
