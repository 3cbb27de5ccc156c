package store

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/s2"

	"loquat"
)

// A commit that a notification brings is added to the tail only where it follows on it, and only if
// the log has not lost events since.
func TestReceivedCommits(t *testing.T) {
	event := func(id loquat.EventID) loquat.Record {
		return loquat.Record{ID: id, Type: loquat.RequestStarted, SessionID: "s", Body: []byte(`{"type":"request_started","session_id":"s"}`)}
	}
	commit := func(base, last loquat.EventID) *smallCommit {
		c := &smallCommit{base: base, last: last, cuts: 1, sorted: base}
		for id := base + 1; id <= last; id++ {
			c.events = append(c.events, event(id))
		}
		return c
	}
	increments := func(base loquat.EventID, rid int64) *smallCommit {
		body := appendIncrements(nil, []increment{{id: base + 1, rid: rid, kind: plainText, rest: []byte("text")}})
		return &smallCommit{base: base, last: base + 1, cuts: 1, increments: []incrementRow{{last: base + 1, body: body}}}
	}
	outside := commit(10, 12)
	outside.last = 11
	row := increments(10, 7)
	row.increments[0].body = row.increments[0].body[1:]
	const committing = 12 // a transaction of this node may have committed after this id
	cut := commit(10, 12)
	cut.cuts = 2
	for _, c := range []struct {
		name    string
		commits []*smallCommit
		last    loquat.EventID // of the tail afterwards
		left    bool           // some commits wait
	}{
		{"follow on each other", []*smallCommit{commit(10, 11), commit(11, 12)}, 12, false},
		{"are known", []*smallCommit{commit(7, 9), commit(9, 10), commit(10, 11)}, 11, false},
		{"come too early", []*smallCommit{commit(11, 12)}, 10, true},
		{"overlap what is known", []*smallCommit{commit(9, 11)}, 10, true},
		{"come after a gap", []*smallCommit{commit(10, 11), commit(12, 13)}, 11, true},
		{"increments", []*smallCommit{increments(10, 7)}, 11, false},
		{"increments that are not shown", []*smallCommit{increments(10, 8)}, 11, false},
		{"increments of an unknown request", []*smallCommit{increments(10, 9)}, 10, true},
		{"after a transaction of this node", []*smallCommit{commit(10, 12), commit(12, 13)}, 12, true},
		{"another history", []*smallCommit{cut, commit(10, 11)}, 10, false},
		{"damaged increments", []*smallCommit{row}, 10, true},
		{"id above the last", []*smallCommit{outside}, 10, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &Store{tail: newTail(10, 0)}
			s.feeder.init()
			s.feeder.cuts = 1
			s.feeder.limit.Store(committing)
			s.feeder.names[7] = requestName{request: "r", session: "s", visible: true}
			s.feeder.names[8] = requestName{request: "q", session: "s"}
			for _, commit := range c.commits {
				s.feeder.received.put(commit)
			}
			s.addReceived()
			if s.Last() != c.last || len(s.feeder.received.commits) > 0 != c.left {
				t.Errorf("the tail ends at %s, and %d commits wait", s.Last(), len(s.feeder.received.commits))
			}
		})
	}
}

// oneNode is a sharedDriver.
type oneNode struct{}

func (oneNode) Hold() Hold                                   { return Hold{} }
func (oneNode) Nodes(context.Context) ([]loquat.Node, error) { return nil, nil }
func (oneNode) Listen(Listener)                              {}

// A notification brought events that the database has lost, and a transaction of this node has given
// their ids to others.
func TestOwnEventsReplaceLostOnes(t *testing.T) {
	s := &Store{tail: newTail(100, 0), nodes: &nodes{driver: oneNode{}}}
	s.feeder.init()
	event := func(id loquat.EventID, session string) loquat.Record {
		return loquat.Record{ID: id, Type: loquat.RequestStarted, SessionID: session, Body: []byte(`{}`)}
	}
	s.tail.add(103, []loquat.Record{event(101, "lost"), event(102, "lost"), event(103, "lost")})
	s.addOwn(&Tx{base: 100, last: 102, published: []loquat.Record{event(101, "own"), event(102, "own")}})
	var got []string
	for _, r := range s.tail.all.load() {
		got = append(got, r.ID.String()+" "+r.SessionID)
	}
	if want := []string{"0000000000000101 own", "0000000000000102 own"}; !slices.Equal(got, want) || s.Last() != 102 {
		t.Errorf("the tail has %q and ends at %s", got, s.Last())
	}
}

