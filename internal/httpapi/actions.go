package httpapi

import (
	"encoding/json"
	"net/http"

	"loquat"
	"loquat/internal/chat"
	"loquat/internal/httpapi/route"
)

func (a *api) actionRoutes() []route.Route {
	done := []route.Response{{Status: http.StatusOK, Body: actionAnswer{}}}
	return []route.Route{
		{
			Method: http.MethodPost, Path: "/sessions/{session_id}/actions/{action_id}", ID: "runSessionAction", Tag: "ui", Summary: "Run an action on a session",
			Serve: a.runAction, Matches: true, Body: actionBody{}, Responses: done,
		},
		{
			Method: http.MethodPost, Path: "/actions/{action_id}", ID: "runAction", Tag: "ui", Summary: "Run an action that is about no session",
			Serve: a.runAction, Body: actionBody{}, Responses: done,
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

func (a *api) runAction(x *route.Exchange) error {
	in, err := route.Decode[actionBody](x)
	if err != nil {
		return err
	}
	result, err := a.chat.RunAction(x.R.Context(), chat.Action{
		ActionID: x.Path("action_id"), SessionID: x.Path("session_id"), Owner: in.ActionOwner, Plugin: in.Plugin, ElementID: in.ElementID, Params: in.Params,
		IfMatch: x.IfMatch(),
	})
	if err != nil {
		return err
	}
	if len(result) == 0 {
		result = json.RawMessage("null")
	}
	return x.Reply(http.StatusOK, actionAnswer{Result: result})
}
