package store

import (
	"cmp"
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/s2"

	"loquat"
)

// maxNotice is the size of a notification; PostgreSQL allows less than 8000 bytes.
const maxNotice = 7900

// notice is the notification of a commit. Changed and Look are not sealed, because they only make a node read the
// database sooner.
type notice struct {
	Owner   string   `json:"n"`    // first; see isOf
	Head    []byte   `json:"head"` // a sealed noticeHead
	Changed []string `json:"changed,omitempty"`
	Commit  []byte   `json:"commit,omitempty"` // a sealed smallCommit; missing if it has no events, or is too large
	Look    bool     `json:"look,omitempty"`   // Changed and the signals were too long
}

// noticeHead is what a node acts upon without looking into the database.
type noticeHead struct {
	Last    loquat.EventID `json:"last"`
	Signals [][2]string    `json:"signals,omitempty"` // topic and payload
}

// smallCommit is what a commit added to the log, and the row of the log before. A node whose tail
// ends at base adds it without reading the database.
//
// A database that lost transactions counts a cut before its next commit. So two commits with the
// same cuts and base have the same events before them.
type smallCommit struct {
	base, last   loquat.EventID // the highest ids before and after
	cuts         int64
	gone, sorted loquat.EventID
	at           time.Time // of the events

	increments []incrementRow
	events     []loquat.Record // that are not in the increments table
}

// noticeKey seals heads and commits in notifications: whoever may connect to the database, without a right to
// its tables, can receive and send notifications.
type noticeKey struct{ aead cipher.AEAD }

// sealedHead is sealed with a head, so that a commit cannot be sent as one.
var sealedHead = []byte("head")

