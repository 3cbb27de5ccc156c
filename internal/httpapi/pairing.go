package httpapi

import (
	"cmp"
	"net/http"
	"strings"

	"loquat"
	"loquat/internal/auth"
	"loquat/internal/httpapi/route"
)

func (k *credentials) pairingRoutes() []route.Route {
	return []route.Route{
		{
			Method: http.MethodPost, Path: "/pairing", ID: "pair", Tag: "access", Summary: "Make a pairing code",
			Full: true, Users: true, Serve: k.pair, Body: loquat.NewPairing{}, Responses: []route.Response{{Status: http.StatusOK, Body: loquat.Pairing{}}},
		},
		{
			Method: http.MethodPost, Path: "/pairing/claim", ID: "claimPairing", Tag: "access", Summary: "Pair a device with a pairing code",
			Open: true, Serve: k.claim, Body: loquat.Claim{}, Responses: []route.Response{{Status: http.StatusOK, Body: loquat.ClaimedDevice{}}},
		},
		{
			Method: http.MethodGet, Path: "/devices", ID: "listDevices", Tag: "access", Summary: "List the devices that were paired",
			Full: true, Users: true, Serve: k.listDevices, Responses: []route.Response{{Status: http.StatusOK, Body: loquat.DeviceList{}}},
		},
		{
			Method: http.MethodDelete, Path: "/devices/{device_id}", ID: "removeDevice", Tag: "access", Summary: "Remove a device and end its connections",
			Full: true, Users: true, Serve: k.removeDevice, Responses: []route.Response{{Status: http.StatusNoContent}},
		},
	}
}

func (k *credentials) pair(x *route.Exchange) error {
	in, err := route.Decode[loquat.NewPairing](x)
	if err != nil {
		return err
	}
	if in.User, err = userOf(x, "body.user", in.User); err != nil {
		return err
	}
	if who := callerOf(x); who.Scope == auth.User {
		if in.Role != "" && in.Role != who.Role {
			return loquat.Errorf(loquat.CodeForbidden, "body.role names another role than the one of the token")
		}
		if x.R.Header.Get(onBehalfOf) == "" && k.ends(who) {
			return loquat.Errorf(loquat.CodeForbidden, "the token ends, and a device would outlive it; pair with a token that does not expire, or let one of scope full make the code (`loquat pair --user`)")
		}
		in.Scope, in.Role = cmp.Or(in.Scope, auth.User), who.Role
	}
	p, err := k.keeper.Pair(x.R.Context(), in.Scope, in.User, in.Role)
	if err != nil {
		return err
	}
	public := k.now().public
	p.URL, p.ServerID = public.claimURL(k.now().proxies.caller(x.R)), public.serverID
	return x.Reply(http.StatusOK, p)
}

// ends reports whether the token of a caller expires. A cookie ends in any case.
func (k *credentials) ends(who auth.Principal) bool {
	who.Browser = ""
	return !k.keeper.Until(who).IsZero()
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

func (k *credentials) claim(x *route.Exchange) error {
	in, err := route.Decode[loquat.Claim](x)
	if err != nil {
		return err
	}
	device, secret, err := k.keeper.Claim(x.R.Context(), in.Code, in.DeviceName, k.now().proxies.caller(x.R).address)
	if err != nil {
		return err
	}
	public := k.now().public
	return x.Reply(http.StatusOK, loquat.ClaimedDevice{DeviceID: device.ID, Token: secret, ServerID: public.serverID, BridgeURL: public.bridgeURL(k.now().proxies.caller(x.R))})
}

func (k *credentials) listDevices(x *route.Exchange) error {
	out := loquat.DeviceList{Devices: []loquat.Device{}}
	for _, c := range k.keeper.Devices(callerOf(x).User) {
		out.Devices = append(out.Devices, c.AsDevice())
	}
	return x.Reply(http.StatusOK, out)
}

func (k *credentials) removeDevice(x *route.Exchange) error {
	if err := k.keeper.RemoveDevice(x.R.Context(), x.Path("device_id"), callerOf(x).User); err != nil {
		return err
	}
	return done(x)
}
