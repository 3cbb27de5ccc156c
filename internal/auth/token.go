package auth

import (
	"context"
	"time"
	"unicode"
	"unicode/utf8"

	"loquat"
)

// maxName bounds the name of a token or a device, in characters.
const maxName = 100

// MakeToken makes a token and returns its secret, which is not stored. Once a token exists,
// all calls need one.
func (k *Keeper) MakeToken(ctx context.Context, t loquat.NewToken) (loquat.Credential, string, error) {
	if err := k.checkNewToken(t); err != nil {
		return loquat.Credential{}, "", err
	}
	secret := newSecret()
	key := loquat.Credential{ID: newID(), Kind: loquat.CredentialToken, Name: t.Name, Scope: t.Scope, SessionID: t.SessionID, User: t.User, Role: t.Role, Digest: digestOf(secret), CreatedAt: now()}
	if key.Scope == "" {
		key.Scope = Full
	}
	if t.ExpiresInSeconds != nil {
		key.ExpiresAt = key.CreatedAt.Add(time.Duration(*t.ExpiresInSeconds) * time.Second)
	}
	err := k.change(ctx, func() (loquat.CredentialChange, error) {
		past, err := k.roomForToken(key.Scope)
		return loquat.CredentialChange{Add: []loquat.Credential{key}, Remove: past, Audit: audit(ctx, loquat.AuditTokenMade, key)}, err
	})
	if err != nil {
		return loquat.Credential{}, "", err
	}
	k.log.Info("a token was made", "id", key.ID, "name", key.Name, "scope", key.Scope)
	return key, secret, nil
}

func (k *Keeper) checkNewToken(t loquat.NewToken) error {
	switch {
	case t.Scope != "" && t.Scope != Full && t.Scope != Read && t.Scope != Session && t.Scope != User:
		return loquat.Invalid("body.scope", "has to be one of full, read, session, user")
	case (t.Scope == Session) != (t.SessionID != ""):
		return loquat.Invalid("body.session_id", "is needed with the scope session, and not allowed with another scope")
	case (t.Scope == User) != (t.User != ""):
		return errNeedsUser()
	case t.ExpiresInSeconds != nil && *t.ExpiresInSeconds <= 0:
		return loquat.Invalid("body.expires_in_seconds", "has to be above 0")
	}
	if !k.HasRole(t.Role) {
		return errNoRole()
	}
	if t.User != "" {
		if err := loquat.CheckUser("body.user", t.User); err != nil {
			return err
		}
	}
	return checkName("body.name", t.Name)
}

func errNoRole() error { return loquat.Invalid("body.role", "is not a role of server.roles") }

func errNeedsUser() error {
	return loquat.Invalid("body.user", "is needed with the scope user, and not allowed with another scope")
}

// roomForToken fails if there are too many tokens. Those of users count for themselves, because a program
// may make one for each visit: expired ones are removed, with their browser sessions, when another is made.
func (k *Keeper) roomForToken(scope string) (past []string, err error) {
	of := map[bool]int{}
	for _, key := range k.list(loquat.CredentialToken) {
		if key.Scope != User || !key.Expired() {
			of[key.Scope == User]++
			continue
		}
		if _, gone, err := k.removal(loquat.CredentialToken, key.ID); err == nil {
			past = append(past, gone.Remove...)
		}
	}
	most, remedy := maxKeys, "revoke some"
	if scope == User {
		most, remedy = maxUserKeys, "revoke some, or make them with an earlier expiry"
	}
	if of[scope == User] >= most {
		return nil, errFull(most, "tokens", remedy)
	}
	return past, nil
}

// audit returns the entry of a change of a credential. It has no secret.
func audit(ctx context.Context, action string, key loquat.Credential) []loquat.AuditEntry {
	detail := loquat.AuditDetail("name", key.Name, "scope", key.Scope, "session_id", key.SessionID, "user", key.User, "role", key.Role)
	if !key.ExpiresAt.IsZero() {
		detail.Set("expires_at", key.ExpiresAt)
	}
	return []loquat.AuditEntry{{Action: action, Target: key.ID, Actor: loquat.ActorOf(ctx), Detail: detail}}
}

// checkName fails for names that are empty, too long or contain control characters.
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
func (k *Keeper) Tokens() []loquat.Credential {
	return k.list(loquat.CredentialConfig, loquat.CredentialToken)
}

// RevokeToken revokes a token. If others can reach the service, the last token cannot be
// revoked, because the service would then be open to everybody.
func (k *Keeper) RevokeToken(ctx context.Context, id string) error {
	var key loquat.Credential
	err := k.change(ctx, func() (c loquat.CredentialChange, err error) {
		if all := k.Tokens(); k.exposed() && len(all) == 1 && all[0].ID == id {
			return c, loquat.Errorf(loquat.CodeConflict, "this is the last token, and others can reach this server; make another one first")
		}
		key, c, err = k.removal(loquat.CredentialToken, id)
		c.Audit = audit(ctx, loquat.AuditTokenRevoked, key)
		return c, err
	})
	if err != nil {
		return err
	}
	k.log.Info("a token was revoked", "id", key.ID, "name", key.Name)
	return nil
}