// readNoticeKey reads the key of a shared log.
func readNoticeKey(q SQL) (*noticeKey, error) {
	var key []byte
	if err := one(q, `SELECT notice_key FROM log`, nil, &key); err != nil {
		return nil, fmt.Errorf("read the key of notifications: %w", err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("the key of notifications: %w", err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	return &noticeKey{aead}, err
}

func (k *noticeKey) seal(data []byte) []byte {
	if data == nil {
		return nil
	}
	return k.aead.Seal(nil, nil, data, nil)
}

func (k *noticeKey) sealHead(h noticeHead) []byte {
	data, _ := json.Marshal(h) // it has only strings
	return k.aead.Seal(nil, nil, data, sealedHead)
}

// openHead returns a head that a node with the same key has sealed, or the zero noticeHead. The notifications of older
// programs have none: what they say is then found in the database within a second.
func (k *noticeKey) openHead(data []byte) (h noticeHead) {
	plain, err := k.aead.Open(nil, nil, data, sealedHead)
	if err != nil || json.Unmarshal(plain, &h) != nil {
		return noticeHead{}
	}
	return h
}

// open returns a commit that a node with the same key has sealed.
func (k *noticeKey) open(data []byte) (*smallCommit, error) {
	plain, err := k.aead.Open(nil, nil, data, nil)
	if err != nil {
		return nil, err
	}
	return decodeSmallCommit(plain)
}

// maxSmallCommit is the size above which a commit is not encoded. Compression makes it up to ten
// times smaller.
const maxSmallCommit = 64 << 10

// encode returns the commit, compressed, because most bodies begin alike.
func (c *smallCommit) encode() []byte {
	if raw := c.fields(); raw != nil {
		return s2.Encode(nil, raw)
	}
	return nil
}

// fields returns the commit as parseSmallCommit reads it, or nil if it is too large.
func (c *smallCommit) fields() []byte {
	size := 0
	for _, row := range c.increments {
		size += len(row.body)
	}
	for _, rec := range c.events {
		size += len(rec.Body)
	}
	if size > maxSmallCommit {
		return nil
	}
	dst := make([]byte, 0, size+64+32*(len(c.increments)+len(c.events)))
	for _, n := range []int64{int64(c.base), int64(c.last), c.cuts, int64(c.gone), int64(c.sorted), micros(c.at), int64(len(c.increments))} {
		dst = binary.AppendVarint(dst, n)
	}
	for _, row := range c.increments {
		dst = binary.AppendVarint(dst, int64(row.last))
		dst = append(binary.AppendUvarint(dst, uint64(len(row.body))), row.body...)
	}
	for _, rec := range c.events {
		dst = binary.AppendVarint(binary.AppendVarint(dst, int64(rec.ID)), rec.Rev)
		dst = binary.AppendUvarint(append(dst, flag(rec.OmitMessages)), uint64(len(rec.Body)))
		dst = append(dst, rec.Body...)
	}
	return dst
}

func flag(on bool) byte {
	if on {
		return 1
	}
	return 0
}

// decodeSmallCommit returns the commit that encode encoded.
func decodeSmallCommit(data []byte) (*smallCommit, error) {
	if n, err := s2.DecodedLen(data); err != nil || n > 2*maxSmallCommit {
		return nil, fmt.Errorf("a commit of %d bytes: %w", n, cmp.Or(err, errIncrements))
	}
	raw, err := s2.Decode(nil, data)
	if err != nil {
		return nil, err
	}
	return parseSmallCommit(raw)
}

func parseSmallCommit(raw []byte) (*smallCommit, error) {
	d := fieldDecoder{rest: raw}
	id := func() loquat.EventID { return loquat.EventID(d.varint()) }
	c := &smallCommit{base: id(), last: id(), cuts: d.varint(), gone: id(), sorted: id(), at: fromMicros(d.varint())}
	for n := d.varint(); n > 0 && !d.bad; n-- {
		c.increments = append(c.increments, incrementRow{last: id(), body: d.bytes(d.uvarint())})
	}
	for len(d.rest) > 0 {
		at, rev, omit, body := id(), d.varint(), d.byte() != 0, d.bytes(d.uvarint())
		rec, err := loquat.ParseRecord(body)
		if err != nil {
			return nil, err
		}
		rec.ID, rec.Rev, rec.OmitMessages, rec.At = at, rev, omit, c.at
		c.events = append(c.events, rec)
	}
	if d.bad {
		return nil, errIncrements
	}
	return c, nil
}

// notice returns the text of the transaction's notification. It leaves out what is too long, and the
// commit if the text has to be short.
func (tx *Tx) notice(short bool) string {
	n := notice{Owner: tx.owner, Head: tx.noticeKey.sealHead(noticeHead{tx.last, tx.signals}), Changed: tx.changed}
	if !short {
		n.Commit = tx.noticeKey.seal(tx.smallCommit())
	}
	text, err := json.Marshal(n)
	if n.Commit != nil && len(text) > maxNotice {
		n.Commit = nil
		text, err = json.Marshal(n)
	}
	if err != nil || len(text) > maxNotice {
		text, _ = json.Marshal(notice{Owner: n.Owner, Head: tx.noticeKey.sealHead(noticeHead{Last: tx.last}), Look: true})
	}
	return string(text)
}

// smallCommit returns what the transaction adds to the log. It is nil if that is too large for a
// notification or not only an addition.
func (tx *Tx) smallCommit() []byte {
	if len(tx.published) == 0 || tx.sorted || tx.cut != nil {
		return nil
	}
	c := smallCommit{base: tx.base, last: tx.last, cuts: tx.state.Cuts, gone: tx.state.Gone, sorted: tx.state.Sorted, at: tx.Now, increments: tx.log.inserted}
	for _, i := range tx.others {
		c.events = append(c.events, tx.published[i])
	}
	return c.encode()
}

// isOf reports whether a notification is of an owner.
func isOf(text, owner string) bool {
	rest, ok := strings.CutPrefix(text, `{"n":"`)
	return ok && strings.HasPrefix(rest, owner+`"`)
}

// notified is called with the notification of a commit.
func (s *Store) notified(text string) {
	if isOf(text, s.Owner()) {
		return
	}
	var n notice
	if err := json.Unmarshal([]byte(text), &n); err != nil {
		s.log.Warn("a notification of the database cannot be read", "error", err)
		return
	}
	head := s.noticeKey.openHead(n.Head)
	s.nodes.newest.Store(max(s.nodes.newest.Load(), int64(head.Last))) // only this goroutine stores it
	for _, signal := range head.Signals {
		s.nodes.mu.Lock()
		fns := s.nodes.onSignal[signal[0]]
		s.nodes.mu.Unlock()
		for _, fn := range fns {
			fn(signal[1])
		}
	}
	if n.Commit != nil && head.Last > s.Last() {
		if c, err := s.noticeKey.open(n.Commit); err == nil { // otherwise the database has it
			s.feeder.received.put(c)
			s.tryAddReceived()
		}
	}
	if n.Look {
		s.nodes.look.Store(true)
	}
	if head.Last > s.Last() || n.Look {
		poke(s.nodes.wake)
	}
	if len(n.Changed) > 0 || n.Look {
		poke(s.nodes.recall)
	}
}

// records returns the events of the commit, in order. It adds to users the user of a session that an event
// names. ok is false if the name of one of the requests, or the user of one of the sessions, is not known, or the
// commit is not one that this program makes.
func (c *smallCommit) records(names map[int64]requestName, users map[string]string) (out []loquat.Record, ok bool) {
	out = slices.Clone(c.events)
	for i := range out {
		r := &out[i]
		if ChangesList(r.Type) {
			users[r.SessionID] = r.User
		} else if r.User, ok = users[r.SessionID]; !ok {
			return nil, false
		}
	}
	heads := incrementHeads{}
	ok = true
	for _, row := range c.increments {
		err := eachIncrement(row.last, row.body, func(e increment) {
			name, known := names[e.rid]
			ok = ok && known
			if name.visible {
				out = append(out, heads.record(e, name))
			}
		})
		if err != nil || !ok {
			return nil, false
		}
	}
	slices.SortFunc(out, func(a, b loquat.Record) int { return cmp.Compare(a.ID, b.ID) })
	return out, len(out) == 0 || c.base < out[0].ID && out[len(out)-1].ID <= c.last
}
