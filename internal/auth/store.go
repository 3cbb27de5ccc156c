package auth

import (
	"context"
	"crypto/sha256"
	"time"

	"loquat"
)

// Digest is the SHA-256 of a secret. Secrets are stored only as their digests.
type Digest [sha256.Size]byte

func digestOf(secret string) Digest { return sha256.Sum256([]byte(secret)) }

// Store stores credentials and pairing codes. When a method returns no error, its change
// is on disk.
type Store interface {
	// LoadCredentials returns everything.
	LoadCredentials(ctx context.Context) (loquat.Credentials, error)
	// ChangeCredentials writes in one transaction, and returns the new revision. It writes
	// nothing and returns false if the stored credentials have another revision than the
	// change.
	ChangeCredentials(ctx context.Context, c loquat.CredentialChange) (revision int64, stored bool, err error)
	// UseCredential stores the day on which a credential was used.
	UseCredential(ctx context.Context, use loquat.CredentialUse) error
}

// sharedStore is implemented by a Store that several nodes may use.
type sharedStore interface {
	// Shared reports whether other nodes may change the stored credentials.
	Shared() bool
	// OnCredentials calls fn within a second after another node changed the stored
	// credentials, and again if fn fails.
	OnCredentials(fn func(context.Context) error)
	// CredentialsRevision returns the revision of the stored credentials.
	CredentialsRevision(ctx context.Context) (int64, error)
	// AddDebts adds to the debts of keys, which all nodes share, and returns their sums. A debt
	// shrinks with the time.
	AddDebts(ctx context.Context, keys []string, add []time.Duration) ([]time.Duration, error)
}

// noStore stores nothing.
type noStore struct{}

var errNoStore = loquat.Errorf(loquat.CodeUnavailable, "tokens and devices cannot be made here: only the tokens of the configuration are known")

func (noStore) LoadCredentials(context.Context) (loquat.Credentials, error) {
	return loquat.Credentials{}, nil
}
func (noStore) ChangeCredentials(context.Context, loquat.CredentialChange) (int64, bool, error) {
	return 0, false, errNoStore
}
func (noStore) UseCredential(context.Context, loquat.CredentialUse) error { return errNoStore }
