// Package auth authenticates callers: by tokens of the configuration, by tokens and devices
// that were made at run time, and by browser sessions. It also makes pairing codes.
//
// Secrets are stored only as digests. A change is on disk before it is acknowledged. A
// pairing code makes at most one device. When a credential is revoked or expires, the
// connections that use it end at once. Guessing is throttled, but valid tokens are not.
//
// The package does not know HTTP, nor what a scope allows on which route: internal/httpapi
// does. A Store holds the credentials and pairing codes, and this package keeps a copy of
// them in memory. Several nodes may share a Store. A change is then effective on all of them
// within a second: the Store reports it, and each Keeper loads its copy again. A change takes
// effect only if its Keeper's copy was current, so that nodes do not overwrite each other and
// limits hold for all of them together. Before a Keeper refuses a token that it does not
// know, it makes sure that its copy is current.
package auth

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"loquat"
)

// The scopes of a principal.
const (
	Full    = "full"
	Read    = "read"    // only reading
	Session = "session" // one session and its events
	User    = "user"    // the sessions of one user
)

// The kinds of principals that have no credential of the store or the configuration.
const (
	Nobody = "nobody" // a call without credentials on an open server
	Issued = "issued" // by a JSON Web Token of another system
)

// Bounds of stored credentials.
const (
	maxKeys     = 1000   // tokens, and as many devices
	maxUserKeys = 20_000 // tokens of scope user
	maxBrowsers = 100    // per token; above, the oldest is removed
	maxCodes    = 20     // open at a time

	maxUserDevices  = 100 // of one user
	maxUserCodes    = 5   // of one user, open at a time
	maxCodesOfUsers = 500 // of all users
)

// Principal is the authenticated caller of a request.
type Principal struct {
	ID        string // of the credential; "" means nobody
	Name      string
	Kind      string
	Scope     string
	SessionID string // of scope session
	User      string // of scope user
	Role      string // "" means none, or that of users
	Browser   string // the id of the browser session if a cookie was used

	ExpiresAt time.Time // of kind Issued
}

// Options configure a Keeper.
type Options struct {
	Store  Store        // nil allows only the tokens of the configuration
	Logger *slog.Logger // nil: the default one

	Configured

	Attempts *Attempts // shared within the process; nil means a new one
}

// Keeper authenticates callers and manages credentials. It is safe for concurrent use.
type Keeper struct {
	store Store
	log   *slog.Logger

	attempts *Attempts

	shared  sharedStore // nil if no other node may change the store
	checks  checks
	writing sync.Mutex // held over a change of the store and of the copy, and while the copy is loaded

	mu       sync.RWMutex
	revision int64                         // of the copy; writers hold writing, too
	keys     map[Digest]*loquat.Credential // all but browsers
	byID     map[string]*loquat.Credential // the same
	browsers map[Digest]*loquat.Credential // by the digest of the cookie
	codes    map[string]loquat.PairingCode // by their public parts
	closed   bool                          // whether there are tokens

	configured Configured
	live       map[*visit]struct{} // the contexts of During
	changed    chan struct{}       // closed at the next change
}

// Open loads the credentials of the store and returns a Keeper.
func Open(ctx context.Context, opts Options) (*Keeper, error) {
	k := &Keeper{
		store: opts.Store, log: opts.Logger,
		attempts: opts.Attempts,
		keys:     map[Digest]*loquat.Credential{}, byID: map[string]*loquat.Credential{}, browsers: map[Digest]*loquat.Credential{}, codes: map[string]loquat.PairingCode{},
		live: map[*visit]struct{}{}, changed: make(chan struct{}),
	}
	if k.log == nil {
		k.log = slog.Default()
	}
	if k.attempts == nil {
		k.attempts = NewAttempts(k.log)
	}
	if k.store == nil {
		k.store = noStore{}
	}
	k.writing.Lock()
	defer k.writing.Unlock()
	if shared, ok := k.store.(sharedStore); ok && shared.Shared() {
		k.shared = shared
		k.attempts.share(shared)
		shared.OnCredentials(k.update)
	}
	if err := k.load(ctx); err != nil {
		return nil, fmt.Errorf("load tokens and devices: %w", err)
	}
	k.Reconfigure(opts.Configured)
	return k, nil
}

// Closed reports whether calls need a token. They do once any token exists, even an expired
// one: its expiry must not open the service to everybody. They do if tokens of other systems are accepted, too.
func (k *Keeper) Closed() bool {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.closed
}

// Own makes a token for this process, which is not stored and does not close the service.
func (k *Keeper) Own() string {
	secret := newSecret()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.add([]loquat.Credential{{ID: newID(), Kind: loquat.CredentialProcess, Name: "this process", Scope: Full, Digest: digestOf(secret)}})
	k.noteChange()
	return secret
}

// maxOvertaken is how often a change is decided again because another node's change came
// first.
const maxOvertaken = 20

// change writes what decide returns to the store, then to the copy. decide may be called
// again, because another node changed the store meanwhile.
func (k *Keeper) change(ctx context.Context, decide func() (loquat.CredentialChange, error)) error {
	if err := k.refresh(ctx); err != nil {
		return err
	}
	k.writing.Lock()
	defer k.writing.Unlock()
	for range maxOvertaken {
		c, err := decide()
		if err != nil || len(c.Add)+len(c.Remove)+len(c.Codes)+len(c.Drop) == 0 {
			return err
		}
		c.Revision = k.revision
		revision, stored, err := k.store.ChangeCredentials(ctx, c)
		if err != nil {
			return err
		}
		if stored {
			k.apply(c, revision)
			return nil
		}
		if err := k.load(ctx); err != nil {
			return err
		}
	}
	return loquat.Errorf(loquat.CodeUnavailable, "other nodes change the tokens and devices all the time; nothing of this change was kept, try again")
}

