package tracking

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/bits"
	"path/filepath"
	"slices"

	"example.org/daisy/geom"
)

// Before finds the blocks of which the marks in dir are: those of g, or of a smaller volume with the same blocks that g has grown from, on
// each axis at its end or, by whole blocks, at its begin. Nothing but the hash tells how large that was; volumes are tried until one has the
// hash, which proves it. Where there are no marks, it is nil. It takes no lock and changes nothing. The error of other blocks is a *LayoutError.
func Before(dir string, g *geom.Grid) (*geom.Grid, error) {
	s, err := newStore(osDisk{flock}, dir, g)
	if err != nil {
		return nil, err
	}
	fresh, err := isFresh(s.disk, s.dir)
	if fresh || err != nil {
		return nil, err
	}
	_, err = checkRoot(s.disk, s.dir, g)
	var other *LayoutError
	if !errors.As(err, &other) {
		return g, err
	}
	r, err := readRoot(s.disk, s.dir)
	if err != nil {
		return nil, err
	}
	shape, err := storedShape(s.disk, s.dir, r)
	if err != nil {
		return nil, err
	}
	found, err := smaller(g, r, shape)
	if err != nil {
		return nil, fmt.Errorf("%w\n%w", other, err)
	}
	return found, nil
}

// storedShape is how many cells the arrays of a group have on each axis, whatever else they are.
func storedShape(d Disk, dir string, r root) ([]int64, error) {
	file := filepath.Join(dir, doneArray, metadataFile)
	if r.isArray {
		file = filepath.Join(dir, metadataFile)
	}
	data, err := readMetadata(d, file)
	if err != nil {
		return nil, explain("read", file, err)
	}
	var meta struct {
		Shape []int64 `json:"shape"`
	}
	if err := json.Unmarshal(data, &meta); err != nil {
		return nil, &UnreadableError{dir, file, fmt.Sprintf("its shape cannot be read: %v", err)}
	}
	return meta.Shape, nil
}

// mostTried bounds how many volumes are tried: about half a minute.
const mostTried = 1 << 26

// smaller is the grid with the hash of r that g has grown from; its arrays had stored cells on each axis.
func smaller(g *geom.Grid, r root, stored []int64) (*geom.Grid, error) {
	s, err := newSearch(g, r)
	if err != nil {
		return nil, err
	}
	if len(stored) != g.Dims() {
		return nil, fmt.Errorf("its blocks have %d axes, and the task's %d", len(stored), g.Dims())
	}
	// Most volumes are whole numbers of some unit, and most grow on few axes.
	units, ones := s.units(), geom.Fill(g.Dims(), 1)
	for _, units := range slices.Compact([]geom.Coordinate{units, ones}) {
		lists := make([][]extent, g.Dims())
		for axis := range lists {
			lists[axis] = s.extents(axis, stored[axis], units.At(axis))
		}
		for _, grown := range subsets(g.Dims()) {
			if s.among(grown, lists, stored) {
				return geom.NewGrid(s.spec)
			}
		}
	}
	if s.leftOut {
		return nil, errors.New("so many smaller volumes of these blocks are possible that none was found with that hash")
	}
	return nil, errors.New("no smaller volume of the same blocks has that hash: block, context, offset or fit are others, or it has grown at its begin by a part of a block")
}

// extent is a total read region on one axis.
type extent struct{ offset, shape int64 }

// search tries volumes until one has the hash.
type search struct {
	grid    *geom.Grid
	spec    geom.GridSpec // with the volume that was tried last
	want    [sha256.Size]byte
	hashed  []byte // of spec
	offsets int    // where in hashed the first offset is; the others follow, nine bytes apart
	shapes  int
	tried   int64
	leftOut bool // more are possible than are tried
}

func newSearch(g *geom.Grid, r root) (*search, error) {
	prefix := groupPrefix
	if r.isArray {
		prefix = arrayPrefix
	}
	s := &search{grid: g, spec: g.Spec(), hashed: hashedBytes(prefix, g.Spec())}
	s.offsets = len(prefix) + len("total:offset=")
	s.shapes = s.offsets + 9*g.Dims() + len(";shape=")
	if n, err := hex.Decode(s.want[:], []byte(r.hash[:min(len(r.hash), 2*sha256.Size)])); err != nil || n != sha256.Size || len(r.hash) != 2*n {
		return nil, errors.New("it is no hash of a layout")
	}
	return s, nil
}

// units divide all lengths of the task on each axis, as the size of a voxel does.
func (s *search) units() geom.Coordinate {
	units, g := geom.Fill(s.grid.Dims(), 0), s.grid
	for axis := range g.Dims() {
		for _, c := range []geom.Coordinate{g.BlockShape(), g.TotalRead().Shape, g.TotalRead().Offset, g.ContextLow(), g.ContextHigh()} {
			units = units.With(axis, gcd(units.At(axis), c.At(axis)))
		}
	}
	return units
}

// extents are those from which an axis can have grown by whole units, and of which its arrays have n cells.
func (s *search) extents(axis int, n, unit int64) (list []extent) {
	total, block := s.grid.TotalRead(), s.grid.BlockShape().At(axis)
	offset, shape := total.Offset.At(axis), total.Shape.At(axis)
	more := s.grid.TrackingShape().At(axis) - n
	if more < 0 || n < 1 {
		return nil
	}
	if more > 0 { // at its begin
		list = append(list, extent{offset + more*block, shape - more*block})
	}
	if block/unit > mostTried {
		s.leftOut = true
		return list
	}
	for was := shape - unit*max(1, (shape-n*block+unit-1)/unit); was > (n-1)*block; was -= unit {
		list = append(list, extent{offset, was})
	}
	return list
}

// among tries all volumes whose extents on the axes of grown are in the lists, and elsewhere as they are now.
func (s *search) among(grown uint, lists [][]extent, stored []int64) bool {
	chosen, count := make([][]extent, len(lists)), int64(1)
	for axis := range lists {
		chosen[axis] = lists[axis]
		if grown>>axis&1 == 0 {
			chosen[axis] = nil
			if stored[axis] == s.grid.TrackingShape().At(axis) {
				chosen[axis] = []extent{{s.grid.TotalRead().Offset.At(axis), s.grid.TotalRead().Shape.At(axis)}}
			}
		}
		if count *= int64(len(chosen[axis])); count > mostTried-s.tried {
			s.leftOut = true
			return false
		}
	}
	s.tried += count
	return s.product(0, chosen)
}

// product tries every choice of the extents of axis and those behind it.
func (s *search) product(axis int, chosen [][]extent) bool {
	if axis == len(chosen) {
		return sha256.Sum256(s.hashed) == s.want
	}
	for _, e := range chosen[axis] {
		binary.LittleEndian.PutUint64(s.hashed[s.offsets+9*axis:], uint64(e.offset))
		binary.LittleEndian.PutUint64(s.hashed[s.shapes+9*axis:], uint64(e.shape))
		if s.product(axis+1, chosen) {
			total := &s.spec.TotalRead
			total.Offset, total.Shape = total.Offset.With(axis, e.offset), total.Shape.With(axis, e.shape)
			return true
		}
	}
	return false
}

// subsets are those of n axes but for the empty one, small ones first, each as the bits of a number.
func subsets(n int) []uint {
	var list []uint
	for set := uint(1); set < 1<<n; set++ {
		list = append(list, set)
	}
	slices.SortStableFunc(list, func(a, b uint) int { return bits.OnesCount(a) - bits.OnesCount(b) })
	return list
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return max(a, -a)
}
