package auth

import (
	"context"
	"crypto/sha256"

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
	// ChangeCredentials writes in one transaction.
	ChangeCredentials(ctx context.Context, c loquat.CredentialChange) error
	// DecidePairing passes the code with that public part to decide, nil when there is
	// none, and writes what decide returns, in one transaction. It may call decide again.
	DecidePairing(ctx context.Context, public string, decide func(*loquat.PairingCode) loquat.CredentialChange) error
}

// noStore stores nothing.
type noStore struct{}

var errNoStore = loquat.Errorf(loquat.CodeUnavailable, "tokens and devices cannot be made here: only the tokens of the configuration are known")

func (noStore) LoadCredentials(context.Context) (loquat.Credentials, error) {
	return loquat.Credentials{}, nil
}
func (noStore) ChangeCredentials(context.Context, loquat.CredentialChange) error { return errNoStore }
func (noStore) DecidePairing(context.Context, string, func(*loquat.PairingCode) loquat.CredentialChange) error {
	return errNoStore
}
