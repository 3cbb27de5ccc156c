package feed

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync"

	"golang.org/x/sync/singleflight"

	"loquat"
	"loquat/internal/store"
)

// historyBytes bounds what all histories together take; above it some go, by chance.
const historyBytes = 16 << 20

// histories keeps the JSON of sessions that events carry, for many followers want the same
// at the same time, and who reads a long window wants nearly the same again and again.
type histories struct {
	store    *store.Store
	building singleflight.Group // by historyKey and revision

	mu    sync.Mutex
	by    map[historyKey]*history
	bytes int
}

type historyKey struct {
	session string
	omit    bool // without messages
}

// history is a session at some revisions, its messages encoded once.
type history struct {
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

func newHistories(s *store.Store) *histories {
	return &histories{store: s, by: map[historyKey]*history{}}
}

// of returns a history that holds the revision of an event; not_found when its session was
// deleted.
func (c *histories) of(ctx context.Context, rec loquat.Record) (*history, error) {
	key := historyKey{rec.SessionID, rec.OmitMessages}
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
	return made.(*history), nil
}

func (c *histories) read(ctx context.Context, rec loquat.Record) (*history, error) {
	var h store.Head
	var stored store.History
	at := c.store.Last()
	err := c.store.View(ctx, func(r *store.Reader) (err error) {
		if h, err = r.Head(rec.SessionID); err != nil {
			return err
		}
		stored, err = r.History(h, rec.Rev, rec.OmitMessages)
		return err
	})
	if err != nil {
		return nil, err
	}
	out := &history{at: at, from: stored.From, to: stored.To, head: loquat.Session{
		SessionID: h.SessionID, AgentID: stored.AgentID, CreatedAt: h.CreatedAt, Metadata: c.store.VisibleMetadata(stored.Metadata),
		Messages: []loquat.Message{}, MessagesOmitted: rec.OmitMessages,
	}}
	head, err := json.Marshal(out.head)
	if err != nil {
		return nil, fmt.Errorf("encode session %s: %w", rec.SessionID, err)
	}
	out.bytes = len(head)
	for _, v := range stored.Versions {
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

// keep makes a history the one of its session.
func (c *histories) keep(key historyKey, made *history) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(key)
	for other := range c.by {
		if c.bytes+made.bytes <= historyBytes {
			break
		}
		c.drop(other)
	}
	c.by[key] = made
	c.bytes += made.bytes
}

func (c *histories) drop(key historyKey) {
	if old := c.by[key]; old != nil {
		c.bytes -= old.bytes
		delete(c.by, key)
	}
}

// session is the JSON of the session as it was right after an event.
func (h *history) session(rec loquat.Record) ([]byte, error) {
	head, err := h.encodeHead(rec)
	if err != nil {
		return nil, err
	}
	size := len(head)
	for i := range h.messages {
		if h.messages[i].At(rec.Rev) {
			size += len(h.messages[i].json) + 1
		}
	}
	out := bytes.NewBuffer(make([]byte, 0, size))
	err = h.write(out, head, rec)
	return out.Bytes(), err
}

// encodeHead returns the JSON of the session after an event, with an empty list of messages
// at its end.
func (h *history) encodeHead(rec loquat.Record) ([]byte, error) {
	head := h.head
	head.UpdatedAt = rec.At
	b, err := json.Marshal(head)
	if err != nil {
		return nil, fmt.Errorf("encode session %s: %w", rec.SessionID, err)
	}
	return b, nil
}

// write writes the session after an event: its head, with the messages in it. The messages
// are written from where they are kept.
func (h *history) write(w io.Writer, head []byte, rec loquat.Record) error {
	rest, ok := bytes.CutSuffix(head, []byte("]}"))
	if !ok || h.head.MessagesOmitted {
		_, err := w.Write(head)
		return err
	}
	_, err := w.Write(rest)
	first := true
	for i := range h.messages {
		if err != nil {
			return err
		}
		if !h.messages[i].At(rec.Rev) {
			continue
		}
		if !first {
			if _, err = w.Write([]byte{','}); err != nil {
				return err
			}
		}
		first = false
		_, err = w.Write(h.messages[i].json)
	}
	if err == nil {
		_, err = w.Write([]byte("]}"))
	}
	return err
}
