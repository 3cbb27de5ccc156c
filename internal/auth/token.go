package auth

import (
	"context"
	"time"
	"unicode"
	"unicode/utf8"

	"loquat"
)

// NewToken is what a token shall be.
type NewToken struct {
	Name      string
	Scope     string // "" means full
	SessionID string // of scope session
	Lifetime  time.Duration
}

// maxName bounds the name of a token or a device, in characters.
const maxName = 100

// MakeToken makes a token and returns its secret, which is not kept. The first one
// closes the service to whoever has none.
func (k *Keeper) MakeToken(ctx context.Context, t NewToken) (Key, string, error) {
	if err := t.check(); err != nil {
		return Key{}, "", err
	}
	secret := newSecret()
	key := Key{ID: newID(), Kind: Token, Name: t.Name, Scope: t.Scope, SessionID: t.SessionID, Digest: digestOf(secret), CreatedAt: now()}
	if key.Scope == "" {
		key.Scope = Full
	}
	if t.Lifetime > 0 {
		key.ExpiresAt = key.CreatedAt.Add(t.Lifetime)
	}
	k.writing.Lock()
	defer k.writing.Unlock()
	if len(k.list(Token)) >= maxKeys {
		return Key{}, "", errFull("tokens", "revoke some")
	}
	if err := k.change(ctx, Change{Add: []Key{key}}); err != nil {
		return Key{}, "", err
	}
	k.log.Info("a token was made", "id", key.ID, "name", key.Name, "scope", key.Scope)
	return key, secret, nil
}

func (t NewToken) check() error {
	switch {
	case t.Scope != "" && t.Scope != Full && t.Scope != Read && t.Scope != Session:
		return loquat.Invalid("body.scope", "has to be one of full, read, session")
	case (t.Scope == Session) != (t.SessionID != ""):
		return loquat.Invalid("body.session_id", "goes with the scope session, and only with it")
	case t.Lifetime < 0:
		return loquat.Invalid("body.expires_in_seconds", "has to be above 0")
	}
	return checkName("body.name", t.Name)
}

// checkName refuses names that cannot be told apart in a list or would break a line.
func checkName(at, name string) error {
	if n := utf8.RuneCountInString(name); n == 0 || n > maxName {
		return loquat.Invalid(at, "has to have 1 to %d characters", maxName)
	}
	for _, r := range name {
		if !unicode.IsPrint(r) {
			return loquat.Invalid(at, "may hold no control characters")
		}
	}
	return nil
}

// Tokens returns the tokens of the configuration and those that were made, the
// oldest first.
func (k *Keeper) Tokens() []Key { return k.list(Config, Token) }

// RevokeToken ends a token that was made. The last one of a service that others can
// reach stays, or everybody could come in.
func (k *Keeper) RevokeToken(ctx context.Context, id string) error {
	k.writing.Lock()
	defer k.writing.Unlock()
	if all := k.Tokens(); k.exposed && len(all) == 1 && all[0].ID == id {
		return loquat.Errorf(loquat.CodeConflict, "this is the last token, and others can reach this server; make another one first")
	}
	key, err := k.remove(ctx, Token, id)
	if err != nil {
		return err
	}
	k.log.Info("a token was revoked", "id", key.ID, "name", key.Name)
	return nil
}
