package process

import (
	"errors"
	"io"
	"os"
	"sync/atomic"
	"time"
)

// surelyFits is what the smallest pipe takes without a reader: one page.
const surelyFits = 4096

// pipes are the descriptors of a process that are not simply handed over.
type pipes struct {
	stdin    *os.File   // our end of Config.StdinPipe
	childs   []*os.File // ends that only the child needs: closed once it has them
	input    []byte     // what did not fit the pipe before the start
	inputEnd *os.File
	copies   []copying
	flowed   chan struct{} // closed when all flows have ended; nil without any
}

// A copying is output on its way to a writer.
type copying struct {
	from *os.File
	to   io.Writer
}

// open makes the pipes of c and gives the files of the child in the order of their descriptors.
func (p *pipes) open(c *Config, null *os.File) ([]*os.File, error) {
	files := make([]*os.File, 3, 3+len(c.ExtraFiles))
	var err error
	if files[0], err = p.openStdin(c, null); err != nil {
		p.abort()
		return nil, err
	}
	if files[1], err = p.openOutput(c.Stdout, null); err != nil {
		p.abort()
		return nil, err
	}
	if len(p.copies) == 1 && same(c.Stdout, c.Stderr) {
		files[2] = files[1]
	} else if files[2], err = p.openOutput(c.Stderr, null); err != nil {
		p.abort()
		return nil, err
	}
	return append(files, c.ExtraFiles...), nil
}

func (p *pipes) openStdin(c *Config, null *os.File) (*os.File, error) {
	if c.Stdin != nil {
		return c.Stdin, nil
	}
	if c.Input == nil && !c.StdinPipe {
		return null, nil
	}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	p.childs = append(p.childs, read)
	switch {
	case c.StdinPipe:
		p.stdin = write
	case len(c.Input) <= surelyFits:
		_, err = write.Write(c.Input)
		return read, errors.Join(err, write.Close())
	default:
		p.input, p.inputEnd = c.Input, write
	}
	return read, nil
}

func (p *pipes) openOutput(to io.Writer, null *os.File) (*os.File, error) {
	if to == nil {
		return null, nil
	}
	if file, ok := to.(*os.File); ok {
		return file, nil
	}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	p.childs = append(p.childs, write)
	p.copies = append(p.copies, copying{from: read, to: to})
	return write, nil
}

// same: comparing writers of an incomparable type panics, and those are never the same.
func same(a, b io.Writer) bool {
	defer func() { _ = recover() }()
	return a == b
}

// begin lets the data flow, after the start. Every flow ends with the process and those that it left its descriptors to, or
// with drain.
func (p *pipes) begin() {
	closeAll(p.childs)
	flows := make([]func(), 0, 3)
	if p.inputEnd != nil {
		flows = append(flows, func() {
			_, _ = p.inputEnd.Write(p.input) // a process need not read its input
			p.inputEnd.Close()
		})
	}
	for _, c := range p.copies {
		flows = append(flows, func() {
			if _, err := io.Copy(c.to, c.from); err != nil {
				_, _ = io.Copy(io.Discard, c.from)
			}
			c.from.Close()
		})
	}
	if len(flows) == 0 {
		return
	}
	p.flowed = make(chan struct{})
	var left atomic.Int32
	left.Store(int32(len(flows)))
	for _, flow := range flows {
		go func() {
			flow()
			if left.Add(-1) == 0 {
				close(p.flowed)
			}
		}()
	}
}

// inputEnds: the process is gone, and what it did not read need not wait for its descendants.
func (p *pipes) inputEnds() {
	if p.inputEnd != nil {
		p.inputEnd.SetWriteDeadline(time.Now())
	}
}

// abort closes everything when there was no start.
func (p *pipes) abort() {
	closeAll(p.childs)
	closeAll([]*os.File{p.stdin, p.inputEnd})
	for _, c := range p.copies {
		c.from.Close()
	}
	*p = pipes{}
}

func closeAll(files []*os.File) {
	for _, f := range files {
		if f != nil {
			f.Close()
		}
	}
}

// drain waits for all flows, at most limit.
func (p *pipes) drain(limit time.Duration) (complete bool) {
	if p.flowed == nil {
		return true
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-p.flowed:
		return true
	case <-timer.C:
	}
	for _, c := range p.copies {
		c.from.SetReadDeadline(time.Now())
	}
	<-p.flowed
	return false
}
