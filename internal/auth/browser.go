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
	k.writing.Lock()
	defer k.writing.Unlock()
	key, err := k.authenticate(ctx, token, from)
	if err != nil {
		return BrowserSession{}, err
	}
	cookie := newSecret()
	b := loquat.Credential{ID: newID(), Kind: loquat.CredentialBrowser, Scope: key.Scope, SessionID: key.SessionID, Digest: digestOf(cookie), Bearer: key.Digest, CreatedAt: now()}
	b.ExpiresAt = b.CreatedAt.Add(browserLife)
	if !key.ExpiresAt.IsZero() && key.ExpiresAt.Before(b.ExpiresAt) {
		b.ExpiresAt = key.ExpiresAt
	}
	if err := k.change(ctx, loquat.CredentialChange{Add: []loquat.Credential{b}, Remove: k.browsersToRemove(key.Digest)}); err != nil {
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
// browsers keep sending it.
func (k *Keeper) Browser(ctx context.Context, cookie string) (Principal, bool) {
	k.mu.RLock()
	b, ok := k.browsers[digestOf(cookie)]
	var key loquat.Credential
	if ok = ok && !b.Expired(); ok {
		key, ok = k.good(b.Bearer)
	}
	k.mu.RUnlock()
	if !ok {
		return Principal{}, false
	}
	k.use(ctx, key)
	who := principalOf(key)
	who.Browser = b.ID
	return who, true
}

// SignOut ends the browser session of a cookie. An unknown cookie is not an error.
func (k *Keeper) SignOut(ctx context.Context, cookie string) error {
	k.writing.Lock()
	defer k.writing.Unlock()
	k.mu.RLock()
	b, ok := k.browsers[digestOf(cookie)]
	k.mu.RUnlock()
	if !ok {
		return nil
	}
	return k.change(ctx, loquat.CredentialChange{Remove: []string{b.ID}})
}
