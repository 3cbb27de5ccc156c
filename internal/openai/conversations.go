package openai

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"loquat"
	"loquat/internal/chat"
	"loquat/internal/httpapi/route"
)

// metaConversation is the key of a session's metadata that holds the metadata of the conversation.
const metaConversation = "conversation"

// openAIConversationRequest is the body of a new conversation, or of new metadata.
type openAIConversationRequest struct {
	_        struct{}          `additionalProperties:"true"`
	Items    json.RawMessage   `json:"items,omitempty" doc:"As the input of a response. Only of a new conversation."`
	Metadata map[string]string `json:"metadata,omitempty"`
}

// openAIItemsRequest is the body of new items.
type openAIItemsRequest struct {
	_     struct{}        `additionalProperties:"true"`
	Items json.RawMessage `json:"items" doc:"As the input of a response."`
}

// openAIConversation is a conversation: a session.
type openAIConversation struct {
	ID        string          `json:"id"`
	Object    string          `json:"object" enum:"conversation"`
	CreatedAt int64           `json:"created_at"`
	Metadata  json.RawMessage `json:"metadata"`
}

// openAIItem describes an item of a conversation.
type openAIItem struct {
	_    struct{} `additionalProperties:"true"`
	ID   string   `json:"id"`
	Type string   `json:"type"`
}

func (a *API) conversationRoutes() []route.Route {
	const one = prefix + "conversations/{conversation_id}"
	const items, item = one + "/items", one + "/items/{item_id}"
	reply := func(body any) []route.Response { return []route.Response{{Status: http.StatusOK, Body: body}} }
	list := []route.Route{
		{Method: http.MethodPost, Path: prefix + "conversations", ID: "createConversation", Summary: "Create a conversation: a session", Serve: a.createConversation, Body: openAIConversationRequest{}, Responses: reply(openAIConversation{})},
		{Method: http.MethodGet, Path: one, ID: "getConversation", Summary: "Load a conversation", Serve: a.getConversation, Responses: reply(openAIConversation{})},
		{Method: http.MethodPost, Path: one, ID: "updateConversation", Summary: "Replace the metadata of a conversation", Serve: a.updateConversation, Body: openAIConversationRequest{}, Responses: reply(openAIConversation{})},
		{Method: http.MethodDelete, Path: one, ID: "deleteConversation", Summary: "Delete a conversation", Serve: a.deleteConversation, Responses: reply(openAIDeletion{})},
		{Method: http.MethodPost, Path: items, ID: "createConversationItems", Summary: "Append items to a conversation", Serve: a.createItems, Body: openAIItemsRequest{}, Responses: reply(openAIItemList{})},
		{Method: http.MethodGet, Path: items, ID: "listConversationItems", Summary: "List the items of a conversation", Serve: a.listItems, Large: true, Query: pagingParams(), Responses: reply(openAIItemList{})},
		{Method: http.MethodGet, Path: item, ID: "getConversationItem", Summary: "Load an item of a conversation", Serve: a.getItem, Large: true, Query: []route.Param{{Name: "include", Doc: "Has no effect."}}, Responses: reply(openAIItem{})},
		{Method: http.MethodDelete, Path: item, ID: "deleteConversationItem", Summary: "Delete the message that an item belongs to", Serve: a.deleteItem, Large: true, Responses: reply(openAIConversation{})},
	}
	for i := range list {
		list[i].Tag, list[i].Errors, list[i].AnyKey, list[i].Users = tag, failures, true, true
	}
	return list
}

// conversationOf returns the session of a conversation: an id, or an object with it.
func conversationOf(raw json.RawMessage) (string, error) {
	var id string
	if json.Unmarshal(raw, &id) != nil {
		var object loquat.Object
		if json.Unmarshal(raw, &object) != nil {
			return "", loquat.Invalid("body.conversation", "has to be the id of a conversation, or an object with it")
		}
		id = object.String("id")
	}
	session, ok := strings.CutPrefix(id, conversationPrefix)
	if !ok {
		return "", loquat.Invalid("body.conversation", "is %q; the id of a conversation begins with %s", loquat.Clip(id, loquat.Excerpt), conversationPrefix)
	}
	return session, nil
}

