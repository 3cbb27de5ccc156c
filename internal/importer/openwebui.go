package importer

import (
	"encoding/json"
	"fmt"
	"html"
	"regexp"
	"strings"
	"time"

	"loquat"
)

// openWebUI is a chat in the export of Open WebUI.
type openWebUI struct {
	ID        string `json:"id"`
	Title     string `json:"title"`
	CreatedAt moment `json:"created_at"`
	UpdatedAt moment `json:"updated_at"`
	Archived  bool   `json:"archived"`
	Pinned    bool   `json:"pinned"`
	Meta      struct {
		Tags []string `json:"tags"`
	} `json:"meta"`
	Chat struct {
		ID        string             `json:"id"`
		Title     string             `json:"title"`
		System    string             `json:"system"`
		Timestamp moment             `json:"timestamp"`
		Messages  []openWebUIMessage `json:"messages"` // of old exports
		History   struct {
			CurrentID string                      `json:"currentId"`
			Messages  map[string]openWebUIMessage `json:"messages"`
		} `json:"history"`
		Params struct {
			System string `json:"system"`
		} `json:"params"`
	} `json:"chat"`
}

type openWebUIMessage struct {
	ID        string            `json:"id"`
	ParentID  string            `json:"parentId"`
	Role      string            `json:"role"`
	Content   string            `json:"content"`
	Model     string            `json:"model"`
	Timestamp moment            `json:"timestamp"`
	Output    []openWebUIOutput `json:"output"`
	Files     []struct {
		Type string `json:"type"`
		URL  string `json:"url"`
		Name string `json:"name"`
	} `json:"files"`
	Sources []json.RawMessage `json:"sources"`
	Error   json.RawMessage   `json:"error"`
}

type openWebUIOutput struct {
	Type      string          `json:"type"`
	CallID    string          `json:"call_id"`
	Name      string          `json:"name"`
	Arguments string          `json:"arguments"`
	Content   json.RawMessage `json:"content"`
	Output    json.RawMessage `json:"output"`
}

func readOpenWebUI(c *conversation, raw []byte) error {
	var in openWebUI
	if err := json.Unmarshal(raw, &in); err != nil {
		return fmt.Errorf("cannot be read: %w", err)
	}
	chat := in.Chat
	id, title, created := in.ID, in.Title, in.CreatedAt.Time
	if id == "" {
		id = chat.ID
	}
	if title == "" {
		title = chat.Title
	}
	if created.IsZero() {
		created = chat.Timestamp.Time
	}
	c.begin(id, created, in.UpdatedAt.Time)
	c.label(title, in.Pinned, in.Archived, in.Meta.Tags)
	system := chat.System
	if system == "" {
		system = chat.Params.System
	}
	if system != "" {
		c.add("", loquat.Message{Role: loquat.RoleSystem, Content: system})
	}
	shown := branch(chat.History.CurrentID, func(id string) (string, bool) {
		m, known := chat.History.Messages[id]
		return m.ParentID, known
	})
	for _, id := range shown {
		readOpenWebUIMessage(c, id, chat.History.Messages[id])
	}
	if n := len(chat.History.Messages) - len(shown); n > 0 {
		c.note("%d messages of other branches are left out", n)
	}
	if len(chat.History.Messages) == 0 {
		for _, m := range chat.Messages {
			readOpenWebUIMessage(c, m.ID, m)
		}
	}
	return nil
}

