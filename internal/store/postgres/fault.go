package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
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
	codeDiskFull:    {Kind: "full", Text: "the disk of the database is full", Remedy: "make room there: the server goes on by itself"},
	codePassword:    {Kind: "password", Text: "the database refused the user or password", Remedy: "correct store.url"},
	codeNoAccess:    {Kind: "password", Text: "the database refused the user", Remedy: "correct store.url, or allow the user in pg_hba.conf"},
	"XX001":         store.Damaged,
	"XX002":         store.Damaged,
}

var faultUnreachable = store.Fault{Kind: "unreachable", Text: "the database cannot be reached", Remedy: "start it, or correct store.url: the server goes on by itself"}

// Explain returns the Fault that describes an error.
func (db *DB) Explain(err error) store.Fault { return explain(err) }

func explain(err error) store.Fault {
	if errors.Is(err, store.ErrMoving) {
		return store.Fault{Kind: "moved", Text: "the sessions were moved to another database", Remedy: "start the server there; its log says where"}
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
	return fmt.Errorf("store.url: %s: %w; %s", Masked(db.opts.URL), withoutPassword(err, db.opts.URL), explain(err).Remedy)
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

// withoutPassword removes the passwords of a URL from an error's text.
func withoutPassword(err error, url string) error {
	text := err.Error()
	for _, password := range dburl.Redact(url).Passwords {
		text = strings.ReplaceAll(text, password, "***")
	}
	if text == err.Error() {
		return err
	}
	return errors.New(text)
}
