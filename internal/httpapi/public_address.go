package httpapi

import (
	"strings"

	"loquat/internal/config"
)

// publicAddress is the URLs and names under which others reach this server.
type publicAddress struct {
	public   string // server.public_url without a slash at its end, or ""
	bridge   string // bridge.url, or ""
	serverID string
	cookie   string // name of the browser's cookie
}

// newPublicAddress takes the addresses from the configuration. The cookie's name contains
// ownID, because browsers share cookies between all ports of a host.
func newPublicAddress(c *config.Config, ownID string) publicAddress {
	p := publicAddress{public: strings.TrimRight(c.Server.PublicURL, "/"), bridge: c.Bridge.URL, serverID: c.Bridge.ServerID, cookie: "loquat-" + ownID[:8]}
	if p.serverID == "" {
		p.serverID = ownID
	}
	return p
}

// base returns the URL under which the caller reaches this server.
func (p publicAddress) base(from caller) string {
	if p.public != "" {
		return p.public
	}
	return from.scheme + "://" + from.host
}

// secure reports whether browsers reach this server over HTTPS.
func (p publicAddress) secure(from caller) bool {
	return from.scheme == "https" || strings.HasPrefix(p.public, "https://")
}
