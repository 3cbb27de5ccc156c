package openai

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"loquat"
	"loquat/internal/chat"
	"loquat/internal/feed"
	"loquat/internal/httpapi/route"
)

const responsePath = prefix + "responses/{response_id}"

func (a *API) responseRoutes() []route.Route {
	responses := []route.Response{{Status: http.StatusOK, Body: openAIResponse{}}}
	return []route.Route{
		{
			Method: http.MethodPost, Path: prefix + "responses", ID: "createResponse", Tag: tag, Errors: failures, AnyKey: true, Users: true,
			Summary: "Ask for a response: a request of a session", Serve: a.createResponse, Follows: true, Body: openAIResponseRequest{}, Responses: responses,
		},
		{
			Method: http.MethodGet, Path: prefix + "responses", ID: "connectResponses", Tag: tag, Errors: failures, AnyKey: true, Full: true, Users: true,
			Summary: "Open a WebSocket for responses", Serve: a.connect, Follows: true, Responses: []route.Response{{Status: http.StatusSwitchingProtocols}},
		},
		{
			Method: http.MethodPost, Path: prefix + "responses/compact", ID: "compactResponse", Tag: tag, Errors: failures, AnyKey: true, Users: true,
			Summary: "Compact items: the model sums them up", Serve: a.compactResponse, Follows: true, Body: openAICompactRequest{},
			Responses: []route.Response{{Status: http.StatusOK, Body: openAICompaction{}}},
		},
		{
			Method: http.MethodGet, Path: responsePath, ID: "getResponse", Tag: tag, Errors: failures, AnyKey: true, Users: true,
			Summary: "Load a response, or follow it", Serve: a.getResponse, Follows: true,
			Query: []route.Param{
				{Name: "stream", OneOf: []string{"true", "false"}, Doc: "true follows the response as Server-Sent Events."},
				{Name: "starting_after", Kind: route.Integer, Max: maxSequence, Doc: "With stream: the sequence_number of the last event that the program has."},
				{Name: "include", Doc: "Has no effect."},
			}, Responses: responses,
		},
		{
			Method: http.MethodDelete, Path: responsePath, ID: "deleteResponse", Tag: tag, Errors: failures, AnyKey: true, Users: true,
			Summary: "Delete the messages of a response", Serve: a.deleteResponse, Responses: []route.Response{{Status: http.StatusOK, Body: openAIDeletion{}}},
		},
		{
			Method: http.MethodPost, Path: responsePath + "/cancel", ID: "cancelResponse", Tag: tag, Errors: failures, AnyKey: true, Users: true,
			Summary: "Cancel a response", Serve: a.cancelResponse, Follows: true, Responses: responses,
		},
		{
			Method: http.MethodGet, Path: responsePath + "/input_items", ID: "listInputItems", Tag: tag, Errors: failures, AnyKey: true, Users: true,
			Summary: "List the input of a response", Serve: a.listInputItems, Large: true, Query: pagingParams(), Responses: []route.Response{{Status: http.StatusOK, Body: openAIItemList{}}},
		},
	}
}

// openAIDeletion answers a deletion.
type openAIDeletion struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Deleted bool   `json:"deleted"`
}

// createResponse starts a request, and answers with its stream, its end or, in the background, its start.
func (a *API) createResponse(x *route.Exchange) error {
	held, err := a.holdBody(x.R.Context(), int64(len(x.Body)))
	if err != nil {
		return err
	}
	p, err := readPlan(x, a.itemsByID(x.R.Context(), x.Call.By))
	if err != nil {
		held.release()
		return err
	}
	id, stores, stream, background := chat.NewRequestID(), p.body.stores(), p.body.Stream, p.body.Background
	session, err := a.start(x.R.Context(), p, id)
	p, x.Body = plan{}, nil // they may be large, and the response may take long
	held.release()
	if err != nil {
		return err
	}
	discard := func() {
		if !stores {
			a.discard(x.R.Context(), session)
		}
	}
	defer discard() // also after a failure
	if stream {
		return a.stream(x, id, -1, discard)
	}
	if !background {
		if err := a.await(x.R.Context(), id); err != nil {
			return err
		}
	}
	e, err := a.chat.Requests.Exchange(x.R.Context(), id)
	if err != nil {
		return err
	}
	discard()
	return x.Reply(http.StatusOK, newResponse(e).resource())
}

