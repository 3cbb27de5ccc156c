package httpapi

import (
	"encoding/json"
	"net/http"

	"loquat"
	"loquat/internal/httpapi/route"
)

// How many sessions a page of the list holds.
const (
	defaultSessions = 50
	maxSessions     = 200
)

// forkRoute is the operation id of the route that forks a session. It makes another session, so a token
// of one session may not call it.
const forkRoute = "forkSession"

// archivedParam selects sessions by whether they are archived.
var archivedParam = route.Param{
	Name: "archived", Kind: route.Text, OneOf: []string{loquat.ArchivedNo, loquat.ArchivedOnly, loquat.ArchivedToo}, Default: loquat.ArchivedNo,
	Doc: "Whether to list archived sessions: none, only these, or any session.",
}

// userParam selects sessions by the user to whom they belong.
var userParam = route.Param{Name: "user", Kind: route.ID, Doc: "Only sessions of this user. A token of scope user does not need it, and sees no others."}

func (a *api) sessionRoutes() []route.Route {
	session := []route.Response{{Status: http.StatusOK, Body: loquat.Snapshot{}, ETag: true}}
	created := []route.Response{{Status: http.StatusCreated, Body: loquat.Snapshot{}, ETag: true}}
	return []route.Route{
		{
			Method: http.MethodPost, Path: "/sessions", ID: "createSession", Tag: "sessions", Summary: "Create a session",
			Users: true, Serve: a.createSession, Change: true, Body: loquat.NewSession{}, Responses: created,
		},
		{
			Method: http.MethodGet, Path: "/sessions", ID: "listSessions", Tag: "sessions", Summary: "List sessions, the pinned ones first, then newest change first",
			Users: true, Serve: a.listSessions, Responses: []route.Response{{Status: http.StatusOK, Body: loquat.SessionList{}}},
			Query: []route.Param{
				{Name: "limit", Kind: route.Integer, Min: 1, Max: maxSessions, Default: defaultSessions, Doc: "How many sessions to list."},
				{Name: "page_token", Kind: route.ID, Doc: "The next_page_token of the page before."},
				{Name: "q", Kind: route.ID, Doc: "Only sessions whose title or texts match this search, the best matches first; see GET /search."},
				{Name: "agent_id", Kind: route.ID, Doc: "Only sessions of this agent."},
				userParam,
				{Name: "tag", Kind: route.TextList, Max: loquat.MaxTags, Doc: "Only sessions that have this tag; may be given several times."},
				{Name: "pinned", Kind: route.Flag, Doc: "Only pinned sessions, or only others."},
				archivedParam,
			},
		},
		{
			Method: http.MethodGet, Path: "/sessions/{session_id}", ID: "getSession", Tag: "sessions", Summary: "Load a session with its messages and cursor",
			Serve: a.getSession, Large: true, Responses: session,
		},
		{
			Method: http.MethodPatch, Path: "/sessions/{session_id}", ID: "updateSession", Tag: "sessions", Summary: "Merge a patch into a session",
			Serve: a.updateSession, Change: true, Body: loquat.SessionPatch{}, Media: "application/merge-patch+json", Responses: session,
		},
		{
			Method: http.MethodDelete, Path: "/sessions/{session_id}", ID: "deleteSession", Tag: "sessions", Summary: "Delete a session; its id cannot be used again",
			Serve: a.deleteSession, Change: true, Responses: []route.Response{{Status: http.StatusNoContent}},
		},
		{
			Method: http.MethodPost, Path: "/sessions/{session_id}/fork", ID: forkRoute, Tag: "sessions", Summary: "Copy a session up to a message",
			Serve: a.forkSession, Change: true, Body: loquat.Fork{}, Responses: created,
		},
	}
}

func (a *api) createSession(x *route.Exchange) error {
	in, err := route.Decode[loquat.NewSession](x)
	if err != nil {
		return err
	}
	if in.User, err = userOf(x, "body.user", in.User); err != nil {
		return err
	}
	s, err := a.chat.CreateSession(x.R.Context(), x.Call, in)
	if err != nil {
		return err
	}
	return replyCreated(x, s)
}

// replyCreated answers with a new session: 201 and Location.
func replyCreated(x *route.Exchange, s loquat.Snapshot) error {
	x.W.Header().Set("Location", "/sessions/"+s.SessionID)
	return replySession(x, http.StatusCreated, s)
}

func replySession(x *route.Exchange, status int, s loquat.Snapshot) error {
	x.Tag(s.Checkpoint)
	if s.Metadata == nil {
		s.Metadata = loquat.Object{}
	}
	if s.Messages == nil {
		s.Messages = []loquat.Message{}
	}
	return x.Reply(status, s)
}

func (a *api) listSessions(x *route.Exchange) error {
	q := loquat.SessionQuery{
		Limit: defaultSessions, PageToken: x.Query.Text("page_token"), AgentID: x.Query.Text("agent_id"),
		Tags: x.Query.TextList("tag"), Archived: x.Query.Text("archived"), Text: x.Query.Text("q"),
	}
	if n := x.Query.Integer("limit"); n != nil {
		q.Limit = *n
	}
	if x.Query.Has("pinned") {
		pinned := x.Query.Flag("pinned")
		q.Pinned = &pinned
	}
	var err error
	if q.User, err = userOf(x, "query.user", x.Query.Text("user")); err != nil {
		return err
	}
	list, err := a.chat.Sessions(x.R.Context(), q)
	if err != nil {
		return err
	}
	for i := range list.Sessions {
		if list.Sessions[i].Metadata == nil {
			list.Sessions[i].Metadata = loquat.Object{}
		}
	}
	return x.Reply(http.StatusOK, list)
}

func (a *api) getSession(x *route.Exchange) error {
	s, err := a.chat.Session(x.R.Context(), x.Path("session_id"))
	if err != nil {
		return err
	}
	return replySession(x, http.StatusOK, s)
}

func (a *api) updateSession(x *route.Exchange) error {
	in, err := route.Decode[loquat.SessionPatch](x)
	if err != nil {
		return err
	}
	if err := refuseRemoval(x.Body); err != nil {
		return err
	}
	s, err := a.chat.UpdateSession(x.R.Context(), x.Call, x.Path("session_id"), in)
	if err != nil {
		return err
	}
	return replySession(x, http.StatusOK, s)
}

// refuseRemoval returns an error for each null in a merge patch: null would remove a field
// that every session has.
func refuseRemoval(body []byte) error {
	var fields loquat.Object
	if err := json.Unmarshal(body, &fields); err != nil {
		return nil // the request has no body
	}
	var f loquat.FieldErrors
	for name, value := range fields {
		if string(value) == "null" {
			f.Add("body."+name, "cannot be removed; every session has it")
		}
	}
	return f.Err()
}

func (a *api) deleteSession(x *route.Exchange) error {
	if err := a.chat.DeleteSession(x.R.Context(), x.Call, x.Path("session_id")); err != nil {
		return err
	}
	x.W.WriteHeader(http.StatusNoContent)
	return nil
}

func (a *api) forkSession(x *route.Exchange) error {
	in, err := route.Decode[loquat.Fork](x)
	if err != nil {
		return err
	}
	s, err := a.chat.ForkSession(x.R.Context(), x.Call, x.Path("session_id"), in)
	if err != nil {
		return err
	}
	return replyCreated(x, s)
}
