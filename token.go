package loquat

import "time"

// The values of Token.Source.
const (
	TokenOfConfig = "config"
	TokenMade     = "made"
)

// Token is an access token. Its secret is present only in the answer to the call that
// creates it.
type Token struct {
	TokenID    string     `json:"token_id"`
	Token      string     `json:"token,omitempty" doc:"The secret, only when the token is created. It is not stored and cannot be shown again."`
	Name       string     `json:"name"`
	Source     string     `json:"source" enum:"config,made" doc:"config is server.auth_tokens; only tokens that were made can be revoked."`
	Scope      string     `json:"scope"`
	SessionID  string     `json:"session_id,omitempty"`
	User       string     `json:"user,omitempty"`
	Role       string     `json:"role,omitempty"`
	CreatedAt  *time.Time `json:"created_at,omitempty"`
	ExpiresAt  *time.Time `json:"expires_at,omitempty"`
	LastUsedOn string     `json:"last_used_on,omitempty" doc:"The day, in UTC."`
}

// MadeToken answers POST /tokens. It always has the secret and the time.
type MadeToken Token

// NewToken describes a token to create.
type NewToken struct {
	Name             string `json:"name" minLength:"1" maxLength:"100" doc:"A name for people."`
	Scope            string `json:"scope,omitempty" enum:"full,read,session,user" default:"full"`
	SessionID        string `json:"session_id,omitempty" doc:"With scope session: the session that the token gives access to."`
	User             string `json:"user,omitempty" maxLength:"128" doc:"With scope user: the user whose sessions the token gives access to."`
	Role             string `json:"role,omitempty" maxLength:"64" doc:"A role of server.roles, which says what the token may use, and how much. A token of scope user without one has the role user, if there is one."`
	ExpiresInSeconds *int   `json:"expires_in_seconds,omitempty" minimum:"1" maximum:"3153600000" doc:"The token never expires when left out."`
}

// TokenList answers GET /tokens.
type TokenList struct {
	Tokens []Token `json:"tokens"`
}

// SignIn exchanges a token for a browser session.
type SignIn struct {
	Token string `json:"token" minLength:"1"`
}

// SignedIn describes the new browser session. Its cookie is in the headers of the answer.
type SignedIn struct {
	Name      string    `json:"name"`
	Scope     string    `json:"scope"`
	SessionID string    `json:"session_id,omitempty"`
	User      string    `json:"user,omitempty"`
	ExpiresAt time.Time `json:"expires_at"`
}

// The values of Caller.Kind.
const (
	CallerNobody  = "nobody" // a call without a token, on a server that needs none
	CallerToken   = "token"
	CallerDevice  = "device"
	CallerProcess = "process" // the server's own process
	CallerIssued  = "issued"  // a JSON Web Token of another system
)

// Caller describes who makes a call, and what the caller may do.
type Caller struct {
	RequiresToken bool       `json:"requires_token" doc:"Whether the server requires a token. If not, nobody needs to sign in."`
	Kind          string     `json:"kind" enum:"nobody,token,device,process,issued"`
	Scope         string     `json:"scope" enum:"full,read,session,user"`
	SessionID     string     `json:"session_id,omitempty" doc:"With the scope session: the only session that the caller may use."`
	User          string     `json:"user,omitempty" doc:"With the scope user: the user whose sessions the caller may use."`
	Name          string     `json:"name,omitempty" doc:"Of the token or the device."`
	CredentialID  string     `json:"credential_id,omitempty" doc:"The token_id or the device_id."`
	Browser       bool       `json:"browser" doc:"Whether a browser's cookie was used, which DELETE /auth/session ends."`
	ExpiresAt     *time.Time `json:"expires_at,omitempty" doc:"When the token, or the cookie, is not valid any more; absent if never."`
}
