package provider

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"loquat"
)

// bodyOf returns the body of a request.
func bodyOf(t rapid.TB, s *settings, req loquat.LLMRequest, known *historyCache) []byte {
	b, err := s.encode(context.Background(), req, known)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := io.ReadAll(b.reader(func() {}))
	if err != nil || int64(len(raw)) != b.size || !json.Valid(raw) {
		t.Fatalf("%d bytes of %d, %v: %.300s", len(raw), b.size, err, raw)
	}
	return raw
}

// earlierOf returns messages as the stored part of a history. It counts how many are read.
func earlierOf(version int, messages []loquat.Message, read *int) *loquat.EarlierMessages {
	messages = slices.Clone(messages)
	return &loquat.EarlierMessages{SessionID: "s", Version: fmt.Sprint(version), Count: len(messages),
		Read: func(_ context.Context, from int) ([]loquat.Message, error) {
			*read += len(messages) - from
			return messages[from:], nil
		}}
}

// longText is larger than what one piece takes in.
var longText = strings.Repeat("long ", joinedPiece/5+1)

// drawMessage returns a message of any kind that a session may have, in any order.
func drawMessage(t *rapid.T) loquat.Message {
	m := loquat.Message{Role: rapid.SampledFrom([]string{"user", "user", "assistant", "assistant", "assistant", "tool", "tool", "system"}).Draw(t, "role")}
	m.Content = rapid.SampledFrom([]string{"", "a", "two\nlines", "b", "c", "\"quoted\" <b>\u2028", "d", "e", "f", longText}).Draw(t, "content")
	for _, key := range []string{"reasoning", "reasoning_content", "reasoning_details"} {
		if rapid.IntRange(0, 4).Draw(t, key) == 0 {
			m.Metadata = m.Metadata.Set(key, "thought")
		}
	}
	if rapid.IntRange(0, 3).Draw(t, "images") == 0 {
		m.Metadata = m.Metadata.Set("attachments", []map[string]string{{"type": "image", "asset_id": rapid.SampledFrom([]string{"there", "gone"}).Draw(t, "asset")}, {"type": "image", "url": "https://x/y.png"}, {"type": "image", "data_url": "data:image/png;base64,AAAA"}})
	}
	ids := rapid.SliceOfN(rapid.SampledFrom([]string{"c1", "c2", "c3"}), 0, 3).Draw(t, "calls")
	switch {
	case m.Role == "assistant" && len(ids) > 0 && rapid.Bool().Draw(t, "has calls"):
		var calls []loquat.ToolCall
		for _, id := range ids {
			calls = append(calls, loquat.ToolCall{ID: id, Name: "f", Arguments: "{}"})
		}
		m.Metadata = m.Metadata.Set("tool_calls", calls)
	case m.Role == "tool" && len(ids) > 0:
		m.Metadata = m.Metadata.Set("tool_call_id", ids[0])
	}
	if m.Role == "assistant" {
		m.Metadata = m.Metadata.Set("provider", rapid.SampledFrom([]string{"main", "other"}).Draw(t, "provider")).
			Set("model", rapid.SampledFrom([]string{"m", "n"}).Draw(t, "model"))
	}
	return m
}

// A request with a cached start has the same bytes as one that is encoded from all of its
// messages: while the session grows, while phases of a request add messages, after changes
// and deletions, and with any settings.
func TestCachedHistoryIsTheSame(t *testing.T) {
	images := &shelf{images: map[string][]byte{}}
	rapid.Check(t, func(rt *rapid.T) {
		var known historyCache
		defer known.clear()
		var messages []loquat.Message
		version, read := 0, 0
		for range rapid.IntRange(1, 12).Draw(rt, "steps") {
			switch rapid.SampledFrom([]string{"append", "append", "append", "append", "change", "cut"}).Draw(rt, "step") {
			case "change":
				if len(messages) > 0 {
					messages = slices.Clone(messages)
					messages[rapid.IntRange(0, len(messages)-1).Draw(rt, "index")] = drawMessage(rt)
					version++
				}
			case "cut":
				messages = slices.Clone(messages[:rapid.IntRange(0, len(messages)).Draw(rt, "left")])
				version++
			default:
				messages = append(messages, rapid.SliceOfN(rapid.Custom(drawMessage), 1, 6).Draw(rt, "new")...)
			}
			set := rapid.SampledFrom([]string{"", "", "", `{"merge_system_messages":true}`, `{"reasoning_echo":"always"}`, `{"empty_content":"string"}`,
				`{"allow_image_attachment_url":false}`, `{"allow_image_attachment_base64":false}`, `{"model":"n"}`}).Draw(rt, "settings")
			s, err := readSettings(configWith(set))
			if err != nil {
				rt.Fatal(err)
			}
			if delete(images.images, "there"); rapid.Bool().Draw(rt, "the image is there") {
				images.images["there"] = []byte("png")
			}
			added := rapid.SliceOfN(rapid.Custom(drawMessage), 0, 3).Draw(rt, "added by phases")
			req := loquat.LLMRequest{ProviderID: "main", Stream: true, OpenAsset: images.OpenAsset, Messages: slices.Concat(messages, added)}
			want := bodyOf(rt, &s, req, nil)
			req.Messages, req.Earlier = added, earlierOf(version, messages, &read)
			for range 2 {
				if got := bodyOf(rt, &s, req, &known); !bytes.Equal(got, want) {
					rt.Fatalf("with the cache\n%s\nwithout\n%s", clip(got), clip(want))
				}
			}
		}
	})
}

