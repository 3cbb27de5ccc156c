package bridge

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/netip"
	"time"

	"loquat"
)

// Access lists the tokens and pairing codes that are valid at a server. It contains no
// secrets.
type Access struct {
	Codes  []string `json:"codes"` // public parts of open pairing codes
	Tokens []Token  `json:"tokens"`
}

// Token describes a token to a bridge: its digest and its rights.
type Token struct {
	Digest    string     `json:"digest"` // SHA-256, hex
	Scope     string     `json:"scope"`
	SessionID string     `json:"session_id,omitempty"`
	ExpiresAt *time.Time `json:"expires_at,omitempty"`
}

// NewToken returns the Token for a token's digest. A zero time means that it never
// expires.
func NewToken(digest [sha256.Size]byte, scope, sessionID string, expires time.Time) Token {
	t := Token{Digest: hex.EncodeToString(digest[:]), Scope: scope, SessionID: sessionID}
	if !expires.IsZero() {
		t.ExpiresAt = &expires
	}
	return t
}

// setAccess replaces the tokens and codes, and ends the sockets of tokens that are no
// longer valid.
func (r *remote) setAccess(payload json.RawMessage) error {
	var a Access
	if err := json.Unmarshal(payload, &a); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.access, r.codes, r.ready = make(map[string]Token, len(a.Tokens)), a.Codes, true
	for _, t := range a.Tokens {
		r.access[t.Digest] = t
	}
	for v := range r.tokenUses {
		if now, ok := r.access[v.token.Digest]; !ok || now.SessionID != v.token.SessionID {
			v.end()
		}
	}
	r.notify()
	return nil
}

// tokenUse is a context that ends with its token.
type tokenUse struct {
	token Token
	end   context.CancelFunc
}

// authenticate implements Authenticate for the remote server.
func (r *remote) authenticate(ctx context.Context, token string, from netip.Addr) (Principal, error) {
	if err := r.await(ctx, func() bool { return r.ready }); err != nil {
		return Principal{}, err
	}
	sum := sha256.Sum256([]byte(token))
	r.mu.Lock()
	t, ok := r.access[hex.EncodeToString(sum[:])]
	r.mu.Unlock()
	if !ok || t.expired() {
		if err := r.attempts.WrongToken(from); err != nil {
			return Principal{}, err
		}
		return Principal{}, loquat.Errorf(loquat.CodeUnauthorized, "the token is not known")
	}
	return Principal{SessionID: t.SessionID, During: func(ctx context.Context) (context.Context, context.CancelFunc) { return r.during(ctx, t) }}, nil
}

func (t Token) expired() bool { return t.ExpiresAt != nil && !time.Now().Before(*t.ExpiresAt) }

// during implements Principal.During.
func (r *remote) during(ctx context.Context, t Token) (context.Context, context.CancelFunc) {
	ctx, end := context.WithCancel(ctx)
	stop := func() {}
	if t.ExpiresAt != nil {
		ctx, stop = context.WithDeadline(ctx, *t.ExpiresAt)
	}
	v := &tokenUse{t, end}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.access[t.Digest]; !ok {
		end()
	}
	r.tokenUses[v] = struct{}{}
	return ctx, func() {
		r.mu.Lock()
		delete(r.tokenUses, v)
		r.mu.Unlock()
		stop()
		end()
	}
}

// opens reports whether a pairing code with that public part is open at the server.
func (r *remote) opens(public string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, code := range r.codes {
		if code == public {
			return true
		}
	}
	return false
}
