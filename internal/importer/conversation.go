package importer

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"path"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"loquat"
	"loquat/internal/archive"
)

// formats are the applications whose exports can be read.
var formats = []format{
	{ChatGPT, []string{"mapping"}, readChatGPT},
	{Claude, []string{"chat_messages"}, readClaude},
	{LibreChat, []string{"conversationId", "messages"}, readLibreChat},
	{OpenWebUI, []string{"chat"}, readOpenWebUI},
}

// keysOf returns the fields of a conversation, or nil if it is not an object.
func keysOf(raw []byte) (o loquat.Object) {
	if json.Unmarshal(raw, &o) != nil {
		return nil
	}
	return o
}

// conversation is a conversation of another application while it becomes a session.
type conversation struct {
	kind    string // the format
	agent   string
	files   *zipFiles
	session archive.Session
	notes   []string
	more    int // notes that were dropped
	seen    map[string]bool
}

// label sets the title of a session and how lists show it.
func (c *conversation) label(title string, pinned, archived bool, tags []string) {
	set := func(key string, value any) { c.session.Metadata = c.session.Metadata.Set(key, value) }
	if title = strings.TrimSpace(title); title != "" {
		set(loquat.MetaTitle, title)
	}
	if pinned {
		set(loquat.MetaPinned, true)
	}
	if archived {
		set(loquat.MetaArchived, true)
	}
	var fit []string
	for _, tag := range tags {
		if n := utf8.RuneCountInString(tag); n > 0 && n <= loquat.MaxTag && len(fit) < loquat.MaxTags {
			fit = append(fit, tag)
		} else {
			c.note("the tag %q is left out", loquat.Clip(tag, loquat.Excerpt))
		}
	}
	if len(fit) > 0 {
		set(loquat.MetaTags, fit)
	}
}

// begin sets the id and the times of a session.
func (c *conversation) begin(id string, created, updated time.Time) {
	c.session.SessionID = c.derive(id, 64)
	c.session.CreatedAt, c.session.UpdatedAt = created, updated
}

// derive returns an id for something with an id of another application: the same one each time.
func (c *conversation) derive(id string, size int) string {
	out := c.kind + "-" + id
	plain := !strings.ContainsFunc(id, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' && r != '-'
	})
	if id == "" || !plain || len(out) > size {
		hash := sha256.Sum256([]byte(id))
		out = c.kind + "-" + hex.EncodeToString(hash[:16])
	}
	return out
}

func (c *conversation) note(format string, args ...any) {
	if len(c.notes) < maxNotes {
		c.notes = append(c.notes, loquat.Clip(fmt.Sprintf(format, args...), loquat.MaxDetail))
	} else {
		c.more++
	}
}

// add appends a message. Its id is made from the id that it had; a message without one gets its
// place as its id.
func (c *conversation) add(id string, m loquat.Message) {
	if c.seen == nil {
		c.seen = map[string]bool{}
	}
	if m.ID = id; id == "" || len(id) > 200 || c.seen[id] {
		m.ID = fmt.Sprintf("message-%d", len(c.session.Messages))
	}
	c.seen[m.ID] = true
	if m.CreatedAt.IsZero() {
		m.CreatedAt = c.session.CreatedAt
		if n := len(c.session.Messages); n > 0 {
			m.CreatedAt = c.session.Messages[n-1].CreatedAt
		}
	}
	c.session.Messages = append(c.session.Messages, m)
}

// callTool adds a tool call to a message. Arguments that are not JSON become a text.
func callTool(m *loquat.Message, id, name, arguments string) {
	if !json.Valid([]byte(arguments)) {
		arguments = string(loquat.Quote(arguments))
	}
	m.Metadata = m.Metadata.Set(loquat.MetaToolCalls, append(m.ToolCalls(), loquat.ToolCall{ID: id, Name: name, Arguments: arguments}))
}

// toolResult returns the message with the result of a tool call.
func toolResult(id, name, content string, at time.Time) loquat.Message {
	m := loquat.Message{Role: loquat.RoleTool, Content: content, CreatedAt: at}
	m.Metadata = m.Metadata.Set(loquat.MetaToolCallID, id).Set(loquat.MetaToolName, name)
	return m
}

// addText appends a paragraph to the content of a message.
func addText(m *loquat.Message, text string) {
	if m.Content != "" && text != "" {
		m.Content += "\n\n"
	}
	m.Content += text
}

// setReasoning adds reasoning to a message of the model.
func setReasoning(m *loquat.Message, text string) {
	if text = strings.TrimSpace(text); text == "" {
		return
	}
	if before := m.Metadata.String(loquat.MetaReasoning); before != "" {
		text = before + "\n\n" + text
	}
	m.Metadata = m.Metadata.Set(loquat.MetaReasoning, text)
}

// isEmpty reports whether a message shows nothing.
func isEmpty(m loquat.Message) bool {
	return strings.TrimSpace(m.Content) == "" && len(m.Metadata) == 0
}

