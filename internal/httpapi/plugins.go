package httpapi

import (
	"net/http"

	"loquat/internal/chat"
)

func (a *api) pluginRoutes() []route {
	return []route{{
		method: http.MethodGet, path: "/plugins", id: "listPlugins", tag: "catalog", summary: "List the plugins that are loaded, with how they are",
		serve: listPlugins, answers: []answer{{status: http.StatusOK, body: pluginList{}}},
	}}
}

// pluginList is the answer of GET /plugins.
type pluginList struct {
	Plugins []chat.PluginInfo `json:"plugins"`
}

func listPlugins(x *exchange) error {
	return x.reply(http.StatusOK, pluginList{Plugins: x.api.chat.Plugins()})
}
