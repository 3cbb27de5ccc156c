package httpapi

import (
	"net/http"
	"strings"
	"time"
)

func (a *api) pairingRoutes() []route {
	return []route{
		{
			method: http.MethodPost, path: "/pairing", id: "pair", tag: "access", summary: "Make a pairing code",
			full: true, serve: pair, body: pairBody{}, answers: []answer{{status: http.StatusOK, body: pairAnswer{}}},
		},
		{
			method: http.MethodPost, path: "/pairing/claim", id: "claimPairing", tag: "access", summary: "Become a device with a pairing code",
			open: true, serve: claim, body: claimBody{}, answers: []answer{{status: http.StatusOK, body: claimAnswer{}}},
		},
		{
			method: http.MethodGet, path: "/devices", id: "listDevices", tag: "access", summary: "List the devices that were paired",
			full: true, serve: listDevices, answers: []answer{{status: http.StatusOK, body: deviceList{}}},
		},
		{
			method: http.MethodDelete, path: "/devices/{device_id}", id: "removeDevice", tag: "access", summary: "Remove a device and cut it off",
			full: true, serve: removeDevice, answers: []answer{{status: http.StatusNoContent}},
		},
	}
}

// pairBody says what the device may do.
type pairBody struct {
	Scope string `json:"scope,omitempty" enum:"read,full" default:"read"`
}

// pairAnswer is a code that can be claimed once.
type pairAnswer struct {
	Code      string    `json:"code"`
	ExpiresAt time.Time `json:"expires_at"`
	URL       string    `json:"url" doc:"Of the server, or of its bridge: where the code can be claimed."`
	ServerID  string    `json:"server_id"`
}

func pair(x *exchange) error {
	in, err := decodeBody[pairBody](x)
	if err != nil {
		return err
	}
	code, err := x.api.access.keeper.Pair(x.r.Context(), in.Scope)
	if err != nil {
		return err
	}
	door := x.api.door
	return x.reply(http.StatusOK, pairAnswer{Code: code.Code, ExpiresAt: code.ExpiresAt, URL: door.claimURL(x.from), ServerID: door.serverID})
}

// claimURL is where a device claims its code. One that is to use a bridge may reach
// nothing else.
func (d door) claimURL(from caller) string {
	if d.bridge != "" {
		return "http" + strings.TrimPrefix(strings.TrimSuffix(strings.TrimRight(d.bridge, "/"), "/bridge"), "ws")
	}
	return d.base(from)
}

// bridgeURL is the bridge that a device joins; /websocket comes after it.
func (d door) bridgeURL(from caller) string {
	if d.bridge != "" {
		return d.bridge
	}
	return "ws" + strings.TrimPrefix(d.base(from), "http") + "/bridge"
}

// claimBody shows a code.
type claimBody struct {
	Code       string `json:"code"`
	DeviceName string `json:"device_name" minLength:"1" maxLength:"100"`
}

func (claimBody) required() {}

// claimAnswer is what a device needs to come in.
type claimAnswer struct {
	DeviceID  string `json:"device_id"`
	Token     string `json:"token" doc:"The secret of the device. It is not kept and cannot be shown again."`
	ServerID  string `json:"server_id"`
	BridgeURL string `json:"bridge_url"`
}

func claim(x *exchange) error {
	in, err := decodeBody[claimBody](x)
	if err != nil {
		return err
	}
	device, secret, err := x.api.access.keeper.Claim(x.r.Context(), in.Code, in.DeviceName, x.from.address)
	if err != nil {
		return err
	}
	door := x.api.door
	return x.reply(http.StatusOK, claimAnswer{DeviceID: device.ID, Token: secret, ServerID: door.serverID, BridgeURL: door.bridgeURL(x.from)})
}

// deviceAnswer is a device without its secret.
type deviceAnswer struct {
	DeviceID   string    `json:"device_id"`
	DeviceName string    `json:"device_name"`
	Scope      string    `json:"scope"`
	CreatedAt  time.Time `json:"created_at"`
	LastUsedOn string    `json:"last_used_on,omitempty" doc:"The day, in UTC."`
}

// deviceList is the answer of GET /devices.
type deviceList struct {
	Devices []deviceAnswer `json:"devices"`
}

func listDevices(x *exchange) error {
	out := deviceList{Devices: []deviceAnswer{}}
	for _, key := range x.api.access.keeper.Devices() {
		out.Devices = append(out.Devices, deviceAnswer{DeviceID: key.ID, DeviceName: key.Name, Scope: key.Scope, CreatedAt: key.CreatedAt, LastUsedOn: key.UsedOn})
	}
	return x.reply(http.StatusOK, out)
}

func removeDevice(x *exchange) error {
	if err := x.api.access.keeper.RemoveDevice(x.r.Context(), x.r.PathValue("device_id")); err != nil {
		return err
	}
	return x.done()
}