// apply writes to the copy.
func (k *Keeper) apply(c loquat.CredentialChange, revision int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.revision = revision
	k.add(c.Add)
	for _, id := range c.Remove {
		if key := k.byID[id]; key != nil {
			delete(k.keys, key.Digest)
			delete(k.byID, id)
			continue
		}
		for digest, b := range k.browsers {
			if b.ID == id {
				delete(k.browsers, digest)
			}
		}
	}
	for _, code := range c.Codes {
		k.codes[code.Public] = code
	}
	for _, public := range c.Drop {
		delete(k.codes, public)
	}
	k.noteChange()
}

// add adds credentials to the copy. The caller holds k.mu.
func (k *Keeper) add(credentials []loquat.Credential) {
	for _, key := range credentials {
		if key.Kind == loquat.CredentialBrowser {
			k.browsers[key.Digest] = &key
			continue
		}
		k.keys[key.Digest], k.byID[key.ID] = &key, &key
	}
}

// noteChange cancels the contexts of credentials that ended, and wakes the goroutines that
// wait for changes. The caller holds k.mu.
func (k *Keeper) noteChange() {
	k.closed = k.configured.JWT != nil
	for _, key := range k.byID {
		k.closed = k.closed || key.Kind == loquat.CredentialConfig || key.Kind == loquat.CredentialToken
	}
	k.cut()
	close(k.changed)
	k.changed = make(chan struct{})
}

// Changed returns a channel that is closed at the next change of credentials or codes. Call
// it before reading them.
func (k *Keeper) Changed() <-chan struct{} {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.changed
}

// Grant describes a credential to a bridge. It contains no secret.
type Grant struct {
	ID, Kind, Scope, SessionID string
	Digest                     Digest
	ExpiresAt                  time.Time // zero: never
}

// Grants returns the valid credentials, oldest first, without this process's own token, without those of scope user,
// of which there may be very many, and without those whose role allows nothing.
func (k *Keeper) Grants() []Grant {
	var out []Grant
	for _, key := range k.list(loquat.CredentialConfig, loquat.CredentialToken, loquat.CredentialDevice) {
		if !key.Expired() && key.Scope != User && k.HasRole(key.Role) {
			out = append(out, Grant{key.ID, key.Kind, key.Scope, key.SessionID, key.Digest, key.ExpiresAt})
		}
	}
	return out
}

// OpenCode is a pairing code that may be claimed, without its secret.
type OpenCode struct {
	Public    string
	ExpiresAt time.Time
}

// OpenCodes returns the codes that can be claimed now, sorted by expiry.
func (k *Keeper) OpenCodes() []OpenCode {
	k.mu.RLock()
	defer k.mu.RUnlock()
	var out []OpenCode
	for _, c := range k.codes {
		if claimable(c) {
			out = append(out, OpenCode{c.Public, c.ExpiresAt})
		}
	}
	slices.SortFunc(out, func(a, b OpenCode) int {
		if c := a.ExpiresAt.Compare(b.ExpiresAt); c != 0 {
			return c
		}
		return strings.Compare(a.Public, b.Public)
	})
	return out
}

// list returns the keys of some kinds, oldest first.
func (k *Keeper) list(kinds ...string) []loquat.Credential {
	k.mu.RLock()
	defer k.mu.RUnlock()
	var out []loquat.Credential
	for _, key := range k.byID {
		if slices.Contains(kinds, key.Kind) {
			out = append(out, *key)
		}
	}
	slices.SortFunc(out, func(a, b loquat.Credential) int {
		if c := a.CreatedAt.Compare(b.CreatedAt); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	return out
}

// removal returns the change that removes a credential of a kind and its browser sessions.
func (k *Keeper) removal(kind, id string) (key loquat.Credential, c loquat.CredentialChange, err error) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	found := k.byID[id]
	if found == nil || found.Kind != kind {
		return key, c, errNoCredential(kind, id)
	}
	c.Remove = []string{id}
	for _, b := range k.browsers {
		if b.Bearer == found.Digest {
			c.Remove = append(c.Remove, b.ID)
		}
	}
	return *found, c, nil
}

// expired reports whether a time has passed. The zero time never passes.
func expired(at time.Time) bool { return !at.IsZero() && !time.Now().Before(at) }

// now returns the time with the precision of the store.
func now() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }

// newID makes an id that sorts by time.
func newID() string { return uuid.Must(uuid.NewV7()).String() }

// secretPrefix lets people and secret scanners recognize a token.
const secretPrefix = "loq_"

// newSecret makes a token of 200 random bits.
func newSecret() string {
	var b [25]byte
	_, _ = rand.Read(b[:]) // never fails
	return secretPrefix + strings.ToLower(base32.StdEncoding.EncodeToString(b[:]))
}

func errNoCredential(kind, id string) error {
	return loquat.Errorf(loquat.CodeNotFound, "there is no %s %q", kind, loquat.Clip(id, loquat.Excerpt))
}

// errFull reports that the maximum of stored credentials is reached.
func errFull(most int, what, remedy string) error {
	return loquat.Errorf(loquat.CodeConflict, "there are %d %s already; %s", most, what, remedy)
}

// ErrEnded is the cause of During's context when a credential is revoked or expires.
var ErrEnded = errors.New("the token is no longer valid")
