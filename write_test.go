package loquat

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// A snapshot that is written in pieces has the JSON of encoding/json, whatever its messages,
// its metadata and its ids hold.
func TestWriteJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(
			rapid.String(),
			rapid.SampledFrom([]string{`"messages":[]`, `"content":""`, "", "\x00\u2028\xff\U0001f600<&>"}),
			rapid.Map(rapid.IntRange(writtenPiece-5, 3*writtenPiece), func(n int) string { return strings.Repeat("é\"😀\n", n/10) }),
		)
		object := rapid.Custom(func(t *rapid.T) Object {
			o := Object{}
			for range rapid.IntRange(0, 3).Draw(t, "keys") {
				o.Set(strings.ToValidUTF8(text.Draw(t, "key"), "?"), text.Draw(t, "value"))
			}
			return o
		})
		at := time.Unix(1_700_000_000, rapid.Int64Range(0, 1e9-1).Draw(t, "nanoseconds")).UTC()
		messages := []Message{}
		for range rapid.IntRange(0, 4).Draw(t, "messages") {
			messages = append(messages, Message{ID: text.Draw(t, "id"), Role: RoleUser, Content: text.Draw(t, "content"), Metadata: object.Draw(t, "metadata"), CreatedAt: at})
		}
		for _, v := range []LargeJSON{
			Snapshot{Session: Session{SessionID: text.Draw(t, "session"), AgentID: text.Draw(t, "agent"), CreatedAt: at, UpdatedAt: at, Metadata: object.Draw(t, "of session"), Messages: messages}, CursorEventID: 7, ActiveRequestID: text.Draw(t, "request")},
			MessagePage{SessionID: text.Draw(t, "session of page"), CursorEventID: 8, Total: 3, Messages: messages, ActiveRequestID: text.Draw(t, "request of page")},
		} {
			var got bytes.Buffer
			if err := v.WriteJSON(&got); err != nil {
				t.Fatal(err)
			}
			want, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			if !sameTokens(t, got.Bytes(), want) {
				t.Fatalf("it writes %.2000q, want %.2000q", got.Bytes(), want)
			}
		}
	})
}

// A writer notes what it is given, and whether it is the memory that it looks for.
type noting struct {
	bytes.Buffer
	sizes  []int
	look   []byte // nil: for nothing
	direct bool
}

func (n *noting) Write(p []byte) (int, error) {
	if n.look != nil && &p[0] == &n.look[0] {
		n.direct = true
	} else {
		n.sizes = append(n.sizes, len(p))
	}
	return n.Buffer.Write(p)
}

// Messages are written in pieces: none is large, and there are not many small ones. Large values of the
// metadata are written from where they are. JSONSize knows about how much comes.
func TestWriteJSONInPieces(t *testing.T) {
	const large = 1 << 20
	content := strings.Repeat("words ", large/6)
	value := Quote(content)
	many := Object{}
	for i := range 1000 {
		many[strconv.Itoa(i)] = Quote(strings.Repeat("x", 100))
	}
	for name, c := range map[string]struct {
		messages []Message
		waiting  Waiting
		look     []byte
	}{
		"nothing":             {},
		"a large content":     {messages: []Message{{Content: content}, {Content: "<b>\u2028"}}},
		"many empty messages": {messages: slices.Repeat([]Message{{ID: "m"}}, 2000)},
		"many small values":   {messages: []Message{{Metadata: many}}},
		"a large value":       {messages: []Message{{Metadata: Object{"a": []byte(`1`), "b": value, "c": []byte(`2`)}}}, look: value},
		"a queue":             {waiting: Waiting{Queue: []QueuedSend{{Message: Message{Content: strings.Repeat("x", 10_000)}}}}},
	} {
		if c.messages == nil {
			c.messages = []Message{}
		}
		for _, v := range []LargeJSON{
			Snapshot{Waiting: c.waiting, Session: Session{SessionID: "<s>", Messages: c.messages}, CursorEventID: 7},
			MessagePage{Waiting: c.waiting, SessionID: "<s>", CursorEventID: 8, Messages: c.messages},
		} {
			got := noting{look: c.look}
			if err := v.WriteJSON(&got); err != nil || got.String() != encodeReference(t, v)+"\n" {
				t.Errorf("%s: a %T is written as %.200q, %v", name, v, got.String(), err)
			}
			if got.direct != (c.look != nil) {
				t.Errorf("%s: a %T writes the value from where it is: %v", name, v, got.direct)
			}
			if most := slices.Max(got.sizes); most > writtenPiece*3/2 || len(got.sizes) > 3+got.Len()/writtenPiece {
				t.Errorf("%s: a %T is written in %d pieces, the largest of %d bytes", name, v, len(got.sizes), most)
			}
			if size := v.JSONSize(); size < got.Len()*9/10-500 || size > got.Len()*2+500 {
				t.Errorf("%s: a %T has %d bytes, and says %d", name, v, got.Len(), size)
			}
		}
	}
}