// sessionIn returns the session of the conversation that a path names.
func (a *API) sessionIn(x *route.Exchange) (string, error) {
	given := x.Path("conversation_id")
	session, ok := strings.CutPrefix(given, conversationPrefix)
	if !ok {
		return "", loquat.Errorf(loquat.CodeNotFound, "conversation %q not found", loquat.Clip(given, loquat.Excerpt))
	}
	return session, a.checkUser(x.R.Context(), x.Call.By, []string{session}, "")
}

// callOf returns a change by the caller of a route, without a key and a precondition.
func callOf(x *route.Exchange) chat.Call { return chat.Call{By: x.Call.By, Trace: x.Call.Trace} }

// replyConversation answers with a conversation. Its messages are not read.
func (a *API) replyConversation(x *route.Exchange, session string) error {
	h, err := a.chat.Describe(x.R.Context(), session)
	if err != nil {
		return err
	}
	metadata := h.Metadata[metaConversation]
	if metadata == nil {
		metadata = json.RawMessage("{}")
	}
	return x.Reply(http.StatusOK, openAIConversation{ID: conversationPrefix + session, Object: "conversation", CreatedAt: h.CreatedAt.Unix(), Metadata: metadata})
}

// readConversation reads the body of a new conversation.
func readConversation(x *route.Exchange, lookup itemLookup) (loquat.NewSession, error) {
	if x.Body == nil {
		x.Body = []byte("{}")
	}
	in, err := decodeWithoutNulls[openAIConversationRequest](x)
	if err == nil {
		err = checkMetadata(in.Metadata)
	}
	if err != nil {
		return loquat.NewSession{}, err
	}
	r := inputReader{lookup: lookup}
	if in.Items != nil {
		if err := r.readList("body.items", in.Items); err != nil {
			return loquat.NewSession{}, err
		}
	}
	created := loquat.NewSession{User: x.Call.By.User, Messages: r.out}
	if len(in.Metadata) > 0 {
		created.Metadata = loquat.Object{}.Set(metaConversation, in.Metadata)
	}
	return created, nil
}

// readItems reads the body of new items.
func readItems(x *route.Exchange, lookup itemLookup) ([]loquat.NewMessage, error) {
	in, err := decodeWithoutNulls[openAIItemsRequest](x)
	if err != nil {
		return nil, err
	}
	r := inputReader{lookup: lookup}
	err = r.readList("body.items", in.Items)
	return r.out, err
}

func (a *API) createConversation(x *route.Exchange) error {
	created, err := readConversation(x, a.itemsByID(x.R.Context(), x.Call.By))
	if err != nil {
		return err
	}
	out, err := a.chat.CreateSession(x.R.Context(), callOf(x), created)
	if err != nil {
		return err
	}
	return a.replyConversation(x, out.SessionID)
}

func (a *API) getConversation(x *route.Exchange) error {
	session, err := a.sessionIn(x)
	if err != nil {
		return err
	}
	return a.replyConversation(x, session)
}

func (a *API) updateConversation(x *route.Exchange) error {
	session, err := a.sessionIn(x)
	if err != nil {
		return err
	}
	in, err := decodeWithoutNulls[openAIConversationRequest](x)
	if err == nil {
		err = checkMetadata(in.Metadata)
	}
	if err != nil {
		return err
	}
	patch := map[string]any{} // a merge patch: keys that are not given are removed
	h, err := a.chat.Describe(x.R.Context(), session)
	if err != nil {
		return err
	}
	for key := range h.Metadata.Object(metaConversation) {
		patch[key] = nil
	}
	for key, value := range in.Metadata {
		patch[key] = value
	}
	_, err = a.chat.UpdateSession(x.R.Context(), callOf(x), session, loquat.SessionPatch{Metadata: loquat.Object{}.Set(metaConversation, patch)})
	if err != nil {
		return err
	}
	return a.replyConversation(x, session)
}

func (a *API) deleteConversation(x *route.Exchange) error {
	session, err := a.sessionIn(x)
	if err == nil {
		err = a.chat.DeleteSession(x.R.Context(), callOf(x), session)
	}
	if err != nil {
		return err
	}
	return x.Reply(http.StatusOK, openAIDeletion{ID: conversationPrefix + session, Object: "conversation.deleted", Deleted: true})
}

