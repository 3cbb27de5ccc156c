package httpapi

import (
	"net/http"

	"loquat"
	"loquat/internal/config"
	"loquat/internal/httpapi/route"
)

// configured is what the API takes from a configuration.
type configured struct {
	origins originCheck
	proxies proxies
	public  publicAddress
	limits  config.Limits
	roles   map[string]config.Role
}

func newConfigured(cfg *config.Config, address, serverID string) *configured {
	return &configured{
		origins: newOriginCheck(address, cfg.Server), proxies: newProxies(cfg.Server.TrustedProxies),
		public: newPublicAddress(cfg, serverID), limits: cfg.Limits, roles: cfg.Server.Roles,
	}
}

func (a *api) configurationRoutes() []route.Route {
	return []route.Route{{
		Method: http.MethodPost, Path: "/config/reload", ID: "reloadConfig", Tag: "server", Summary: "Take up the changed configuration file",
		Full: true, Serve: a.reloadConfig, Responses: []route.Response{{Status: http.StatusOK, Body: loquat.ConfigReload{}}},
	}}
}

func (a *api) reloadConfig(x *route.Exchange) error {
	out, err := a.reload(x.R.Context())
	if err != nil {
		return err
	}
	return x.Reply(http.StatusOK, out)
}