// maxStarts bounds how often a start is repeated because its session has changed meanwhile.
const maxStarts = 3

// start starts the request of a plan, and returns its session: the conversation, the session of the
// previous response, a fork of it, or a new one.
func (a *API) start(ctx context.Context, p plan, id string) (session string, err error) {
	for range maxStarts {
		var call chat.Call
		var made bool
		if session, made, call, err = a.sessionFor(ctx, p); err != nil {
			return "", err
		}
		p.mark(id, made)
		call.By, call.Trace = p.call.By, p.call.Trace
		_, err = a.chat.Requests.Respond(ctx, call, session, chat.Respond{RequestID: id, Messages: p.messages, Model: p.body.Model, Settings: p.settings})
		if err == nil {
			return session, nil
		}
		if made {
			a.discard(ctx, session)
		}
		if loquat.CodeOf(err) != loquat.CodePreconditionFailed {
			return "", err
		}
	}
	return "", err
}

// unlessStarted makes a session that is deleted with this process, unless a response that is stored
// starts in it.
func unlessStarted(by chat.By) chat.Call { return chat.Call{By: by, Discard: true} }

// sessionFor returns the session of a new response. made is true if it exists only for the response.
func (a *API) sessionFor(ctx context.Context, p plan) (session string, made bool, call chat.Call, err error) {
	switch {
	case p.body.Conversation != nil:
		session, err = a.sessionOf(ctx, p)
		return session, false, call, err
	case p.body.PreviousResponseID != "":
		return a.sessionAfter(ctx, p)
	}
	if err := checkOutputs(p.messages, nil); err != nil {
		return "", false, call, err
	}
	var agent string
	if slices.ContainsFunc(a.catalog.Agents(), func(agent loquat.Agent) bool { return agent.AgentID == p.body.Model }) {
		agent = p.body.Model
	}
	made = true
	out, err := a.chat.CreateSession(ctx, unlessStarted(p.call.By), loquat.NewSession{AgentID: agent, User: p.call.By.User})
	return out.SessionID, made, call, err
}

// recentItems is how many messages of a conversation may have the call of a function's output.
const recentItems = 64

// sessionOf returns the session of the conversation of a response.
func (a *API) sessionOf(ctx context.Context, p plan) (string, error) {
	session, err := conversationOf(p.body.Conversation)
	if err != nil {
		return "", err
	}
	last := recentItems
	var page loquat.MessagePage
	if err = a.checkUser(ctx, p.call.By, []string{session}, ""); err == nil {
		page, err = a.chat.Messages(ctx, session, chat.PageQuery{Last: &last})
	}
	if loquat.CodeOf(err) == loquat.CodeNotFound {
		return "", loquat.Invalid("body.conversation", "names no conversation: %q", conversationPrefix+loquat.Clip(session, loquat.Excerpt))
	}
	if err != nil {
		return "", err
	}
	if page.ActiveRequestID != "" {
		return session, nil // which is busy; the calls of its request may be those of the server
	}
	return session, checkOutputs(p.messages, &chat.Exchange{Replies: page.Messages})
}

// sessionAfter returns the session in which a response continues the previous one: the same, or a fork
// if the previous response is not the newest there, or if nothing is to be kept.
func (a *API) sessionAfter(ctx context.Context, p plan) (session string, made bool, call chat.Call, err error) {
	e, err := a.previous(ctx, p.call.By, p.body.PreviousResponseID)
	if err != nil {
		return "", false, call, err
	}
	if err := checkOutputs(p.messages, &e); err != nil {
		return "", false, call, err
	}
	if e.End == e.Total && p.body.stores() {
		call.IfMatch = &chat.Match{IDs: []loquat.EventID{e.Checkpoint}}
		return e.SessionID, false, call, nil
	}
	last := e.End - 1
	out, err := a.chat.ForkSession(ctx, unlessStarted(p.call.By), e.SessionID, loquat.Fork{UpToIndex: &last})
	return out.SessionID, true, call, err
}

