package auth

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"net/netip"
	"slices"
	"strings"
	"time"

	"loquat"
)

const (
	codeLife  = 5 * time.Minute
	maxWrong  = 5  // secrets, then the code is locked
	publicLen = 4  // characters of 5 bits each
	secretLen = 10 // 50 bits
)

// codeLetters is Crockford's base 32, which avoids letters that look alike.
const codeLetters = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

// misread replaces letters that people often mistype.
var misread = strings.NewReplacer("O", "0", "I", "1", "L", "1", " ", "", "-", "")

// claimable reports whether a code is neither expired nor locked.
func claimable(c loquat.PairingCode) bool { return !expired(c.ExpiresAt) && c.Wrong < maxWrong }

// Pair makes a pairing code, which a device can claim within five minutes. user is for scope user.
// The device has the role, "" for none. The caller adds the URL.
func (k *Keeper) Pair(ctx context.Context, scope, user, role string) (loquat.Pairing, error) {
	if scope == "" {
		scope = Read
	}
	switch {
	case scope != Read && scope != Full && scope != User:
		return loquat.Pairing{}, loquat.Invalid("body.scope", "has to be read, full or user")
	case (scope == User) != (user != ""):
		return loquat.Pairing{}, errNeedsUser()
	case !k.HasRole(role):
		return loquat.Pairing{}, errNoRole()
	case scope == User:
		if err := loquat.CheckUser("body.user", user); err != nil {
			return loquat.Pairing{}, err
		}
	}
	var public, code string
	var kept loquat.PairingCode
	err := k.change(ctx, func() (loquat.CredentialChange, error) {
		var past []string
		if public, past = k.newPublicPart(user); public == "" {
			return loquat.CredentialChange{}, loquat.Errorf(loquat.CodeRateLimited, "too many pairing codes are open; claim one, or wait until they expire")
		}
		code = public + "-" + randomLetters(secretLen)
		kept = loquat.PairingCode{Public: public, Digest: digestOfCode(code, user), Scope: scope, User: user, Role: role, ExpiresAt: now().Add(codeLife)}
		entry := loquat.AuditEntry{Action: loquat.AuditCodeMade, Target: public, Actor: loquat.ActorOf(ctx), Detail: loquat.AuditDetail("scope", scope, "user", user, "role", role)}
		return loquat.CredentialChange{Codes: []loquat.PairingCode{kept}, Drop: past, Audit: []loquat.AuditEntry{entry}}, nil
	})
	if err != nil {
		return loquat.Pairing{}, err
	}
	k.log.Info("a pairing code was made", "code", public, "scope", scope)
	return loquat.Pairing{Code: code, ExpiresAt: kept.ExpiresAt}, nil
}

// digestOfCode returns the digest of a code. Programs that do not know users do not accept those of users.
func digestOfCode(code, user string) Digest {
	if user == "" {
		return digestOf(code)
	}
	return digestOf(code + "\n" + user)
}

// newPublicPart returns an unused public part, or "" if there are too many codes, and the expired
// codes. Locked codes count until they expire, so that locking does not allow more codes. Codes of users
// take no room from others.
func (k *Keeper) newPublicPart(user string) (public string, past []string) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	of, users := map[string]int{}, 0
	for p, c := range k.codes {
		switch {
		case expired(c.ExpiresAt):
			past = append(past, p)
		case c.User != "":
			users++
			fallthrough
		default:
			of[c.User]++
		}
	}
	if user == "" && of[""] >= maxCodes || user != "" && (of[user] >= maxUserCodes || users >= maxCodesOfUsers) {
		return "", past
	}
	for public = randomLetters(publicLen); ; public = randomLetters(publicLen) {
		if _, taken := k.codes[public]; !taken {
			return public, past
		}
	}
}

func randomLetters(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	for i := range b {
		b[i] = codeLetters[b[i]%byte(len(codeLetters))] // 32 divides 256
	}
	return string(b)
}

// readCode normalizes a typed code.
func readCode(typed string) (public, code string, ok bool) {
	public, secret, ok := strings.Cut(strings.TrimSpace(typed), "-")
	public, secret = misread.Replace(strings.ToUpper(public)), misread.Replace(strings.ToUpper(secret))
	if !ok || len(public) != publicLen || len(secret) != secretLen {
		return "", "", false
	}
	return public, public + "-" + secret, true
}

