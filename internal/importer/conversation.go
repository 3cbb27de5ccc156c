package importer

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"path"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"loquat"
	"loquat/internal/archive"
)

// formats are the applications whose exports can be read.
var formats = []format{
	{ChatGPT, []string{"mapping"}, readChatGPT},
	{Claude, []string{"chat_messages"}, readClaude},
	{LibreChat, []string{"conversationId", "messages"}, readLibreChat},
	{LibreChat, []string{"conversationId", "messagesTree"}, readLibreChat},
	{OpenWebUI, []string{"chat"}, readOpenWebUI},
}

// keysOf returns the names of the fields of a conversation, or nil if it is not an object.
func keysOf(raw []byte) map[string]bool {
	in := jsontext.NewDecoder(bytes.NewBuffer(raw))
	if begin, err := in.ReadToken(); err != nil || begin.Kind() != '{' {
		return nil
	}
	keys := map[string]bool{}
	for in.PeekKind() == '"' {
		name, err := in.ReadToken()
		if err != nil {
			return nil
		}
		keys[name.String()] = true
		if err := in.SkipValue(); err != nil {
			return nil
		}
	}
	return keys
}

// conversation is a conversation of another application while it becomes a session.
type conversation struct {
	kind    string // the format
	raw     []byte // the JSON
	agent   string
	files   *zipFiles
	session archive.Session
	notes   []string
	more    int // notes that were dropped

	messages []loquat.Message // of the branch that is read
	seen     map[string]bool  // ids of messages
	images   map[string]bool  // ids of images
	added    int              // messages

	copied, mayCopy     int // bytes of messages that were copied to add a part to them
	repeated, mayRepeat int // bytes of values that many messages may have, once for each message
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

// begin sets the id and the times of a session. Conversations without an id get different ids, and each the same one
// when it is imported again.
func (c *conversation) begin(id string, created, updated time.Time) {
	if id == "" {
		hash := sha256.Sum256(c.raw)
		id = hex.EncodeToString(hash[:16])
	}
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
// number as its id.
func (c *conversation) add(id string, m loquat.Message) {
	if c.seen == nil {
		c.seen = map[string]bool{}
	}
	if m.ID = id; id == "" || len(id) > 200 || c.seen[id] {
		m.ID = fmt.Sprintf("message-%d", c.added)
		for n := c.added; c.seen[m.ID]; n++ {
			m.ID = fmt.Sprintf("message-%d-%d", c.added, n)
		}
	}
	c.added++
	c.seen[m.ID] = true
	if m.CreatedAt.IsZero() {
		m.CreatedAt = c.session.CreatedAt
		if n := len(c.messages); n > 0 {
			m.CreatedAt = c.messages[n-1].CreatedAt
		}
	}
	c.messages = append(c.messages, m)
}

// messagePlace returns the place of a message for notes. Each part of a message gets a place with the place of the
// message in it, so a long id is clipped.
func messagePlace(id string) string { return "message " + loquat.Clip(id, loquat.Excerpt) }

// answer is a message that becomes several: one for each round of tool calls and one for each result.
type answer struct {
	c     *conversation
	id    string // of the next message
	model string
	m     loquat.Message
}

func (c *conversation) newAnswer(id, role, model string, at time.Time) answer {
	return answer{c: c, id: id, model: loquat.Clip(model, maxName), m: loquat.Message{Role: role, CreatedAt: at}}
}

// flush adds the message so far, unless it shows nothing, and begins another one.
func (a *answer) flush() {
	if isEmpty(a.m) {
		return
	}
	if a.model != "" && a.m.Role == loquat.RoleAssistant && a.c.repeats(len(a.model)) {
		a.m.Metadata = a.m.Metadata.Set(loquat.MetaModel, a.model)
	}
	a.c.add(a.id, a.m)
	a.id, a.m = "", loquat.Message{Role: a.m.Role, CreatedAt: a.m.CreatedAt}
}

// result adds the result of a tool call as a message of its own.
func (a *answer) result(id, name, content string) {
	a.flush()
	a.c.add("", a.c.toolResult(id, name, content, a.m.CreatedAt))
}

// A part is added to a message by copying the message. So the bytes that may be copied are bounded, by the size of the
// conversation: a file of a few MB may have a message of a million parts.
const (
	freeCopies = 64 << 20
	maxCopies  = 100 // of each byte of the conversation
)

// errParts reports that a message has too many parts.
var errParts = errors.New("has a message with too many parts")

// roomFor reports whether a part may be added to a message. Otherwise the conversation is refused at its end.
func (c *conversation) roomFor(m *loquat.Message) bool {
	return c.mayAdd(len(m.Content) + m.Metadata.Size())
}

// mayAdd does the same for a text of a size.
func (c *conversation) mayAdd(size int) bool {
	c.copied += size
	return c.copied <= c.mayCopy
}

// Some values are in the file once and in many messages: the model, the id and name of a tool, and ChatGPT's reasoning
// before several answers. Each message gets a copy, so the bytes of these copies are bounded.
const (
	freeRepeats = 64 << 20
	maxRepeats  = 8   // of each byte of the conversation
	maxName     = 200 // characters of the name of a model or a tool
)

// errRepeats reports that long values are in too many messages.
var errRepeats = errors.New("has long reasoning, ids or names that would be repeated in too many messages")

// repeats charges the bytes of a value that a message gets and others may get as well. It reports whether the message
// may have the value. Otherwise the conversation is refused at its end.
func (c *conversation) repeats(size int) bool {
	c.repeated += size
	return c.repeated <= c.mayRepeat
}

// callTool adds a tool call to a message. Arguments that are not JSON become a text.
func (c *conversation) callTool(m *loquat.Message, id, name, arguments string) {
	if !c.roomFor(m) {
		return
	}
	if !json.Valid([]byte(arguments)) {
		arguments = string(loquat.Quote(arguments))
	}
	m.Metadata = m.Metadata.Set(loquat.MetaToolCalls, append(m.ToolCalls(), loquat.ToolCall{ID: id, Name: loquat.Clip(name, maxName), Arguments: arguments}))
}

// toolResult returns the message with the result of a tool call.
func (c *conversation) toolResult(id, name, content string, at time.Time) loquat.Message {
	m := loquat.Message{Role: loquat.RoleTool, Content: content, CreatedAt: at}
	c.setTool(&m, id, name)
	return m
}

// setTool sets the tool call whose result a message is.
func (c *conversation) setTool(m *loquat.Message, id, name string) {
	if name = loquat.Clip(name, maxName); c.repeats(len(id) + len(name)) {
		m.Metadata = m.Metadata.Set(loquat.MetaToolCallID, id).Set(loquat.MetaToolName, name)
	}
}

// addText appends a paragraph to the content of a message.
func (c *conversation) addText(m *loquat.Message, text string) {
	if !c.roomFor(m) {
		return
	}
	if m.Content != "" && text != "" {
		m.Content += "\n\n"
	}
	m.Content += text
}

// setReasoning adds reasoning to a message of the model.
func (c *conversation) setReasoning(m *loquat.Message, text string) {
	if text = strings.TrimSpace(text); text == "" || !c.roomFor(m) {
		return
	}
	if before := m.Metadata.String(loquat.MetaReasoning); before != "" {
		text = before + "\n\n" + text
	}
	m.Metadata = m.Metadata.Set(loquat.MetaReasoning, text)
}

// isGiven reports whether a value is there and says something.
func isGiven(raw json.RawMessage) bool {
	switch string(raw) {
	case "", "null", "false", "{}", "[]", `""`:
		return false
	}
	return true
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
	c.attachment(m, attachment)
	if c.images == nil {
		c.images = map[string]bool{}
	}
	if !c.images[image.AssetID] {
		c.images[image.AssetID] = true
		c.session.Images = append(c.session.Images, image)
	}
}

// attachment adds an attachment to the metadata of a message.
func (c *conversation) attachment(m *loquat.Message, attachment loquat.Object) {
	if !c.roomFor(m) {
		return
	}
	raw, _ := attachment.Encode() // cannot fail: it has two texts
	list := json.RawMessage("[")
	if before := m.Metadata[loquat.MetaAttachments]; len(before) > 0 {
		list = slices.Concat(before[:len(before)-1], []byte(","))
	}
	m.Metadata = m.Metadata.Set(loquat.MetaAttachments, slices.Concat(list, raw, []byte("]")))
}

// attachFile adds an image that the ZIP file has. Without the file it notes the loss.
func (c *conversation) attachFile(m *loquat.Message, place, id, name string) {
	entry := c.files.find(id)
	if entry == nil {
		c.note("%s: the image %q is not in the export", place, loquat.Clip(strings.TrimSpace(id+" "+name), loquat.Excerpt))
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
		c.note("%s: the image %q is not in the export", place, loquat.Clip(strings.TrimSpace(name+" "+url), loquat.Excerpt))
	}
}

// finish returns the session and what it has lost. It fails if a value nests too deep.
func (c *conversation) finish() (archive.Session, []string, error) {
	s := &c.session
	s.AgentID = c.agent
	if s.Metadata == nil {
		s.Metadata = loquat.Object{}
	}
	for i := 0; i < len(s.Messages) && s.CreatedAt.IsZero(); i++ {
		s.CreatedAt = s.Messages[i].CreatedAt
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
	err := s.EachMessage(func(place string, m *loquat.Message) error {
		if m.CreatedAt.IsZero() {
			m.CreatedAt = s.CreatedAt
		}
		if err := m.Metadata.CheckDepth(); err != nil {
			return fmt.Errorf("%s: %w", place, err)
		}
		return nil
	})
	switch {
	case c.copied > c.mayCopy:
		err = errParts
	case c.repeated > c.mayRepeat:
		err = errRepeats
	}
	for i := range s.Alternatives {
		s.Alternatives[i].CreatedAt = beginning(s, s.Alternatives[i])
	}
	if c.more > 0 {
		c.notes = append(c.notes, fmt.Sprintf("and %d more", c.more))
	}
	return *s, c.notes, err
}

// beginning returns when the first message of an alternative was written. Without messages, that is
// when the session was updated.
func beginning(s *archive.Session, a loquat.AlternativeNode) time.Time {
	messages, first := a.Messages, 0
	if a.InPlace && a.Within == loquat.OfSession {
		messages, first = s.Messages, a.Index
	} else if a.InPlace {
		messages, first = s.Alternatives[a.Within].Messages, a.Index-s.Alternatives[a.Within].Index
	}
	if first < len(messages) {
		return messages[first].CreatedAt
	}
	return s.UpdatedAt
}

// moment is a time in any form that the applications use: seconds or milliseconds since 1970, or
// text of RFC 3339. A time that cannot be read is zero.
type moment struct{ time.Time }

// UnmarshalJSON never fails, because a conversation without a time can be read as well.
func (m *moment) UnmarshalJSON(raw []byte) error {
	var number float64
	var text string
	switch {
	case json.Unmarshal(raw, &number) == nil && number > 0 && number < 1e20:
		for number > 1e11 { // milliseconds, or even smaller parts of a second
			number /= 1000
		}
		m.Time = time.UnixMicro(int64(math.Round(number * 1e6))).UTC()
	case json.Unmarshal(raw, &text) == nil:
		// The offset can move a time into a year that cannot be written as JSON, so the year counts in UTC.
		if t, err := time.Parse(time.RFC3339Nano, text); err == nil && t.UTC().Year() > 1 && t.UTC().Year() <= 9999 {
			m.Time = time.UnixMicro(t.UnixMicro()).UTC()
		}
	}
	return nil
}
