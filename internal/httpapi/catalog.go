package httpapi

import (
	"net/http"

	"loquat"
)

func (a *api) catalogRoutes() []route {
	return []route{
		{
			method: http.MethodGet, path: "/agents", id: "listAgents", tag: "catalog", summary: "List the agents that a session may use",
			serve: listAgents, answers: []answer{{status: http.StatusOK, body: loquat.AgentList{}}},
		},
		{
			method: http.MethodGet, path: "/models", id: "listModels", tag: "catalog", summary: "List the models that an agent's backend offers",
			serve: listModels, answers: []answer{{status: http.StatusOK, body: loquat.ModelList{}}},
			query: []param{
				{name: "agent_id", kind: id, doc: "The agent default, or the session's, when left out."},
				{name: "session_id", kind: id, doc: "Asks with the overrides of a session."},
				{name: "refresh", kind: flag, preset: false, doc: "Asks the backend again."},
			},
		},
	}
}

func listAgents(x *exchange) error {
	return x.reply(http.StatusOK, loquat.AgentList{Agents: x.api.chat.Agents()})
}

func listModels(x *exchange) error {
	models, err := x.api.chat.Models(x.r.Context(), x.query.text("agent_id"), x.query.text("session_id"), x.query.flag("refresh"))
	if err != nil {
		return err
	}
	if models == nil {
		models = []loquat.Model{}
	}
	return x.reply(http.StatusOK, loquat.ModelList{Models: models})
}
