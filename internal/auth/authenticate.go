package auth

import (
	"context"
	"crypto/subtle"
	"net/netip"
	"strings"
	"time"

	"loquat"
	"loquat/internal/jwt"
)

// Authenticate returns the principal of a token. An address with too many wrong tokens gets
// CodeRateLimited; valid tokens are never throttled. A token that is not known and that the
// store cannot be asked for gets CodeUnavailable, as does one of another system whose keys cannot be loaded.
func (k *Keeper) Authenticate(ctx context.Context, token string, from netip.Addr) (Principal, error) {
	if v := k.verifier(); v.Is(token) {
		return k.issued(ctx, v, token, from)
	}
	key, err := k.authenticate(ctx, token, from)
	if err != nil {
		return Principal{}, err
	}
	return principalOf(key), nil
}

// issued returns the principal of a JSON Web Token.
func (k *Keeper) issued(ctx context.Context, v *jwt.Verifier, token string, from netip.Addr) (Principal, error) {
	claims, err := v.Verify(ctx, token)
	if err == nil {
		who := Principal{ID: claims.Issuer + "\n" + claims.User, Name: claims.User, Kind: Issued, Scope: claims.Scope, User: claims.User, Role: claims.Role, ExpiresAt: claims.ExpiresAt}
		switch who.Scope {
		case "":
			who.Scope = User
			return who, nil
		case User:
			return who, nil
		case Read, Full:
			who.User = ""
			return who, nil
		}
		err = loquat.Errorf(loquat.CodeUnauthorized, "the scope of the JSON Web Token is %q; it has to be user, read or full", loquat.Clip(who.Scope, loquat.Excerpt))
	}
	if loquat.CodeOf(err) == loquat.CodeUnauthorized {
		if limited := k.attempts.WrongToken(from); limited != nil {
			return Principal{}, limited
		}
	}
	return Principal{}, err
}

func (k *Keeper) authenticate(ctx context.Context, token string, from netip.Addr) (loquat.Credential, error) {
	digest := digestOf(token)
	key, ok := k.find(digest)
	var err error
	if !ok {
		if err = k.refresh(ctx); err == nil { // another node may have made it just now
			key, ok = k.find(digest)
		}
	}
	if ok {
		k.use(ctx, key)
		return key, nil
	}
	if err := k.attempts.WrongToken(from); err != nil {
		return loquat.Credential{}, err
	}
	if err != nil {
		return loquat.Credential{}, err
	}
	return loquat.Credential{}, errUnknownToken()
}

func errUnknownToken() error {
	return loquat.Errorf(loquat.CodeUnauthorized, "the token is not known, was revoked or has expired; `loquat token new NAME` makes one")
}

// Anyone returns the principal of a call without credentials. It fails once the server
// requires a token.
func (k *Keeper) Anyone() (Principal, error) {
	if k.Closed() {
		return Principal{}, loquat.Errorf(loquat.CodeUnauthorized, "this needs Authorization: Bearer with a token; `loquat token new NAME` makes one, and server.auth_tokens may hold some")
	}
	return Principal{Kind: Nobody, Scope: Full}, nil
}

// find returns the valid credential with a digest.
func (k *Keeper) find(digest Digest) (loquat.Credential, bool) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.good(digest)
}

// good does the same as find. The caller holds the lock.
func (k *Keeper) good(digest Digest) (loquat.Credential, bool) {
	key, ok := k.keys[digest]
	if !ok || subtle.ConstantTimeCompare(key.Digest[:], digest[:]) != 1 || key.Expired() || (key.Scope == User) != (key.User != "") {
		return loquat.Credential{}, false
	}
	return *key, true
}

func principalOf(key loquat.Credential) Principal {
	return Principal{ID: key.ID, Name: key.Name, Kind: key.Kind, Scope: key.Scope, SessionID: key.SessionID, User: key.User, Role: key.Role}
}

// useTimeout bounds how long a call waits until the use of its credential is stored.
const useTimeout = time.Second

// use stores the day on which a credential is used, once a day. If that fails, the call
// continues.
func (k *Keeper) use(ctx context.Context, key loquat.Credential) {
	day := now().Format(time.DateOnly)
	if key.UsedOn == day || key.Kind == loquat.CredentialConfig || key.Kind == loquat.CredentialProcess {
		return
	}
	k.mu.Lock()
	kept, ok := k.keys[key.Digest]
	first := ok && kept.UsedOn != day
	if first {
		used := *kept
		used.UsedOn = day
		k.keys[key.Digest], k.byID[key.ID] = &used, &used
	}
	k.mu.Unlock()
	if !first {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, useTimeout)
	defer cancel()
	if err := k.store.UseCredential(ctx, loquat.CredentialUse{ID: key.ID, Day: day}); err != nil {
		k.log.Warn("could not store the day on which a token was used", "id", key.ID, "error", err)
	}
}

// visit is a context of During, such as that of a stream.
type visit struct {
	who Principal
	end context.CancelCauseFunc
}

// During returns a context that is cancelled with the cause ErrEnded when the principal's
// credential is revoked or expires. The caller must call the function at the end.
func (k *Keeper) During(ctx context.Context, p Principal) (context.Context, context.CancelFunc) {
	ctx, end := context.WithCancelCause(ctx)
	v := &visit{who: p, end: end}
	k.mu.Lock()
	defer k.mu.Unlock()
	stop := func() {}
	if at, ok := k.holds(p); !ok {
		end(ErrEnded)
	} else if !at.IsZero() {
		ctx, stop = context.WithDeadlineCause(ctx, at, ErrEnded)
	}
	k.live[v] = struct{}{}
	return ctx, func() {
		k.mu.Lock()
		delete(k.live, v)
		k.mu.Unlock()
		stop()
		end(nil)
	}
}

// Holds reports whether a principal's credential is still valid.
func (k *Keeper) Holds(p Principal) bool {
	k.mu.RLock()
	defer k.mu.RUnlock()
	_, ok := k.holds(p)
	return ok
}

// holds reports whether a credential is valid, and until when; zero means without end. The
// caller holds the lock.
func (k *Keeper) holds(p Principal) (until time.Time, ok bool) {
	if p.Kind == Nobody {
		return time.Time{}, !k.closed
	}
	if p.Kind == Issued {
		issuer, _, _ := strings.Cut(p.ID, "\n")
		return p.ExpiresAt, !expired(p.ExpiresAt) && k.configured.JWT.Accepts(issuer)
	}
	key := k.byID[p.ID]
	if key == nil || key.Expired() {
		return time.Time{}, false
	}
	if p.Browser == "" {
		return key.ExpiresAt, true
	}
	for _, b := range k.browsers {
		if b.ID == p.Browser && !b.Expired() {
			return b.ExpiresAt, true
		}
	}
	return time.Time{}, false
}

// cut cancels the contexts whose principals are no longer valid. The caller holds the lock.
func (k *Keeper) cut() {
	for v := range k.live {
		if _, ok := k.holds(v.who); !ok {
			v.end(ErrEnded)
		}
	}
}

// Until returns when a principal's credential, or browser session, ends. Zero means never.
func (k *Keeper) Until(p Principal) time.Time {
	k.mu.RLock()
	defer k.mu.RUnlock()
	until, _ := k.holds(p)
	return until
}
