package rundir

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"time"
)

const certificateFile = "certificate.pem"

// Certificate is that of the run, with its key: ECDSA on P-256, signed by itself. It is made when it is first asked for and
// stays the same from then on, so that workers which know its fingerprint find the coordinator again after a resume. The
// caller holds the lock.
func (d *Dir) Certificate() (tls.Certificate, error) {
	path := d.join(certificateFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if data, err = newCertificate(d.RunID()); err != nil {
			return tls.Certificate{}, fmt.Errorf("make the run's certificate: %w", err)
		}
		err = d.write(certificateFile, data)
	} else if err != nil {
		err = explain("read the run's certificate", path, err)
	}
	if err != nil {
		return tls.Certificate{}, err
	}
	c, err := tls.X509KeyPair(data, data)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("read the run's certificate: %s: %w; the file was damaged: restore it, or remove it once no worker of the run is left, so that a new one is made", path, err)
	}
	return c, nil
}

// newCertificate gives certificate and key in one text, so that no crash leaves one without the other.
func newCertificate(run string) ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	about := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: "daisy run " + run},
		// Workers go by the fingerprint and not by the time: clocks may be wrong.
		NotBefore: time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC),
		NotAfter:  time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC), // for ever, by RFC 5280
		KeyUsage:  x509.KeyUsageDigitalSignature,
	}
	certificate, err := x509.CreateCertificate(rand.Reader, about, about, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate})
	return append(text, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})...), nil
}
