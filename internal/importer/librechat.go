package importer

import (
	"bytes"
	"cmp"
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
		Model        string `json:"model"`
		System       string `json:"system"`
		PromptPrefix string `json:"promptPrefix"`
	} `json:"options"`
	Tags     []string          `json:"tags"`
	Messages libreChatMessages `json:"messages"`
	Tree     libreChatMessages `json:"messagesTree"`
}

// libreChatMessages are a list, or an object whose children they are.
type libreChatMessages []libreChatMessage

// UnmarshalJSON accepts both forms.
func (m *libreChatMessages) UnmarshalJSON(raw []byte) error {
	var root struct {
		Children []libreChatMessage `json:"children"`
	}
	if bytes.HasPrefix(raw, []byte("{")) {
		err := json.Unmarshal(raw, &root)
		*m = root.Children
		return err
	}
	return json.Unmarshal(raw, (*[]libreChatMessage)(m))
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
	Feedback    json.RawMessage    `json:"feedback"`
	Children    []libreChatMessage `json:"children"`
}

type libreChatFile struct {
	Name string `json:"filename"`
	Path string `json:"filepath"`
	Type string `json:"type"`
}

type libreChatPart struct {
	Type     string            `json:"type"`
	Text     json.RawMessage   `json:"text"`
	Think    json.RawMessage   `json:"think"`
	Error    json.RawMessage   `json:"error"`
	ToolCall libreChatToolCall `json:"tool_call"`
	Image    libreChatFile     `json:"image_file"`
	ImageURL struct {
		URL string `json:"url"`
	} `json:"image_url"`
}

// libreChatToolCall is a tool call of an agent, or in the form of assistants: a function, or code that
// ran.
type libreChatToolCall struct {
	ID       string             `json:"id"`
	Name     string             `json:"name"`
	Args     json.RawMessage    `json:"args"`
	Output   string             `json:"output"`
	Function *libreChatFunction `json:"function"`
	Code     *struct {
		Input   string `json:"input"`
		Outputs []struct {
			Type string `json:"type"`
			Logs string `json:"logs"`
		} `json:"outputs"`
	} `json:"code_interpreter"`
}

type libreChatFunction struct {
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
	Output    string          `json:"output"`
}

// normal returns a tool call in the form of agents.
func (t libreChatToolCall) normal(c *conversation, place string) libreChatToolCall {
	if f := t.Function; f != nil {
		t.Name, t.Args, t.Output = f.Name, f.Arguments, f.Output
	}
	if t.Code == nil {
		return t
	}
	t.Name, t.Args = "code_interpreter", loquat.Quote(t.Code.Input)
	var logs strings.Builder
	for _, out := range t.Code.Outputs {
		if out.Type == "logs" {
			logs.WriteString(out.Logs)
		} else {
			c.note("%s: a result of type %q is left out", place, loquat.Clip(out.Type, loquat.Excerpt))
		}
	}
	t.Output += logs.String()
	return t
}

func readLibreChat(c *conversation, raw []byte) error {
	var in libreChat
	if err := json.Unmarshal(raw, &in); err != nil {
		return fmt.Errorf("cannot be read: %w", err)
	}
	c.begin(in.ConversationID, in.CreatedAt.Time, in.UpdatedAt.Time)
	c.label(in.Title, false, in.IsArchived, in.Tags)
	if system := cmp.Or(in.Options.System, in.Options.PromptPrefix); system != "" {
		c.add("", loquat.Message{Role: loquat.RoleSystem, Content: system})
	}
	var messages []libreChatMessage
	flatten(append(in.Tree, in.Messages...), &messages)
	nodes := make([]node, len(messages))
	for i, m := range messages {
		nodes[i] = node{id: m.MessageID, parent: m.Parent, at: m.CreatedAt.Time}
	}
	t := newTree(c, nodes, "")
	t.readBranches(t.last(""), simpleReader(func(i int) {
		m := messages[i]
		if m.Model == "" {
			m.Model = in.Options.Model
		}
		readLibreChatMessage(c, messagePlace(m.MessageID), m)
	}))
	return nil
}

// flatten appends the messages of a tree to a list, each before its answers.
func flatten(tree []libreChatMessage, out *[]libreChatMessage) {
	for _, m := range tree {
		children := m.Children
		m.Children = nil
		*out = append(*out, m)
		for i := range children {
			if children[i].Parent == "" {
				children[i].Parent = m.MessageID
			}
		}
		flatten(children, out)
	}
}

func readLibreChatMessage(c *conversation, place string, in libreChatMessage) {
	role := loquat.RoleAssistant
	if in.ByUser {
		role = loquat.RoleUser
	}
	w := libreChatWriter{c.newAnswer(in.MessageID, role, in.Model, in.CreatedAt.Time)}
	for i, part := range in.Content {
		w.part(fmt.Sprintf("%s: content[%d]", place, i), part)
	}
	if len(in.Content) == 0 {
		w.m.Content = in.Text
	}
	if in.Unfinished && !isEmpty(w.m) {
		w.m.Metadata = w.m.Metadata.Set(loquat.MetaIncomplete, "interrupted")
	} else if in.Error && !isEmpty(w.m) {
		w.m.Metadata = w.m.Metadata.Set(loquat.MetaIncomplete, "error")
	}
	for _, f := range append(in.Files, in.Attachments...) {
		if strings.HasPrefix(f.Type, "image/") {
			c.attachURL(&w.m, place, f.Path, f.Name)
		} else {
			c.note("%s: the file %q is not in the export", place, loquat.Clip(cmp.Or(f.Name, f.Type), loquat.Excerpt))
		}
	}
	if isGiven(in.Feedback) {
		c.note("%s: the rating is left out", place)
	}
	w.flush()
}

// libreChatWriter reads the parts of a message.
type libreChatWriter struct{ answer }

func (w *libreChatWriter) part(place string, part libreChatPart) {
	switch part.Type {
	case "text":
		w.c.addText(&w.m, textOf(part.Text))
	case "think":
		w.c.setReasoning(&w.m, textOf(part.Think))
	case "error":
		w.c.addText(&w.m, cmp.Or(textOf(part.Error), textOf(part.Text)))
	case "image_file":
		w.c.attachURL(&w.m, place, part.Image.Path, part.Image.Name)
	case "image_url":
		w.c.attachURL(&w.m, place, part.ImageURL.URL, "")
	case "tool_call":
		call := part.ToolCall.normal(w.c, place)
		w.c.callTool(&w.m, call.ID, call.Name, textOf(call.Args))
		w.result(call.ID, call.Name, call.Output)
	case "agent_update": // which agent goes on
	default:
		w.c.note("%s of type %q is left out", place, loquat.Clip(part.Type, loquat.Excerpt))
	}
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
