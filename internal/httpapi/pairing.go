package httpapi

import (
	"net/http"
	"strings"

	"loquat"
	"loquat/internal/httpapi/route"
)

func (a *api) pairingRoutes() []route.Route {
	return []route.Route{
		{
			Method: http.MethodPost, Path: "/pairing", ID: "pair", Tag: "access", Summary: "Make a pairing code",
			Full: true, Serve: a.pair, Body: loquat.NewPairing{}, Responses: []route.Response{{Status: http.StatusOK, Body: loquat.Pairing{}}},
		},
		{
			Method: http.MethodPost, Path: "/pairing/claim", ID: "claimPairing", Tag: "access", Summary: "Pair a device with a pairing code",
			Open: true, Serve: a.claim, Body: loquat.Claim{}, Responses: []route.Response{{Status: http.StatusOK, Body: loquat.ClaimedDevice{}}},
		},
		{
			Method: http.MethodGet, Path: "/devices", ID: "listDevices", Tag: "access", Summary: "List the devices that were paired",
			Full: true, Serve: a.listDevices, Responses: []route.Response{{Status: http.StatusOK, Body: loquat.DeviceList{}}},
		},
		{
			Method: http.MethodDelete, Path: "/devices/{device_id}", ID: "removeDevice", Tag: "access", Summary: "Remove a device and end its connections",
			Full: true, Serve: a.removeDevice, Responses: []route.Response{{Status: http.StatusNoContent}},
		},
	}
}

func (a *api) pair(x *route.Exchange) error {
	in, err := route.Decode[loquat.NewPairing](x)
	if err != nil {
		return err
	}
	p, err := a.access.keeper.Pair(x.R.Context(), in.Scope)
	if err != nil {
		return err
	}
	public := a.public
	p.URL, p.ServerID = public.claimURL(a.proxies.caller(x.R)), public.serverID
	return x.Reply(http.StatusOK, p)
}

// claimURL returns the URL where a device claims its code. If a separate bridge is
// configured, the URL is there, because the device may not reach this server.
func (p publicAddress) claimURL(from caller) string {
	if p.bridge != "" {
		return "http" + strings.TrimPrefix(strings.TrimSuffix(strings.TrimRight(p.bridge, "/"), "/bridge"), "ws")
	}
	return p.base(from)
}

// bridgeURL returns the URL of the bridge that a device joins, without /websocket.
func (p publicAddress) bridgeURL(from caller) string {
	if p.bridge != "" {
		return p.bridge
	}
	return "ws" + strings.TrimPrefix(p.base(from), "http") + "/bridge"
}

func (a *api) claim(x *route.Exchange) error {
	in, err := route.Decode[loquat.Claim](x)
	if err != nil {
		return err
	}
	device, secret, err := a.access.keeper.Claim(x.R.Context(), in.Code, in.DeviceName, a.proxies.caller(x.R).address)
	if err != nil {
		return err
	}
	public := a.public
	return x.Reply(http.StatusOK, loquat.ClaimedDevice{DeviceID: device.ID, Token: secret, ServerID: public.serverID, BridgeURL: public.bridgeURL(a.proxies.caller(x.R))})
}

func (a *api) listDevices(x *route.Exchange) error {
	out := loquat.DeviceList{Devices: []loquat.Device{}}
	for _, c := range a.access.keeper.Devices() {
		out.Devices = append(out.Devices, c.AsDevice())
	}
	return x.Reply(http.StatusOK, out)
}

func (a *api) removeDevice(x *route.Exchange) error {
	if err := a.access.keeper.RemoveDevice(x.R.Context(), x.Path("device_id")); err != nil {
		return err
	}
	return done(x)
}
