// Package archivetest makes random sessions, and archives of them, for tests.
package archivetest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"
	"time"

	"pgregory.net/rapid"

	"loquat"
	"loquat/internal/archive"
)

// Texts are characters that are hard to carry: quotes, escapes, markup, other scripts, and
// characters that JSON and JavaScript treat specially.
var texts = []rune("a b\"\\/\n\r\t\b<>&'\x01\x7f\u2028\u2029é漢字😀\ufeff\u200f{}[]:,")

func text(maxLength int) *rapid.Generator[string] {
	return rapid.StringOfN(rapid.SampledFrom(texts), 0, maxLength, -1)
}

// Write returns an archive of sessions.
func Write(t rapid.TB, sessions ...archive.Session) []byte {
	t.Helper()
	var b bytes.Buffer
	w := archive.NewWriter(&b)
	for _, s := range sessions {
		if err := w.Write(s); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Sessions returns a generator of sessions with unused ids that a server accepts.
func Sessions() *rapid.Generator[archive.Session] {
	return rapid.Custom(func(t *rapid.T) archive.Session {
		s := archive.Session{
			SessionID: rapid.StringMatching(`[A-Za-z0-9_-]{12,64}`).Draw(t, "session_id"),
			AgentID:   loquat.DefaultAgent,
			CreatedAt: moment(t), UpdatedAt: moment(t), Metadata: object(t),
		}
		if title := text(20).Draw(t, "title"); title != "" {
			s.Metadata = s.Metadata.Set(loquat.MetaTitle, title)
		}
		if rapid.Bool().Draw(t, "fork") {
			s.Origin = loquat.Origin{SourceSessionID: "source", SourceIndex: new(rapid.IntRange(0, 9).Draw(t, "source_index"))}
		}
		w := &messageWriter{session: &s, used: map[string]bool{}}
		s.Messages = w.messages(t, rapid.IntRange(0, 6).Draw(t, "messages"))
		s.Alternatives = alternatives(t, len(s.Messages))
		for i, a := range s.Alternatives {
			s.Alternatives[i].Messages = w.messages(t, len(a.Messages))
		}
		return s
	})
}

// messageWriter writes messages for a session, with images.
type messageWriter struct {
	session *archive.Session
	used    map[string]bool // ids of images
	written int
}

func (w *messageWriter) messages(t *rapid.T, n int) (out []loquat.Message) {
	for range n {
		m := loquat.Message{ID: fmt.Sprintf("m%d-%s", w.written, rapid.StringMatching(`[a-z]{0,8}`).Draw(t, "id")), Content: text(60).Draw(t, "content"), CreatedAt: moment(t), Metadata: object(t)}
		m.Role = rapid.SampledFrom([]string{loquat.RoleUser, loquat.RoleAssistant, loquat.RoleSystem, loquat.RoleTool}).Draw(t, "role")
		if attached := attachments(t, w.used, w.session); len(attached) > 0 {
			m.Metadata = m.Metadata.Set(loquat.MetaAttachments, attached)
		}
		out = append(out, m)
		w.written++
	}
	return out
}

// alternatives returns a random tree of alternatives in any order, for a session with so many
// messages. Their messages have no content yet.
func alternatives(t *rapid.T, count int) []loquat.AlternativeNode {
	type place struct{ within, index int }
	type span struct{ first, last int } // the indices at which an alternative can hang
	spans := map[int]span{loquat.OfSession: {0, count}}
	var out []loquat.AlternativeNode
	add := func(at place, messages int) {
		spans[len(out)] = span{at.index + 1, at.index + messages}
		out = append(out, loquat.AlternativeNode{Index: at.index, Within: at.within, CreatedAt: moment(t), InPlace: messages == 0, Messages: make([]loquat.Message, messages)})
	}
	inPlace := map[place]bool{}
	for range rapid.SampledFrom([]int{0, 0, 1, 2, 5}).Draw(t, "alternatives") {
		at := place{within: rapid.IntRange(loquat.OfSession, len(out)-1).Draw(t, "within")}
		if at.within != loquat.OfSession && out[at.within].InPlace {
			at.within = loquat.OfSession
		}
		at.index = rapid.IntRange(spans[at.within].first, spans[at.within].last).Draw(t, "index")
		if !inPlace[at] {
			add(at, 0)
		}
		inPlace[at] = true
		add(at, rapid.IntRange(1, 3).Draw(t, "messages"))
	}
	order := make([]int, len(out)) // new places
	for i := range order {
		order[i] = i
	}
	order = rapid.Permutation(order).Draw(t, "order")
	shuffled := make([]loquat.AlternativeNode, len(out))
	for i, a := range out {
		if a.Within != loquat.OfSession {
			a.Within = order[a.Within]
		}
		shuffled[order[i]] = a
	}
	return shuffled
}

func moment(t *rapid.T) time.Time {
	return time.UnixMicro(rapid.Int64Range(0, 4e15).Draw(t, "time")).UTC()
}

// object returns metadata whose values have any form that JSON allows.
func object(t *rapid.T) loquat.Object {
	o := loquat.Object{}
	for range rapid.IntRange(0, 3).Draw(t, "fields") {
		value := rapid.SampledFrom([]string{`1.0`, `1e2`, `-0`, `12345678901234567890.123`, `null`, `[ ]`, `{"b":1,"a":[true,{"c":"\u003c\/\ud83d\ude00"}]}`, `"<script>"`}).Draw(t, "value")
		o["x"+text(8).Draw(t, "key")] = json.RawMessage(value)
	}
	return o
}

// attachments adds images to a session and returns the attachments that show them.
func attachments(t *rapid.T, used map[string]bool, s *archive.Session) (out []loquat.Object) {
	for range rapid.SampledFrom([]int{0, 0, 0, 1, 2}).Draw(t, "attachments") {
		switch rapid.IntRange(0, 2).Draw(t, "kind") {
		case 0:
			out = append(out, loquat.Object{}.Set("type", "image").Set("url", "https://example.org/a.png?<&"))
		case 1:
			a := Image(byte(rapid.IntRange(0, 3).Draw(t, "picture")))
			a.AssetID = rapid.StringMatching(`[a-z0-9]{8}`).Draw(t, "asset_id")
			if !used[a.AssetID] {
				used[a.AssetID] = true
				s.Images = append(s.Images, a)
			}
			out = append(out, loquat.Object{}.Set("type", "image").Set("asset_id", a.AssetID))
		case 2:
			out = append(out, loquat.Object{}.Set("type", "image").Set("asset_id", "gone"+fmt.Sprint(len(s.Messages))))
		}
	}
	return out
}

// Image returns a small PNG image, different for each shade.
func Image(shade byte) archive.Image {
	picture := image.NewGray(image.Rect(0, 0, 3, 2))
	picture.SetGray(1, 1, color.Gray{Y: shade})
	var b bytes.Buffer
	if err := png.Encode(&b, picture); err != nil {
		panic(err) // a buffer takes everything
	}
	hash := sha256.Sum256(b.Bytes())
	return archive.Image{
		Asset: loquat.Asset{MediaType: "image/png", Size: int64(b.Len()), SHA256: hex.EncodeToString(hash[:]), Name: fmt.Sprintf("shade %d.png", shade)},
		Open:  func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil },
	}
}
