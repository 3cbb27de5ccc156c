package store

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"loquat"
)

// Head is a session without its messages. Methods of Tx change it; Checkpoint writes it to its
// row.
type Head struct {
	SID        int64 // row id
	SessionID  string
	AgentID    string
	User       string // to whom it belongs; "" is nobody
	Origin     loquat.Origin
	Metadata   loquat.Object
	CreatedAt  time.Time
	UpdatedAt  time.Time
	Rev        int64          // grows with every change
	Cursor     loquat.EventID // the session cursor
	Checkpoint loquat.EventID // newest checkpoint, never before the cursor
	Count      int            // messages

	nextSeq   int64 // ordering key of the next message; keys are never reused or renumbered
	bytes     int64 // approximate size of the messages as JSON
	edited    int64 // newest revision that changed or removed a message
	described bool  // agent or metadata changed and must be written
	timed     bool  // UpdatedAt was set by SetTimes

	appended []appendedMessage // the last ones, by the transaction that read the Head
}

const headColumns = `s.sid, s.session_id, s.agent_id, s.metadata, s.created_at, s.updated_at, s.rev, s.cursor_event_id,
	s.checkpoint_event_id, s.message_count, s.message_bytes, s.next_seq, s.edited_rev, coalesce(s.source_session_id, ''), s.source_index, s.user_id`

func scanHead(scan func(...any) error) (Head, error) {
	var (
		h                Head
		metadata         []byte
		created, updated int64
	)
	err := scan(&h.SID, &h.SessionID, &h.AgentID, &metadata, &created, &updated, &h.Rev, &h.Cursor,
		&h.Checkpoint, &h.Count, &h.bytes, &h.nextSeq, &h.edited, &h.Origin.SourceSessionID, &h.Origin.SourceIndex, &h.User)
	if err != nil {
		return Head{}, err
	}
	h.CreatedAt, h.UpdatedAt = fromMicros(created), fromMicros(updated)
	if err := json.Unmarshal(metadata, &h.Metadata); err != nil {
		return Head{}, fmt.Errorf("metadata of session %s: %w", h.SessionID, asDamage(err))
	}
	return h, nil
}

// Head returns a session. The error is not_found if it does not exist or is deleted.
func (r *Reader) Head(sessionID string) (Head, error) {
	h, err := scanHead(func(dest ...any) error {
		return one(r.q, `SELECT `+headColumns+` FROM sessions s WHERE s.session_id = ? AND s.deleted = 0`, []any{sessionID}, dest...)
	})
	if errors.Is(err, sql.ErrNoRows) {
		return Head{}, noSession(sessionID)
	}
	return h, err
}

// HeadAndBusy is Head. It also returns whether a request of the session runs or is queued.
func (r *Reader) HeadAndBusy(sessionID string) (h Head, busy bool, err error) {
	const unended = `EXISTS (SELECT 1 FROM requests u WHERE u.sid = s.sid AND u.status IN ('queued', 'running'))`
	h, err = scanHead(func(dest ...any) error {
		return one(r.q, `SELECT `+headColumns+`, `+unended+` FROM sessions s WHERE s.session_id = ? AND s.deleted = 0`,
			[]any{sessionID}, append(dest, &busy)...)
	})
	if errors.Is(err, sql.ErrNoRows) {
		return Head{}, false, noSession(sessionID)
	}
	return h, busy, err
}

// HeadOfRequest returns the session of a request, and whether a cancel of the request was
// acknowledged. The error is not_found if the session is deleted.
func (r *Reader) HeadOfRequest(q Request) (h Head, cancelled bool, err error) {
	h, err = scanHead(func(dest ...any) error {
		return one(r.q, `SELECT `+headColumns+`, r.cancelled FROM requests r JOIN sessions s ON s.sid = r.sid WHERE r.rid = ? AND s.deleted = 0`,
			[]any{q.RID}, append(dest, &cancelled)...)
	})
	if errors.Is(err, sql.ErrNoRows) {
		return Head{}, false, noSession(q.SessionID)
	}
	return h, cancelled, err
}

func noSession(sessionID string) error {
	return loquat.Errorf(loquat.CodeNotFound, "there is no session %q", loquat.Clip(sessionID, loquat.Excerpt))
}

// Taken reports whether a session id is in use, including deleted sessions.
func (r *Reader) Taken(sessionID string) (bool, error) {
	var sid int64
	err := one(r.q, `SELECT sid FROM sessions WHERE session_id = ?`, []any{sessionID}, &sid)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

// Deletion returns the session_deleted event of a session, or 0 if the session was not
// deleted. The error is not_found if the session never existed.
func (r *Reader) Deletion(sessionID string) (loquat.EventID, error) {
	var deleted bool
	var at loquat.EventID
	err := one(r.q, `SELECT deleted <> 0, checkpoint_event_id FROM sessions WHERE session_id = ?`, []any{sessionID}, &deleted, &at)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, noSession(sessionID)
	}
	if err != nil || !deleted {
		return 0, err
	}
	return at, nil
}

