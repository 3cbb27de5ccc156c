package httpapi

import (
	"encoding/json"
	"net/http"

	"loquat"
)

// How many sessions a page of the list holds.
const (
	defaultSessions = 50
	maxSessions     = 200
)

// forkRoute makes a session besides the one that it is called on.
const forkRoute = "forkSession"

func (a *api) sessionRoutes() []route {
	session := []answer{{status: http.StatusOK, body: loquat.Snapshot{}, etag: true}}
	created := []answer{{status: http.StatusCreated, body: loquat.Snapshot{}, etag: true}}
	return []route{
		{
			method: http.MethodPost, path: "/sessions", id: "createSession", tag: "sessions", summary: "Create a session",
			serve: createSession, change: true, body: loquat.NewSession{}, answers: created,
		},
		{
			method: http.MethodGet, path: "/sessions", id: "listSessions", tag: "sessions", summary: "List sessions, newest change first",
			serve: listSessions, answers: []answer{{status: http.StatusOK, body: loquat.SessionList{}}},
			query: []param{
				{name: "limit", kind: integer, min: 1, max: maxSessions, preset: defaultSessions, doc: "How many sessions to list."},
				{name: "page_token", kind: id, doc: "The next_page_token of the page before."},
			},
		},
		{
			method: http.MethodGet, path: "/sessions/{session_id}", id: "getSession", tag: "sessions", summary: "Load a session with its messages and cursor",
			serve: getSession, answers: session,
		},
		{
			method: http.MethodPatch, path: "/sessions/{session_id}", id: "updateSession", tag: "sessions", summary: "Merge a patch into a session",
			serve: updateSession, change: true, body: loquat.SessionPatch{}, media: "application/merge-patch+json", answers: session,
		},
		{
			method: http.MethodDelete, path: "/sessions/{session_id}", id: "deleteSession", tag: "sessions", summary: "Delete a session; its id stays taken",
			serve: deleteSession, change: true, answers: []answer{{status: http.StatusNoContent}},
		},
		{
			method: http.MethodPost, path: "/sessions/{session_id}/fork", id: forkRoute, tag: "sessions", summary: "Copy a session up to a message",
			serve: forkSession, change: true, body: loquat.Fork{}, answers: created,
		},
	}
}

func createSession(x *exchange) error {
	in, err := decodeBody[loquat.NewSession](x)
	if err != nil {
		return err
	}
	s, err := x.api.chat.CreateSession(x.r.Context(), x.call, in)
	if err != nil {
		return err
	}
	return x.replyCreated(s)
}

// replyCreated answers with a session that did not exist before.
func (x *exchange) replyCreated(s loquat.Snapshot) error {
	x.w.Header().Set("Location", "/sessions/"+s.SessionID)
	return x.replySession(http.StatusCreated, s)
}

func (x *exchange) replySession(status int, s loquat.Snapshot) error {
	x.tag(s.Checkpoint)
	if s.Metadata == nil {
		s.Metadata = loquat.Object{}
	}
	if s.Messages == nil {
		s.Messages = []loquat.Message{}
	}
	return x.reply(status, s)
}

func (x *exchange) sessionID() string { return x.r.PathValue("session_id") }

func listSessions(x *exchange) error {
	limit := defaultSessions
	if n := x.query.integer("limit"); n != nil {
		limit = *n
	}
	list, err := x.api.chat.Sessions(x.r.Context(), limit, x.query.text("page_token"))
	if err != nil {
		return err
	}
	for i := range list.Sessions {
		if list.Sessions[i].Metadata == nil {
			list.Sessions[i].Metadata = loquat.Object{}
		}
	}
	return x.reply(http.StatusOK, list)
}

func getSession(x *exchange) error {
	done, err := x.snapshot()
	if err != nil {
		return err
	}
	defer done()
	s, err := x.api.chat.Session(x.r.Context(), x.sessionID())
	if err != nil {
		return err
	}
	return x.replySession(http.StatusOK, s)
}

func updateSession(x *exchange) error {
	in, err := decodeBody[loquat.SessionPatch](x)
	if err != nil {
		return err
	}
	if err := refuseRemoval(x.body); err != nil {
		return err
	}
	s, err := x.api.chat.UpdateSession(x.r.Context(), x.call, x.sessionID(), in)
	if err != nil {
		return err
	}
	return x.replySession(http.StatusOK, s)
}

// refuseRemoval refuses a null where a merge patch would remove what every session
// has.
func refuseRemoval(body []byte) error {
	var fields loquat.Object
	if err := json.Unmarshal(body, &fields); err != nil {
		return nil // there was no body
	}
	var f faults
	for name, value := range fields {
		if string(value) == "null" {
			f.add("body."+name, "cannot be removed; every session has it")
		}
	}
	return f.err()
}

func deleteSession(x *exchange) error {
	if err := x.api.chat.DeleteSession(x.r.Context(), x.call, x.sessionID()); err != nil {
		return err
	}
	x.w.WriteHeader(http.StatusNoContent)
	return nil
}

func forkSession(x *exchange) error {
	in, err := decodeBody[loquat.Fork](x)
	if err != nil {
		return err
	}
	s, err := x.api.chat.ForkSession(x.r.Context(), x.call, x.sessionID(), in)
	if err != nil {
		return err
	}
	return x.replyCreated(s)
}
