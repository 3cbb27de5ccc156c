package importer

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"loquat"
)

// chatGPT is a conversation in conversations.json of ChatGPT's export.
type chatGPT struct {
	ID             string                 `json:"id"`
	ConversationID string                 `json:"conversation_id"`
	Title          string                 `json:"title"`
	CreateTime     moment                 `json:"create_time"`
	UpdateTime     moment                 `json:"update_time"`
	CurrentNode    string                 `json:"current_node"`
	IsArchived     bool                   `json:"is_archived"`
	IsStarred      bool                   `json:"is_starred"`
	PinnedTime     moment                 `json:"pinned_time"`
	GizmoID        string                 `json:"gizmo_id"`
	Mapping        map[string]chatGPTNode `json:"mapping"`
}

type chatGPTNode struct {
	Parent   string          `json:"parent"`
	Children []string        `json:"children"`
	Message  *chatGPTMessage `json:"message"`
}

type chatGPTMessage struct {
	ID     string `json:"id"`
	Author struct {
		Role string `json:"role"`
		Name string `json:"name"`
	} `json:"author"`
	CreateTime moment         `json:"create_time"`
	Content    chatGPTContent `json:"content"`
	Recipient  string         `json:"recipient"`
	Metadata   struct {
		Model         string              `json:"model_slug"`
		Hidden        bool                `json:"is_visually_hidden_from_conversation"`
		Citations     []json.RawMessage   `json:"citations"`
		References    []chatGPTReference  `json:"content_references"`
		Attachments   []chatGPTAttachment `json:"attachments"`
		FinishDetails struct {
			Type string `json:"type"`
		} `json:"finish_details"`
		Executed struct {
			Messages []struct {
				Type     string `json:"message_type"`
				ImageURL string `json:"image_url"`
			} `json:"messages"`
		} `json:"aggregate_result"`
	} `json:"metadata"`
}

// chatGPTReference is a citation: a text with special characters, and what readers see in its place.
type chatGPTReference struct {
	Text string `json:"matched_text"`
	Alt  string `json:"alt"`
}

type chatGPTAttachment struct {
	ID       string `json:"id"`
	Name     string `json:"name"`
	MimeType string `json:"mime_type"`
}

type chatGPTContent struct {
	Type     string            `json:"content_type"`
	Parts    []json.RawMessage `json:"parts"`
	Text     string            `json:"text"`
	Result   string            `json:"result"`
	Title    string            `json:"title"`
	URL      string            `json:"url"`
	Thoughts []struct {
		Summary string `json:"summary"`
		Content string `json:"content"`
	} `json:"thoughts"`
}

// readChatGPT reads a conversation whose messages are a tree.
func readChatGPT(c *conversation, raw []byte) error {
	var in chatGPT
	if err := json.Unmarshal(raw, &in); err != nil {
		return fmt.Errorf("cannot be read: %w", err)
	}
	id := in.ConversationID
	if id == "" {
		id = in.ID
	}
	c.begin(id, in.CreateTime.Time, in.UpdateTime.Time)
	c.label(in.Title, in.IsStarred || !in.PinnedTime.IsZero(), in.IsArchived, nil)
	if in.GizmoID != "" {
		c.note("the GPT or project %q is left out", loquat.Clip(in.GizmoID, loquat.Excerpt))
	}
	nodes := make([]node, 0, len(in.Mapping))
	for id, n := range in.Mapping {
		one := node{id: id, parent: n.Parent, children: n.Children}
		if n.Message != nil {
			one.at = n.Message.CreateTime.Time
		}
		nodes = append(nodes, one)
	}
	slices.SortFunc(nodes, func(a, b node) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.id, b.id)) })
	t := newTree(c, nodes, in.CurrentNode)
	t.readBranches(t.last(in.CurrentNode), &chatGPTReader{c: c, nodes: nodes, mapping: in.Mapping, after: map[int]chatGPTState{}})
	return nil
}

// chatGPTState is what the messages before tell about the next one of a branch.
type chatGPTState struct {
	reasoning      *thought // the last one for the next message of the model
	callID, called string   // the tool whose result comes next
}

