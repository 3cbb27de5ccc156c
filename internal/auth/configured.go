package auth

import (
	"slices"

	"loquat"
	"loquat/internal/jwt"
)

// Configured is what the configuration says about access.
type Configured struct {
	Tokens []ConfigToken
	JWT    *jwt.Verifier // of the tokens of other systems; nil accepts none
	Roles  []string      // the names that a new token may have

	Exposed bool // others can reach the service, so the last token cannot be revoked
}

// ConfigToken is one of server.auth_tokens.
type ConfigToken struct{ Name, Token, Scope, SessionID, User, Role string }

// credential returns the token as a credential. Its id has the name, because the place in the list changes.
func (t ConfigToken) credential() loquat.Credential {
	return loquat.Credential{
		ID: "auth_tokens[" + t.Name + "]", Kind: loquat.CredentialConfig, Name: t.Name, Scope: t.Scope, SessionID: t.SessionID, User: t.User, Role: t.Role, Digest: digestOf(t.Token),
	}
}

// Reconfigure takes up what a changed configuration says. What a token that is gone, or that may do something
// else now, has open ends; everything else goes on.
func (k *Keeper) Reconfigure(c Configured) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := map[string]loquat.Credential{}
	for _, t := range c.Tokens {
		now[t.Name] = t.credential()
	}
	for id, key := range k.byID {
		if key.Kind != loquat.CredentialConfig || now[key.Name] == *key {
			continue
		}
		delete(k.byID, id)
		delete(k.keys, key.Digest)
	}
	for _, key := range k.byID { // a stored token may be the same as a removed one
		k.keys[key.Digest] = key
	}
	k.configured = c
	k.cut() // before a changed token is there again under its old id
	for _, key := range now {
		if k.byID[key.ID] == nil {
			k.add([]loquat.Credential{key})
		}
	}
	k.noteChange()
}

// exposed reports whether others can reach the service.
func (k *Keeper) exposed() bool {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.configured.Exposed
}

// verifier returns the verifier of JSON Web Tokens.
func (k *Keeper) verifier() *jwt.Verifier {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.configured.JWT
}

// HasRole reports whether the configuration has a role. It is true for "", which means no role.
func (k *Keeper) HasRole(name string) bool {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.configured.hasRole(name)
}

func (c Configured) hasRole(name string) bool { return name == "" || slices.Contains(c.Roles, name) }

// Stores reports whether the store has tokens, so that calls need one whatever the configuration says.
func (k *Keeper) Stores() bool { return len(k.list(loquat.CredentialToken)) > 0 }
