package main

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"sync"
	"time"

	"loquat/internal/config"
)

// lookEvery is the pause between two looks at whether the files of a certificate changed.
const lookEvery = 10 * time.Second

// certificate is a certificate that is read again when its files change: whoever
// renews it need not start the server again.
type certificate struct {
	files config.TLS
	log   *slog.Logger

	mu     sync.Mutex
	loaded *tls.Certificate
	stamp  string // of the files that were tried last
	looked time.Time
}

// loadCertificate fails when there is no good one to begin with.
func loadCertificate(files config.TLS, log *slog.Logger) (*certificate, error) {
	c := &certificate{files: files, log: log, looked: time.Now()}
	c.stamp = c.now()
	pair, err := tls.LoadX509KeyPair(files.CertFile, files.KeyFile)
	if err != nil {
		return nil, usageError{fmt.Errorf("server.tls: cannot be used: %w", err)}
	}
	c.loaded = &pair
	c.warnOfReaders()
	return c, nil
}

// warnOfReaders warns of a private key that every user of the machine may read. The file
// is the administrator's, so its permissions stay as they are.
func (c *certificate) warnOfReaders() {
	info, err := os.Stat(c.files.KeyFile)
	if err == nil && runtime.GOOS != "windows" && info.Mode()&0o007 != 0 {
		c.log.Warn("every user of the machine may read the private key of server.tls; run chmod o= on the file", "file", c.files.KeyFile)
	}
}

// now tells one state of the files from another.
func (c *certificate) now() (stamp string) {
	for _, name := range []string{c.files.CertFile, c.files.KeyFile} {
		if info, err := os.Stat(name); err == nil {
			stamp += fmt.Sprintf("%d bytes of %s;", info.Size(), info.ModTime().Format(time.RFC3339Nano))
		}
	}
	return stamp
}

// get is tls.Config.GetCertificate. While the new files cannot be used the old
// certificate goes on; one half is often written before the other.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.looked) < lookEvery {
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
		c.log.Error("the new certificate cannot be used, the old one goes on", "error", err)
		return c.loaded, nil
	}
	c.log.Info("the certificate was read again", "file", c.files.CertFile)
	c.loaded = &pair
	return c.loaded, nil
}