func clip(b []byte) []byte { return bytes.ReplaceAll(b, []byte(longText), []byte("LONG")) }

// talk returns n messages of user and assistant in turn.
func talk(n int) (messages []loquat.Message) {
	for i := range n {
		role := loquat.RoleUser
		if i%2 == 1 {
			role = loquat.RoleAssistant
		}
		messages = append(messages, loquat.Message{Role: role, Content: fmt.Sprint("message ", i, strings.Repeat(" word", 20))})
	}
	return messages
}

// Each call reads only the messages since the last user message of the call before.
func TestCachedHistoryIsNotReadAgain(t *testing.T) {
	s, err := readSettings(configWith(""))
	if err != nil {
		t.Fatal(err)
	}
	var known historyCache
	defer known.clear()
	messages := talk(1501)
	for round := range 100 {
		read := 0
		bodyOf(t, &s, loquat.LLMRequest{Earlier: earlierOf(0, messages[:len(messages)-2*(100-round)], &read)}, &known)
		if round > 0 && read > 3 {
			t.Fatalf("call %d reads %d messages", round, read)
		}
	}
	known.mu.Lock()
	entry, ok := known.entries.Peek("s")
	known.mu.Unlock()
	if want := known.bytes/joinedPiece + 2; !ok || len(entry.pieces) > want {
		t.Errorf("%d bytes are in %d pieces, more than %d", known.bytes, len(entry.pieces), want)
	}
}

func content(c *historyCache) (entries, size int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.entries.Len(), c.bytes
}

// The cache holds at most its bound, for the sessions that were used last, and nothing that
// was not used for a while.
func TestHistoryCacheIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var known historyCache
		shape := historyShape{model: "m"}
		start := encodedHistory{count: 9, bytes: maxHistoryBytes / 8}
		of := func(i int) loquat.EarlierMessages {
			return loquat.EarlierMessages{SessionID: fmt.Sprint(i), Version: "v", Count: 10}
		}
		for i := range 20 {
			known.put(of(i), shape, start)
			known.put(of(i), shape, start) // replaces it
			known.get(of(0), shape)
		}
		for i := range 20 {
			if got, want := known.get(of(i), shape).count == 9, i == 0 || i > 12; got != want {
				t.Errorf("session %d is kept: %v, want %v", i, got, want)
			}
		}
		if known.bytes > maxHistoryBytes {
			t.Errorf("the cache holds %d bytes", known.bytes)
		}
		known.put(of(30), shape, encodedHistory{count: 9, bytes: maxHistoryBytes + 1})
		if known.get(of(30), shape).count != 0 || known.get(of(0), shape).count != 9 {
			t.Error("a history that is larger than the cache is kept, or made others leave")
		}
		older, newer := of(0), of(0)
		older.Count, newer.Version = 8, "w"
		if known.get(older, shape).count != 0 || known.get(newer, shape).count != 0 || known.get(of(0), historyShape{model: "n"}).count != 0 {
			t.Error("an entry of more messages, another version or another model counts")
		}
		time.Sleep(maxHistoryIdle / 2)
		known.get(of(0), shape)
		time.Sleep(maxHistoryIdle/2 + time.Second)
		synctest.Wait()
		if n, size := content(&known); n != 1 || size != start.bytes {
			t.Errorf("%d entries of %d bytes are left; want only the one that was used meanwhile", n, size)
		}
		time.Sleep(2 * maxHistoryIdle)
		synctest.Wait()
		if n, size := content(&known); n != 0 || size != 0 || known.timer != nil {
			t.Errorf("%d entries of %d bytes are left", n, size)
		}
	})
}

// Images that are part of a history count, those of a user and those of tools.
func TestImagesInHistoryCacheCount(t *testing.T) {
	s, err := readSettings(configWith(""))
	if err != nil {
		t.Fatal(err)
	}
	image := []map[string]string{{"type": "image", "data_url": "data:image/png;base64," + strings.Repeat("A", 1<<20)}}
	calls := []loquat.ToolCall{{ID: "c1", Name: "f", Arguments: "{}"}}
	ofTool := loquat.Object{}.Set("tool_call_id", "c1").Set("attachments", image)
	for name, turn := range map[string][]loquat.Message{
		"user": {{Role: "user", Content: "look", Metadata: loquat.Object{}.Set("attachments", image)}},
		"tool": {{Role: "user", Content: "look"}, {Role: "assistant", Metadata: loquat.Object{}.Set("tool_calls", calls)}, {Role: "tool", Metadata: ofTool}},
	} {
		var known historyCache
		defer known.clear()
		var messages []loquat.Message
		for range 3 {
			messages = append(append(messages, turn...), loquat.Message{Role: "assistant", Content: "seen"})
		}
		messages = append(messages, loquat.Message{Role: "user", Content: "go on"})
		read := 0
		bodyOf(t, &s, loquat.LLMRequest{Earlier: earlierOf(0, messages, &read)}, &known)
		if n, size := content(&known); n != 1 || size < 3<<20 || size > 4<<20 {
			t.Errorf("images of a %s: %d entries of %d bytes", name, n, size)
		}
	}
}
