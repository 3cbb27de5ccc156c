package chat

import (
	"sync"

	"loquat"
	"loquat/internal/store"
)

// maxRecent bounds what recentMessages holds, in bytes: the JSON of the messages, and
// recentOverhead for each session.
const (
	maxRecent      = 4 << 20
	recentOverhead = 512
)

// recentMessages keeps the messages of sessions in which requests ran lately. A worker takes
// its history from there, so it reads nothing that this process has just written.
//
// Key: the row of the session. An entry has all messages of the session at one checkpoint.
// Invalidation: a commit that appends messages extends the entry if the session had this
// checkpoint before. Otherwise it removes the entry. A request may use an entry only if it
// started with exactly these messages; until it ends, nobody else changes them.
// Bound: maxRecent bytes, and longHistory for one session. Random entries make room.
type recentMessages struct {
	mu       sync.Mutex
	sessions map[int64]*recentSession
	started  map[string]*recentSession // by the request that started with exactly these messages
	bytes    int64                     // of all entries
}

type recentSession struct {
	checkpoint loquat.EventID
	version    string
	messages   []*recentMessage
	bytes      int64
	request    string // key in started, or ""
}

// recentMessage is decoded by the first worker that needs it: most messages are needed by every
// later request of the session, or by none.
type recentMessage struct {
	once    sync.Once
	stored  store.StoredMessage
	message loquat.Message
	err     error
}

// decode returns the message. Its metadata is shared and must not be changed.
func (m *recentMessage) decode() (loquat.Message, error) {
	m.once.Do(func() {
		m.message, m.err = m.stored.Decode()
		m.stored = store.StoredMessage{}
	})
	return m.message, m.err
}

func newRecentMessages() *recentMessages {
	return &recentMessages{sessions: map[int64]*recentSession{}, started: map[string]*recentSession{}}
}

// note makes the commit of tx add the messages that it appended to a session, which had the
// checkpoint before. If startedBy is not empty, this request starts with these messages.
func (c *recentMessages) note(tx *store.Tx, before loquat.EventID, h *store.Head, startedBy string) {
	now := *h
	tx.AfterCommit(func() { c.add(before, now, startedBy) })
}

func (c *recentMessages) add(before loquat.EventID, h store.Head, startedBy string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	appended := h.Appended()
	entry := c.sessions[h.SID]
	c.remove(h.SID, entry)
	if h.Bytes() >= longHistory {
		return
	}
	if entry == nil || entry.checkpoint != before || entry.version != h.Version() {
		entry = &recentSession{version: h.Version()}
	}
	missing := h.Count - len(entry.messages)
	if missing > len(appended) {
		return
	}
	for _, m := range appended[len(appended)-missing:] {
		entry.messages = append(entry.messages, &recentMessage{stored: m})
	}
	entry.checkpoint, entry.bytes, entry.request = h.Checkpoint, h.Bytes()+recentOverhead, startedBy
	for sid, other := range c.sessions {
		if c.bytes+entry.bytes <= maxRecent {
			break
		}
		c.remove(sid, other)
	}
	c.sessions[h.SID] = entry
	c.bytes += entry.bytes
	if startedBy != "" {
		c.started[startedBy] = entry
	}
}

// remove removes an entry unless it is nil. The caller holds mu.
func (c *recentMessages) remove(sid int64, entry *recentSession) {
	if entry == nil {
		return
	}
	delete(c.sessions, sid)
	delete(c.started, entry.request)
	c.bytes -= entry.bytes
}

// forgetSession removes the messages of a session.
func (c *recentMessages) forgetSession(sid int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remove(sid, c.sessions[sid])
}

// forgetStart makes the worker of a request read its history, and with it whether the request
// was cancelled, from the store. It must be called after the commit of a cancel and before the
// worker is cancelled.
func (c *recentMessages) forgetStart(requestID string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.started, requestID)
}

// history returns the messages with which a request started, as a reader of the store returns
// them, but with metadata that must not be changed. ok is false if they are not known.
func (c *recentMessages) history(requestID string) (messages []loquat.Message, ok bool, err error) {
	c.mu.Lock()
	var known []*recentMessage
	entry := c.started[requestID]
	if entry != nil {
		known = entry.messages // appending does not change these elements
	}
	c.mu.Unlock()
	if entry == nil {
		return nil, false, nil
	}
	messages = make([]loquat.Message, len(known))
	for i, m := range known {
		if messages[i], err = m.decode(); err != nil {
			return nil, false, err
		}
	}
	return messages, true, nil
}
