package rundir

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestTheCertificateOfARunIsPrivateAndStaysTheSame(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0))
	d := mustCreate(t, t.TempDir(), "segment", "")
	first, err := d.Certificate()
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(d.Path(), "certificate.pem"))
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("the file has mode %v (%v), want 0600", info.Mode(), err)
	}
	key, ok := first.PrivateKey.(*ecdsa.PrivateKey)
	if !ok || key.Curve != elliptic.P256() {
		t.Errorf("the key is a %T, want ECDSA on P-256", first.PrivateKey)
	}
	if err := first.Leaf.CheckSignature(first.Leaf.SignatureAlgorithm, first.Leaf.RawTBSCertificate, first.Leaf.Signature); err != nil {
		t.Errorf("it is not signed by itself: %v", err)
	}
	if soonest := time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC); first.Leaf.NotAfter.Before(soonest) {
		t.Errorf("it ends %v", first.Leaf.NotAfter)
	}

	again, err := Open(d.Path())
	if err != nil {
		t.Fatal(err)
	}
	second, err := again.Certificate()
	if err != nil || !bytes.Equal(first.Certificate[0], second.Certificate[0]) {
		t.Errorf("later it is another one (%v)", err)
	}
	other := mustCreate(t, t.TempDir(), "segment", "")
	if third, err := other.Certificate(); err != nil || bytes.Equal(first.Certificate[0], third.Certificate[0]) {
		t.Errorf("another run has the same (%v)", err)
	}
}

func TestADamagedCertificateIsNotReplacedButSaid(t *testing.T) {
	d := mustCreate(t, t.TempDir(), "segment", "")
	if _, err := d.Certificate(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(d.Path(), "certificate.pem")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	certificate, _, _ := bytes.Cut(whole, []byte("-----BEGIN PRIVATE KEY"))
	for name, damaged := range map[string][]byte{"empty": nil, "cut": whole[:len(whole)-100], "no key": certificate} {
		if err := os.WriteFile(path, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := d.Certificate(); err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "restore it, or remove it once no worker of the run is left") {
			t.Errorf("%s: got %v, want the file and what to do", name, err)
		}
		if left, err := os.ReadFile(path); err != nil || !bytes.Equal(left, damaged) {
			t.Errorf("%s: it was written over (%v)", name, err)
		}
	}
}
