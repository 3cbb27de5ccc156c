package auth

import (
	"context"
	"crypto/sha256"
	"time"

	"loquat"
)

// Digest is the SHA-256 of a secret. What opens anything is kept as its digest only.
type Digest [sha256.Size]byte

func digestOf(secret string) Digest { return sha256.Sum256([]byte(secret)) }

// Key is something that opens the service, as it is kept.
type Key struct {
	ID        string
	Kind      string // Token, Device or Browser
	Name      string
	Scope     string
	SessionID string   // of scope session
	Digest    [32]byte // of the secret
	Bearer    [32]byte // of a Browser: the digest of the token that it stands for
	CreatedAt time.Time
	ExpiresAt time.Time // zero: never
	UsedOn    string    // the last day on which it was used, like 2026-11-21; "" is never
}

// Code is a pairing code that nobody has claimed yet, as it is kept.
type Code struct {
	Public    string   // the part that names it
	Digest    [32]byte // of the whole code
	Scope     string   // of the device that claims it
	ExpiresAt time.Time
	Wrong     int // how many wrong secrets were tried
}

// Change is what one transaction of a Store writes.
type Change struct {
	Add    []Key
	Remove []string // ids of keys; those that are gone already are no mistake
	Used   []Use
	Codes  []Code   // new ones, or new states of those of the same public part
	Drop   []string // public parts of codes
}

// Use tells on which day a key was used.
type Use struct{ ID, Day string }

// Kept is all that a Store holds.
type Kept struct {
	Keys  []Key
	Codes []Code
}

// Store keeps keys and codes. What it answered without an error is on disk.
type Store interface {
	// Load returns everything.
	Load(ctx context.Context) (Kept, error)
	// Change writes in one transaction.
	Change(ctx context.Context, c Change) error
	// Decide hands the code of that public part to decide, nil when there is none, and
	// writes what that returns, both in one transaction. It may call decide again.
	Decide(ctx context.Context, public string, decide func(*Code) Change) error
}

// noStore keeps nothing.
type noStore struct{}

var errNoStore = loquat.Errorf(loquat.CodeUnavailable, "nothing can be made or paired here: there are the tokens of the configuration alone")

func (noStore) Load(context.Context) (Kept, error)                       { return Kept{}, nil }
func (noStore) Change(context.Context, Change) error                     { return errNoStore }
func (noStore) Decide(context.Context, string, func(*Code) Change) error { return errNoStore }
