package auth

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"loquat"
)

// browserLife is how long a browser stays signed in.
const browserLife = 30 * 24 * time.Hour

// BrowserSession is a browser session with its cookie.
type BrowserSession struct {
	Principal
	Cookie    string // the secret, which is not stored
	ExpiresAt time.Time
}

// SignIn makes a browser session for a token. The cookie has the token's rights, and ends
// with the token at the latest.
func (k *Keeper) SignIn(ctx context.Context, token string, from netip.Addr) (BrowserSession, error) {
	if k.verifier().Is(token) {
		return BrowserSession{}, loquat.Errorf(loquat.CodeForbidden, "a JSON Web Token cannot be exchanged for a cookie, which would outlive it; send it as Authorization: Bearer")
	}
	key, err := k.authenticate(ctx, token, from)
	if err != nil {
		return BrowserSession{}, err
	}
	cookie := newSecret()
	b := loquat.Credential{ID: newID(), Kind: loquat.CredentialBrowser, Digest: digestOf(cookie), Bearer: key.Digest, CreatedAt: now()}
	err = k.change(ctx, func() (loquat.CredentialChange, error) {
		var ok bool
		if key, ok = k.find(key.Digest); !ok { // it was revoked meanwhile
			return loquat.CredentialChange{}, errUnknownToken()
		}
		b.Scope, b.SessionID, b.User, b.ExpiresAt = key.Scope, key.SessionID, key.User, b.CreatedAt.Add(browserLife)
		if !key.ExpiresAt.IsZero() && key.ExpiresAt.Before(b.ExpiresAt) {
			b.ExpiresAt = key.ExpiresAt
		}
		return loquat.CredentialChange{Add: []loquat.Credential{b}, Remove: k.browsersToRemove(key.Digest)}, nil
	})
	if err != nil {
		return BrowserSession{}, err
	}
	k.log.Info("a browser signed in", "as", key.Name, "kind", key.Kind, "address", from)
	who := principalOf(key)
	who.Browser = b.ID
	return BrowserSession{Principal: who, Cookie: cookie, ExpiresAt: b.ExpiresAt}, nil
}

// browsersToRemove returns the expired browser sessions, and the oldest ones of a token that
// already has maxBrowsers.
func (k *Keeper) browsersToRemove(bearer Digest) (ids []string) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	var same []*loquat.Credential
	for _, b := range k.browsers {
		switch {
		case b.Expired():
			ids = append(ids, b.ID)
		case b.Bearer == bearer:
			same = append(same, b)
		}
	}
	slices.SortFunc(same, func(a, b *loquat.Credential) int { return a.CreatedAt.Compare(b.CreatedAt) })
	for len(same) >= maxBrowsers {
		ids, same = append(ids, same[0].ID), same[1:]
	}
	return ids
}

// Browser returns the principal of a cookie. An invalid cookie is not an error, because
// browsers keep sending it. It fails with CodeUnavailable if the cookie is not known and the
// store cannot be asked for it.
func (k *Keeper) Browser(ctx context.Context, cookie string) (who Principal, ok bool, err error) {
	digest := digestOf(cookie)
	b, key, ok := k.findBrowser(digest)
	if !ok {
		if err := k.refresh(ctx); err != nil {
			return Principal{}, false, err
		}
		b, key, ok = k.findBrowser(digest)
	}
	if !ok {
		return Principal{}, false, nil
	}
	k.use(ctx, key)
	who = principalOf(key)
	who.Browser = b.ID
	return who, true, nil
}

// findBrowser returns the valid browser session with a digest and the credential for which it
// acts.
func (k *Keeper) findBrowser(digest Digest) (b, key loquat.Credential, ok bool) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	found := k.browsers[digest]
	if found == nil || found.Expired() {
		return b, key, false
	}
	key, ok = k.good(found.Bearer)
	return *found, key, ok
}

// SignOut ends the browser session of a cookie. An unknown cookie is not an error.
func (k *Keeper) SignOut(ctx context.Context, cookie string) error {
	return k.change(ctx, func() (c loquat.CredentialChange, err error) {
		k.mu.RLock()
		defer k.mu.RUnlock()
		if b := k.browsers[digestOf(cookie)]; b != nil {
			c.Remove = []string{b.ID}
		}
		return c, nil
	})
}
