package httpapi

import (
	"encoding/json"
	"net/http"

	"loquat"
	"loquat/internal/chat"
)

func (a *api) actionRoutes() []route {
	done := []answer{{status: http.StatusOK, body: actionAnswer{}}}
	return []route{
		{
			method: http.MethodPost, path: "/sessions/{session_id}/actions/{action_id}", id: "runSessionAction", tag: "ui", summary: "Run an action on a session",
			serve: runAction, matches: true, body: actionBody{}, answers: done,
		},
		{
			method: http.MethodPost, path: "/actions/{action_id}", id: "runAction", tag: "ui", summary: "Run an action that is about no session",
			serve: runAction, body: actionBody{}, answers: done,
		},
	}
}

// actionBody says whose action is meant and what it is given.
type actionBody struct {
	ActionOwner string        `json:"action_owner,omitempty" enum:"application,feature,provider_extension" doc:"Any when left out."`
	Plugin      string        `json:"plugin,omitempty" doc:"Name of the plugin; any when left out."`
	ElementID   string        `json:"element_id,omitempty" doc:"Id of the element it comes from, whose fixed_params and dialog inputs then count."`
	Params      loquat.Object `json:"params,omitempty"`
}

// actionAnswer is what an action answers.
type actionAnswer struct {
	Result json.RawMessage `json:"result" doc:"Any JSON; null when the action has nothing to say."`
}

func runAction(x *exchange) error {
	in, err := decodeBody[actionBody](x)
	if err != nil {
		return err
	}
	result, err := x.api.chat.RunAction(x.r.Context(), chat.Action{
		ActionID: x.r.PathValue("action_id"), SessionID: x.sessionID(), Owner: in.ActionOwner, Plugin: in.Plugin, ElementID: in.ElementID, Params: in.Params,
		IfMatch: parseIfMatch(x.r.Header.Values("If-Match")),
	})
	if err != nil {
		return err
	}
	if len(result) == 0 {
		result = json.RawMessage("null")
	}
	return x.reply(http.StatusOK, actionAnswer{Result: result})
}