func (a *API) createItems(x *route.Exchange) error {
	session, err := a.sessionIn(x)
	if err != nil {
		return err
	}
	added, err := readItems(x, a.itemsByID(x.R.Context(), x.Call.By))
	if err != nil {
		return err
	}
	messages, err := a.chat.AppendMessages(x.R.Context(), callOf(x), session, added)
	if err != nil {
		return err
	}
	var items []map[string]any
	for _, m := range messages {
		items = append(items, inputItems(m)...)
	}
	return replyItems(x, items, false)
}

// itemsAtOnce is how many messages are read at once to list items.
const itemsAtOnce = 64

// eachMessage calls fn with the messages of a session and their indices, until fn returns false.
func (a *API) eachMessage(ctx context.Context, session string, backward bool, fn func(int, loquat.Message) bool) error {
	limit := itemsAtOnce
	page, err := a.chat.Messages(ctx, session, chat.PageQuery{Limit: &limit})
	if err != nil {
		return err
	}
	total := page.Total
	for done := 0; done < total; done += limit {
		from, n := done, min(limit, total-done)
		if backward {
			from = total - done - n
		}
		if page, err = a.chat.Messages(ctx, session, chat.PageQuery{From: from, Limit: &n}); err != nil {
			return err
		}
		for i := range page.Messages {
			if backward {
				i = len(page.Messages) - 1 - i
			}
			if !fn(from+i, page.Messages[i]) {
				return nil
			}
		}
	}
	return nil
}

func (a *API) listItems(x *route.Exchange) error {
	session, err := a.sessionIn(x)
	if err != nil {
		return err
	}
	limit, after := defaultItems, x.Query.Text("after")
	if n := x.Query.Integer("limit"); n != nil {
		limit = *n
	}
	backward := x.Query.Text("order") != "asc"
	var page []map[string]any
	found := after == ""
	err = a.eachMessage(x.R.Context(), session, backward, func(_ int, m loquat.Message) bool {
		items := inputItems(m)
		if backward {
			slices.Reverse(items)
		}
		for _, item := range items {
			if found {
				page = append(page, item)
			}
			found = found || item["id"] == after
		}
		return len(page) <= limit
	})
	if err != nil {
		return err
	}
	if !found {
		return loquat.Invalid("query.after", "names none of the items: %q", loquat.Clip(after, loquat.Excerpt))
	}
	return replyItems(x, page[:min(limit, len(page))], len(page) > limit)
}

// findItem returns an item that a path names, and the index of its message.
func (a *API) findItem(x *route.Exchange) (item map[string]any, index int, err error) {
	session, err := a.sessionIn(x)
	if err != nil {
		return nil, 0, err
	}
	id := x.Path("item_id")
	err = a.eachMessage(x.R.Context(), session, true, func(i int, m loquat.Message) bool {
		for _, candidate := range inputItems(m) {
			if candidate["id"] == id {
				item, index = candidate, i
			}
		}
		return item == nil
	})
	if err == nil && item == nil {
		err = loquat.Errorf(loquat.CodeNotFound, "item %q not found", loquat.Clip(id, loquat.Excerpt))
	}
	return item, index, err
}

func (a *API) getItem(x *route.Exchange) error {
	item, _, err := a.findItem(x)
	if err != nil {
		return err
	}
	return x.Reply(http.StatusOK, item)
}

func (a *API) deleteItem(x *route.Exchange) error {
	ctx := x.R.Context()
	session, err := a.sessionIn(x)
	if err != nil {
		return err
	}
	h, err := a.chat.Describe(ctx, session) // before the index is known, so that a change of the session is noticed
	if err != nil {
		return err
	}
	_, index, err := a.findItem(x)
	if err != nil {
		return err
	}
	match := chat.Call{By: x.Call.By, IfMatch: &chat.Match{IDs: []loquat.EventID{h.Checkpoint}}}
	if _, err := a.chat.DeleteMessages(ctx, match, session, []int{index}); err != nil {
		return err
	}
	return a.replyConversation(x, session)
}
