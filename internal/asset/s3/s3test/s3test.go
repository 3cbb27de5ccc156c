// Package s3test starts S3-compatible servers for tests: versitygw, whose version is pinned in
// .ci/s3.mod. The variable LOQUAT_TEST_S3 names the program. Without it a test is skipped; in CI
// it fails.
package s3test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"loquat/internal/asset"
	"loquat/internal/asset/s3"
)

// Bucket is the name of the bucket of each Server.
const Bucket = "images"

// The credentials of each Server.
const (
	AccessKeyID     = "loquat-test"
	SecretAccessKey = "hunter2/with+signs="
)

// Server is a running server.
type Server struct {
	Addr string // host and port, on loopback

	t   testing.TB
	dir string
	cmd *exec.Cmd
}

// Start starts a server. The end of the test stops it.
func Start(t testing.TB) *Server {
	t.Helper()
	program := os.Getenv("LOQUAT_TEST_S3")
	if program == "" {
		if os.Getenv("CI") != "" {
			t.Fatal("LOQUAT_TEST_S3 is not set; .ci/run should have built the server")
		}
		t.Skip("skipped: LOQUAT_TEST_S3 names no S3-compatible server; see docs/testing.md")
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{Addr: ln.Addr().String(), t: t, dir: t.TempDir()}
	ln.Close()
	for _, dir := range []string{"data/" + Bucket, "metadata"} {
		if err := os.MkdirAll(filepath.Join(s.dir, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	s.Restart()
	t.Cleanup(s.Stop)
	return s
}

// Restart starts the server again after a Stop, with the same objects.
func (s *Server) Restart() {
	s.t.Helper()
	s.cmd = exec.Command(os.Getenv("LOQUAT_TEST_S3"), "--access", AccessKeyID, "--secret", SecretAccessKey, "--port", s.Addr, "--quiet",
		"posix", "--sidecar", filepath.Join(s.dir, "metadata"), filepath.Join(s.dir, "data"))
	log, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		s.t.Fatal(err)
	}
	defer log.Close()
	s.cmd.Stdout, s.cmd.Stderr = log, log
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		conn, err := net.Dial("tcp", s.Addr)
		if err == nil {
			conn.Close()
			return
		}
		if time.Since(began) > 20*time.Second {
			text, _ := os.ReadFile(filepath.Join(s.dir, "log"))
			s.t.Fatalf("the server does not start: %v\n%s", err, text)
		}
	}
}

// Stop kills the server.
func (s *Server) Stop() {
	if s.cmd != nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
		s.cmd = nil
	}
}

// Objects returns the names of the objects whose names have a pattern.
func (s *Server) Objects(pattern string) []string {
	s.t.Helper()
	found, err := filepath.Glob(filepath.Join(s.dir, "data", Bucket, pattern))
	if err != nil {
		s.t.Fatal(err)
	}
	return found
}

// URL returns the value of assets.url for a prefix of the bucket.
func (s *Server) URL(prefix string) string {
	return "s3://" + Bucket + "/" + prefix + "?path_style=true&endpoint=http://" + s.Addr
}

// Options returns the options for a prefix of the bucket, at the address of the server or of a
// proxy in front of it.
func (s *Server) Options(t testing.TB, prefix, addr string) s3.Options {
	t.Helper()
	l, err := asset.ParseLocation(s.URL(prefix))
	if err != nil {
		t.Fatal(err)
	}
	l.Endpoint = addr
	return s3.Options{Location: l, AccessKeyID: AccessKeyID, SecretAccessKey: SecretAccessKey}
}
