package main

import (
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"loquat/internal/config"
	"loquat/internal/e2e/binary"
)

// A renewed certificate is taken up without a restart; one that cannot be used is not.
func TestRenewedCertificate(t *testing.T) {
	dir := t.TempDir()
	files := config.TLS{CertFile: filepath.Join(dir, "cert.pem"), KeyFile: filepath.Join(dir, "key.pem")}
	if _, err := loadCertificate(files, slog.New(slog.DiscardHandler)); err == nil {
		t.Fatal("files that are not there are a certificate")
	}
	oldCert, oldKey := binary.SelfSigned(t, 1)
	binary.WriteFiles(t, dir, map[string]string{"cert.pem": oldCert, "key.pem": oldKey})
	newCert, newKey := binary.SelfSigned(t, 2)
	synctest.Test(t, func(t *testing.T) {
		c, err := loadCertificate(files, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		serves := func(want int64) {
			t.Helper()
			time.Sleep(checkEvery)
			pair, err := c.get(nil)
			if err != nil || pair.Leaf.SerialNumber.Int64() != want {
				t.Errorf("certificate %v, %v; want %d", pair.Leaf.SerialNumber, err, want)
			}
		}
		serves(1)
		binary.WriteFiles(t, dir, map[string]string{"cert.pem": newCert + "\n"}) // the key is the old one's
		serves(1)
		binary.WriteFiles(t, dir, map[string]string{"key.pem": newKey + "\n"})
		serves(2)
	})
}

func TestKeyThatOthersMayRead(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("files have no permissions")
	}
	dir := t.TempDir()
	cert, key := binary.SelfSigned(t, 1)
	binary.WriteFiles(t, dir, map[string]string{"cert.pem": cert, "key.pem": key})
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
	synctest.Test(t, func(t *testing.T) { // a renewed key, too
		binary.WriteFiles(t, dir, map[string]string{"cert.pem": cert, "key.pem": key})
		if err := os.Chmod(files.KeyFile, 0o600); err != nil {
			t.Fatal(err)
		}
		var said strings.Builder
		c, err := loadCertificate(files, slog.New(slog.NewTextHandler(&said, nil)))
		if err != nil {
			t.Fatal(err)
		}
		binary.WriteFiles(t, dir, map[string]string{"key.pem": key + "\n"})
		if err := os.Chmod(files.KeyFile, 0o644); err != nil {
			t.Fatal(err)
		}
		time.Sleep(checkEvery)
		if _, err := c.get(nil); err != nil || !strings.Contains(said.String(), "private key") {
			t.Errorf("%v; the log says %q", err, said.String())
		}
	})
}
