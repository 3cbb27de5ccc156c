package httpapi

import (
	"net/http"

	"loquat"
	"loquat/internal/httpapi/route"
)

func (a *api) requestRoutes() []route.Route {
	return []route.Route{
		{
			Method: http.MethodGet, Path: "/requests/{request_id}", ID: "getRequest", Tag: "requests", Summary: "Load the status of a request",
			Serve: a.getRequest, Responses: []route.Response{{Status: http.StatusOK, Body: loquat.Request{}}},
		},
		{
			Method: http.MethodPost, Path: "/requests/{request_id}/cancel", ID: "cancelRequest", Tag: "requests", Summary: "Cancel a request",
			Serve: a.cancelRequest, Change: true, Body: noParameters{},
			Responses: []route.Response{{Status: http.StatusAccepted, Body: loquat.CancelResult{}}, {Status: http.StatusOK, Body: loquat.CancelResult{}}},
		},
	}
}

func (a *api) getRequest(x *route.Exchange) error {
	q, err := a.chat.Requests.Request(x.R.Context(), x.Path("request_id"))
	if err != nil {
		return err
	}
	return x.Reply(http.StatusOK, q)
}

// noParameters is the body of a call that has no parameters.
type noParameters struct{}

func (a *api) cancelRequest(x *route.Exchange) error {
	if _, err := route.Decode[noParameters](x); err != nil {
		return err
	}
	c, err := a.chat.Requests.Cancel(x.R.Context(), x.Call, x.Path("request_id"))
	if err != nil {
		return err
	}
	status := http.StatusOK
	if c.Accepted {
		status = http.StatusAccepted
	}
	return x.Reply(status, c.Body)
}
