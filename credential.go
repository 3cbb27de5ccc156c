package loquat

import "time"

// The kinds of credentials.
const (
	CredentialConfig  = "config"  // a token of server.auth_tokens; never stored
	CredentialToken   = "token"   // a token that was made at run time
	CredentialDevice  = "device"  // a paired device
	CredentialBrowser = "browser" // a browser session, which acts for one of the other credentials
	CredentialProcess = "process" // this process itself; never stored
)

// Credential is a token, a device or a browser session. It holds the SHA-256 of the
// secret instead of the secret. The store writes it as one row.
type Credential struct {
	ID        string
	Kind      string
	Name      string
	Scope     string
	SessionID string   // with scope session: the session that it gives access to
	User      string   // with scope user: the user whose sessions it gives access to
	Role      string   // of the configuration; "" means none, or that of users
	Digest    [32]byte // SHA-256 of the secret
	Bearer    [32]byte // of a browser session: the digest of the token that it acts for
	CreatedAt time.Time
	ExpiresAt time.Time // zero: never
	UsedOn    string    // the last day of use in UTC, like 2026-11-21; "" means never
}

// Expired reports whether the credential is no longer valid.
func (c Credential) Expired() bool { return !c.ExpiresAt.IsZero() && !time.Now().Before(c.ExpiresAt) }

// AsToken returns the credential in the API's form of a token.
func (c Credential) AsToken() Token {
	t := Token{
		TokenID: c.ID, Name: c.Name, Source: TokenMade, Scope: c.Scope, SessionID: c.SessionID, User: c.User, Role: c.Role,
		CreatedAt: timeOrNil(c.CreatedAt), ExpiresAt: timeOrNil(c.ExpiresAt), LastUsedOn: c.UsedOn,
	}
	if c.Kind == CredentialConfig {
		t.Source = TokenOfConfig
	}
	return t
}

// AsDevice returns the credential in the API's form of a device.
func (c Credential) AsDevice() Device {
	return Device{DeviceID: c.ID, DeviceName: c.Name, Scope: c.Scope, User: c.User, CreatedAt: c.CreatedAt, LastUsedOn: c.UsedOn}
}

func timeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// PairingCode is a pairing code that no device has claimed yet, without its secret.
type PairingCode struct {
	Public    string   // the part of the code that is not secret
	Digest    [32]byte // SHA-256 of the whole code and, after a line feed, of the user if there is one
	Scope     string   // for the device that claims the code
	User      string   // the same, with scope user
	Role      string   // the same
	ExpiresAt time.Time
	Wrong     int // number of attempts with a wrong secret
}

// Credentials are all stored credentials and pairing codes.
type Credentials struct {
	Credentials []Credential
	Codes       []PairingCode
	Revision    int64 // changes with them, if several nodes share the store; otherwise 0
}

// CredentialChange is a set of changes that the store writes in one transaction, if the stored
// credentials are still those of Revision.
type CredentialChange struct {
	Revision int64
	Add      []Credential
	Remove   []string      // ids of credentials; an unknown id is not an error
	Codes    []PairingCode // new codes; a code with a known public part replaces the stored one
	Drop     []string      // public parts of the codes to remove
	Audit    []AuditEntry
}

// CredentialUse records the day on which a credential was used.
type CredentialUse struct{ ID, Day string }
