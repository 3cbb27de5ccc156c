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

// maxSessionBytes bounds the JSON that a sessionCache holds.
const maxSessionBytes = 16 << 20

// sessionCache remembers sessions with their messages encoded, for the events that carry
// them: many followers need the same session at the same time, and a follower that reads a
// long window needs nearly the same session for each of its events.
//
// Key: the session's id, and whether its messages are omitted. An entry holds a range of
// revisions, which never change. An event at another revision replaces the entry.
// Invalidation: an entry counts while the tail of the log reaches back to where the entry was
// read and shows no deletion of the session since then. Secrets may become known later, so
// the metadata is redacted each time that an event is encoded.
// Bound: maxSessionBytes of JSON for all entries but the newest one. Random entries make room.
type sessionCache struct {
	store *store.Store
	loads singleflight.Group // by key and revision: one read for all who need the same

	mu      sync.Mutex
	entries map[sessionKey]*cachedSession // guarded by mu
	bytes   int                           // of all entries; guarded by mu
}

type sessionKey struct {
	sessionID    string
	omitMessages bool
}

// cachedSession is a session at a range of revisions. It does not change.
type cachedSession struct {
	latest   loquat.EventID // the newest event before the session was read
	from, to int64          // the first and the last revision
	session  loquat.Session // without messages, with all of its metadata
	messages []encodedMessage
	bytes    int // of JSON
}

// encodedMessage is the JSON of a message and the revisions at which it is part of the
// session.
type encodedMessage struct {
	store.Version // its Message is empty
	json          []byte
}

func newSessionCache(s *store.Store) *sessionCache {
	return &sessionCache{store: s, entries: map[sessionKey]*cachedSession{}}
}

// load returns the session of an event at its revision, or not_found if the session was deleted.
func (c *sessionCache) load(ctx context.Context, rec loquat.Record) (*cachedSession, error) {
	key := sessionKey{rec.SessionID, rec.OmitMessages}
	c.mu.Lock()
	entry := c.entries[key]
	c.mu.Unlock()
	if entry != nil && entry.from <= rec.Rev && rec.Rev <= entry.to && c.store.ExistsSince(rec.SessionID, entry.latest) {
		return entry, nil
	}
	loaded, err, _ := c.loads.Do(fmt.Sprint(key, rec.Rev), func() (any, error) {
		// Other callers wait for this read, so it goes on if its first caller disconnects.
		entry, err := readSession(context.WithoutCancel(ctx), c.store, rec)
		if err == nil {
			c.add(key, entry)
		}
		return entry, err
	})
	if err != nil {
		return nil, err
	}
	return loaded.(*cachedSession), nil
}

// add puts an entry in the place of the last one of its key.
func (c *sessionCache) add(key sessionKey, entry *cachedSession) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remove(key)
	for other := range c.entries {
		if c.bytes+entry.bytes <= maxSessionBytes {
			break
		}
		c.remove(other)
	}
	c.entries[key] = entry
	c.bytes += entry.bytes
}

// remove removes the entry of a key, if there is one. The caller holds mu.
func (c *sessionCache) remove(key sessionKey) {
	if entry := c.entries[key]; entry != nil {
		c.bytes -= entry.bytes
		delete(c.entries, key)
	}
}

// readSession reads the session of an event from its revision on and encodes the messages.
func readSession(ctx context.Context, s *store.Store, rec loquat.Record) (*cachedSession, error) {
	var head store.Head
	latest := s.Last()
	history, err := store.Read(ctx, s, func(r *store.Reader) (_ store.History, err error) {
		if head, err = r.Head(rec.SessionID); err != nil {
			return store.History{}, err
		}
		return r.History(head, rec.Rev, rec.OmitMessages)
	})
	if err != nil {
		return nil, err
	}
	entry := &cachedSession{latest: latest, from: history.From, to: history.To, session: loquat.Session{
		SessionID: head.SessionID, AgentID: history.AgentID, User: head.User, Origin: head.Origin, CreatedAt: head.CreatedAt, Metadata: history.Metadata,
		Messages: []loquat.Message{}, MessagesOmitted: rec.OmitMessages,
	}}
	withoutMessages, err := json.Marshal(entry.session)
	if err != nil {
		return nil, fmt.Errorf("encode session %s: %w", rec.SessionID, err)
	}
	entry.bytes = len(withoutMessages)
	for _, v := range history.Versions {
		b, err := json.Marshal(v.Message)
		if err != nil {
			return nil, fmt.Errorf("encode message %s: %w", v.Message.ID, err)
		}
		v.Message = loquat.Message{}
		entry.messages = append(entry.messages, encodedMessage{Version: v, json: b})
		entry.bytes += len(b)
	}
	return entry, nil
}

// encode returns the JSON of the session as it was right after an event.
func (s *cachedSession) encode(rec loquat.Record, visibleMetadata func(loquat.Object) loquat.Object) (sessionJSON, error) {
	session := s.session
	session.UpdatedAt = rec.At
	session.Metadata = visibleMetadata(session.Metadata)
	b, err := json.Marshal(session)
	if err != nil {
		return sessionJSON{}, fmt.Errorf("encode session %s: %w", rec.SessionID, err)
	}
	return sessionJSON{withoutMessages: b, messages: s.messages, revision: rec.Rev}, nil
}

// sessionJSON is the JSON of a session at a revision, in pieces. It is empty for an event
// that shows no session.
type sessionJSON struct {
	withoutMessages []byte // ends with an empty list of messages, unless messages are omitted
	messages        []encodedMessage
	revision        int64
}

// endOfMessages ends the JSON of a session, because messages are its last field.
const endOfMessages = "]}"

// size returns the number of bytes that writer writes, or a few more.
func (s sessionJSON) size() int {
	n := len(s.withoutMessages)
	for i := range s.messages {
		if s.messages[i].At(s.revision) {
			n += len(s.messages[i].json) + 1
		}
	}
	return n
}

// writer returns a function that writes the JSON, or nil if it is empty.
func (s sessionJSON) writer() func(io.Writer) error {
	if s.withoutMessages == nil {
		return nil
	}
	return s.write
}

func (s sessionJSON) write(w io.Writer) error {
	start, ok := bytes.CutSuffix(s.withoutMessages, []byte(endOfMessages))
	if !ok { // the messages are omitted
		_, err := w.Write(s.withoutMessages)
		return err
	}
	if _, err := w.Write(start); err != nil {
		return err
	}
	var separator []byte
	comma := []byte{','} // once: it escapes to the heap
	for i := range s.messages {
		if !s.messages[i].At(s.revision) {
			continue
		}
		if _, err := w.Write(separator); err != nil {
			return err
		}
		if _, err := w.Write(s.messages[i].json); err != nil {
			return err
		}
		separator = comma
	}
	_, err := io.WriteString(w, endOfMessages)
	return err
}
