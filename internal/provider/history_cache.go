package provider

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"loquat"
)

const (
	maxHistoryBytes = 32 << 20 // of all histories in the cache
	maxHistoryIdle  = 10 * time.Minute
	joinedPiece     = 64 << 10 // a piece below this size grows instead of being followed by another
)

// historyCache keeps the encoded start of long histories, so that a call need not read, decode
// and encode all messages of its session again.
//
// Key: the session's id. An entry counts only for the same version of the messages and the same
// settings; otherwise it is replaced.
// Invalidation: a changed or deleted message changes the version. Appended messages extend an
// entry.
// Bound: maxHistoryBytes. The entries that were used longest ago make room, and an entry that
// was not used for maxHistoryIdle is removed. The caller passes only long histories.
type historyCache struct {
	mu      sync.Mutex
	entries *simplelru.LRU[string, *cachedHistory] // nil until the first entry
	bytes   int
	timer   *time.Timer // removes idle entries; nil while there are none
}

// cachedHistory is an entry. Only its time of use changes, under the cache's lock.
type cachedHistory struct {
	encodedHistory
	version string
	shape   historyShape
	used    time.Time
}

// historyShape holds everything except the messages that their encoding depends on.
type historyShape struct {
	providerID, model, reasoningEcho, emptyContent string
	allowData, allowURL, mergeSystem               bool
}

func (s *settings) shape(providerID string) historyShape {
	return historyShape{
		providerID: providerID, model: s.model, reasoningEcho: s.reasoningEcho, emptyContent: s.emptyContent,
		allowData: s.allowData, allowURL: s.allowURL, mergeSystem: s.mergeSystem,
	}
}

// encodedHistory is the encoded start of a history. It does not change.
type encodedHistory struct {
	count  int      // messages that it covers
	pieces []piece  // each holds one turn or more
	system []string // texts of system messages, if they are merged and therefore not in pieces
	bytes  int
}

// piece is the JSON of turns, without the comma after them, or a turn with images. Images are
// encoded in each call, because files are read while the body is sent and may be gone.
type piece struct {
	bytes []byte
	turn  *turn
}

// split returns the encoded start of a request's messages and the turns after it. It caches
// the start.
func (s *settings) split(ctx context.Context, req loquat.LLMRequest, known *historyCache) (encodedHistory, []turn, error) {
	if req.Earlier == nil {
		return encodedHistory{}, s.turns(req.ProviderID, req.Messages, lastUser(req.Messages)), nil
	}
	shape := s.shape(req.ProviderID)
	start := known.get(*req.Earlier, shape)
	earlier, err := req.Earlier.Read(ctx, start.count)
	if err != nil {
		return encodedHistory{}, nil, err
	}
	messages := slices.Concat(earlier, req.Messages)
	last := lastUser(messages)
	cut := settledCount(messages, min(last, len(earlier)-1))
	if cut > 0 {
		if start, err = s.extend(start, s.turns(req.ProviderID, messages[:cut], last), cut); err != nil {
			return encodedHistory{}, nil, err
		}
		known.put(*req.Earlier, shape, start)
	}
	return start, s.turns(req.ProviderID, messages[cut:], last-cut), nil
}

// settledCount returns how many messages, before index limit at most, are encoded in the same
// way whatever is appended. The message after them is a user message. No call before it waits
// for its result, because the assistant message before it has none. Reasoning is sent only
// after the last user message in mode auto, and these messages are before it.
func settledCount(messages []loquat.Message, limit int) int {
	for i := limit; i > 0; i-- {
		if messages[i].Role != loquat.RoleUser {
			continue
		}
		before := i - 1
		for before >= 0 && messages[before].Role != loquat.RoleAssistant {
			before--
		}
		if before < 0 || len(messages[before].ToolCalls()) == 0 {
			return i
		}
	}
	return 0
}