// Claim makes a device for a code. All wrong codes get the same error, so that the error
// does not show which codes exist.
func (k *Keeper) Claim(ctx context.Context, typed, name string, from netip.Addr) (loquat.Credential, string, error) {
	if err := checkName("body.device_name", name); err != nil {
		return loquat.Credential{}, "", err
	}
	if err := k.attempts.Claim(from); err != nil {
		return loquat.Credential{}, "", err
	}
	public, code, ok := readCode(typed)
	if !ok {
		return loquat.Credential{}, "", ErrWrongCode()
	}
	secret := newSecret()
	device := loquat.Credential{ID: newID(), Kind: loquat.CredentialDevice, Name: name, Digest: digestOf(secret), CreatedAt: now()}
	var done loquat.CredentialChange
	var locked bool
	err := k.change(ctx, func() (loquat.CredentialChange, error) {
		if done, locked = k.decideClaim(public, code, device); len(done.Add) > 0 {
			device := done.Add[0]
			done.Audit = audit(loquat.WithActor(ctx, loquat.Actor{Kind: loquat.CallerDevice, ID: device.ID, Name: device.Name, User: device.User}), loquat.AuditDevicePaired, device)
			return done, k.roomForDevice(done.Add[0])
		}
		return done, nil
	})
	if err != nil {
		return loquat.Credential{}, "", err
	}
	if locked {
		k.log.Warn("a pairing code was locked after wrong secrets", "code", public, "address", from)
	}
	if len(done.Add) == 0 {
		return loquat.Credential{}, "", ErrWrongCode()
	}
	device = done.Add[0]
	k.log.Info("a device was paired", "id", device.ID, "name", device.Name, "scope", device.Scope, "address", from)
	return device, secret, nil
}

// decideClaim returns the changes that a claim causes: a device, or one more wrong attempt.
// After maxWrong the code is locked.
func (k *Keeper) decideClaim(public, code string, device loquat.Credential) (done loquat.CredentialChange, locked bool) {
	k.mu.RLock()
	c, ok := k.codes[public]
	k.mu.RUnlock()
	switch {
	case !ok || !claimable(c):
		return loquat.CredentialChange{}, false
	case sameDigest(c.Digest, digestOfCode(code, c.User)):
		device.Scope, device.User, device.Role = c.Scope, c.User, c.Role
		return loquat.CredentialChange{Add: []loquat.Credential{device}, Drop: []string{c.Public}}, false
	}
	next := c
	next.Wrong++
	return loquat.CredentialChange{Codes: []loquat.PairingCode{next}}, next.Wrong >= maxWrong
}

func sameDigest(a, b Digest) bool { return subtle.ConstantTimeCompare(a[:], b[:]) == 1 }

// roomForDevice fails if there are too many devices for one more. Those of users take no room from others.
func (k *Keeper) roomForDevice(device loquat.Credential) error {
	same, users := 0, 0 // devices of the same user, or of nobody; devices of all users
	for _, key := range k.list(loquat.CredentialDevice) {
		if key.User == device.User {
			same++
		}
		if key.User != "" {
			users++
		}
	}
	switch {
	case device.User == "" && same >= maxKeys:
		return errFull(maxKeys, "devices", "remove some")
	case device.User != "" && same >= maxUserDevices:
		return errFull(maxUserDevices, "devices of this user", "remove some")
	case device.User != "" && users >= maxUserKeys:
		return errFull(maxUserKeys, "devices of users", "remove some")
	}
	return nil
}

// ErrWrongCode returns the error for every code that cannot be claimed.
func ErrWrongCode() error {
	return loquat.Errorf(loquat.CodeUnauthorized, "the pairing code is wrong, was used, has expired or is locked; `loquat pair` makes a new one")
}

// PublicPart returns the public part of a typed code, which identifies the code.
func PublicPart(typed string) (public string, ok bool) {
	public, _, ok = readCode(typed)
	return public, ok
}

// Devices returns the devices that were paired, the oldest first. With a user, those of the user.
func (k *Keeper) Devices(user string) []loquat.Credential {
	return slices.DeleteFunc(k.list(loquat.CredentialDevice), func(key loquat.Credential) bool { return user != "" && key.User != user })
}

// RemoveDevice removes a device and revokes its token. With a user, it must be one of the user.
func (k *Keeper) RemoveDevice(ctx context.Context, id, user string) error {
	var key loquat.Credential
	err := k.change(ctx, func() (c loquat.CredentialChange, err error) {
		key, c, err = k.removal(loquat.CredentialDevice, id)
		if err == nil && user != "" && key.User != user {
			return loquat.CredentialChange{}, errNoCredential(loquat.CredentialDevice, id)
		}
		c.Audit = audit(ctx, loquat.AuditDeviceRemoved, key)
		return c, err
	})
	if err != nil {
		return err
	}
	k.log.Info("a device was removed", "id", key.ID, "name", key.Name)
	return nil
}
