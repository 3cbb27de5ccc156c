package httpapi

import (
	"net/http"

	"loquat"
	"loquat/internal/httpapi/route"
)

func (a *api) sendRoutes() []route.Route {
	const queue = "/sessions/{session_id}/queue"
	return []route.Route{
		{
			Method: http.MethodPost, Path: "/sessions/{session_id}/send", ID: "send", Tag: "requests", Summary: "Ask for a reply",
			Serve: a.send, Change: true, Body: loquat.Send{}, Responses: []route.Response{{Status: http.StatusAccepted, Body: loquat.SendResult{}, ETag: true}},
		},
		{
			Method: http.MethodGet, Path: queue, ID: "getQueue", Tag: "requests", Summary: "List the sends that wait",
			Serve: a.getQueue, Responses: []route.Response{{Status: http.StatusOK, Body: loquat.Queue{}}},
		},
		{
			Method: http.MethodPut, Path: queue, ID: "orderQueue", Tag: "requests", Summary: "Give the sends that wait another order",
			Serve: a.orderQueue, Change: true, Body: loquat.QueueOrder{}, Responses: []route.Response{{Status: http.StatusOK, Body: loquat.Queue{}, ETag: true}},
		},
		{
			Method: http.MethodPatch, Path: queue + "/{request_id}", ID: "changeQueued", Tag: "requests", Summary: "Change a send that waits",
			Serve: a.changeQueued, Change: true, Body: loquat.QueuedPatch{}, Media: "application/merge-patch+json",
			Responses: []route.Response{{Status: http.StatusOK, Body: loquat.QueuedSend{}, ETag: true}},
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

func (a *api) getQueue(x *route.Exchange) error {
	q, err := a.chat.Requests.Queue(x.R.Context(), x.Path("session_id"))
	if err != nil {
		return err
	}
	return x.Reply(http.StatusOK, q)
}

func (a *api) orderQueue(x *route.Exchange) error {
	in, err := route.Decode[loquat.QueueOrder](x)
	if err != nil {
		return err
	}
	q, err := a.chat.Requests.OrderQueue(x.R.Context(), x.Call, x.Path("session_id"), in.RequestIDs)
	if err != nil {
		return err
	}
	return replyChanged(x, http.StatusOK, q)
}

func (a *api) changeQueued(x *route.Exchange) error {
	in, err := route.Decode[loquat.QueuedPatch](x)
	if err != nil {
		return err
	}
	q, err := a.chat.Requests.ChangeQueued(x.R.Context(), x.Call, x.Path("session_id"), x.Path("request_id"), in)
	if err != nil {
		return err
	}
	return replyChanged(x, http.StatusOK, q)
}