// After the first error nothing more is written. What cannot be encoded is not begun.
func TestWriteJSONFails(t *testing.T) {
	value := Quote(strings.Repeat("x", writtenPiece))
	s := Snapshot{Session: Session{Messages: []Message{
		{Content: strings.Repeat("x", 3*writtenPiece), Metadata: Object{"a": value, "b": value}}, {Metadata: Object{"a": value}}, {Content: strings.Repeat("x", writtenPiece)},
	}}}
	want := encodeReference(t, s) + "\n"
	for left := 0; ; left++ {
		w := short{left: left}
		err := s.WriteJSON(&w)
		if err == nil && w.String() == want && left > 10 {
			break
		}
		if !errors.Is(err, errors.ErrUnsupported) || w.left < -1 || !strings.HasPrefix(want, w.String()) {
			t.Fatalf("after %d writes, %d more are tried: %v", left, -w.left, err)
		}
	}
	for _, v := range []LargeJSON{
		Snapshot{Session: Session{Metadata: Object{"k": []byte(`{`)}, Messages: s.Messages}},
		MessagePage{Waiting: Waiting{Queue: []QueuedSend{{Message: Message{Metadata: Object{"k": []byte(`{`)}}}}}, Messages: s.Messages},
	} {
		var w bytes.Buffer
		if err := v.WriteJSON(&w); err == nil || w.Len() > 0 {
			t.Errorf("a %T that is not valid JSON: %.100q, %v", v, &w, err)
		}
	}
}

// Large values of the metadata are written on one line and as valid UTF-8, too.
func TestWriteJSONOnOneLine(t *testing.T) {
	long := strings.Repeat("x", writtenPiece)
	for raw, want := range map[string]string{"{\n\"k\":\r1,\"l\":\"" + long + "\"}": `{"k":1,"l":"` + long + `"}`, "\"\xff" + long + "\"": "\"\ufffd" + long + `"`, "[\n" + long: `null`} {
		var got bytes.Buffer
		if err := (MessagePage{Messages: []Message{{Metadata: Object{"k": []byte(raw)}}}}).WriteJSON(&got); err != nil || !strings.Contains(got.String(), `"metadata":{"k":`+want+`},`) {
			t.Errorf("%.20q becomes %.200q, %v", raw, &got, err)
		}
	}
}

// sameTokens reports whether two texts are the same JSON, including the order of members.
func sameTokens(t *rapid.T, a, b []byte) bool {
	var ca, cb bytes.Buffer
	for to, from := range map[*bytes.Buffer][]byte{&ca: a, &cb: b} {
		d := json.NewDecoder(bytes.NewReader(from))
		for {
			token, err := d.Token()
			if err != nil {
				if err.Error() != "EOF" {
					t.Fatalf("%v in %.500q", err, from)
				}
				break
			}
			if err := json.NewEncoder(to).Encode(token); err != nil {
				t.Fatal(err)
			}
		}
	}
	return bytes.Equal(ca.Bytes(), cb.Bytes())
}
