package loquat

import "time"

// PushSubscription is the subscription of a browser to notifications of Web Push. Whoever knows
// the endpoint can send to it, so only its host is ever shown.
type PushSubscription struct {
	ID        string
	Owner     string // the credential that it belongs to, see auth.Keeper.Owner
	Endpoint  string // https URL at the push service of the browser
	P256dh    string // public key of the browser, base64url
	Auth      string // secret of the browser, base64url
	CreatedAt time.Time
}

// PushKeys is the key pair with which a server signs its calls of push services, base64url.
type PushKeys struct{ Private, Public string }

// PushServer answers GET /push.
type PushServer struct {
	PublicKey string `json:"public_key,omitempty" doc:"The server's key for Web Push, for PushManager.subscribe; absent if the server sends no notifications."`
}

// NewPushSubscription is what PushSubscription.toJSON of a browser returns.
type NewPushSubscription struct {
	Endpoint       string             `json:"endpoint" minLength:"1" maxLength:"2048" doc:"An https URL at the push service of the browser."`
	ExpirationTime *float64           `json:"expirationTime,omitempty" doc:"Ignored: the push service reports the end of a subscription."`
	Keys           PushEncryptionKeys `json:"keys"`
}

// PushEncryptionKeys are the keys with which notifications are encrypted for one browser.
type PushEncryptionKeys struct {
	P256dh string `json:"p256dh" minLength:"1" maxLength:"128" doc:"The public key of the browser, base64url."`
	Auth   string `json:"auth" minLength:"1" maxLength:"64" doc:"The secret of the browser, base64url."`
}

// PushSubscribed answers POST /push/subscriptions.
type PushSubscribed struct {
	SubscriptionID string `json:"subscription_id"`
}

// PushNotification is the text that a notification carries to the service worker of a page, in JSON
// and encrypted for its browser.
type PushNotification struct {
	SessionID string        `json:"session_id"`
	RequestID string        `json:"request_id"`
	Status    RequestStatus `json:"status"`
	Title     string        `json:"title,omitempty"` // of the session
}
