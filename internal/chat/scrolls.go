package chat

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"golang.org/x/sync/singleflight"

	"loquat"
	"loquat/internal/store"
)

// scrollBytes bounds what all scrolls together take; above it some go, by chance.
const scrollBytes = 16 << 20

// scrolls keeps the JSON of sessions that events carry, for many followers want the same
// at the same time, and who reads a long window wants nearly the same again and again.
type scrolls struct {
	store    *store.Store
	building singleflight.Group // by scrollKey and revision

	mu    sync.Mutex
	by    map[scrollKey]*scroll
	bytes int
}

type scrollKey struct {
	session string
	omit    bool // without messages
}

// scroll is a session at some revisions, its messages encoded once.
type scroll struct {
	at       loquat.EventID // when the log ended here, the session was there
	from, to int64
	head     loquat.Session
	messages []encoded
	bytes    int
}

type encoded struct {
	store.Version // without its Message
	json          []byte
}

func newScrolls(s *store.Store) *scrolls { return &scrolls{store: s, by: map[scrollKey]*scroll{}} }

// of returns a scroll that holds the revision of an event; not_found when its session was
// deleted.
func (c *scrolls) of(ctx context.Context, rec loquat.Record) (*scroll, error) {
	key := scrollKey{rec.SessionID, rec.OmitMessages}
	c.mu.Lock()
	known := c.by[key]
	c.mu.Unlock()
	if known != nil && known.from <= rec.Rev && rec.Rev <= known.to && c.store.Stands(rec.SessionID, known.at) {
		return known, nil
	}
	name := fmt.Sprint(key, rec.Rev)
	made, err, _ := c.building.Do(name, func() (any, error) {
		// Others wait for it, whatever becomes of the first who asked.
		made, err := c.read(context.WithoutCancel(ctx), rec)
		if err == nil {
			c.keep(key, made)
		}
		return made, err
	})
	if err != nil {
		return nil, err
	}
	return made.(*scroll), nil
}

func (c *scrolls) read(ctx context.Context, rec loquat.Record) (*scroll, error) {
	var h store.Head
	var history store.History
	at := c.store.Last()
	err := c.store.View(ctx, func(r *store.Reader) (err error) {
		if h, err = r.Head(rec.SessionID); err != nil {
			return err
		}
		history, err = r.History(h, rec.Rev, rec.OmitMessages)
		return err
	})
	if err != nil {
		return nil, err
	}
	out := &scroll{at: at, from: history.From, to: history.To, head: loquat.Session{
		SessionID: h.SessionID, AgentID: history.AgentID, CreatedAt: h.CreatedAt, Metadata: history.Metadata,
		Messages: []loquat.Message{}, MessagesOmitted: rec.OmitMessages,
	}}
	head, err := json.Marshal(out.head)
	if err != nil {
		return nil, fmt.Errorf("encode session %s: %w", rec.SessionID, err)
	}
	out.bytes = len(head)
	for _, v := range history.Versions {
		b, err := json.Marshal(v.Message)
		if err != nil {
			return nil, fmt.Errorf("encode message %s: %w", v.Message.ID, err)
		}
		v.Message = loquat.Message{}
		out.messages = append(out.messages, encoded{Version: v, json: b})
		out.bytes += len(b)
	}
	return out, nil
}

// keep makes a scroll the one of its session.
func (c *scrolls) keep(key scrollKey, made *scroll) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(key)
	for other := range c.by {
		if c.bytes+made.bytes <= scrollBytes {
			break
		}
		c.drop(other)
	}
	c.by[key] = made
	c.bytes += made.bytes
}

func (c *scrolls) drop(key scrollKey) {
	if old := c.by[key]; old != nil {
		c.bytes -= old.bytes
		delete(c.by, key)
	}
}

// session is the JSON of the session as it was right after an event.
func (s *scroll) session(rec loquat.Record) ([]byte, error) {
	head := s.head
	head.UpdatedAt = rec.At
	b, err := json.Marshal(head)
	if err != nil {
		return nil, fmt.Errorf("encode session %s: %w", rec.SessionID, err)
	}
	rest, ok := bytes.CutSuffix(b, []byte("]}"))
	if !ok || head.MessagesOmitted {
		return b, nil
	}
	size := len(b)
	for i := range s.messages {
		if s.messages[i].At(rec.Rev) {
			size += len(s.messages[i].json) + 1
		}
	}
	out := append(make([]byte, 0, size), rest...)
	for i := range s.messages {
		if !s.messages[i].At(rec.Rev) {
			continue
		}
		if len(out) > len(rest) {
			out = append(out, ',')
		}
		out = append(out, s.messages[i].json...)
	}
	return append(out, "]}"...), nil
}
