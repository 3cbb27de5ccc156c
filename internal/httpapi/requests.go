package httpapi

import (
	"encoding/json"
	"net/http"

	"loquat"
	"loquat/internal/chat"
)

func (a *api) requestRoutes() []route {
	return []route{
		{
			method: http.MethodPost, path: "/sessions/{session_id}/send", id: "send", tag: "requests", summary: "Ask for a reply",
			serve: send, change: true, body: sendBody{}, answers: []answer{{status: http.StatusAccepted, body: sendAnswer{}, etag: true}},
		},
		{
			method: http.MethodGet, path: "/requests/{request_id}", id: "getRequest", tag: "requests", summary: "See where a request stands",
			serve: getRequest, answers: []answer{{status: http.StatusOK, body: loquat.Request{}}},
		},
		{
			method: http.MethodPost, path: "/requests/{request_id}/cancel", id: "cancelRequest", tag: "requests", summary: "Cancel a request",
			serve: cancelRequest, change: true, body: cancelBody{},
			answers: []answer{{status: http.StatusAccepted, body: cancelAnswer{}}, {status: http.StatusOK, body: cancelAnswer{}}},
		},
	}
}

// sendBody asks for a reply.
type sendBody struct {
	Content     *string           `json:"content,omitempty" doc:"Of the user message. Without it and without attachments the request runs on the messages as they stand."`
	Attachments []json.RawMessage `json:"attachments,omitempty" doc:"Images: {type, url}, {type, data_url} or {type, asset_id}."`
	Metadata    loquat.Object     `json:"metadata,omitempty" doc:"Of the user message."`
	Stream      *bool             `json:"stream,omitempty" default:"true"`
	StreamTools bool              `json:"stream_tools,omitempty" default:"false"`
	RequestID   string            `json:"request_id,omitempty" minLength:"1" maxLength:"64" pattern:"^[A-Za-z0-9_-]{1,64}$" doc:"Chosen by the server when left out. A repeat answers what the first answered."`
	DeleteFrom  *int              `json:"delete_from,omitempty" minimum:"0" doc:"Deletes the messages from this index on first."`
	OnBusy      string            `json:"on_busy,omitempty" enum:"reject,queue,interrupt" default:"reject"`
}

// sendAnswer names the request that was made.
type sendAnswer struct {
	RequestID     string               `json:"request_id"`
	SessionID     string               `json:"session_id"`
	Status        loquat.RequestStatus `json:"status"`
	CursorEventID loquat.EventID       `json:"cursor_event_id"`
}

func send(x *exchange) error {
	in, err := decodeBody[sendBody](x)
	if err != nil {
		return err
	}
	s, err := x.api.chat.Send(x.r.Context(), x.call, x.sessionID(), chat.Send{
		RequestID: in.RequestID, Content: in.Content, Attachments: in.Attachments, Metadata: in.Metadata,
		Stream: in.Stream == nil || *in.Stream, StreamTools: in.StreamTools, DeleteFrom: in.DeleteFrom, OnBusy: in.OnBusy,
	})
	if err != nil {
		return err
	}
	x.tag(s.Checkpoint)
	x.w.Header().Set("Location", "/requests/"+s.RequestID)
	return x.reply(http.StatusAccepted, sendAnswer{RequestID: s.RequestID, SessionID: s.SessionID, Status: s.Status, CursorEventID: s.CursorEventID})
}

func getRequest(x *exchange) error {
	q, err := x.api.chat.Request(x.r.Context(), x.r.PathValue("request_id"))
	if err != nil {
		return err
	}
	return x.reply(http.StatusOK, q)
}

// cancelBody is empty: a cancel has no parameters.
type cancelBody struct{}

// cancelAnswer tells where the request stands.
type cancelAnswer struct {
	RequestID string               `json:"request_id"`
	Status    loquat.RequestStatus `json:"status"`
}

func cancelRequest(x *exchange) error {
	if _, err := decodeBody[cancelBody](x); err != nil {
		return err
	}
	c, err := x.api.chat.Cancel(x.r.Context(), x.call, x.r.PathValue("request_id"))
	if err != nil {
		return err
	}
	status := http.StatusOK
	if c.Accepted {
		status = http.StatusAccepted
	}
	return x.reply(status, cancelAnswer{RequestID: c.RequestID, Status: c.Status})
}
