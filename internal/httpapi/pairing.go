package httpapi

import (
	"net/http"
	"strings"

	"loquat"
)

func (a *api) pairingRoutes() []route {
	return []route{
		{
			method: http.MethodPost, path: "/pairing", id: "pair", tag: "access", summary: "Make a pairing code",
			full: true, serve: pair, body: loquat.NewPairing{}, answers: []answer{{status: http.StatusOK, body: loquat.Pairing{}}},
		},
		{
			method: http.MethodPost, path: "/pairing/claim", id: "claimPairing", tag: "access", summary: "Become a device with a pairing code",
			open: true, serve: claim, body: loquat.Claim{}, answers: []answer{{status: http.StatusOK, body: loquat.ClaimedDevice{}}},
		},
		{
			method: http.MethodGet, path: "/devices", id: "listDevices", tag: "access", summary: "List the devices that were paired",
			full: true, serve: listDevices, answers: []answer{{status: http.StatusOK, body: loquat.DeviceList{}}},
		},
		{
			method: http.MethodDelete, path: "/devices/{device_id}", id: "removeDevice", tag: "access", summary: "Remove a device and cut it off",
			full: true, serve: removeDevice, answers: []answer{{status: http.StatusNoContent}},
		},
	}
}

func pair(x *exchange) error {
	in, err := decodeBody[loquat.NewPairing](x)
	if err != nil {
		return err
	}
	p, err := x.api.access.keeper.Pair(x.r.Context(), in.Scope)
	if err != nil {
		return err
	}
	door := x.api.door
	p.URL, p.ServerID = door.claimURL(x.from), door.serverID
	return x.reply(http.StatusOK, p)
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

func claim(x *exchange) error {
	in, err := decodeBody[loquat.Claim](x)
	if err != nil {
		return err
	}
	device, secret, err := x.api.access.keeper.Claim(x.r.Context(), in.Code, in.DeviceName, x.from.address)
	if err != nil {
		return err
	}
	door := x.api.door
	return x.reply(http.StatusOK, loquat.ClaimedDevice{DeviceID: device.ID, Token: secret, ServerID: door.serverID, BridgeURL: door.bridgeURL(x.from)})
}

func listDevices(x *exchange) error {
	out := loquat.DeviceList{Devices: []loquat.Device{}}
	for _, c := range x.api.access.keeper.Devices() {
		out.Devices = append(out.Devices, c.AsDevice())
	}
	return x.reply(http.StatusOK, out)
}

func removeDevice(x *exchange) error {
	if err := x.api.access.keeper.RemoveDevice(x.r.Context(), x.r.PathValue("device_id")); err != nil {
		return err
	}
	return x.done()
}
