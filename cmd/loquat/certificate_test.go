package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"io/fs"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"loquat/internal/config"
)

// selfSigned returns a certificate for this machine, with its key, as PEM.
func selfSigned(t *testing.T, serial int64) (certificate, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), DNSNames: []string{"localhost"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}))
}

// A renewed certificate is taken up without a restart; one that cannot be used is not.
func TestRenewedCertificate(t *testing.T) {
	dir := t.TempDir()
	files := config.TLS{CertFile: filepath.Join(dir, "cert.pem"), KeyFile: filepath.Join(dir, "key.pem")}
	if _, err := loadCertificate(files, slog.New(slog.DiscardHandler)); err == nil {
		t.Fatal("files that are not there are a certificate")
	}
	oldCert, oldKey := selfSigned(t, 1)
	writeFiles(t, dir, map[string]string{"cert.pem": oldCert, "key.pem": oldKey})
	newCert, newKey := selfSigned(t, 2)
	synctest.Test(t, func(t *testing.T) {
		c, err := loadCertificate(files, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		serves := func(want int64) {
			t.Helper()
			time.Sleep(lookEvery)
			pair, err := c.get(nil)
			if err != nil || pair.Leaf.SerialNumber.Int64() != want {
				t.Errorf("certificate %v, %v; want %d", pair.Leaf.SerialNumber, err, want)
			}
		}
		serves(1)
		writeFiles(t, dir, map[string]string{"cert.pem": newCert + "\n"}) // the key is the old one's
		serves(1)
		writeFiles(t, dir, map[string]string{"key.pem": newKey + "\n"})
		serves(2)
	})
}

func TestKeyThatOthersMayRead(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("files have no permissions")
	}
	dir := t.TempDir()
	cert, key := selfSigned(t, 1)
	writeFiles(t, dir, map[string]string{"cert.pem": cert, "key.pem": key})
	files := config.TLS{CertFile: filepath.Join(dir, "cert.pem"), KeyFile: filepath.Join(dir, "key.pem")}
	for mode, warned := range map[fs.FileMode]bool{0o600: false, 0o640: false, 0o644: true} {
		if err := os.Chmod(files.KeyFile, mode); err != nil {
			t.Fatal(err)
		}
		var said strings.Builder
		if _, err := loadCertificate(files, slog.New(slog.NewTextHandler(&said, nil))); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(said.String(), "private key") != warned {
			t.Errorf("a key of permissions %04o: the log says %q", mode, said.String())
		}
	}
}
