//go:build unix

package postgres_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"loquat/internal/store"
	"loquat/internal/store/datadir"
	"loquat/internal/store/postgres"
	"loquat/internal/store/postgres/pgtest"
)

// Of several hosts the driver uses the one that accepts writes.
func TestSeveralHosts(t *testing.T) {
	t.Parallel()
	standby := pgtest.Start(t, "fsync=off", "default_transaction_read_only=on")
	primary := pgtest.Start(t, "fsync=off")
	url := fmt.Sprintf("postgres://postgres@127.0.0.1:1,127.0.0.1:%d,127.0.0.1:%d/postgres?sslmode=disable", standby.Port, primary.Port)
	s, db := openStore(t, postgres.Options{URL: url})
	mustCreate(t, s, "a")
	sound(t, db)
	conn := connect(t, primary.URL("postgres"))
	var n int
	if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM sessions").Scan(&n); err != nil || n != 1 {
		t.Errorf("the primary has %d sessions, %v", n, err)
	}
}

// The connection is encrypted and the server's certificate is checked if the URL says so.
func TestTLS(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, "fsync=off")
	certificate, key := selfSigned(t)
	data := filepath.Join(server.Dir(), "data")
	owner, err := os.Stat(filepath.Join(data, "PG_VERSION"))
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"server.crt": certificate, "server.key": key} {
		path := filepath.Join(data, name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		pgtest.Own(t, path, owner)
	}
	if err := server.Exec("postgres", "ALTER SYSTEM SET ssl = on"); err != nil {
		t.Fatal(err)
	}
	if err := server.Exec("postgres", "SELECT pg_reload_conf()"); err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(t.TempDir(), "root.crt")
	if err := os.WriteFile(root, certificate, 0o600); err != nil {
		t.Fatal(err)
	}
	url := strings.Replace(server.URL("postgres"), "sslmode=disable", "sslmode=verify-full&sslrootcert="+root, 1)
	var db *postgres.DB
	eventually(t, "the server speaks TLS", func() bool {
		var err error
		db, err = postgres.Open(t.Context(), postgres.Options{URL: url, Node: "test", Logger: slog.New(slog.DiscardHandler)})
		return err == nil
	})
	defer db.Close()
	conn := connect(t, server.URL("postgres"))
	var plain int
	err = conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE application_name = 'loquat' AND NOT ssl").Scan(&plain)
	if err != nil || plain != 0 {
		t.Errorf("%d connections are not encrypted, %v", plain, err)
	}
	other, _ := selfSigned(t)
	if err := os.WriteFile(root, other, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := postgres.Open(t.Context(), postgres.Options{URL: url, Node: "test"}); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("a certificate that is not trusted: %v", err)
	}
}

func selfSigned(t *testing.T) (certificate, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "database"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded})
}

// A database that was restored to an earlier state has lost events. The next start reports
// them, and gives their ids to no other events.
func TestDatabaseThatWasRestored(t *testing.T) {
	t.Parallel()
	name, url := pgtest.Shared(t).Database(t)
	server, dir := pgtest.Shared(t), t.TempDir()
	start := func() *store.Store {
		t.Helper()
		mark := datadir.OpenMark(dir, slog.New(slog.DiscardHandler))
		t.Cleanup(func() { mark.Close() })
		s, _ := openStore(t, postgres.Options{URL: url, Mark: mark})
		return s
	}
	s := start()
	mustCreate(t, s, "kept")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := server.Exec("postgres", "CREATE DATABASE earlier TEMPLATE "+name); err != nil {
		t.Fatal(err)
	}
	// A copy elsewhere would get a log of its own. This one stands for a database that was restored in its place.
	if err := server.Exec("earlier", "UPDATE log SET place = ''"); err != nil {
		t.Fatal(err)
	}
	s = start()
	mustCreate(t, s, "lost")
	id, last := s.ID(), s.Last()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	url = server.URL("earlier")
	s = start()
	if loss := s.Loss(); loss == nil || loss.Given != last || loss.Found != last-1 {
		t.Errorf("the loss is %v, want %s", loss, last)
	}
	if s.ID() == id || s.Last() <= last || !s.Foreign(last) {
		t.Errorf("the log is %s up to %s; it was %s up to %s", s.ID(), s.Last(), id, last)
	}
	mustCreate(t, s, "after")
}
