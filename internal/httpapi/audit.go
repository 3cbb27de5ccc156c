package httpapi

import (
	"net/http"

	"loquat"
	"loquat/internal/chat"
	"loquat/internal/httpapi/route"
)

// How many entries a page of the audit holds.
const (
	defaultEntries = 100
	maxEntries     = 1000
)

func (a *api) auditRoutes() []route.Route {
	return []route.Route{{
		Method: http.MethodGet, Path: "/audit", ID: "listAudit", Tag: "access", Summary: "List who changed what, the newest first",
		Full: true, Serve: a.listAudit, Responses: []route.Response{{Status: http.StatusOK, Body: loquat.AuditList{}}},
		Query: []route.Param{
			{Name: "action", Kind: route.ID, Doc: "Only changes of this kind, such as token_made."},
			{Name: "target", Kind: route.ID, Doc: "Only changes of what has this id."},
			{Name: "limit", Kind: route.Integer, Min: 1, Max: maxEntries, Default: defaultEntries, Doc: "How many entries to list."},
			{Name: "page_token", Kind: route.ID, Doc: "The next_page_token of the page before."},
		},
	}}
}

func (a *api) listAudit(x *route.Exchange) error {
	q := chat.AuditQuery{Action: x.Query.Text("action"), Target: x.Query.Text("target"), Limit: defaultEntries, PageToken: x.Query.Text("page_token")}
	if n := x.Query.Integer("limit"); n != nil {
		q.Limit = *n
	}
	list, err := a.chat.Audit(x.R.Context(), q)
	if err != nil {
		return err
	}
	return x.Reply(http.StatusOK, list)
}