// extend returns start with further turns, which encode count messages.
func (s *settings) extend(start encodedHistory, turns []turn, count int) (encodedHistory, error) {
	out := encodedHistory{count: start.count + count, pieces: slices.Clip(start.pieces), system: slices.Clip(start.system), bytes: start.bytes}
	if s.mergeSystem {
		rest, texts := takeSystem(turns)
		for _, text := range texts {
			out.bytes += len(text)
		}
		turns, out.system = rest, append(out.system, texts...)
	}
	e := encoder{settings: s}
	for _, t := range turns {
		if len(t.images) > 0 {
			out.add(e.buf)
			e.buf, e.began = nil, false
			t.Metadata = nil // has the images once more; turns with images need nothing else of it
			out.pieces = append(out.pieces, piece{turn: &t})
			out.bytes += t.size()
			continue
		}
		e.next()
		if err := e.turn(t); err != nil {
			return encodedHistory{}, err
		}
	}
	out.add(e.buf)
	return out, nil
}

// add appends the JSON of turns. The last piece takes it in if it is small, so that a history
// that grows by a message at a time has few pieces.
func (h *encodedHistory) add(encoded []byte) {
	if len(encoded) == 0 {
		return
	}
	h.bytes += len(encoded)
	if last := len(h.pieces) - 1; last >= 0 && h.pieces[last].turn == nil && len(h.pieces[last].bytes) < joinedPiece {
		joined := slices.Concat(h.pieces[last].bytes, []byte(","), encoded)
		h.pieces = append(slices.Clone(h.pieces[:last]), piece{bytes: joined}) // others use the old pieces
		return
	}
	h.pieces = append(h.pieces, piece{bytes: slices.Clone(encoded)})
}

// size returns about how many bytes a turn with images takes in the cache.
func (t turn) size() int {
	n := 512 + len(t.Content)
	for _, img := range t.images {
		n += 128 + len(img.url)
	}
	return n
}

// unshared returns a copy of a turn whose images can be resolved.
func (t turn) unshared() turn {
	t.images = slices.Clone(t.images)
	return t
}

// get returns the longest known start of the messages. It is empty if none is known.
func (c *historyCache) get(m loquat.EarlierMessages, shape historyShape) encodedHistory {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.entries == nil {
		return encodedHistory{}
	}
	entry, ok := c.entries.Get(m.SessionID)
	if !ok || entry.version != m.Version || entry.shape != shape || entry.count > m.Count {
		return encodedHistory{}
	}
	entry.used = time.Now()
	return entry.encodedHistory
}

// put keeps the start of messages, unless it is larger than the whole cache may be.
func (c *historyCache) put(m loquat.EarlierMessages, shape historyShape, start encodedHistory) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.entries == nil {
		// Histories are long, so bytes is the bound that counts.
		c.entries, _ = simplelru.NewLRU(1<<16, func(_ string, gone *cachedHistory) { c.bytes -= gone.bytes })
	}
	c.entries.Remove(m.SessionID)
	if start.bytes > maxHistoryBytes {
		return
	}
	c.entries.Add(m.SessionID, &cachedHistory{encodedHistory: start, version: m.Version, shape: shape, used: time.Now()})
	for c.bytes += start.bytes; c.bytes > maxHistoryBytes; {
		c.entries.RemoveOldest()
	}
	if c.timer == nil {
		c.timer = time.AfterFunc(maxHistoryIdle, c.removeIdle)
	}
}

// removeIdle removes the entries that nobody used for a while, and looks again later if some
// are left.
func (c *historyCache) removeIdle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.timer = nil
	for {
		_, oldest, ok := c.entries.GetOldest()
		if !ok {
			return
		}
		if left := maxHistoryIdle - time.Since(oldest.used); left > 0 {
			c.timer = time.AfterFunc(left, c.removeIdle)
			return
		}
		c.entries.RemoveOldest()
	}
}

// clear removes all entries.
func (c *historyCache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
	if c.entries != nil {
		c.entries.Purge()
	}
}