// noPrevious reports a previous response that does not exist. It has a code of its own on WebSockets.
type noPrevious struct{ error }

func (e *noPrevious) Unwrap() error { return e.error }

// previous returns the request of the response that a body names as the previous one.
func (a *API) previous(ctx context.Context, by chat.By, id string) (chat.Exchange, error) {
	const place = "body.previous_response_id"
	requestID, _ := strings.CutPrefix(id, responsePrefix)
	e, err := a.exchange(ctx, by, requestID)
	switch {
	case loquat.CodeOf(err) == loquat.CodeNotFound:
		return e, &noPrevious{loquat.Invalid(place, "names no response that is stored: %q", loquat.Clip(id, loquat.Excerpt))}
	case err == nil && !e.Status.Ended():
		return e, loquat.Invalid(place, "names a response that is %s; wait for its end or cancel it", e.Status)
	}
	return e, err
}

// exchange returns a request and its messages. To a user, a request of somebody else does not exist.
func (a *API) exchange(ctx context.Context, by chat.By, requestID string) (chat.Exchange, error) {
	if err := a.checkUser(ctx, by, nil, requestID); err != nil {
		return chat.Exchange{}, err
	}
	return a.chat.Requests.Exchange(ctx, requestID)
}

// checkUser fails if the caller is a user to whom the sessions or the request do not belong, as if they did not exist.
func (a *API) checkUser(ctx context.Context, by chat.By, sessions []string, requestID string) error {
	if by.User == "" {
		return nil
	}
	return a.chat.CheckUser(ctx, by.User, sessions, requestID)
}

// checkOutputs reports outputs of functions that nobody called, and calls of the previous response
// that have no output: the backend would get neither.
func checkOutputs(input []loquat.NewMessage, previous *chat.Exchange) error {
	open, known := map[string]bool{}, map[string]bool{}
	note := func(m loquat.Message) {
		if m.Role == loquat.RoleAssistant {
			clear(open)
		}
		for _, call := range m.ToolCalls() {
			open[call.ID], known[call.ID] = true, true
		}
		if m.Role == loquat.RoleTool {
			delete(open, m.Metadata.String(loquat.MetaToolCallID))
		}
	}
	if previous != nil {
		for _, m := range previous.Replies {
			note(m)
		}
	}
	for _, n := range input {
		note(loquat.Message{Role: n.Role, Metadata: n.Metadata})
		if id := n.Metadata.String(loquat.MetaToolCallID); n.Role == loquat.RoleTool && !known[id] {
			return loquat.Invalid("body.input", "has the output of the call %q, and no function_call with this call_id", loquat.Clip(id, loquat.Excerpt))
		}
	}
	for id := range open {
		return loquat.Invalid("body.input", "has no function_call_output for the call %q", loquat.Clip(id, loquat.Excerpt))
	}
	return nil
}

// discardTime bounds the deletion of a session whose client may have disconnected.
const discardTime = 10 * time.Second

// discard deletes a session that is not kept, and ends its request.
func (a *API) discard(ctx context.Context, session string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), discardTime)
	defer cancel()
	_ = a.chat.DeleteSession(ctx, chat.Call{}, session) // it may be deleted already
}

// await waits until a request has ended.
func (a *API) await(ctx context.Context, requestID string) error {
	return a.follow(ctx, requestID, func(loquat.Event) error { return nil }, func() error { return nil })
}

// followBytes is the size of a window of events.
const followBytes = 256 << 10

// keepAlive is the time after which idle is called.
const keepAlive = 15 * time.Second

