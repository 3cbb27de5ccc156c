package httpapi

import (
	"encoding/json"
	"net/http"

	"loquat"
	"loquat/internal/chat"
	"loquat/internal/httpapi/route"
)

func (a *api) actionRoutes() []route.Route {
	done := []route.Response{{Status: http.StatusOK, Body: loquat.ActionResult{}}}
	return []route.Route{
		{
			Method: http.MethodPost, Path: "/sessions/{session_id}/actions/{action_id}", ID: "runSessionAction", Tag: "ui", Summary: "Run an action on a session",
			Serve: a.runAction, Matches: true, Body: loquat.Action{}, Responses: done,
		},
		{
			Method: http.MethodPost, Path: "/actions/{action_id}", ID: "runAction", Tag: "ui", Summary: "Run an action without a session",
			Serve: a.runAction, Body: loquat.Action{}, Responses: done,
		},
	}
}

func (a *api) runAction(x *route.Exchange) error {
	in, err := route.Decode[loquat.Action](x)
	if err != nil {
		return err
	}
	result, err := a.chat.RunAction(x.R.Context(), chat.Action{
		By:     x.Call.By,
		Action: in, ActionID: x.Path("action_id"), SessionID: x.Path("session_id"), IfMatch: x.IfMatch(),
	})
	if err != nil {
		return err
	}
	if len(result) == 0 {
		result = json.RawMessage("null")
	}
	return x.Reply(http.StatusOK, loquat.ActionResult{Result: result})
}
