package client

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"loquat"
)

// Page selects messages of a session: those from index From on, or the Last ones. Limit 0 means
// all. At is the cursor of the snapshot that an earlier page came from; 0 means the newest snapshot.
type Page struct {
	From, Limit, Last int
	At                loquat.EventID
}

// CreateSession creates a session.
func (c *Client) CreateSession(ctx context.Context, s loquat.NewSession, opts ...Option) (loquat.Snapshot, error) {
	return c.snapshot(ctx, change(http.MethodPost, s, opts, "sessions"))
}

// Session returns a session with its messages.
func (c *Client) Session(ctx context.Context, id string) (loquat.Snapshot, error) {
	return c.snapshot(ctx, get(nil, "sessions", id))
}

// Head returns a session without its messages. It does not read them, however many there are.
func (c *Client) Head(ctx context.Context, id string) (s loquat.Session, err error) {
	call := get(nil, "sessions", id)
	err = c.attempts(ctx, func() error {
		resp, err := c.send(ctx, call, nil)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode >= 300 {
			return c.problem(ctx, resp)
		}
		head, err := readHead(resp.Body)
		if err != nil {
			return c.unreachable(ctx, err)
		}
		raw, err := json.Marshal(head)
		if err != nil {
			return err
		}
		return json.Unmarshal(raw, &s)
	})
	return s, err
}

// readHead reads the fields of a session up to its messages. The server writes the metadata before
// them; if they came later, it would read over the messages.
func readHead(r io.Reader) (head loquat.Object, err error) {
	dec := json.NewDecoder(r)
	if _, err := dec.Token(); err != nil {
		return nil, err
	}
	head = loquat.Object{}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return nil, err
		}
		if key == "messages" && head["metadata"] != nil {
			return head, nil
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return nil, err
		}
		if name, ok := key.(string); ok && name != "messages" {
			head[name] = value
		}
	}
	return head, nil
}

// Sessions returns a page of sessions.
func (c *Client) Sessions(ctx context.Context, q loquat.SessionQuery) (loquat.SessionList, error) {
	query := url.Values{"tag": q.Tags}
	if q.Limit > 0 {
		query.Set("limit", strconv.Itoa(q.Limit))
	}
	if q.Pinned != nil {
		query.Set("pinned", strconv.FormatBool(*q.Pinned))
	}
	for name, value := range map[string]string{"page_token": q.PageToken, "agent_id": q.AgentID, "archived": q.Archived, "q": q.Text} {
		if value != "" {
			query.Set(name, value)
		}
	}
	var list loquat.SessionList
	_, err := c.do(ctx, get(query, "sessions"), &list)
	return list, err
}

// Search finds messages.
func (c *Client) Search(ctx context.Context, q loquat.SearchQuery) (loquat.SearchResult, error) {
	query := url.Values{"q": {q.Text}, "tag": q.Tags, "in": q.In}
	if q.Limit > 0 {
		query.Set("limit", strconv.Itoa(q.Limit))
	}
	for name, at := range map[string]time.Time{"since": q.Since, "before": q.Before} {
		if !at.IsZero() {
			query.Set(name, at.Format(time.RFC3339Nano))
		}
	}
	for name, value := range map[string]string{
		"page_token": q.PageToken, "session_id": q.SessionID, "role": q.Role, "model": q.Model, "agent_id": q.AgentID, "archived": q.Archived,
	} {
		if value != "" {
			query.Set(name, value)
		}
	}
	var result loquat.SearchResult
	_, err := c.do(ctx, get(query, "search"), &result)
	return result, err
}

// UpdateSession changes a session's agent or metadata.
func (c *Client) UpdateSession(ctx context.Context, id string, p loquat.SessionPatch, opts ...Option) (loquat.Snapshot, error) {
	return c.snapshot(ctx, change(http.MethodPatch, p, opts, "sessions", id))
}

// SetOverride sets the override of one setting of a session. Null removes the override.
func (c *Client) SetOverride(ctx context.Context, id, key string, o loquat.Override, opts ...Option) (loquat.Snapshot, error) {
	return c.snapshot(ctx, change(http.MethodPut, o, opts, "sessions", id, "config", key))
}

// DeleteSession deletes a session permanently.
func (c *Client) DeleteSession(ctx context.Context, id string, opts ...Option) error {
	_, err := c.do(ctx, change(http.MethodDelete, nil, opts, "sessions", id), nil)
	return err
}

// Fork creates a session that begins with the messages of another.
func (c *Client) Fork(ctx context.Context, id string, f loquat.Fork, opts ...Option) (loquat.Snapshot, error) {
	return c.snapshot(ctx, change(http.MethodPost, f, opts, "sessions", id, "fork"))
}

// Messages returns messages of a session, and the cursor to follow it from.
func (c *Client) Messages(ctx context.Context, id string, p Page) (loquat.MessagePage, error) {
	query := url.Values{}
	if p.From > 0 {
		query.Set("from", strconv.Itoa(p.From))
	}
	if p.Limit > 0 {
		query.Set("limit", strconv.Itoa(p.Limit))
	}
	if p.Last > 0 {
		query.Set("last", strconv.Itoa(p.Last))
	}
	if p.At > 0 {
		query.Set("at", p.At.String())
	}
	var page loquat.MessagePage
	header, err := c.do(ctx, get(query, "sessions", id, "messages"), &page)
	page.Checkpoint = checkpoint(header)
	return page, err
}

// AppendMessage appends a message to a session without starting a request.
func (c *Client) AppendMessage(ctx context.Context, id string, m loquat.NewMessage, opts ...Option) (loquat.MessageResult, error) {
	var res loquat.MessageResult
	_, err := c.do(ctx, change(http.MethodPost, m, opts, "sessions", id, "messages"), &res)
	return res, err
}

// ModifyMessage replaces the content of a message.
func (c *Client) ModifyMessage(ctx context.Context, id string, index int, content string, opts ...Option) (loquat.MessageResult, error) {
	var res loquat.MessageResult
	_, err := c.do(ctx, change(http.MethodPatch, loquat.MessagePatch{Content: content}, opts, "sessions", id, "messages", strconv.Itoa(index)), &res)
	return res, err
}

// DeleteMessages deletes the messages at indices, all or none.
func (c *Client) DeleteMessages(ctx context.Context, id string, indices []int, opts ...Option) (loquat.DeleteResult, error) {
	var res loquat.DeleteResult
	_, err := c.do(ctx, change(http.MethodDelete, loquat.MessageIndices{Indices: indices}, opts, "sessions", id, "messages"), &res)
	return res, err
}

func (c *Client) snapshot(ctx context.Context, call *call) (loquat.Snapshot, error) {
	var s loquat.Snapshot
	header, err := c.do(ctx, call, &s)
	s.Checkpoint = checkpoint(header)
	return s, err
}

// checkpoint returns the checkpoint in the ETag of an answer, or 0 if there is none. A proxy that compresses the answer
// puts W/ in front.
func checkpoint(header http.Header) loquat.EventID {
	id, err := loquat.ParseEventID(strings.Trim(strings.TrimPrefix(header.Get("ETag"), "W/"), `"`))
	if err != nil {
		return 0
	}
	return id
}
