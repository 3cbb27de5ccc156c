package auth

import (
	"context"
	"encoding/hex"
	"strings"

	"loquat"
)

// configOwner precedes the digest of a token of the configuration in the name of an owner: the ids of
// these tokens change when the list in the configuration changes.
const configOwner = "config:"

// Owner returns the name under which the store keeps what belongs to a principal: to its browser
// session if it has one, otherwise to its token. What belongs to nobody has the name "".
func (k *Keeper) Owner(p Principal) string {
	if p.Kind == Nobody || p.Browser != "" {
		return p.Browser
	}
	k.mu.RLock()
	defer k.mu.RUnlock()
	if key := k.byID[p.ID]; key != nil && key.Kind == loquat.CredentialConfig {
		return configOwner + hex.EncodeToString(key.Digest[:])
	}
	return p.ID
}

// OwnedBy returns the principal of an owner. ok is false if its credential was revoked or has
// expired. It fails with CodeUnavailable if the store cannot be asked for an owner that is not known.
func (k *Keeper) OwnedBy(ctx context.Context, owner string) (who Principal, ok bool, err error) {
	if who, ok = k.ownedBy(owner); ok {
		return who, true, nil
	}
	if err := k.refresh(ctx); err != nil { // another node may have made it just now
		return Principal{}, false, err
	}
	who, ok = k.ownedBy(owner)
	return who, ok, nil
}

func (k *Keeper) ownedBy(owner string) (who Principal, ok bool) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	if owner == "" {
		return Principal{Kind: Nobody, Scope: Full}, !k.closed
	}
	if digest, of := strings.CutPrefix(owner, configOwner); of {
		for _, key := range k.byID {
			if key.Kind == loquat.CredentialConfig && hex.EncodeToString(key.Digest[:]) == digest {
				return principalOf(*key), true
			}
		}
		return Principal{}, false
	}
	if key := k.byID[owner]; key != nil {
		return principalOf(*key), !key.Expired()
	}
	for _, b := range k.browsers {
		if b.ID == owner && !b.Expired() {
			key, ok := k.good(b.Bearer)
			who := principalOf(key)
			who.Browser = b.ID
			return who, ok
		}
	}
	return Principal{}, false
}
