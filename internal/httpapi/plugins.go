package httpapi

import (
	"net/http"

	"loquat/internal/chat"
	"loquat/internal/httpapi/route"
)

func (a *api) pluginRoutes() []route.Route {
	return []route.Route{{
		Method: http.MethodGet, Path: "/plugins", ID: "listPlugins", Tag: "catalog", Summary: "List the plugins that are loaded, with how they are",
		Serve: a.listPlugins, Responses: []route.Response{{Status: http.StatusOK, Body: pluginList{}}},
	}}
}

// pluginList is the answer of GET /plugins.
type pluginList struct {
	Plugins []chat.PluginInfo `json:"plugins"`
}

func (a *api) listPlugins(x *route.Exchange) error {
	return x.Reply(http.StatusOK, pluginList{Plugins: a.chat.Plugins()})
}
