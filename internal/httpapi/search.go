package httpapi

import (
	"net/http"

	"loquat"
	"loquat/internal/httpapi/route"
)

// How many messages a page of a search holds.
const (
	defaultHits = 20
	maxHits     = 100
)

// searchPath is the path of the route that finds messages.
const searchPath = "/search"

func (a *api) searchRoutes() []route.Route {
	return []route.Route{{
		Method: http.MethodGet, Path: searchPath, ID: "search", Tag: "sessions", Summary: "Find messages by their words",
		Users: true, Serve: a.search, Responses: []route.Response{{Status: http.StatusOK, Body: loquat.SearchResult{}}},
		Query: []route.Param{
			{Name: "q", Kind: route.Text, Required: true, Doc: "Words, \"phrases\", and beginnings of words that end in *. A message has to have all of them."},
			{Name: "limit", Kind: route.Integer, Min: 1, Max: maxHits, Default: defaultHits, Doc: "How many messages to list."},
			{Name: "page_token", Kind: route.ID, Doc: "The next_page_token of the page before."},
			{
				Name: "in", Kind: route.TextList, Max: 3, OneOf: []string{loquat.PartText, loquat.PartTool, loquat.PartReasoning},
				Doc: "Which texts to search: texts of messages (the default), results of tools, or reasoning; may be given several times.",
			},
			{Name: "session_id", Kind: route.ID, Doc: "Only messages of this session."},
			{Name: "role", Kind: route.Text, OneOf: []string{loquat.RoleUser, loquat.RoleAssistant, loquat.RoleSystem, loquat.RoleTool}, Doc: "Only messages of this role."},
			{Name: "model", Kind: route.ID, Doc: "Only messages that this model made."},
			{Name: "agent_id", Kind: route.ID, Doc: "Only sessions of this agent."},
			userParam,
			{Name: "tag", Kind: route.TextList, Max: loquat.MaxTags, Doc: "Only sessions that have this tag; may be given several times."},
			archivedParam,
			{Name: "since", Kind: route.Time, Doc: "Only messages made at this time or later."},
			{Name: "before", Kind: route.Time, Doc: "Only messages made before this time."},
		},
	}}
}

func (a *api) search(x *route.Exchange) error {
	q := loquat.SearchQuery{
		Text: x.Query.Text("q"), SessionID: x.Query.Text("session_id"), In: x.Query.TextList("in"), Role: x.Query.Text("role"), Model: x.Query.Text("model"),
		AgentID: x.Query.Text("agent_id"), Tags: x.Query.TextList("tag"), Archived: x.Query.Text("archived"),
		Since: x.Query.Time("since"), Before: x.Query.Time("before"), Limit: defaultHits, PageToken: x.Query.Text("page_token"),
	}
	if n := x.Query.Integer("limit"); n != nil {
		q.Limit = *n
	}
	var err error
	if q.User, err = userOf(x, "query.user", x.Query.Text("user")); err != nil {
		return err
	}
	result, err := a.chat.Search(x.R.Context(), q)
	if err != nil {
		return err
	}
	return x.Reply(http.StatusOK, result)
}
