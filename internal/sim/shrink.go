package sim

// Shrink looks for fewer faults with which a world still fails, however it fails then. It returns the numbers of those that are left and
// the last failure; nil and nil if the world does not fail.
func Shrink(c Config) (kept []int, err error) {
	all := c.Faults
	try := func(keep []int) error {
		c.Faults, c.Log = nil, nil
		for _, i := range keep {
			c.Faults = append(c.Faults, all[i])
		}
		_, err := New(c).Run()
		return err
	}
	for i := range all {
		kept = append(kept, i)
	}
	if err = try(kept); err != nil {
		// Halves first, then quarters, then one by one, until nothing more can be left out.
		for size := (len(kept) + 1) / 2; size > 0; {
			left := false
			for from := 0; from < len(kept); {
				fewer := append(append([]int(nil), kept[:from]...), kept[min(from+size, len(kept)):]...)
				if e := try(fewer); e != nil {
					kept, err, left = fewer, e, true
				} else {
					from += size
				}
			}
			if !left || size > 1 {
				size /= 2
			}
		}
		return kept, err
	}
	return nil, nil
}
