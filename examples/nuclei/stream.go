package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
)

// block is one line on stdin of a stream worker. Fields that this program does not need are left out.
type block struct {
	Index   point  `json:"index"` // position in the task's grid, from 0
	Read    box    `json:"read"`  // may stick out of the array
	Write   box    `json:"write"`
	Attempt int    `json:"attempt"`
	Lease   string `json:"lease"`
}

// answer is one line back. The lease says which block it is about.
type answer struct {
	Lease string `json:"lease"`
	OK    bool   `json:"ok"`
	Error string `json:"error,omitempty"`
}

// maxLine bounds a line on stdin, in bytes; a block takes about 200.
const maxLine = 1 << 20

// check finds a block that is not cut as the chunks are: its write region must be the chunk at its index.
func (b block) check(extent box, chunks point) error {
	var want box
	for axis := range chunks {
		if b.Index[axis] < 0 || b.Index[axis] > (extent.Shape[axis]-1)/chunks[axis] {
			return fmt.Errorf("block index %v is outside the grid of chunks of %v in %v", b.Index, chunks, extent)
		}
		want.Offset[axis] = b.Index[axis] * chunks[axis]
	}
	want.Shape = chunks
	if want = want.intersect(extent); b.Write != want {
		return fmt.Errorf("block %v writes %v but the chunk there is %v: block.shape must be the chunks %v", b.Index, b.Write, want, chunks)
	}
	return nil
}

// serve does the blocks that come, one after the other, until stdin is closed. A block that fails, or a line that is
// no block, is answered with its error and does not end the worker; daisy decides what to do next.
func serve(stdin io.Reader, answers, log io.Writer, name string, do step) error {
	in := bufio.NewScanner(stdin)
	in.Buffer(nil, maxLine)
	for in.Scan() {
		if len(bytes.TrimSpace(in.Bytes())) == 0 {
			continue
		}
		b, err := decodeBlock(in.Bytes())
		if err == nil {
			err = do(b)
		}
		reply := answer{Lease: b.Lease, OK: err == nil}
		if err != nil {
			reply.Error = err.Error()
			fmt.Fprintf(log, "%s: block %v, attempt %d: %v\n", name, b.Index, b.Attempt, err)
		} else {
			fmt.Fprintf(log, "%s: block %v done\n", name, b.Index)
		}
		line, err := json.Marshal(reply)
		if err != nil {
			return err
		}
		if _, err := answers.Write(append(line, '\n')); err != nil {
			return fmt.Errorf("cannot answer: %w", err)
		}
	}
	if err := in.Err(); err != nil {
		return fmt.Errorf("reading blocks from stdin: %w", err)
	}
	return nil
}

// decodeBlock returns the lease with an error too, if it could be read.
func decodeBlock(line []byte) (block, error) {
	var b block
	if err := json.Unmarshal(line, &b); err != nil {
		// Perhaps only a region is wrong; then the answer can still name its lease.
		var only struct {
			Lease string `json:"lease"`
		}
		_ = json.Unmarshal(line, &only)
		return block{Lease: only.Lease}, fmt.Errorf("stdin: not a block: %w", err)
	}
	if b.Lease == "" {
		return b, errors.New("stdin: not a block: no lease")
	}
	return b, nil
}

// answerFile opens the descriptor that DAISY_ANSWER_FD names.
func answerFile(value string) (*os.File, error) {
	const hint = "stream workers are started by daisy (see nuclei.toml); to try one by hand: echo BLOCK | DAISY_ANSWER_FD=1 nuclei smooth"
	if value == "" {
		return nil, errors.New("DAISY_ANSWER_FD is not set: " + hint)
	}
	number, err := strconv.ParseUint(value, 10, 31)
	if err != nil {
		return nil, fmt.Errorf("DAISY_ANSWER_FD=%q is not the number of a descriptor: %s", value, hint)
	}
	file := os.NewFile(uintptr(number), "answers")
	if _, err := file.Stat(); err != nil {
		return nil, fmt.Errorf("DAISY_ANSWER_FD=%s is not an open descriptor: %s", value, hint)
	}
	return file, nil
}
