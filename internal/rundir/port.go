package rundir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
)

const portFile = "port"

// WritePort notes the port on which the coordinator listens, so that the next one can listen there again.
func (d *Dir) WritePort(port int) error { return d.write(portFile, []byte(strconv.Itoa(port)+"\n")) }

// Port is the port that was noted last, 0 if none was.
func (d *Dir) Port() (int, error) {
	text, err := os.ReadFile(d.join(portFile))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, explain("read", d.join(portFile), err)
	}
	port, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || port < 1 || port > 65535 {
		return 0, fmt.Errorf("%s does not hold a port; remove it", d.join(portFile))
	}
	return port, nil
}
