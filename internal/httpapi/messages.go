package httpapi

import (
	"net/http"
	"strconv"

	"loquat"
	"loquat/internal/chat"
	"loquat/internal/httpapi/route"
)

func (a *api) messageRoutes() []route.Route {
	const path = "/sessions/{session_id}/messages"
	return []route.Route{
		{
			Method: http.MethodGet, Path: path, ID: "getMessages", Tag: "messages", Summary: "Load messages of one snapshot",
			Serve: a.getMessages, Large: true, Responses: []route.Response{{Status: http.StatusOK, Body: loquat.MessagePage{}, ETag: true}},
			Query: []route.Param{
				{Name: "from", Kind: route.Integer, Default: 0, Doc: "The first index."},
				{Name: "limit", Kind: route.Integer, Doc: "How many messages; all when left out."},
				{Name: "last", Kind: route.Integer, Doc: "How many messages from the end, in place of from and limit. The page begins at index total minus their number."},
				{Name: "at", Kind: route.EventID, Doc: "The cursor of the page before: further pages of the same snapshot."},
			},
		},
		{
			Method: http.MethodPost, Path: path, ID: "appendMessage", Tag: "messages", Summary: "Append a message",
			Serve: a.appendMessage, Change: true, Body: loquat.NewMessage{}, Responses: []route.Response{{Status: http.StatusCreated, Body: loquat.MessageResult{}, ETag: true}},
		},
		{
			Method: http.MethodPatch, Path: path + "/{index}", ID: "modifyMessage", Tag: "messages", Summary: "Change the content of a message",
			Serve: a.modifyMessage, Change: true, Body: loquat.MessagePatch{}, Media: "application/merge-patch+json",
			Responses: []route.Response{{Status: http.StatusOK, Body: loquat.MessageResult{}, ETag: true}},
		},
		{
			Method: http.MethodDelete, Path: path, ID: "deleteMessages", Tag: "messages", Summary: "Delete messages, all or none",
			Serve: a.deleteMessages, Change: true, Body: loquat.MessageIndices{},
			Query:     []route.Param{{Name: "indices", Kind: route.Indices, Doc: "In place of a body."}},
			Responses: []route.Response{{Status: http.StatusOK, Body: loquat.DeleteResult{}, ETag: true}},
		},
	}
}

func (a *api) getMessages(x *route.Exchange) error {
	q := chat.PageQuery{Limit: x.Query.Integer("limit"), Last: x.Query.Integer("last"), At: x.Query.EventID("at")}
	from := x.Query.Integer("from")
	if from != nil {
		q.From = *from
	}
	if q.Last != nil && (from != nil || q.Limit != nil) {
		return loquat.Invalid("query.last", "cannot be given together with from or limit")
	}
	page, err := a.chat.Messages(x.R.Context(), x.Path("session_id"), q)
	if err != nil {
		return err
	}
	if page.Messages == nil {
		page.Messages = []loquat.Message{}
	}
	x.Tag(page.Checkpoint)
	return x.Reply(http.StatusOK, page)
}

func (a *api) appendMessage(x *route.Exchange) error {
	in, err := route.Decode[loquat.NewMessage](x)
	if err != nil {
		return err
	}
	m, err := a.chat.AppendMessage(x.R.Context(), x.Call, x.Path("session_id"), in)
	if err != nil {
		return err
	}
	x.W.Header().Set("Location", "/sessions/"+x.Path("session_id")+"/messages?from="+strconv.Itoa(m.Body.Index)+"&limit=1")
	return replyChanged(x, http.StatusCreated, m)
}

func (a *api) modifyMessage(x *route.Exchange) error {
	index, err := strconv.Atoi(x.Path("index"))
	if err != nil {
		return route.Malformed("path.index", "has to be an integer, not %q", loquat.Clip(x.Path("index"), loquat.Excerpt))
	}
	if index < 0 {
		return loquat.Invalid("path.index", "is at least 0, not %d", index)
	}
	in, err := route.Decode[loquat.MessagePatch](x)
	if err != nil {
		return err
	}
	m, err := a.chat.ModifyMessage(x.R.Context(), x.Call, x.Path("session_id"), index, in.Content)
	if err != nil {
		return err
	}
	return replyChanged(x, http.StatusOK, m)
}

func (a *api) deleteMessages(x *route.Exchange) error {
	named, err := indices(x)
	if err != nil {
		return err
	}
	d, err := a.chat.DeleteMessages(x.R.Context(), x.Call, x.Path("session_id"), named)
	if err != nil {
		return err
	}
	return replyChanged(x, http.StatusOK, d)
}

// indices reads the indices from the query or from the body, not from both.
func indices(x *route.Exchange) ([]int, error) {
	named, ok := x.Query.Indices("indices")
	if ok && x.Body != nil {
		return nil, loquat.Invalid("query.indices", "cannot be given together with a body; use one of them")
	}
	if ok {
		return named, nil
	}
	in, err := route.Decode[loquat.MessageIndices](x)
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
