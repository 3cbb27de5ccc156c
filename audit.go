package loquat

import (
	"context"
	"encoding/json"
	"time"
)

// AuditEntry says who changed what, and when.
type AuditEntry struct {
	AuditID string    `json:"audit_id"`
	At      time.Time `json:"at"`
	Action  string    `json:"action" doc:"Such as token_made, device_removed, webhook_changed or session_agent_changed or config_changed."`
	Target  string    `json:"target" doc:"The id of what was changed, or the key of the configuration."`
	Actor   Actor     `json:"actor"`
	Detail  Object    `json:"detail,omitempty" doc:"What it became; never a secret."`
}

// Actor is who makes a change.
type Actor struct {
	Kind       string `json:"kind" enum:"nobody,token,device,process,issued,command,configuration,server"`
	ID         string `json:"id,omitempty" doc:"The token_id or device_id."`
	Name       string `json:"name,omitempty"`
	User       string `json:"user,omitempty" doc:"The user of a token of scope user, or for whom the caller acts."`
	OnBehalfOf bool   `json:"on_behalf_of,omitempty"`
}

// The kinds of actors that make no calls of the API. The others are those of Caller.
const (
	ActorCommand       = "command"       // loquat without a running server
	ActorConfiguration = "configuration" // the file, as it was read at a start or after a signal
	ActorServer        = "server"        // by itself
)

// The values of AuditEntry.Action.
const (
	AuditTokenMade      = "token_made"
	AuditTokenRevoked   = "token_revoked"
	AuditCodeMade       = "pairing_code_made"
	AuditDevicePaired   = "device_paired"
	AuditDeviceRemoved  = "device_removed"
	AuditWebhookMade    = "webhook_made"
	AuditWebhookChanged = "webhook_changed"
	AuditWebhookRemoved = "webhook_removed"
	AuditWebhookResent  = "webhook_resent"
	AuditAgentChanged   = "session_agent_changed"
	AuditRolesChanged   = "roles_changed"
	AuditConfigChanged  = "config_changed"
)

// AuditList is a page of GET /audit, the newest first.
type AuditList struct {
	Audit         []AuditEntry `json:"audit"`
	NextPageToken string       `json:"next_page_token,omitempty"`
}

// AuditDetail returns the detail of an entry from pairs of names and values. Empty texts are left out.
func AuditDetail(pairs ...any) Object {
	out := Object{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			out = out.Set(pairs[i].(string), pairs[i+1])
		}
	}
	return out
}

// EncodeAudit returns the JSON of an entry's actor and detail.
func (e AuditEntry) EncodeAudit() (actor, detail []byte, err error) {
	if actor, err = json.Marshal(e.Actor); err != nil {
		return nil, nil, err
	}
	detail, err = e.Detail.Encode()
	return actor, detail, err
}

type actorKey struct{}

// WithActor returns a context of a change that an actor makes.
func WithActor(ctx context.Context, a Actor) context.Context {
	return context.WithValue(ctx, actorKey{}, a)
}

// ActorOf returns who makes a change. Without WithActor it is a command.
func ActorOf(ctx context.Context) Actor {
	if a, ok := ctx.Value(actorKey{}).(Actor); ok {
		return a
	}
	return Actor{Kind: ActorCommand}
}
