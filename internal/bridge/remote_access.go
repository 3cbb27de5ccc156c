package bridge

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"net/netip"
	"time"

	"loquat"
	"loquat/internal/backoff"
)

// Access lists the tokens and pairing codes that are valid at a server. It contains no
// secrets.
type Access struct {
	Codes  []string `json:"codes"` // public parts of open pairing codes
	Tokens []Token  `json:"tokens"`
}

// maxOpenCodes is how many open codes a server may name: more than it may have, and few of all that there can be.
const maxOpenCodes = 1000

// Token describes a token to a bridge: its digest and its rights.
type Token struct {
	Digest string `json:"digest"` // SHA-256, hex
	Sight
	ExpiresAt *time.Time `json:"expires_at,omitempty"`
}

// NewToken returns the Token for a token's digest.
func NewToken(digest [sha256.Size]byte, who Principal) Token {
	t := Token{Digest: hex.EncodeToString(digest[:]), Sight: who.Sight}
	if !who.ExpiresAt.IsZero() {
		t.ExpiresAt = &who.ExpiresAt
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
	a.Codes = a.Codes[:min(len(a.Codes), maxOpenCodes)]
	r.mu.Lock()
	defer r.mu.Unlock()
	r.access, r.codes, r.ready = make(map[string]Token, len(a.Tokens)), a.Codes, true
	for _, t := range a.Tokens {
		r.access[t.Digest] = t
	}
	for v := range r.tokenUses {
		if now, ok := r.find(v.token.Digest); !ok || now.Sight != v.token.Sight {
			v.end()
		}
	}
	r.notify()
	return nil
}

// find returns the token with a digest. The caller holds the lock.
func (r *remote) find(digest string) (t Token, ok bool) {
	if t, ok = r.access[digest]; ok {
		return t, ok
	}
	a, ok := r.asked[digest]
	if ok {
		t = a.Token
	}
	return t, ok
}

// askedToken is a token for which the server was asked.
type askedToken struct {
	Token
	uses int
}

// maxUnused is how many tokens are kept that no app uses: those of apps that are just joining.
const maxUnused = 1024

// keep remembers a token for which the server was asked. The caller holds the lock.
func (r *remote) keep(t Token) {
	if a := r.asked[t.Digest]; a != nil {
		a.Token = t
		return
	}
	if len(r.asked) >= len(r.tokenUses)+maxUnused {
		r.dropUnused()
	}
	r.asked[t.Digest] = &askedToken{Token: t}
}

func (r *remote) dropUnused() {
	maps.DeleteFunc(r.asked, func(_ string, a *askedToken) bool { return a.uses == 0 })
}

// tokenUse is a context that ends with its token.
type tokenUse struct {
	token  Token
	secret string     // to ask again for whom it is
	from   netip.Addr // who sent it
	end    context.CancelFunc
}

// authenticate implements Authenticate for the remote server.
func (r *remote) authenticate(ctx context.Context, token string, from netip.Addr) (Principal, error) {
	if err := r.await(ctx, func() bool { return r.ready }); err != nil {
		return Principal{}, err
	}
	sum := sha256.Sum256([]byte(token))
	digest := hex.EncodeToString(sum[:])
	r.mu.Lock()
	t, ok := r.find(digest)
	r.mu.Unlock()
	var err error
	if !ok {
		t, err = r.who(ctx, token, digest, from)
	} else if t.expired() {
		err = errUnknownToken
	}
	switch loquat.CodeOf(err) {
	case loquat.CodeUnauthorized, loquat.CodeUnavailable: // while the server cannot be asked, guesses count as well
		if limited := r.attempts.WrongToken(from); limited != nil {
			err = limited
		}
	}
	if err != nil {
		return Principal{}, err
	}
	p := Principal{Sight: t.Sight, During: func(ctx context.Context) (context.Context, context.CancelFunc) {
		return r.during(ctx, &tokenUse{token: t, secret: token, from: from})
	}}
	if t.ExpiresAt != nil {
		p.ExpiresAt = *t.ExpiresAt
	}
	return p, nil
}

var errUnknownToken = loquat.Errorf(loquat.CodeUnauthorized, "the token is not known")

// who asks the server what a token may see that it has not pushed: the token of a user, or one that was made just
// now.
func (r *remote) who(ctx context.Context, token, digest string, from netip.Addr) (t Token, err error) {
	if token == "" {
		return t, errUnknownToken
	}
	_, err = r.ask(ctx, eventWho, askParams{Token: token, Address: from}, func(p Part) error {
		if err := json.Unmarshal([]byte(p.Data), &t); err != nil || t.Digest != digest {
			return loquat.Errorf(loquat.CodeUnavailable, "the server's answer about a token is not valid")
		}
		r.mu.Lock()
		r.keep(t) // before the reply to this part: only after it does the server report the end of the token
		r.mu.Unlock()
		return nil
	})
	switch code := loquat.CodeOf(err); {
	case code == loquat.CodeInvalid: // an older server, which does not say
		err = errUnknownToken
	case err == nil && (t.Digest == "" || t.expired()):
		err = errUnknownToken
	}
	return t, err
}

// askAgain asks the server, when it has joined, about the tokens of users that apps use. Some may have been revoked
// while the server was away. For the others the server begins to watch again.
func (r *remote) askAgain(ctx context.Context) {
	r.mu.Lock()
	uses := map[string]*tokenUse{}
	for v := range r.tokenUses {
		if _, pushed := r.access[v.token.Digest]; !pushed {
			uses[v.token.Digest] = v
		}
	}
	r.dropUnused()
	r.mu.Unlock()
	for digest, v := range uses {
		t, err := r.who(ctx, v.secret, digest, v.from)
		for loquat.CodeOf(err) == loquat.CodeUnavailable && backoff.Sleep(ctx, retryPause) == nil { // apps may ask as well
			t, err = r.who(ctx, v.secret, digest, v.from)
		}
		switch {
		case ctx.Err() != nil:
			return
		case err == nil && t.Sight != v.token.Sight: // it is that of another user now
			r.end(digest)
		case err != nil: // also if the address has sent too many wrong tokens: a valid one would not be refused
			r.end(digest)
		}
	}
}

// endToken ends the sockets of a token that the server reports as no longer valid.
func (r *remote) endToken(payload json.RawMessage) error {
	var params struct {
		Digest string `json:"digest"`
	}
	if err := json.Unmarshal(payload, &params); err != nil {
		return err
	}
	r.end(params.Digest)
	return nil
}

func (r *remote) end(digest string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.asked, digest)
	if _, pushed := r.access[digest]; pushed {
		return
	}
	for v := range r.tokenUses {
		if v.token.Digest == digest {
			v.end()
		}
	}
}

func (t Token) expired() bool { return t.ExpiresAt != nil && !time.Now().Before(*t.ExpiresAt) }

// during implements Principal.During.
func (r *remote) during(ctx context.Context, v *tokenUse) (context.Context, context.CancelFunc) {
	ctx, v.end = context.WithCancel(ctx)
	stop := func() {}
	if v.token.ExpiresAt != nil {
		ctx, stop = context.WithDeadline(ctx, *v.token.ExpiresAt)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.find(v.token.Digest); !ok {
		v.end()
	}
	r.tokenUses[v] = struct{}{}
	asked := r.asked[v.token.Digest]
	if asked != nil {
		asked.uses++
	}
	return ctx, func() {
		r.mu.Lock()
		delete(r.tokenUses, v)
		if asked != nil {
			if asked.uses--; asked.uses == 0 && r.asked[v.token.Digest] == asked {
				delete(r.asked, v.token.Digest)
			}
		}
		r.mu.Unlock()
		stop()
		v.end()
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
