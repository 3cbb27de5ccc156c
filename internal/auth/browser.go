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
	Cookie    string // the secret, which is not kept
	ExpiresAt time.Time
}

// SignIn makes a session of a browser that shows a token. The cookie is as good as
// the token, for as long as both last.
func (k *Keeper) SignIn(ctx context.Context, token string, from netip.Addr) (BrowserSession, error) {
	k.writing.Lock()
	defer k.writing.Unlock()
	key, err := k.authorize(ctx, token, from)
	if err != nil {
		return BrowserSession{}, err
	}
	cookie := newSecret()
	b := loquat.Credential{ID: newID(), Kind: loquat.CredentialBrowser, Scope: key.Scope, SessionID: key.SessionID, Digest: digestOf(cookie), Bearer: key.Digest, CreatedAt: now()}
	b.ExpiresAt = b.CreatedAt.Add(browserLife)
	if !key.ExpiresAt.IsZero() && key.ExpiresAt.Before(b.ExpiresAt) {
		b.ExpiresAt = key.ExpiresAt
	}
	if err := k.change(ctx, loquat.CredentialChange{Add: []loquat.Credential{b}, Remove: k.staleBrowsers(key.Digest)}); err != nil {
		return BrowserSession{}, err
	}
	k.log.Info("a browser signed in", "as", key.Name, "kind", key.Kind, "address", from)
	who := principalOf(key)
	who.Browser = b.ID
	return BrowserSession{Principal: who, Cookie: cookie, ExpiresAt: b.ExpiresAt}, nil
}

// staleBrowsers returns the sessions that have expired, and the oldest of a token
// when it has as many as there may be.
func (k *Keeper) staleBrowsers(bearer Digest) (ids []string) {
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

// Browser says for whom a cookie stands. A cookie that is no longer good is nobody:
// browsers send it whether it is or not.
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

// SignOut ends the session of a cookie for good. One that is not known has ended.
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
