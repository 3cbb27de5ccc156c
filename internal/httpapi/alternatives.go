package httpapi

import (
	"net/http"

	"loquat"
	"loquat/internal/httpapi/route"
)

func (a *api) alternativeRoutes() []route.Route {
	const path = "/sessions/{session_id}/alternatives"
	return []route.Route{
		{
			Method: http.MethodGet, Path: path, ID: "listAlternatives", Tag: "messages", Summary: "List what regenerated and edited messages were",
			Serve: a.listAlternatives, Responses: []route.Response{{Status: http.StatusOK, Body: loquat.AlternativeList{}}},
			Query: []route.Param{{Name: "index", Kind: route.Integer, Doc: "Only those at this index."}},
		},
		{
			Method: http.MethodGet, Path: path + "/{alternative_id}", ID: "getAlternative", Tag: "messages", Summary: "Load the messages of an alternative",
			Serve: a.getAlternative, Large: true, Responses: []route.Response{{Status: http.StatusOK, Body: loquat.AlternativeMessages{}}},
		},
		{
			Method: http.MethodPost, Path: path + "/{alternative_id}/switch", ID: "switchAlternative", Tag: "messages", Summary: "Put an alternative in place",
			Serve: a.switchAlternative, Change: true, Body: noParameters{}, Responses: []route.Response{{Status: http.StatusOK, Body: loquat.SwitchResult{}, ETag: true}},
		},
		{
			Method: http.MethodDelete, Path: path + "/{alternative_id}", ID: "deleteAlternative", Tag: "messages", Summary: "Remove an alternative that is not in place",
			Serve: a.deleteAlternative, Change: true, Responses: []route.Response{{Status: http.StatusNoContent}},
		},
	}
}

func (a *api) listAlternatives(x *route.Exchange) error {
	list, err := a.chat.Alternatives(x.R.Context(), x.Path("session_id"), x.Query.Integer("index"))
	if err != nil {
		return err
	}
	return x.Reply(http.StatusOK, list)
}

func (a *api) getAlternative(x *route.Exchange) error {
	one, err := a.chat.Alternative(x.R.Context(), x.Path("session_id"), x.Path("alternative_id"))
	if err != nil {
		return err
	}
	return x.Reply(http.StatusOK, one)
}

func (a *api) switchAlternative(x *route.Exchange) error {
	if _, err := route.Decode[noParameters](x); err != nil {
		return err
	}
	s, err := a.chat.SwitchAlternative(x.R.Context(), x.Call, x.Path("session_id"), x.Path("alternative_id"))
	if err != nil {
		return err
	}
	return replyChanged(x, http.StatusOK, s)
}

func (a *api) deleteAlternative(x *route.Exchange) error {
	if err := a.chat.RemoveAlternative(x.R.Context(), x.Call, x.Path("session_id"), x.Path("alternative_id")); err != nil {
		return err
	}
	x.W.WriteHeader(http.StatusNoContent)
	return nil
}
