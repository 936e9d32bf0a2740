package main

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"

	"example.org/daisy/internal/job"
	"example.org/daisy/internal/units"
)

// addBytes adds how much one block reads and writes, as far as the arrays say what they hold: what it takes in memory is at least that,
// where user code has a block as a whole. A task whose blocks are larger than the memory that they require gets a warning.
func (p *plan) addBytes(j *job.Job) {
	for i := range p.Tasks {
		t := &p.Tasks[i]
		jt := j.Task(t.ID)
		t.ReadBytes, t.WriteBytes = blockBytes(jt.Input, t.BlockRead), blockBytes(jt.Output, t.BlockWrite)
		all, parts := int64(0), []string{}
		for _, x := range []struct {
			bytes *int64
			does  string
		}{{t.ReadBytes, "reads %s of its array"}, {t.WriteBytes, "writes %s of its output"}} {
			if x.bytes != nil {
				all += *x.bytes
				parts = append(parts, fmt.Sprintf(x.does, units.Size(*x.bytes)))
			}
		}
		if memory := jt.Requires.Get("memory"); memory > 0 && all > memory {
			p.Warnings = append(p.Warnings, fmt.Sprintf("task %q: a block %s, and requires.memory is %s: user code that holds a block as a whole needs more", t.ID, strings.Join(parts, " and "), units.Size(memory)))
		}
	}
}

// blockBytes is the size of a block of an array; nil where there is none, its type is not known, or the size is more than can be said.
func blockBytes(v *job.Volume, shape []int64) *int64 {
	if v == nil || elementBytes(v.DType) == 0 {
		return nil
	}
	n := uint64(elementBytes(v.DType))
	for _, s := range shape {
		high, low := bits.Mul64(n, uint64(s))
		if high > 0 || low > 1<<61 {
			return nil
		}
		n = low
	}
	size := int64(n)
	return &size
}

// elementBytes is the size of an element of a type as Zarr and N5 name it ("<f4", "uint16"), 0 if it is not known.
func elementBytes(dtype string) int64 {
	if dtype == "bool" {
		return 1
	}
	name := strings.TrimRight(dtype, "0123456789")
	n, err := strconv.ParseInt(dtype[len(name):], 10, 32)
	if err != nil {
		return 0
	}
	switch name {
	case "uint", "int", "float", "complex", "r": // in bits
		return n / 8
	}
	if len(name) == 2 && strings.ContainsRune("<>|=", rune(name[0])) && strings.ContainsRune("buifcV", rune(name[1])) { // in bytes
		return n
	}
	return 0
}
