package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"runtime"
	"sync"
	"time"

	"loquat/internal/config"
)

// checkEvery is how often the files of a certificate are checked for changes.
const checkEvery = 10 * time.Second

// certificate is a TLS certificate that is loaded again when its files change, so that a
// renewal needs no restart.
type certificate struct {
	files config.TLS
	log   *slog.Logger

	mu     sync.Mutex
	loaded *tls.Certificate
	stamp  string // of the files that were loaded last, successfully or not
	looked time.Time
}

// loadCertificate loads a certificate. It fails if the files cannot be used at the start.
func loadCertificate(files config.TLS, log *slog.Logger) (*certificate, error) {
	c := &certificate{files: files, log: log, looked: time.Now()}
	c.stamp = c.now()
	pair, err := tls.LoadX509KeyPair(files.CertFile, files.KeyFile)
	if err != nil {
		if errors.Is(err, fs.ErrPermission) {
			err = fmt.Errorf("%w; let the user of the server read it: chown root:loquat and chmod 640", err)
		} else {
			err = fmt.Errorf("%w; cert_file and key_file must name the files of one certificate", err)
		}
		return nil, usageError{fmt.Errorf("server.tls: cannot be used: %w", err)}
	}
	c.loaded = &pair
	c.warnOfReaders()
	return c, nil
}

// warnOfReaders logs a warning if every user of the machine may read the private key. It does
// not change the permissions, because the file belongs to the administrator.
func (c *certificate) warnOfReaders() {
	info, err := os.Stat(c.files.KeyFile)
	if err == nil && runtime.GOOS != "windows" && info.Mode()&0o007 != 0 {
		c.log.Warn("every user of the machine may read the private key of server.tls; run chmod o= on the file", "file", c.files.KeyFile)
	}
}

// now returns a stamp that changes when the files change.
func (c *certificate) now() (stamp string) {
	for _, name := range []string{c.files.CertFile, c.files.KeyFile} {
		if info, err := os.Stat(name); err == nil {
			stamp += fmt.Sprintf("%d bytes of %s;", info.Size(), info.ModTime().Format(time.RFC3339Nano))
		}
	}
	return stamp
}

// get implements tls.Config.GetCertificate. If new files cannot be used, it keeps the old
// certificate: one file is often written before the other.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.looked) < checkEvery {
		return c.loaded, nil
	}
	c.looked = time.Now()
	stamp := c.now()
	if stamp == c.stamp {
		return c.loaded, nil
	}
	c.stamp = stamp
	pair, err := tls.LoadX509KeyPair(c.files.CertFile, c.files.KeyFile)
	if err != nil {
		c.log.Error("the new certificate cannot be used; the server keeps the old one", "error", err)
		return c.loaded, nil
	}
	c.log.Info("the certificate was reloaded", "file", c.files.CertFile)
	c.loaded = &pair
	c.warnOfReaders()
	return c.loaded, nil
}