// thought is a part of the reasoning before a message of the model. Branches share the parts before they diverge.
type thought struct {
	before *thought
	text   string
	size   int // of the text and those before
}

// then returns the reasoning with another part.
func (t *thought) then(text string) *thought {
	next := &thought{before: t, text: text, size: len(text)}
	if t != nil {
		next.size += t.size
	}
	return next
}

// String returns the whole reasoning.
func (t *thought) String() string {
	var parts []string
	for ; t != nil; t = t.before {
		parts = append(parts, t.text)
	}
	slices.Reverse(parts)
	return strings.Join(parts, "")
}

// chatGPTReader reads the messages of branches in their order.
type chatGPTReader struct {
	c       *conversation
	nodes   []node
	mapping map[string]chatGPTNode
	after   map[int]chatGPTState // the state after nodes, unless it is empty
	chatGPTState
}

func (r *chatGPTReader) begin(after int) { r.chatGPTState = r.after[after] }

func (r *chatGPTReader) read(i int) {
	id := r.nodes[i].id
	if m := r.mapping[id].Message; m != nil {
		r.message(messagePlace(id), m)
	}
	if r.chatGPTState != (chatGPTState{}) {
		r.after[i] = r.chatGPTState
	}
}

// end adds reasoning that no message followed.
func (r *chatGPTReader) end() {
	m := loquat.Message{Role: loquat.RoleAssistant}
	if r.setReasoning(&m); !isEmpty(m) {
		r.c.add("", m)
	}
}

// setReasoning adds the reasoning before a message to the message.
func (r *chatGPTReader) setReasoning(m *loquat.Message) {
	if r.reasoning != nil && r.c.repeats(r.reasoning.size) {
		r.c.setReasoning(m, r.reasoning.String())
	}
}

func (r *chatGPTReader) message(place string, in *chatGPTMessage) {
	if in.Content.Type == "thoughts" {
		for _, t := range in.Content.Thoughts {
			r.reasoning = r.reasoning.then(strings.TrimSpace(t.Summary+"\n"+t.Content) + "\n\n")
		}
		return
	}
	if in.Content.Type == "reasoning_recap" { // how long the model thought
		return
	}
	m := loquat.Message{Role: in.Author.Role, CreatedAt: in.CreateTime.Time}
	if !loquat.ValidRole(m.Role) {
		r.c.note("%s is of the role %q and is left out", place, loquat.Clip(m.Role, loquat.Excerpt))
		return
	}
	r.content(place, in, &m)
	if in.Metadata.Hidden {
		if !isEmpty(m) {
			r.c.note("%s, which ChatGPT does not show, is left out", place)
		}
		return
	}
	r.citations(place, in, &m)
	r.attachments(place, in, &m)
	switch m.Role {
	case loquat.RoleAssistant:
		r.answer(in, &m)
	case loquat.RoleTool:
		id := r.callID
		if id == "" || r.called != in.Author.Name {
			id = in.ID
		}
		r.c.setTool(&m, id, in.Author.Name)
	}
	if !isEmpty(m) {
		r.c.add(in.ID, m)
	}
}

// answer sets what only messages of the model have. One to another recipient than all calls a tool.
func (r *chatGPTReader) answer(in *chatGPTMessage, m *loquat.Message) {
	r.callID, r.called = "", ""
	if in.Recipient != "" && in.Recipient != "all" {
		r.callID, r.called = in.ID, in.Recipient
		r.c.callTool(m, in.ID, in.Recipient, m.Content)
		m.Content = ""
	}
	r.setReasoning(m)
	r.reasoning = nil
	switch in.Metadata.FinishDetails.Type {
	case "interrupted":
		m.Metadata = m.Metadata.Set(loquat.MetaIncomplete, "interrupted")
	case "max_tokens":
		m.Metadata = m.Metadata.Set(loquat.MetaFinishReason, "length")
	}
	if in.Metadata.Model != "" && !isEmpty(*m) {
		m.Metadata = m.Metadata.Set(loquat.MetaModel, loquat.Clip(in.Metadata.Model, maxName))
	}
}

