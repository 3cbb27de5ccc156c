package httpapi

import (
	"net/http"

	"loquat"
	"loquat/internal/httpapi/route"
)

func (a *api) catalogRoutes() []route.Route {
	return []route.Route{
		{
			Method: http.MethodGet, Path: "/agents", ID: "listAgents", Tag: "catalog", Summary: "List the agents that a session may use",
			Users: true, Serve: a.listAgents, Responses: []route.Response{{Status: http.StatusOK, Body: loquat.AgentList{}}},
		},
		{
			Method: http.MethodGet, Path: "/models", ID: "listModels", Tag: "catalog", Summary: "List the models that an agent's backend offers",
			Users: true, Serve: a.listModels, Responses: []route.Response{{Status: http.StatusOK, Body: loquat.ModelList{}}},
			Query: []route.Param{
				{Name: "agent_id", Kind: route.ID, Doc: "By default the agent of the session, otherwise the agent default."},
				{Name: "session_id", Kind: route.ID, Doc: "Takes the overrides of this session into account."},
				{Name: "refresh", Kind: route.Flag, Default: false, Doc: "Asks the backend again."},
			},
		},
	}
}

func (a *api) listAgents(x *route.Exchange) error {
	return x.Reply(http.StatusOK, loquat.AgentList{Agents: a.chat.Catalog.AgentsFor(x.Call.By)})
}

func (a *api) listModels(x *route.Exchange) error {
	models, err := a.chat.Catalog.Models(x.R.Context(), x.Call.By, x.Query.Text("agent_id"), x.Query.Text("session_id"), x.Query.Flag("refresh"))
	if err != nil {
		return err
	}
	if models == nil {
		models = []loquat.Model{}
	}
	return x.Reply(http.StatusOK, loquat.ModelList{Models: models})
}