func readOpenWebUIMessage(c *conversation, id string, in openWebUIMessage) {
	place := "message " + id
	if !loquat.ValidRole(in.Role) {
		c.note("%s is of the role %q and is left out", place, loquat.Clip(in.Role, loquat.Excerpt))
		return
	}
	w := openWebUIWriter{c: c, id: id, model: in.Model, at: in.Timestamp.Time, m: loquat.Message{Role: in.Role, CreatedAt: in.Timestamp.Time}}
	switch {
	case len(in.Output) > 0:
		for i, part := range in.Output {
			w.output(fmt.Sprintf("%s: output[%d]", place, i), part)
		}
	case in.Role == loquat.RoleAssistant:
		w.details(in.Content)
	default:
		w.m.Content = in.Content
	}
	for _, f := range in.Files {
		if f.Type == "image" || strings.HasPrefix(f.Type, "image/") {
			c.attachURL(&w.m, place, f.URL, f.Name)
		} else {
			c.note("%s: the file %q is not in the export", place, loquat.Clip(f.Name, loquat.Excerpt))
		}
	}
	if len(in.Sources) > 0 {
		c.note("%s: %d sources are left out", place, len(in.Sources))
	}
	if len(in.Error) > 0 && string(in.Error) != "null" && string(in.Error) != "false" {
		w.m.Metadata = w.m.Metadata.Set(loquat.MetaIncomplete, "error")
	}
	w.flush()
}

// openWebUIWriter makes messages of an answer: one for each round of tool calls and one for each
// result.
type openWebUIWriter struct {
	c         *conversation
	id, model string
	at        time.Time
	m         loquat.Message
	names     map[string]string // of tools, by the ids of their calls
}

func (w *openWebUIWriter) flush() {
	if isEmpty(w.m) {
		return
	}
	if w.model != "" && w.m.Role == loquat.RoleAssistant {
		w.m.Metadata = w.m.Metadata.Set(loquat.MetaModel, w.model)
	}
	w.c.add(w.id, w.m)
	w.id, w.m = "", loquat.Message{Role: w.m.Role, CreatedAt: w.at}
}

// output reads a part of an answer in the form that newer versions keep next to the content.
func (w *openWebUIWriter) output(place string, part openWebUIOutput) {
	switch part.Type {
	case "message":
		addText(&w.m, joined(part.Content))
	case "reasoning":
		setReasoning(&w.m, joined(part.Content))
	case "function_call":
		if w.names == nil {
			w.names = map[string]string{}
		}
		w.names[part.CallID] = part.Name
		callTool(&w.m, part.CallID, part.Name, part.Arguments)
	case "function_call_output":
		w.flush()
		w.c.add("", toolResult(part.CallID, w.names[part.CallID], joined(part.Output), w.at))
	default:
		w.c.note("%s of type %q is left out", place, loquat.Clip(part.Type, loquat.Excerpt))
	}
}

// joined returns the texts in a list of parts, or a text.
func joined(raw json.RawMessage) string {
	var parts []struct {
		Text string `json:"text"`
	}
	if json.Unmarshal(raw, &parts) != nil {
		return textOf(raw)
	}
	var texts []string
	for _, p := range parts {
		texts = append(texts, p.Text)
	}
	return strings.Join(texts, "\n\n")
}

var (
	detailsBlock = regexp.MustCompile(`(?s)<details type="(reasoning|tool_calls|code_interpreter)"([^>]*)>\s*(?:<summary>.*?</summary>)?(.*?)</details>\s*`)
	attribute    = regexp.MustCompile(`([a-z_]+)="([^"]*)"`)
	quoteMark    = regexp.MustCompile(`(?m)^> ?`)
)

// details reads an answer in which reasoning and tool calls are blocks of HTML.
func (w *openWebUIWriter) details(content string) {
	at := 0
	for _, place := range detailsBlock.FindAllStringSubmatchIndex(content, -1) {
		addText(&w.m, strings.TrimSpace(content[at:place[0]]))
		at = place[1]
		inner := html.UnescapeString(content[place[6]:place[7]])
		if content[place[2]:place[3]] != "tool_calls" {
			setReasoning(&w.m, quoteMark.ReplaceAllString(inner, ""))
			continue
		}
		values := map[string]string{}
		for _, a := range attribute.FindAllStringSubmatch(content[place[4]:place[5]], -1) {
			values[a[1]] = html.UnescapeString(a[2])
		}
		callTool(&w.m, values["id"], values["name"], textOf([]byte(values["arguments"])))
		w.flush()
		result := textOf([]byte(values["result"]))
		if result == "" {
			result = strings.TrimSpace(inner)
		}
		w.c.add("", toolResult(values["id"], values["name"], result, w.at))
	}
	addText(&w.m, strings.TrimSpace(content[at:]))
}
