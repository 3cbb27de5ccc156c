package auth

import (
	"context"
	"crypto/subtle"
	"net/netip"
	"time"

	"loquat"
)

// Authorize says who shows a token. The work is the same whether it is known or not.
// From an address that guessed too often a wrong token is answered with the time to
// wait; a good one is good from everywhere.
func (k *Keeper) Authorize(ctx context.Context, token string, from netip.Addr) (Principal, error) {
	key, err := k.authorize(ctx, token, from)
	if err != nil {
		return Principal{}, err
	}
	return principalOf(key), nil
}

func (k *Keeper) authorize(ctx context.Context, token string, from netip.Addr) (loquat.Credential, error) {
	if key, ok := k.find(digestOf(token)); ok {
		k.use(ctx, key)
		return key, nil
	}
	if err := k.attempts.WrongToken(from); err != nil {
		return loquat.Credential{}, err
	}
	return loquat.Credential{}, loquat.Errorf(loquat.CodeUnauthorized, "the token is not known, was revoked or has expired; `loquat token new` makes one")
}

// Anyone is who makes a call that shows nothing: somebody as long as nothing is asked
// for.
func (k *Keeper) Anyone() (Principal, error) {
	if k.Closed() {
		return Principal{}, loquat.Errorf(loquat.CodeUnauthorized, "this needs Authorization: Bearer with a token; `loquat token new` makes one, and server.auth_tokens may hold some")
	}
	return Principal{Kind: Nobody, Scope: Full}, nil
}

// find returns the key of a digest while it is good.
func (k *Keeper) find(digest Digest) (loquat.Credential, bool) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.good(digest)
}

// good is find for who holds the lock.
func (k *Keeper) good(digest Digest) (loquat.Credential, bool) {
	key, ok := k.keys[digest]
	if !ok || subtle.ConstantTimeCompare(key.Digest[:], digest[:]) != 1 || key.Expired() {
		return loquat.Credential{}, false
	}
	return *key, true
}

func principalOf(key loquat.Credential) Principal {
	return Principal{ID: key.ID, Name: key.Name, Kind: key.Kind, Scope: key.Scope, SessionID: key.SessionID}
}

// useTimeout bounds how long a call waits for the note that its key was used.
const useTimeout = time.Second

// use notes the day on which a key is used, once a day. That it cannot be written
// down is no reason to refuse.
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
	if err := k.store.ChangeCredentials(ctx, loquat.CredentialChange{Used: []loquat.CredentialUse{{ID: key.ID, Day: day}}}); err != nil {
		k.log.Warn("could not note that a key was used", "id", key.ID, "error", err)
	}
}

// visit is something that runs for a principal, such as a stream.
type visit struct {
	who Principal
	end context.CancelCauseFunc
}

// During returns a context that ends when the principal has lost the right to be
// here, with ErrEnded as its cause. The function has to be called at the end.
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

// Holds reports whether a principal still has the right to be here.
func (k *Keeper) Holds(p Principal) bool {
	k.mu.RLock()
	defer k.mu.RUnlock()
	_, ok := k.holds(p)
	return ok
}

// holds is Holds for who holds the lock, and tells until when; zero is for ever.
func (k *Keeper) holds(p Principal) (until time.Time, ok bool) {
	if p.Kind == Nobody {
		return time.Time{}, !k.closed
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

// cut ends the visits of those who have lost the right to be here. The caller holds
// the lock.
func (k *Keeper) cut() {
	for v := range k.live {
		if _, ok := k.holds(v.who); !ok {
			v.end(ErrEnded)
		}
	}
}
