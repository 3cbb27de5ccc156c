package httpapi

import (
	"net/http"

	"loquat"
)

func (a *api) requestRoutes() []route {
	return []route{
		{
			method: http.MethodPost, path: "/sessions/{session_id}/send", id: "send", tag: "requests", summary: "Ask for a reply",
			serve: send, change: true, body: loquat.Send{}, answers: []answer{{status: http.StatusAccepted, body: loquat.SendResult{}, etag: true}},
		},
		{
			method: http.MethodGet, path: "/requests/{request_id}", id: "getRequest", tag: "requests", summary: "See where a request stands",
			serve: getRequest, answers: []answer{{status: http.StatusOK, body: loquat.Request{}}},
		},
		{
			method: http.MethodPost, path: "/requests/{request_id}/cancel", id: "cancelRequest", tag: "requests", summary: "Cancel a request",
			serve: cancelRequest, change: true, body: cancelBody{},
			answers: []answer{{status: http.StatusAccepted, body: loquat.CancelResult{}}, {status: http.StatusOK, body: loquat.CancelResult{}}},
		},
	}
}

func send(x *exchange) error {
	in, err := decodeBody[loquat.Send](x)
	if err != nil {
		return err
	}
	s, err := x.api.chat.Send(x.r.Context(), x.call, x.sessionID(), in)
	if err != nil {
		return err
	}
	x.w.Header().Set("Location", "/requests/"+s.Body.RequestID)
	return replyChanged(x, http.StatusAccepted, s)
}

func getRequest(x *exchange) error {
	q, err := x.api.chat.Request(x.r.Context(), x.r.PathValue("request_id"))
	if err != nil {
		return err
	}
	return x.reply(http.StatusOK, q)
}

// cancelBody is empty: a cancel has no parameters.
type cancelBody struct{}

func cancelRequest(x *exchange) error {
	if _, err := decodeBody[cancelBody](x); err != nil {
		return err
	}
	c, err := x.api.chat.Cancel(x.r.Context(), x.call, x.r.PathValue("request_id"))
	if err != nil {
		return err
	}
	status := http.StatusOK
	if c.Accepted {
		status = http.StatusAccepted
	}
	return x.reply(status, c.Body)
}