// However many commits come, a bounded number waits, and each notification is small.
func TestReceivedCommitsAreBounded(t *testing.T) {
	var r received
	for i := range loquat.EventID(10 * maxReceived) {
		r.put(&smallCommit{base: i, last: i + 1})
		if len(r.commits) > maxReceived {
			t.Fatalf("%d commits wait", len(r.commits))
		}
	}
	key := testNoticeKey(t)
	random := rand.New(rand.NewPCG(1, 2))
	for size := 0; size < 3*maxNotice; size += 97 {
		body := make([]byte, size) // that cannot be compressed
		for i := range body {
			body[i] = byte(random.Uint32())
		}
		tx := &Tx{noticeKey: key, log: &eventWriter{}, last: 1, published: []loquat.Record{{ID: 1, Type: loquat.Partial, Body: body}}, others: []int{0}}
		text := tx.notice(false)
		var n notice
		if err := json.Unmarshal([]byte(text), &n); err != nil || len(text) > maxNotice || key.openHead(n.Head).Last != 1 {
			t.Fatalf("%d bytes: a notice of %d bytes, %v", size, len(text), err)
		}
		if hasCommit := n.Commit != nil; hasCommit && size > 6000 || !hasCommit && size < 5500 {
			t.Errorf("%d bytes: the notice has the commit: %t", size, hasCommit)
		}
	}
	tx := &Tx{log: &eventWriter{}, published: []loquat.Record{{Body: make([]byte, maxSmallCommit+1)}}, others: []int{0}}
	if tx.smallCommit() != nil {
		t.Error("a large commit is encoded")
	}
	if c, err := decodeSmallCommit(s2.Encode(nil, make([]byte, 3*maxSmallCommit))); err == nil {
		t.Errorf("a large commit is decoded: %+v", c)
	}
}

func testNoticeKey(t *testing.T) *noticeKey {
	t.Helper()
	block, err := aes.NewCipher(make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		t.Fatal(err)
	}
	return &noticeKey{aead}
}

// Whoever can only listen and notify neither reads texts nor adds events.
func TestNoticesAreSealed(t *testing.T) {
	key := testNoticeKey(t)
	body := []byte(`{"type":"request_started","session_id":"secret"}`)
	tx := &Tx{noticeKey: key, log: &eventWriter{}, last: 1, published: []loquat.Record{{ID: 1, Body: body}}, others: []int{0}, signals: [][2]string{{"topic", "secret"}}}
	var n notice
	if err := json.Unmarshal([]byte(tx.notice(false)), &n); err != nil {
		t.Fatal(err)
	}
	if c, err := key.open(n.Commit); err != nil || len(c.events) != 1 {
		t.Errorf("%+v, %v", c, err)
	}
	if h := key.openHead(n.Head); h.Last != 1 || len(h.Signals) != 1 {
		t.Errorf("the head is %+v", h)
	}
	if bytes.Contains(n.Commit, []byte("secret")) || bytes.Contains(n.Head, []byte("secret")) {
		t.Error("the notification has the text")
	}
	if h := key.openHead(n.Commit); h.Last != 0 {
		t.Errorf("a commit is read as the head %+v", h)
	}
	if c, err := key.open(n.Head); err == nil {
		t.Errorf("a head is read as the commit %+v", c)
	}
	for i := range n.Head {
		n.Head[i] ^= 1
		if h := key.openHead(n.Head); h.Last != 0 || h.Signals != nil {
			t.Errorf("a forged head is read: %+v", h)
		}
		n.Head[i] ^= 1
	}
	n.Commit[len(n.Commit)-1] ^= 1
	for _, forged := range [][]byte{n.Commit, tx.smallCommit(), {}, make([]byte, 12)} {
		if c, err := key.open(forged); err == nil {
			t.Errorf("a forged commit is read: %+v", c)
		}
	}
	if text := tx.notice(true); strings.Contains(text, "commit") {
		t.Errorf("a short notification is %s", text)
	}
}

func FuzzSmallCommit(f *testing.F) {
	body := appendIncrements(nil, []increment{{id: 11, rid: 7, kind: plainText, rest: []byte("text")}})
	whole := smallCommit{base: 10, last: 12, cuts: 3, gone: 4, sorted: 5, at: fromMicros(1), increments: []incrementRow{{last: 11, body: body}},
		events: []loquat.Record{{ID: 12, Type: loquat.SessionCreated, SessionID: "s", Rev: 2, OmitMessages: true, At: fromMicros(1), Body: []byte(`{"type":"session_created","session_id":"s"}`)}}}
	got, err := decodeSmallCommit(whole.encode())
	if err != nil || !reflect.DeepEqual(*got, whole) {
		f.Fatalf("%+v, %v", got, err)
	}
	for _, c := range []smallCommit{{}, {base: 1, last: 1}, whole} {
		f.Add(c.fields())
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		c, err := parseSmallCommit(raw)
		if err != nil || len(raw) > maxSmallCommit {
			return
		}
		_, _ = c.records(map[int64]requestName{7: {request: "r", session: "s", visible: true}}, map[string]string{"s": "ann"})
		again, err := parseSmallCommit(c.fields())
		if err != nil || !reflect.DeepEqual(again, c) {
			t.Fatalf("%+v became %+v, %v", c, again, err)
		}
	})
}
