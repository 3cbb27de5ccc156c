package httpapi

import (
	"net/http"

	"loquat"
	"loquat/internal/httpapi/route"
)

func (a *api) sendRoutes() []route.Route {
	return []route.Route{
		{
			Method: http.MethodPost, Path: "/sessions/{session_id}/send", ID: "send", Tag: "requests", Summary: "Ask for a reply",
			Serve: a.send, Change: true, Body: loquat.Send{}, Responses: []route.Response{{Status: http.StatusAccepted, Body: loquat.SendResult{}, ETag: true}},
		},
	}
}

func (a *api) send(x *route.Exchange) error {
	in, err := route.Decode[loquat.Send](x)
	if err != nil {
		return err
	}
	s, err := a.chat.Requests.Send(x.R.Context(), x.Call, x.Path("session_id"), in)
	if err != nil {
		return err
	}
	x.W.Header().Set("Location", "/requests/"+s.Body.RequestID)
	return replyChanged(x, http.StatusAccepted, s)
}
