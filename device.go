package loquat

import "time"

// Device is a paired device without its secret.
type Device struct {
	DeviceID   string    `json:"device_id"`
	DeviceName string    `json:"device_name"`
	Scope      string    `json:"scope"`
	User       string    `json:"user,omitempty"`
	CreatedAt  time.Time `json:"created_at"`
	LastUsedOn string    `json:"last_used_on,omitempty" doc:"The day, in UTC."`
}

// DeviceList answers GET /devices.
type DeviceList struct {
	Devices []Device `json:"devices"`
}

// NewPairing asks for a pairing code.
type NewPairing struct {
	Scope string `json:"scope,omitempty" enum:"read,full,user" default:"read" doc:"A token of scope user can pair only devices of its user, and may leave both out."`
	User  string `json:"user,omitempty" maxLength:"128" doc:"With scope user: the user of the device."`
	Role  string `json:"role,omitempty" maxLength:"64" doc:"A role of server.roles, as a token may have one. A token of scope user gives its own."`
}

// Pairing is a pairing code that one device can claim.
type Pairing struct {
	Code      string    `json:"code"`
	ExpiresAt time.Time `json:"expires_at"`
	URL       string    `json:"url" doc:"The URL at which the code can be claimed: that of the server or of its bridge."`
	ServerID  string    `json:"server_id"`
}

// Claim exchanges a pairing code for a device.
type Claim struct {
	Code       string `json:"code"`
	DeviceName string `json:"device_name" minLength:"1" maxLength:"100"`
}

// ClaimedDevice is what a new device needs to connect.
type ClaimedDevice struct {
	DeviceID  string `json:"device_id"`
	Token     string `json:"token" doc:"The secret of the device. It is not stored and cannot be shown again."`
	ServerID  string `json:"server_id"`
	BridgeURL string `json:"bridge_url"`
}
