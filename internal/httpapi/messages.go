package httpapi

import (
	"net/http"
	"strconv"

	"loquat"
	"loquat/internal/chat"
)

func (a *api) messageRoutes() []route {
	const path = "/sessions/{session_id}/messages"
	return []route{
		{
			method: http.MethodGet, path: path, id: "getMessages", tag: "messages", summary: "Load messages of one snapshot",
			serve: getMessages, answers: []answer{{status: http.StatusOK, body: loquat.MessagePage{}, etag: true}},
			query: []param{
				{name: "from", kind: integer, preset: 0, doc: "The first index."},
				{name: "limit", kind: integer, doc: "How many messages; all when left out."},
				{name: "at", kind: eventID, doc: "The cursor of the page before: further pages of the same snapshot."},
			},
		},
		{
			method: http.MethodPost, path: path, id: "appendMessage", tag: "messages", summary: "Append a message",
			serve: appendMessage, change: true, body: loquat.NewMessage{}, answers: []answer{{status: http.StatusCreated, body: loquat.MessageResult{}, etag: true}},
		},
		{
			method: http.MethodPatch, path: path + "/{index}", id: "modifyMessage", tag: "messages", summary: "Change the content of a message",
			serve: modifyMessage, change: true, body: loquat.MessagePatch{}, media: "application/merge-patch+json",
			answers: []answer{{status: http.StatusOK, body: loquat.MessageResult{}, etag: true}},
		},
		{
			method: http.MethodDelete, path: path, id: "deleteMessages", tag: "messages", summary: "Delete messages, all or none",
			serve: deleteMessages, change: true, body: loquat.MessageIndices{},
			query:   []param{{name: "indices", kind: indices, doc: "In place of a body."}},
			answers: []answer{{status: http.StatusOK, body: loquat.DeleteResult{}, etag: true}},
		},
	}
}

func getMessages(x *exchange) error {
	q := chat.PageQuery{Limit: x.query.integer("limit"), At: x.query.eventID("at")}
	if from := x.query.integer("from"); from != nil {
		q.From = *from
	}
	done, err := x.snapshot()
	if err != nil {
		return err
	}
	defer done()
	page, err := x.api.chat.Messages(x.r.Context(), x.sessionID(), q)
	if err != nil {
		return err
	}
	if page.Messages == nil {
		page.Messages = []loquat.Message{}
	}
	x.tag(page.Checkpoint)
	return x.reply(http.StatusOK, page)
}

func appendMessage(x *exchange) error {
	in, err := decodeBody[loquat.NewMessage](x)
	if err != nil {
		return err
	}
	m, err := x.api.chat.AppendMessage(x.r.Context(), x.call, x.sessionID(), in)
	if err != nil {
		return err
	}
	x.w.Header().Set("Location", "/sessions/"+x.sessionID()+"/messages?from="+strconv.Itoa(m.Body.Index)+"&limit=1")
	return replyChanged(x, http.StatusCreated, m)
}

func modifyMessage(x *exchange) error {
	index, err := strconv.Atoi(x.r.PathValue("index"))
	if err != nil {
		return malformed("path.index", "has to be an integer, not %q", loquat.Clip(x.r.PathValue("index"), loquat.Excerpt))
	}
	if index < 0 {
		return loquat.Invalid("path.index", "is at least 0, not %d", index)
	}
	in, err := decodeBody[loquat.MessagePatch](x)
	if err != nil {
		return err
	}
	m, err := x.api.chat.ModifyMessage(x.r.Context(), x.call, x.sessionID(), index, in.Content)
	if err != nil {
		return err
	}
	return replyChanged(x, http.StatusOK, m)
}

func deleteMessages(x *exchange) error {
	named, err := x.indices()
	if err != nil {
		return err
	}
	d, err := x.api.chat.DeleteMessages(x.r.Context(), x.call, x.sessionID(), named)
	if err != nil {
		return err
	}
	return replyChanged(x, http.StatusOK, d)
}

// indices reads the indices from the query or from the body, not from both.
func (x *exchange) indices() ([]int, error) {
	named, ok := x.query["indices"].([]int)
	if ok && x.body != nil {
		return nil, loquat.Invalid("query.indices", "cannot be given beside a body; use one of them")
	}
	if ok {
		return named, nil
	}
	in, err := decodeBody[loquat.MessageIndices](x)
	if err != nil {
		return nil, err
	}
	for i, n := range in.Indices {
		if n < 0 {
			return nil, loquat.Invalid("body.indices["+strconv.Itoa(i)+"]", "is at least 0, not %d", n)
		}
	}
	return in.Indices, nil
}