func (r *chatGPTReader) content(place string, in *chatGPTMessage, m *loquat.Message) {
	content := in.Content
	switch content.Type {
	case "text", "multimodal_text":
		for _, part := range content.Parts {
			r.part(place, part, m)
		}
	case "code", "execution_output", "system_error":
		m.Content = content.Text
	case "tether_quote", "sonic_webpage":
		m.Content = strings.TrimSpace(content.Title + "\n" + content.URL + "\n\n" + content.Text)
	case "tether_browsing_display":
		m.Content = content.Result
	case "user_editable_context", "model_editable_context":
		r.c.note("%s: custom instructions and memories are left out", place)
	default:
		r.c.note("%s: content of type %q is left out", place, loquat.Clip(content.Type, loquat.Excerpt))
	}
}

// part reads one part of a message: a text, an image or a transcript.
func (r *chatGPTReader) part(place string, raw json.RawMessage, m *loquat.Message) {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		r.c.addText(m, text)
		return
	}
	var part struct {
		Type    string `json:"content_type"`
		Text    string `json:"text"`
		Pointer string `json:"asset_pointer"`
	}
	_ = json.Unmarshal(raw, &part) // another value has no type
	switch part.Type {
	case "image_asset_pointer":
		r.c.attachFile(m, place, pointedFile(part.Pointer), "")
	case "text", "audio_transcription":
		r.c.addText(m, part.Text)
	default:
		r.c.note("%s: a part of type %q is left out", place, loquat.Clip(part.Type, loquat.Excerpt))
	}
}

// pointedFile returns the id of a file in a URL such as file-service://file-1.
func pointedFile(url string) string {
	id, _, _ := strings.Cut(url[strings.LastIndexByte(url, '/')+1:], "#")
	return id
}

// shows reports whether one of the parts of a message names a file.
func (r *chatGPTReader) shows(c chatGPTContent, id string) bool {
	file := []byte(id)
	for _, part := range c.Parts {
		if !r.c.mayAdd(len(part)) || bytes.Contains(part, file) {
			return true
		}
	}
	return false
}

// citationMark matches a citation in a text, between characters for private use.
var citationMark = regexp.MustCompile("\ue200[^\ue201]*\ue201")

// citations writes citations as readers see them, and removes those that show nothing.
func (r *chatGPTReader) citations(place string, in *chatGPTMessage, m *loquat.Message) {
	lost := len(in.Metadata.Citations)
	for _, ref := range in.Metadata.References {
		if !strings.HasPrefix(ref.Text, "\ue200") || ref.Alt == "" {
			continue
		}
		added := strings.Count(m.Content, ref.Text) * len(ref.Alt)
		if !r.c.mayAdd(len(m.Content)+added) || !r.c.repeats(added) {
			return
		}
		m.Content = strings.ReplaceAll(m.Content, ref.Text, ref.Alt)
		lost = 0 // the older form of the same citations
	}
	lost += len(citationMark.FindAllStringIndex(m.Content, -1))
	m.Content = citationMark.ReplaceAllString(m.Content, "")
	if lost > 0 {
		r.c.note("%s: %d citations are left out", place, lost)
	}
}

// attachments adds images that the parts of a message do not show: of a user, and of code that ran.
func (r *chatGPTReader) attachments(place string, in *chatGPTMessage, m *loquat.Message) {
	for _, file := range in.Metadata.Attachments {
		if !strings.HasPrefix(file.MimeType, "image/") {
			r.c.note("%s: the file %q is left out; only images are taken over", place, loquat.Clip(file.Name, loquat.Excerpt))
		} else if file.ID != "" && !r.shows(in.Content, file.ID) {
			r.c.attachFile(m, place, file.ID, file.Name)
		}
	}
	for _, output := range in.Metadata.Executed.Messages {
		if output.Type == "image" {
			r.c.attachFile(m, place, pointedFile(output.ImageURL), "")
		}
	}
}
