package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"loquat/internal/dburl"
	"loquat/internal/store"
)

// SQLSTATE codes.
const (
	codeReadOnly    = "25006"
	codeCancelled   = "57014"
	codeRights      = "42501"
	codeNoDatabase  = "3D000"
	codeTooMany     = "53300"
	codeDiskFull    = "53100"
	codePassword    = "28P01"
	codeNoAccess    = "28000"
	codeLockTimeout = "55P03"
	codeNoTable     = "42P01"
	codeNoColumn    = "42703"
	codeNoParameter = "42704"
)

// faults are the faults of the SQLSTATE codes that an operator can do something about.
var faults = map[string]store.Fault{
	codeReadOnly:    {Kind: "read-only", Text: "the database accepts no writes", Remedy: "name the primary in store.url, or all servers with target_session_attrs=read-write"},
	codeCancelled:   {Kind: "slow", Text: "the database took too long", Remedy: "look for locks and load in the database, or raise store.statement_timeout_seconds"},
	codeLockTimeout: {Kind: "slow", Text: "the database took too long", Remedy: "look for locks and load in the database, or raise store.statement_timeout_seconds"},
	codeRights:      {Kind: "rights", Text: "the database user lacks a right", Remedy: "make this user the owner of the database, or grant it CREATE and USAGE on the schema and all rights on the tables"},
	codeNoDatabase:  {Kind: "missing", Text: "the database does not exist", Remedy: "create it with CREATE DATABASE … ENCODING 'UTF8', or correct store.url"},
	codeNoTable:     {Kind: "tables", Text: "tables of the database are missing", Remedy: "restore the database, then restart the server"},
	codeTooMany:     {Kind: "connections", Text: "the database accepts no more connections", Remedy: "raise its max_connections, lower store.pool_size, or use a pooler"},
	codeDiskFull:    {Kind: "full", Text: "the disk of the database is full", Remedy: "make room there" + goesOn},
	codePassword:    {Kind: "password", Text: "the database refused the user or password", Remedy: "correct the user and the password in store.url"},
	codeNoAccess:    {Kind: "password", Text: "the database refused the user", Remedy: "correct the user in store.url, or allow the user in pg_hba.conf"},
	"XX001":         store.Damaged,
	"XX002":         store.Damaged,
}

// goesOn ends the remedy of a fault that a running server survives.
const goesOn = "; the server goes on by itself"

var faultUnreachable = store.Fault{Kind: "unreachable", Text: "the database cannot be reached", Remedy: "start it, or check the network to it" + goesOn}

// Explain returns the Fault that describes an error.
func (db *DB) Explain(err error) store.Fault { return explain(err) }

func explain(err error) store.Fault {
	if errors.Is(err, store.ErrMoving) {
		return store.Fault{Kind: "moved", Text: "the sessions were moved to another database", Remedy: "start the server there; its log says where"}
	}
	if _, ok := errors.AsType[*unusableError](err); ok { // at run time: its schema
		return store.Fault{Kind: "schema", Text: "the database has a newer schema", Remedy: "replace this server by the newer program"}
	}
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		if fault, ok := faults[e.Code]; ok {
			return fault
		}
		if strings.HasPrefix(e.Code, "08") || strings.HasPrefix(e.Code, "57P") || e.Code == "25P03" {
			return faultUnreachable
		}
		return store.Fault{Kind: "failing", Text: "the database failed", Remedy: "the log of the server says more"}
	}
	if errors.Is(err, errFormerPrimary) {
		return faultFormerPrimary
	}
	if strings.Contains(err.Error(), "read only connection") { // pgconn has no type for it
		return faults[codeReadOnly]
	}
	_, connecting := errors.AsType[*pgconn.ConnectError](err)
	_, network := errors.AsType[net.Error](err)
	switch {
	case errors.Is(err, context.Canceled):
		return store.Fault{}
	case connecting, network, errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed), errors.Is(err, context.DeadlineExceeded),
		pgconn.Timeout(err), strings.Contains(err.Error(), "conn closed"), strings.Contains(err.Error(), "bad connection"):
		return faultUnreachable
	}
	return store.Fault{Kind: "failing", Text: "the database failed", Remedy: "the log of the server says more"}
}

// startError returns the error of Open: what is wrong, the URL and what to do.
func (db *DB) startError(err error) error {
	if _, ok := errors.AsType[*unusableError](err); ok || errors.Is(err, store.ErrInUse) || errors.Is(err, store.ErrMoving) || errors.Is(err, context.Canceled) {
		return err
	}
	return fmt.Errorf("store.url: %s: %w; %s", Masked(db.opts.URL), readable(err, db.opts.URL), startRemedy(err))
}

// startRemedy returns what to do about an error at the start, when store.url may be wrong.
func startRemedy(err error) string {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok && e.Code == codeNoParameter {
		return "correct the parameters of store.url"
	}
	fault := explain(err)
	switch text := err.Error(); {
	case fault.Kind != faultUnreachable.Kind:
		return strings.TrimSuffix(fault.Remedy, goesOn)
	case pgconn.Timeout(err), errors.Is(err, context.DeadlineExceeded):
		return "start the database, correct the host and the port in store.url, or raise connect_timeout there if the database is slow"
	case strings.Contains(text, "tls error") && !strings.Contains(text, "dial error"):
		return "turn TLS on in the database, or correct sslmode and sslrootcert in store.url"
	}
	return "start the database, or correct the host and the port in store.url"
}

// keywordPassword matches the password of a connection string of keywords and values.
var keywordPassword = regexp.MustCompile(`(password\s*=\s*)('(?:[^'\\]|\\.)*'|\S+)`)

// Masked returns a URL without its passwords.
func Masked(text string) string {
	if !strings.Contains(text, "://") {
		return keywordPassword.ReplaceAllString(text, "${1}***")
	}
	return dburl.Redact(text).Text
}

// refusedTLS is how pgconn reports a server without TLS. It then tries without TLS, unless sslmode
// requires TLS.
const refusedTLS = "tls error: server refused TLS connection"

// readable returns an error on one line, without repetitions and without the passwords of a URL.
// pgconn reports every attempt to connect on a line of its own.
func readable(err error, url string) error {
	var lines []string
	for line := range strings.Lines(err.Error()) {
		line = strings.TrimSpace(line)
		if !strings.Contains(strings.Join(lines, "\n"), line) {
			lines = append(lines, line)
		}
	}
	if attempts := slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return strings.HasSuffix(line, refusedTLS) }); len(attempts) > 1 {
		lines = attempts
	}
	text := strings.ReplaceAll(strings.Join(lines, "; "), ":; ", ": ")
	for _, password := range dburl.Redact(url).Passwords {
		text = strings.ReplaceAll(text, password, "***")
	}
	if text == err.Error() {
		return err
	}
	return errors.New(text)
}
