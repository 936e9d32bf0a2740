package api

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"time"
)

// handshakeTimeout is how long TLS may take after the connection is there.
const handshakeTimeout = 10 * time.Second

// A StrangerError says that somebody else listens where the coordinator was said to be: another program, the coordinator of
// another run, or somebody who only says that he is ours. Nothing of what he says counts.
type StrangerError struct{ Address, Why string }

func (e *StrangerError) Error() string {
	return fmt.Sprintf("somebody else listens at %s: %s", e.Address, e.Why)
}

// Unproven says why an answer does not count.
func Unproven(status int) string {
	return fmt.Sprintf("the answer (HTTP status %d) does not prove that it is this run's coordinator", status)
}

// Fingerprint names a certificate, which is given in DER: its SHA-256 in hexadecimal.
func Fingerprint(certificate []byte) string {
	sum := sha256.Sum256(certificate)
	return hex.EncodeToString(sum[:])
}

// Dial opens a connection to a coordinator; timeout is for TCP. With a fingerprint the connection is TLS, and it is a
// *StrangerError if the other side has not the certificate of that fingerprint, or its key.
func Dial(ctx context.Context, address, fingerprint string, timeout time.Duration) (net.Conn, error) {
	d := net.Dialer{Timeout: timeout}
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil || fingerprint == "" {
		return conn, err
	}
	secure := tls.Client(conn, &tls.Config{
		MinVersion: tls.VersionTLS13,
		// Neither an authority nor a name says whom to trust: the certificate itself is known, from the run directory.
		InsecureSkipVerify: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			got := Fingerprint(s.PeerCertificates[0].Raw)
			if subtle.ConstantTimeCompare([]byte(got), []byte(fingerprint)) == 1 {
				return nil
			}
			return &StrangerError{address, fmt.Sprintf("its certificate has the SHA-256 %s, and discovery.json of the run directory says %s; if the coordinator runs at that address, "+
				"something in between opens the encryption (a proxy, a firewall): have the port let through untouched, or give another address with the key addresses of [run]", got, fingerprint)}
		},
	})
	limited, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	if err := secure.HandshakeContext(limited); err != nil {
		_ = conn.Close()
		var stranger *StrangerError
		switch {
		case errors.As(err, &stranger):
			return nil, err
		case errors.As(err, new(tls.RecordHeaderError)):
			return nil, &StrangerError{address, "it does not speak TLS"}
		default:
			return nil, fmt.Errorf("TLS with %s: %w", address, err)
		}
	}
	return TLSConn{secure}, nil
}

// A TLSConn is a TLS connection whose Close does not wait for a peer that does not read. The frames and answers that go over
// it say themselves where they end.
type TLSConn struct{ *tls.Conn }

// Close closes the connection below.
func (c TLSConn) Close() error { return c.NetConn().Close() }
