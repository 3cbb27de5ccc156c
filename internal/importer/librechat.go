package importer

import (
	"encoding/json"
	"fmt"
	"strings"

	"loquat"
)

// libreChat is a conversation that LibreChat exported as JSON. Its messages are a list, or a tree.
type libreChat struct {
	ConversationID string `json:"conversationId"`
	Title          string `json:"title"`
	CreatedAt      moment `json:"createdAt"`
	UpdatedAt      moment `json:"updatedAt"`
	IsArchived     bool   `json:"isArchived"`
	Options        struct {
		Model string `json:"model"`
	} `json:"options"`
	Tags     []string           `json:"tags"`
	Messages []libreChatMessage `json:"messages"`
}

type libreChatMessage struct {
	MessageID   string             `json:"messageId"`
	Parent      string             `json:"parentMessageId"`
	Text        string             `json:"text"`
	Content     []libreChatPart    `json:"content"`
	Sender      string             `json:"sender"`
	ByUser      bool               `json:"isCreatedByUser"`
	Model       string             `json:"model"`
	CreatedAt   moment             `json:"createdAt"`
	Error       bool               `json:"error"`
	Unfinished  bool               `json:"unfinished"`
	Files       []libreChatFile    `json:"files"`
	Attachments []libreChatFile    `json:"attachments"`
	Children    []libreChatMessage `json:"children"`
}

type libreChatFile struct {
	Name string `json:"filename"`
	Path string `json:"filepath"`
	Type string `json:"type"`
}

type libreChatPart struct {
	Type     string          `json:"type"`
	Text     json.RawMessage `json:"text"`
	Think    json.RawMessage `json:"think"`
	Error    json.RawMessage `json:"error"`
	ToolCall struct {
		ID     string          `json:"id"`
		Name   string          `json:"name"`
		Args   json.RawMessage `json:"args"`
		Output string          `json:"output"`
	} `json:"tool_call"`
}

func readLibreChat(c *conversation, raw []byte) error {
	var in libreChat
	if err := json.Unmarshal(raw, &in); err != nil {
		return fmt.Errorf("cannot be read: %w", err)
	}
	c.begin(in.ConversationID, in.CreatedAt.Time, in.UpdatedAt.Time)
	c.label(in.Title, false, in.IsArchived, in.Tags)
	messages := flatten(in.Messages)
	shown := libreChatBranch(messages)
	for _, m := range shown {
		if m.Model == "" {
			m.Model = in.Options.Model
		}
		readLibreChatMessage(c, "message "+m.MessageID, m)
	}
	if n := len(messages) - len(shown); n > 0 {
		c.note("%d messages of other branches are left out", n)
	}
	return nil
}

// flatten returns the messages of a tree as a list, each before its answers.
func flatten(tree []libreChatMessage) (out []libreChatMessage) {
	for _, m := range tree {
		children := m.Children
		m.Children = nil
		out = append(out, m)
		for i := range children {
			if children[i].Parent == "" {
				children[i].Parent = m.MessageID
			}
		}
		out = append(out, flatten(children)...)
	}
	return out
}

// libreChatBranch returns the branch that ends in the newest message. Without links between the
// messages there is one branch.
func libreChatBranch(messages []libreChatMessage) (shown []libreChatMessage) {
	index := map[string]int{}
	for i, m := range messages {
		if _, twice := index[m.MessageID]; !twice {
			index[m.MessageID] = i
		}
	}
	linked := false
	last := 0
	for i, m := range messages {
		if _, known := index[m.Parent]; known && m.Parent != "" {
			linked = true
		}
		if !m.CreatedAt.Before(messages[last].CreatedAt.Time) {
			last = i
		}
	}
	if !linked {
		return messages
	}
	for _, id := range branch(messages[last].MessageID, func(id string) (string, bool) {
		i, known := index[id]
		if !known {
			return "", false
		}
		return messages[i].Parent, true
	}) {
		shown = append(shown, messages[index[id]])
	}
	return shown
}

func readLibreChatMessage(c *conversation, place string, in libreChatMessage) {
	m := loquat.Message{Role: loquat.RoleAssistant, CreatedAt: in.CreatedAt.Time}
	if in.ByUser {
		m.Role = loquat.RoleUser
	}
	id := in.MessageID
	flush := func() {
		if isEmpty(m) {
			return
		}
		if m.Role == loquat.RoleAssistant && in.Model != "" {
			m.Metadata = m.Metadata.Set(loquat.MetaModel, in.Model)
		}
		c.add(id, m)
		id, m = "", loquat.Message{Role: m.Role, CreatedAt: in.CreatedAt.Time}
	}
	for i, part := range in.Content {
		switch part.Type {
		case "text":
			addText(&m, textOf(part.Text))
		case "think":
			setReasoning(&m, textOf(part.Think))
		case "error":
			addText(&m, textOf(part.Error))
		case "tool_call":
			call := part.ToolCall
			callTool(&m, call.ID, call.Name, textOf(call.Args))
			flush()
			c.add("", toolResult(call.ID, call.Name, call.Output, in.CreatedAt.Time))
		default:
			c.note("%s: content[%d] of type %q is left out", place, i, loquat.Clip(part.Type, loquat.Excerpt))
		}
	}
	if len(in.Content) == 0 {
		m.Content = in.Text
	}
	if in.Unfinished && !isEmpty(m) {
		m.Metadata = m.Metadata.Set(loquat.MetaIncomplete, "interrupted")
	} else if in.Error && !isEmpty(m) {
		m.Metadata = m.Metadata.Set(loquat.MetaIncomplete, "error")
	}
	for _, f := range append(in.Files, in.Attachments...) {
		if strings.HasPrefix(f.Type, "image/") {
			c.attachURL(&m, place, f.Path, f.Name)
		} else {
			c.note("%s: the file %q is not in the export", place, loquat.Clip(f.Name, loquat.Excerpt))
		}
	}
	flush()
}

// textOf returns a text that is a string, an object with the text as its value, or other JSON.
func textOf(raw json.RawMessage) string {
	var text string
	if len(raw) == 0 || json.Unmarshal(raw, &text) == nil {
		return text
	}
	var object struct {
		Value *string `json:"value"`
	}
	if json.Unmarshal(raw, &object) == nil && object.Value != nil {
		return *object.Value
	}
	return string(raw)
}
