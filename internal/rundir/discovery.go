package rundir

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"time"
)

const discoveryFile = "discovery.json"

// DiscoveryVersion is the format version of discovery.json.
const DiscoveryVersion = 1

var fingerprint = regexp.MustCompile(`^[0-9a-f]{64}$`)

// Discovery says where the coordinator of a run listens.
type Discovery struct {
	Version   int      `json:"version"`
	Epoch     uint64   `json:"epoch"`
	RunID     string   `json:"run_id"`
	Addresses []string `json:"addresses"` // "host:port", best first
	// Fingerprint is the SHA-256 of the coordinator's certificate in hexadecimal; "" if it speaks plain HTTP.
	Fingerprint string    `json:"certificate_sha256,omitempty"`
	Started     time.Time `json:"started"`
	Host        string    `json:"host"`
	PID         int       `json:"pid"`
	// AwayUntil: that coordinator has ended, and another is to come by then.
	AwayUntil *time.Time `json:"away_until,omitempty"`
}

// WriteDiscovery replaces discovery.json. Version and RunID are filled in.
func (d *Dir) WriteDiscovery(where Discovery) error {
	where.Version, where.RunID = DiscoveryVersion, d.RunID()
	where.Started = where.Started.UTC()
	data, err := json.MarshalIndent(where, "", "  ")
	if err != nil {
		return fmt.Errorf("write %s: %w", d.DiscoveryPath(), err)
	}
	return d.write(discoveryFile, append(data, '\n'))
}

// ReadDiscovery reads the discovery file of the run directory at path. A file
// that is not there yet is an error that is fs.ErrNotExist.
func ReadDiscovery(path string) (Discovery, error) {
	file := filepath.Join(path, discoveryFile)
	data, err := os.ReadFile(file)
	if err != nil {
		return Discovery{}, explain("read", file, err)
	}
	return parseDiscovery(file, data)
}

func parseDiscovery(file string, data []byte) (Discovery, error) {
	var where Discovery
	if err := json.Unmarshal(data, &where); err != nil {
		return Discovery{}, fmt.Errorf("%s cannot be read: %w", file, err)
	}
	switch {
	case where.Version != DiscoveryVersion:
		return Discovery{}, fmt.Errorf("%s has format version %d, and this program knows version %d; use the worker in the run directory's bin/", file, where.Version, DiscoveryVersion)
	case where.Epoch == 0 || where.RunID == "" || len(where.Addresses) == 0:
		return Discovery{}, fmt.Errorf("%s has no epoch, run_id or addresses", file)
	case where.Fingerprint != "" && !fingerprint.MatchString(where.Fingerprint):
		return Discovery{}, fmt.Errorf("%s: certificate_sha256 is %q, which is no SHA-256 (64 hexadecimal digits)", file, where.Fingerprint)
	}
	return where, nil
}