// SessionOf fails like Head for a session that does not exist unless the session, which may be deleted, belongs to
// a user.
func (r *Reader) SessionOf(user, sessionID string) error {
	var sid int64
	err := one(r.q, `SELECT sid FROM sessions WHERE session_id = ? AND user_id = ?`, []any{sessionID, user}, &sid)
	if errors.Is(err, sql.ErrNoRows) {
		return noSession(sessionID)
	}
	return err
}

// CreateSession creates a session without messages. The id must not be in use.
func (tx *Tx) CreateSession(sessionID, agentID string, metadata loquat.Object) (Head, error) {
	h := Head{SessionID: sessionID, AgentID: agentID, Metadata: metadata, CreatedAt: tx.Now, UpdatedAt: tx.Now, Rev: 1, described: true}
	if h.Metadata == nil {
		h.Metadata = loquat.Object{}
	}
	var err error
	h.SID, err = tx.insert(`INSERT INTO sessions (session_id, agent_id, metadata, created_at, updated_at) VALUES (?, ?, '{}', ?, ?) RETURNING sid`,
		sessionID, agentID, micros(tx.Now), micros(tx.Now))
	if err != nil {
		return Head{}, fmt.Errorf("create session: %w", err)
	}
	return h, nil
}

// SetUser says to whom a new session belongs.
func (tx *Tx) SetUser(h *Head, user string) error {
	if user == h.User {
		return nil
	}
	h.User = user
	return tx.exec(`UPDATE sessions SET user_id = ? WHERE sid = ?`, user, h.SID)
}

// DiscardWith makes a session one that is deleted when the process of an owner has ended; see
// Discarded. An empty owner makes it one that is kept.
func (tx *Tx) DiscardWith(h Head, owner string) error {
	if owner == "" {
		return tx.exec(`UPDATE sessions SET discard_owner = NULL WHERE sid = ? AND discard_owner IS NOT NULL`, h.SID)
	}
	return tx.exec(`UPDATE sessions SET discard_owner = ? WHERE sid = ?`, owner, h.SID)
}

// Discarded returns the sessions that are to be deleted because the process of their owner has ended.
func (r *Reader) Discarded() (ids []string, err error) {
	gone, args := r.isGone(`discard_owner`)
	err = eachRow(r.q, `SELECT session_id FROM sessions WHERE discard_owner IS NOT NULL AND deleted = 0 AND `+gone+` ORDER BY sid`, args, func(rows *sql.Rows) error {
		var id string
		err := rows.Scan(&id)
		ids = append(ids, id)
		return err
	})
	return ids, err
}

// SetOrigin says where the messages of a new session come from.
func (tx *Tx) SetOrigin(h *Head, o loquat.Origin) error {
	h.Origin = o
	return tx.exec(`UPDATE sessions SET source_session_id = ?, source_index = ? WHERE sid = ?`, o.SourceSessionID, o.SourceIndex, h.SID)
}

// Describe changes the agent and metadata of a session.
func (tx *Tx) Describe(h *Head, agentID string, metadata loquat.Object) {
	h.AgentID, h.Metadata, h.described = agentID, metadata, true
	h.Rev++
}

func (tx *Tx) writeDescription(h *Head) error {
	metadata, err := json.Marshal(h.Metadata)
	if err != nil {
		return fmt.Errorf("encode session metadata: %w", err)
	}
	if err := tx.exec(`UPDATE sessions SET agent_id = ?, metadata = ? WHERE sid = ?`, h.AgentID, metadata, h.SID); err != nil {
		return err
	}
	if err := tx.writeLabels(h); err != nil {
		return err
	}
	return tx.exec(`INSERT INTO descriptions (sid, rev_from, agent_id, metadata) VALUES (?, ?, ?, ?)
		ON CONFLICT (sid, rev_from) DO UPDATE SET agent_id = excluded.agent_id, metadata = excluded.metadata`,
		h.SID, h.Rev, h.AgentID, metadata)
}

// DeleteSession makes a session unreachable and publishes session_deleted. The id stays in
// use. Cleanup removes the rows.
func (tx *Tx) DeleteSession(h *Head) error {
	id, err := tx.Publish(loquat.Event{Type: loquat.SessionDeleted}, h, nil)
	if err != nil {
		return err
	}
	h.Cursor, h.Checkpoint = id, id
	if err := tx.exec(`DELETE FROM session_tags WHERE sid = ?`, h.SID); err != nil {
		return err
	}
	return tx.exec(`UPDATE sessions SET deleted = 1, agent_id = '', metadata = '{}', cursor_event_id = ?, checkpoint_event_id = ? WHERE sid = ?`, id, id, h.SID)
}