// follow calls each with the events of a request, from the first to request_completed. It calls idle
// while there are none for a while.
func (a *API) follow(ctx context.Context, requestID string, each func(loquat.Event) error, idle func() error) error {
	follower, err := a.feed.Follow(ctx, feed.Query{RequestID: requestID, OmitSession: true, Push: true, Bytes: followBytes})
	if err != nil {
		return err
	}
	defer follower.Stop()
	for cursor := follower.Start(); ; {
		w, err := follower.Next(ctx, cursor, time.Now().Add(keepAlive))
		if err != nil {
			return err
		}
		if len(w.Events) == 0 {
			if err := idle(); err != nil {
				return err
			}
			continue
		}
		for _, record := range w.Events {
			e, err := record.Decode()
			if err == nil {
				err = each(e)
			}
			if err != nil || e.Type == loquat.RequestCompleted {
				return err
			}
		}
		cursor = w.Cursor
	}
}

// exchangeOf returns the request of a response that a path names.
func (a *API) exchangeOf(x *route.Exchange) (chat.Exchange, error) {
	given := x.Path("response_id")
	id, ok := strings.CutPrefix(given, responsePrefix)
	notFound := loquat.Errorf(loquat.CodeNotFound, "response %q not found", loquat.Clip(given, loquat.Excerpt))
	if !ok {
		return chat.Exchange{}, notFound
	}
	e, err := a.exchange(x.R.Context(), x.Call.By, id)
	if loquat.CodeOf(err) == loquat.CodeNotFound {
		return e, notFound
	}
	return e, err
}

func (a *API) getResponse(x *route.Exchange) error {
	e, err := a.exchangeOf(x)
	if err != nil {
		return err
	}
	after := int64(-1)
	if n := x.Query.Integer("starting_after"); n != nil {
		after = int64(*n)
	}
	if x.Query.Text("stream") == "true" {
		return a.stream(x, e.RequestID, after, func() {})
	}
	if after >= 0 {
		return loquat.Invalid("query.starting_after", "goes only with stream=true")
	}
	return x.Reply(http.StatusOK, newResponse(e).resource())
}

// deleteResponse deletes the messages of a response, and its session if it was made for the response and
// has no others.
func (a *API) deleteResponse(x *route.Exchange) error {
	e, err := a.exchangeOf(x)
	if err != nil {
		return err
	}
	ctx := x.R.Context()
	match := chat.Call{By: x.Call.By, IfMatch: &chat.Match{IDs: []loquat.EventID{e.Checkpoint}}} // else the indices may be wrong
	if !e.Status.Ended() {
		return loquat.Errorf(loquat.CodeBusy, "the response is %s; wait for its end or cancel it", e.Status)
	}
	if e.Marker.Bool("made") && e.First == 0 && e.End == e.Total {
		err = a.chat.DeleteSession(ctx, match, e.SessionID)
	} else {
		var indices []int
		for i := e.First; i < e.End; i++ {
			indices = append(indices, i)
		}
		_, err = a.chat.DeleteMessages(ctx, match, e.SessionID, indices)
	}
	if err != nil {
		return err
	}
	return x.Reply(http.StatusOK, openAIDeletion{ID: responsePrefix + e.RequestID, Object: "response", Deleted: true})
}

// cancelTime bounds the wait for the end of a request that is cancelled.
const cancelTime = 5 * time.Second

func (a *API) cancelResponse(x *route.Exchange) error {
	e, err := a.exchangeOf(x)
	if err != nil {
		return err
	}
	ctx := x.R.Context()
	if !e.Status.Ended() {
		if _, err := a.chat.Requests.Cancel(ctx, callOf(x), e.RequestID); err != nil {
			return err
		}
		waiting, stop := context.WithTimeout(ctx, cancelTime)
		err = a.await(waiting, e.RequestID)
		stop()
		if err != nil && waiting.Err() == nil {
			return err
		}
		if e, err = a.exchangeOf(x); err != nil {
			return err
		}
	}
	return x.Reply(http.StatusOK, newResponse(e).resource())
}

func (a *API) listInputItems(x *route.Exchange) error {
	e, err := a.exchangeOf(x)
	if err != nil {
		return err
	}
	var items []map[string]any
	for _, m := range e.Input {
		items = append(items, inputItems(m)...)
	}
	return replyPage(x, items)
}
