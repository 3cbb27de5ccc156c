package importer

import (
	"encoding/json"
	"fmt"
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
		Model       string            `json:"model_slug"`
		Hidden      bool              `json:"is_visually_hidden_from_conversation"`
		Citations   []json.RawMessage `json:"citations"`
		Attachments []struct {
			ID       string `json:"id"`
			Name     string `json:"name"`
			MimeType string `json:"mime_type"`
		} `json:"attachments"`
	} `json:"metadata"`
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

// readChatGPT reads the branch of a conversation that was shown last.
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
	c.label(in.Title, in.IsStarred, in.IsArchived, nil)
	if _, known := in.Mapping[in.CurrentNode]; !known {
		in.CurrentNode = lastNode(in.Mapping)
	}
	shown := branch(in.CurrentNode, func(id string) (string, bool) {
		node, known := in.Mapping[id]
		return node.Parent, known
	})
	reader := chatGPTReader{c: c}
	onBranch := map[string]bool{}
	for _, id := range shown {
		onBranch[id] = true
		if m := in.Mapping[id].Message; m != nil {
			reader.read("message "+id, m)
		}
	}
	reader.flush()
	others := 0
	for id, node := range in.Mapping {
		if node.Message != nil && !onBranch[id] {
			others++
		}
	}
	if others > 0 {
		c.note("%d messages of other branches are left out", others)
	}
	return nil
}

// lastNode returns the newest node without children, for a conversation that does not name the
// node that was shown last.
func lastNode(nodes map[string]chatGPTNode) (last string) {
	for id, node := range nodes {
		if node.Message == nil || len(node.Children) > 0 {
			continue
		}
		before := nodes[last].Message
		if before == nil || node.Message.CreateTime.After(before.CreateTime.Time) ||
			node.Message.CreateTime.Equal(before.CreateTime.Time) && id > last {
			last = id
		}
	}
	return last
}

// chatGPTReader reads the messages of a branch in their order.
type chatGPTReader struct {
	c         *conversation
	reasoning string // of the next message of the model
	called    loquat.ToolCall
}

func (r *chatGPTReader) read(place string, in *chatGPTMessage) {
	if in.Content.Type == "thoughts" {
		for _, t := range in.Content.Thoughts {
			r.reasoning += strings.TrimSpace(t.Summary+"\n"+t.Content) + "\n\n"
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
	if len(in.Metadata.Citations) > 0 {
		r.c.note("%s: %d citations are left out", place, len(in.Metadata.Citations))
	}
	for _, file := range in.Metadata.Attachments {
		if !strings.HasPrefix(file.MimeType, "image/") {
			r.c.note("%s: the file %q is left out; only images are taken over", place, loquat.Clip(file.Name, loquat.Excerpt))
		}
	}
	switch m.Role {
	case loquat.RoleAssistant:
		r.answer(in, &m)
	case loquat.RoleTool:
		id := r.called.ID
		if id == "" || r.called.Name != in.Author.Name {
			id = in.ID
		}
		m.Metadata = m.Metadata.Set(loquat.MetaToolCallID, id).Set(loquat.MetaToolName, in.Author.Name)
	}
	if !isEmpty(m) {
		r.c.add(in.ID, m)
	}
}

// answer sets what only messages of the model have. One to another recipient than all calls a tool.
func (r *chatGPTReader) answer(in *chatGPTMessage, m *loquat.Message) {
	r.called = loquat.ToolCall{}
	if in.Recipient != "" && in.Recipient != "all" {
		r.called = loquat.ToolCall{ID: in.ID, Name: in.Recipient}
		callTool(m, in.ID, in.Recipient, m.Content)
		m.Content = ""
	}
	setReasoning(m, r.reasoning)
	r.reasoning = ""
	if in.Metadata.Model != "" && !isEmpty(*m) {
		m.Metadata = m.Metadata.Set(loquat.MetaModel, in.Metadata.Model)
	}
}

// flush adds reasoning that no message followed.
func (r *chatGPTReader) flush() {
	m := loquat.Message{Role: loquat.RoleAssistant}
	if setReasoning(&m, r.reasoning); !isEmpty(m) {
		r.c.add("", m)
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
	case "tether_quote":
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
		addText(m, text)
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
		id := part.Pointer[strings.LastIndexByte(part.Pointer, '/')+1:]
		id, _, _ = strings.Cut(id, "#")
		r.c.attachFile(m, place, id, "")
	case "audio_transcription":
		addText(m, part.Text)
	default:
		r.c.note("%s: a part of type %q is left out", place, loquat.Clip(part.Type, loquat.Excerpt))
	}
}