// attach adds an image of the export to a message. data opens its bytes.
func (c *conversation) attach(m *loquat.Message, id, name string, size int64, data func() (io.ReadCloser, error)) {
	image := archive.Image{Open: data}
	image.AssetID, image.Size = c.derive(id, 64), size
	if name != "" {
		image.Name = path.Base(name)
	}
	attachment := loquat.Object{}.Set("type", "image").Set("asset_id", image.AssetID)
	for _, other := range c.session.Images {
		if other.AssetID == image.AssetID {
			c.attachment(m, attachment)
			return
		}
	}
	c.session.Images = append(c.session.Images, image)
	c.attachment(m, attachment)
}

// attachment adds an attachment to the metadata of a message.
func (c *conversation) attachment(m *loquat.Message, attachment loquat.Object) {
	var list []loquat.Object
	_ = json.Unmarshal(m.Metadata[loquat.MetaAttachments], &list)
	m.Metadata = m.Metadata.Set(loquat.MetaAttachments, append(list, attachment))
}

// attachFile adds an image that the ZIP file has. Without the file it notes the loss.
func (c *conversation) attachFile(m *loquat.Message, place, id, name string) {
	entry := c.files.find(id)
	if entry == nil {
		c.note("%s: the image %s is not in the export", place, loquat.Clip(strings.TrimSpace(id+" "+name), loquat.Excerpt))
		return
	}
	if name == "" {
		name = path.Base(entry.Name)
	}
	c.attach(m, id, name, int64(min(entry.UncompressedSize64, math.MaxInt64)), func() (io.ReadCloser, error) { return open(entry) })
}

// attachURL adds an image by its URL: one that has its bytes in it, or one that is elsewhere.
func (c *conversation) attachURL(m *loquat.Message, place, url, name string) {
	head, data, found := strings.Cut(url, ",")
	switch {
	case strings.HasPrefix(url, "data:") && found && strings.HasSuffix(head, ";base64"):
		content, err := base64.StdEncoding.DecodeString(data)
		if err != nil {
			c.note("%s: the image %q is not valid base64", place, loquat.Clip(name, loquat.Excerpt))
			return
		}
		hash := sha256.Sum256(content)
		c.attach(m, hex.EncodeToString(hash[:12]), name, int64(len(content)), func() (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(content)), nil
		})
	case strings.HasPrefix(url, "https://"), strings.HasPrefix(url, "http://"):
		c.attachment(m, loquat.Object{}.Set("type", "image").Set("url", url))
	default:
		c.note("%s: the image %s is not in the export", place, loquat.Clip(strings.TrimSpace(name+" "+url), loquat.Excerpt))
	}
}

// finish returns the session and what it has lost. It fails if a value nests too deep.
func (c *conversation) finish() (archive.Session, []string, error) {
	s := &c.session
	s.AgentID = c.agent
	if s.Metadata == nil {
		s.Metadata = loquat.Object{}
	}
	if s.CreatedAt.IsZero() && len(s.Messages) > 0 {
		s.CreatedAt = s.Messages[0].CreatedAt
	}
	if s.CreatedAt.IsZero() {
		s.CreatedAt = time.Unix(0, 0).UTC()
	}
	if n := len(s.Messages); s.UpdatedAt.IsZero() && n > 0 {
		s.UpdatedAt = s.Messages[n-1].CreatedAt
	}
	if s.UpdatedAt.Before(s.CreatedAt) {
		s.UpdatedAt = s.CreatedAt
	}
	for i := range s.Messages {
		if s.Messages[i].CreatedAt.IsZero() {
			s.Messages[i].CreatedAt = s.CreatedAt
		}
		if err := s.Messages[i].Metadata.CheckDepth(); err != nil {
			return *s, c.notes, fmt.Errorf("message %d: %w", i, err)
		}
	}
	if c.more > 0 {
		c.notes = append(c.notes, fmt.Sprintf("and %d more", c.more))
	}
	return *s, c.notes, nil
}

// moment is a time in any form that the applications use: seconds or milliseconds since 1970, or
// text of RFC 3339. A time that cannot be read is zero.
type moment struct{ time.Time }

// UnmarshalJSON never fails, because a conversation without a time can be read as well.
func (m *moment) UnmarshalJSON(raw []byte) error {
	var number float64
	var text string
	switch {
	case json.Unmarshal(raw, &number) == nil && number > 0 && number < 1e17:
		for number > 1e11 { // milliseconds, or even smaller parts of a second
			number /= 1000
		}
		m.Time = time.UnixMicro(int64(math.Round(number * 1e6))).UTC()
	case json.Unmarshal(raw, &text) == nil:
		if t, err := time.Parse(time.RFC3339Nano, text); err == nil && t.Year() > 1 {
			m.Time = time.UnixMicro(t.UnixMicro()).UTC()
		}
	}
	return nil
}

// branch returns the ids from the first message to the last one, by the parents of each. It ends
// at an id that is unknown or that was there before.
func branch(last string, parent func(id string) (string, bool)) []string {
	var out []string
	seen := map[string]bool{}
	for id := last; id != "" && !seen[id]; {
		next, known := parent(id)
		if !known {
			break
		}
		seen[id] = true
		out = append(out, id)
		id = next
	}
	slices.Reverse(out)
	return out
}
