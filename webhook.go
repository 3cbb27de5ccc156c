package loquat

import (
	"slices"
	"time"
)

// NewWebhook asks that events are sent to a URL.
type NewWebhook struct {
	URL         string   `json:"url" maxLength:"2000" doc:"An https URL, or an http URL. Its host must have public addresses, unless the configuration allows others."`
	Types       []string `json:"types,omitempty" maxItems:"50" doc:"The types of events that are sent; all if left out. Increments are not sent."`
	User        string   `json:"user,omitempty" maxLength:"128" doc:"Only events of the sessions of this user."`
	Description string   `json:"description,omitempty" maxLength:"200"`
}

// WebhookPatch changes a webhook. Fields that are left out stay as they are.
type WebhookPatch struct {
	URL         *string   `json:"url,omitempty" maxLength:"2000"`
	Types       *[]string `json:"types,omitempty" maxItems:"50"`
	Description *string   `json:"description,omitempty" maxLength:"200"`
	Disabled    *bool     `json:"disabled,omitempty" doc:"Whether nothing is sent. What waits is kept; new events are not collected."`
	NewSecret   bool      `json:"new_secret,omitempty" doc:"Makes another secret, which the answer has. The old one signs, too, for 24 hours."`
}

// Webhook is a URL to which events are sent.
type Webhook struct {
	WebhookID   string    `json:"webhook_id"`
	URL         string    `json:"url"`
	Types       []string  `json:"types" doc:"Empty: all types of events."`
	User        string    `json:"user,omitempty"`
	Description string    `json:"description,omitempty"`
	Disabled    string    `json:"disabled,omitempty" doc:"Why nothing is sent; absent if it is."`
	CreatedAt   time.Time `json:"created_at"`
	Secret      string    `json:"secret,omitempty" doc:"Only when it was made. It begins with whsec_."`
	Waiting     int       `json:"waiting" doc:"Events that are not delivered yet."`
	Failed      int       `json:"failed" doc:"Events that were given up."`

	Key, OldKey string    `json:"-"` // the secrets with which its messages are signed
	OldUntil    time.Time `json:"-"`
	Since       EventID   `json:"-"` // only later events are sent
}

// The reasons in Webhook.Disabled that the server itself gives.
const (
	WebhookDisabledByCaller = "disabled by PATCH /webhooks"
	WebhookGone             = "the receiver answered 410 Gone"
	WebhookBehind           = "too many events waited"
)

// WebhookList answers GET /webhooks.
type WebhookList struct {
	Webhooks []Webhook `json:"webhooks"`
}

// WebhookDelivery is an event that was not delivered to a webhook.
type WebhookDelivery struct {
	EventID   EventID    `json:"event_id"`
	Type      string     `json:"type"`
	SessionID string     `json:"session_id,omitempty"`
	Failed    bool       `json:"failed" doc:"Whether it was given up."`
	Attempts  int        `json:"attempts"`
	NextAt    *time.Time `json:"next_at,omitempty" doc:"When it is tried again."`
	Error     string     `json:"error,omitempty" doc:"Why the last attempt failed."`

	Body []byte `json:"-"`
}

// WebhookDeliveries is a page of what was not delivered, the oldest first.
type WebhookDeliveries struct {
	Deliveries    []WebhookDelivery `json:"deliveries"`
	NextPageToken string            `json:"next_page_token,omitempty"`
}

// Resend asks that events are sent again that were given up.
type Resend struct {
	EventID string `json:"event_id,omitempty" doc:"Only this event; all if left out."`
}

// WebhookTypes returns the types of events that webhooks may be sent: all but increments.
func WebhookTypes() []string {
	return []string{
		string(RequestStarted), string(RequestCancelled), string(RequestCompleted), string(ErrorEvent), string(AssistantMessage), string(Final),
		string(ToolCalls), string(ToolResults), string(Checkpoint), string(SessionCreated), string(MessageAppended), string(MessageModified),
		string(MessagesDeleted), string(SessionDeleted), string(RetryScheduled), string(QueueChanged),
	}
}

// Wants reports whether a webhook is sent events of a user's session.
func (w Webhook) Wants(user string) bool { return w.User == "" || w.User == user }

// WantsType reports whether a webhook is sent events of a type.
func (w Webhook) WantsType(t EventType) bool {
	if len(w.Types) == 0 {
		return slices.Contains(WebhookTypes(), string(t))
	}
	return slices.Contains(w.Types, string(t))
}
