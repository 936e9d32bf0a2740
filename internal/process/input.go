package process

import (
	"errors"
	"os"
)

// surelyFits is what the smallest pipe takes without a reader: one page.
const surelyFits = 4096

// openInput makes the pipe of Config.Input. If the input surely fits, it is in there and write is nil; else feed writes it
// once there is a reader.
func openInput(input []byte) (read, write *os.File, err error) {
	read, write, err = os.Pipe()
	if err != nil || len(input) > surelyFits {
		return read, write, err
	}
	_, err = write.Write(input)
	if err = errors.Join(err, write.Close()); err != nil {
		read.Close()
		return nil, nil, err
	}
	return read, nil, nil
}

// feed ends when all is read, nobody is left to read it, or Process.Wait closes the pipe.
func feed(pipe *os.File, input []byte) {
	_, _ = pipe.Write(input) // a process need not read its input
	pipe.Close()
}
