package loquat

import (
	"bytes"
	"encoding/json"
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
