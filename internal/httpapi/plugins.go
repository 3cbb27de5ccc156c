package httpapi

import (
	"loquat"
	"net/http"

	"loquat/internal/httpapi/route"
)

func (a *api) pluginRoutes() []route.Route {
	return []route.Route{{
		Method: http.MethodGet, Path: "/plugins", ID: "listPlugins", Tag: "catalog", Summary: "List the loaded plugins and their states",
		Serve: a.listPlugins, Responses: []route.Response{{Status: http.StatusOK, Body: loquat.PluginList{}}},
	}}
}

func (a *api) listPlugins(x *route.Exchange) error {
	return x.Reply(http.StatusOK, loquat.PluginList{Plugins: a.chat.Catalog.Plugins()})
}
