package store

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash"
	"slices"

	"loquat"
)

// Digests say whether two stores show the same to readers, whatever their rows look like.

// Digest is a SHA-256.
type Digest [sha256.Size]byte

// digester hashes values so that different sequences of values have different bytes.
type digester struct{ hash.Hash }

func (d digester) number(n int64) {
	d.Write(binary.BigEndian.AppendUint64(nil, uint64(n)))
}

func (d digester) bytes(b []byte) {
	d.number(int64(len(b)))
	d.Write(b)
}

func (d digester) sum() (out Digest) {
	d.Sum(out[:0])
	return out
}

// DigestSessions calls fn with the id of each session and a digest of what a snapshot of the
// session shows: messages, cursor, agent, metadata, times, origin and alternatives. It calls fn in
// the order in which the sessions were created, until fn fails.
func DigestSessions(q SQL, fn func(sessionID string, d Digest) error) error {
	r := &Reader{q: q, shared: newShared()}
	for after := int64(-1); ; {
		heads, err := r.headsAfter(after)
		if err != nil {
			return fmt.Errorf("read sessions: %w", err)
		}
		for _, h := range heads {
			d, err := r.digest(h)
			if err != nil {
				return fmt.Errorf("session %s: %w", h.SessionID, err)
			}
			if err := fn(h.SessionID, d); err != nil {
				return err
			}
			after = h.SID
		}
		if len(heads) == 0 {
			return nil
		}
	}
}

// headsAfter returns the next sessions in the order of their rows.
func (r *Reader) headsAfter(sid int64) (out []Head, err error) {
	rows, err := r.q.Query(`SELECT `+headColumns+` FROM sessions s WHERE s.deleted = 0 AND s.sid > ? ORDER BY s.sid LIMIT 100`, sid)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		h, err := scanHead(rows.Scan)
		if err != nil {
			return nil, err
		}
		out = append(out, h)
	}
	return out, closeRows(rows)
}

// digest returns the digest of a session.
func (r *Reader) digest(h Head) (Digest, error) {
	metadata, err := json.Marshal(h.Metadata)
	if err != nil {
		return Digest{}, err
	}
	d := digester{sha256.New()}
	d.bytes([]byte(h.SessionID))
	d.bytes([]byte(h.AgentID))
	d.bytes(metadata)
	for _, n := range []int64{micros(h.CreatedAt), micros(h.UpdatedAt), h.Rev, int64(h.Cursor), int64(h.Checkpoint), int64(h.Count), h.edited} {
		d.number(n)
	}
	d.origin(h.Origin)
	if err := r.digestMessages(d, h); err != nil {
		return Digest{}, err
	}
	if err := r.digestAlternatives(d, h); err != nil {
		return Digest{}, err
	}
	return d.sum(), nil
}

func (d digester) origin(o loquat.Origin) {
	d.bytes([]byte(o.SourceSessionID))
	if o.SourceIndex != nil {
		d.number(int64(*o.SourceIndex))
	}
}

// digestAlternatives hashes all alternatives of a session with their messages.
func (r *Reader) digestAlternatives(d digester, h Head) error {
	rows, err := r.treeRows(h)
	if err != nil {
		return err
	}
	for _, row := range rows {
		for _, n := range []int64{row.N, row.holder, int64(row.Index), micros(row.CreatedAt), row.kept} {
			d.number(n)
		}
		if row.InPlace {
			continue
		}
		kept, err := r.hiddenHead(row.kept)
		if err == nil {
			err = r.digestMessages(d, kept)
		}
		if err != nil {
			return fmt.Errorf("alternative %d: %w", row.N, err)
		}
	}
	return nil
}

// digestMessages hashes the messages of a session. It holds one message and one piece of a large
// value at a time.
func (r *Reader) digestMessages(d digester, h Head) error {
	rows, err := r.q.Query(`SELECT `+messageColumns+` FROM messages WHERE sid = ? AND rev_to IS NULL ORDER BY seq`, h.SID)
	if err != nil {
		return err
	}
	defer rows.Close()
	var large []messageRow // messages with large values, without these
	count := 0
	for ; rows.Next(); count++ {
		row, err := scanMessage(rows.Scan)
		if err != nil {
			return err
		}
		body, err := row.message.AppendJSON(nil, nil)
		if err != nil {
			return err
		}
		d.bytes(body)
		if row.textBytes > 0 {
			large = append(large, messageRow{id: row.id, textBytes: row.textBytes, message: loquat.Message{ID: row.message.ID}})
		}
	}
	if err := closeRows(rows); err != nil {
		return err
	}
	if count != h.Count {
		return fmt.Errorf("it has %d of %d messages", count, h.Count)
	}
	for _, row := range large {
		texts, err := r.texts(row)
		if err != nil {
			return err
		}
		slices.SortFunc(texts, func(a, b textReference) int { return cmp.Compare(a.field, b.field) })
		for _, ref := range texts {
			d.bytes([]byte(ref.field))
			d.number(ref.size)
			if err := r.eachPiece(ref, func(piece []byte) { d.Write(piece) }); err != nil {
				return err
			}
		}
	}
	return nil
}

// DigestLog returns a digest of all events as readers of the log get them, without their bodies
// of 4 MiB and more, which the messages have too. It calls progress with the number of events
// that it has read since the last call.
func DigestLog(q SQL, progress func(events int)) (Digest, error) {
	r := &Reader{q: q, shared: newShared()}
	d := digester{sha256.New()}
	for since, n := loquat.EventID(0), 1; n > 0; progress(n) {
		var err error
		if since, n, err = r.digestEvents(d, since); err != nil {
			return Digest{}, err
		}
	}
	return d.sum(), nil
}

// digestedEvents is how many events digestEvents hashes: readers of increments keep the names of
// all requests that they meet.
const digestedEvents = 16 * pageEvents

// digestEvents hashes the next events above since. It returns the last one and their number.
func (r *Reader) digestEvents(d digester, since loquat.EventID) (last loquat.EventID, n int, err error) {
	increments, err := r.incrementsOf(since, Filter{}, digestedEvents)
	if err != nil {
		return 0, 0, err
	}
	query, args, err := r.eventQuery(Filter{})
	if err != nil {
		return 0, 0, err
	}
	events := &eventReader{q: r.q, query: query, args: args, since: since, page: bound{events: pageEvents, bytes: WindowBytes}}
	err = mergeEvents(events, increments, func(rec loquat.Record) (more bool, err error) {
		d.number(int64(rec.ID))
		d.number(rec.Rev)
		d.bytes([]byte(rec.Type))
		d.bytes(rec.Body)
		last = rec.ID
		n++
		return n < digestedEvents, nil
	})
	return last, n, err
}
