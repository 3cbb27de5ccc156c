package importer

import (
	"cmp"
	"encoding/json"
	"fmt"
	"html"
	"maps"
	"regexp"
	"slices"
	"strings"

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
	FolderID  string `json:"folder_id"`
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
		Files  []openWebUIFile `json:"files"`
		Params struct {
			System string `json:"system"`
		} `json:"params"`
	} `json:"chat"`
}

type openWebUIMessage struct {
	ID          string            `json:"id"`
	ParentID    string            `json:"parentId"`
	ChildrenIDs []string          `json:"childrenIds"`
	Role        string            `json:"role"`
	Content     string            `json:"content"`
	Model       string            `json:"model"`
	Timestamp   moment            `json:"timestamp"`
	Output      []openWebUIOutput `json:"output"`
	Files       []openWebUIFile   `json:"files"`
	Merged      struct {
		Content string `json:"content"`
	} `json:"merged"`
	Executions []json.RawMessage `json:"code_executions"`
	Rating     json.RawMessage   `json:"annotation"`
	Sources    []json.RawMessage `json:"sources"`
	Error      json.RawMessage   `json:"error"`
}

type openWebUIFile struct {
	Type        string `json:"type"`
	ContentType string `json:"content_type"`
	URL         string `json:"url"`
	Name        string `json:"name"`
	File        struct {
		Data struct {
			Content string `json:"content"`
		} `json:"data"`
	} `json:"file"`
}

type openWebUIOutput struct {
	Type      string          `json:"type"`
	CallID    string          `json:"call_id"`
	Name      string          `json:"name"`
	Arguments string          `json:"arguments"`
	Content   json.RawMessage `json:"content"`
	Output    json.RawMessage `json:"output"`
	Code      string          `json:"code"`
	ID        string          `json:"id"`
}

func readOpenWebUI(c *conversation, raw []byte) error {
	var in openWebUI
	if err := json.Unmarshal(raw, &in); err != nil {
		return fmt.Errorf("cannot be read: %w", err)
	}
	chat := in.Chat
	created := in.CreatedAt.Time
	if created.IsZero() {
		created = chat.Timestamp.Time
	}
	c.begin(cmp.Or(in.ID, chat.ID), created, in.UpdatedAt.Time)
	c.label(cmp.Or(in.Title, chat.Title), in.Pinned, in.Archived, in.Meta.Tags)
	if in.FolderID != "" {
		c.note("the folder %q is left out", loquat.Clip(in.FolderID, loquat.Excerpt))
	}
	for _, f := range chat.Files {
		c.note("the file %q of the chat is left out", loquat.Clip(f.Name, loquat.Excerpt))
	}
	if system := cmp.Or(chat.System, chat.Params.System); system != "" {
		c.add("", loquat.Message{Role: loquat.RoleSystem, Content: system})
	}
	messages := chat.Messages
	var nodes []node
	if history := chat.History.Messages; len(history) > 0 {
		messages = nil
		for _, id := range slices.Sorted(maps.Keys(history)) {
			m := history[id]
			m.ID = id
			messages = append(messages, m)
		}
		slices.SortStableFunc(messages, func(a, b openWebUIMessage) int { return a.Timestamp.Compare(b.Timestamp.Time) })
	}
	for _, m := range messages {
		nodes = append(nodes, node{id: m.ID, parent: m.ParentID, at: m.Timestamp.Time, children: m.ChildrenIDs})
	}
	t := newTree(c, nodes, chat.History.CurrentID)
	t.readBranches(t.last(chat.History.CurrentID), simpleReader(func(i int) { readOpenWebUIMessage(c, messages[i].ID, messages[i]) }))
	return nil
}

func readOpenWebUIMessage(c *conversation, id string, in openWebUIMessage) {
	place := messagePlace(id)
	if !loquat.ValidRole(in.Role) {
		c.note("%s is of the role %q and is left out", place, loquat.Clip(in.Role, loquat.Excerpt))
		return
	}
	w := openWebUIWriter{answer: c.newAnswer(id, in.Role, in.Model, in.Timestamp.Time)}
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
	w.files(place, in.Files)
	if len(in.Sources) > 0 {
		c.note("%s: %d sources are left out", place, len(in.Sources))
	}
	if len(in.Executions) > 0 {
		c.note("%s: the results of %d blocks of code are left out", place, len(in.Executions))
	}
	if isGiven(in.Rating) {
		c.note("%s: the rating is left out", place)
	}
	if isGiven(in.Error) {
		w.m.Metadata = w.m.Metadata.Set(loquat.MetaIncomplete, "error")
	}
	w.flush()
	if in.Merged.Content != "" {
		c.note("%s: the answer that was merged from others is left out", place)
	}
}

// files adds images, and the texts of documents if the export has them.
func (w *openWebUIWriter) files(place string, files []openWebUIFile) {
	for _, f := range files {
		switch content := f.File.Data.Content; {
		case f.Type == "image" || strings.HasPrefix(f.Type, "image/") || strings.HasPrefix(f.ContentType, "image/"):
			w.c.attachURL(&w.m, place, f.URL, f.Name)
		case content != "":
			w.c.addText(&w.m, strings.TrimSpace(f.Name+"\n\n"+content))
		default:
			w.c.note("%s: the file %q is not in the export", place, loquat.Clip(f.Name, loquat.Excerpt))
		}
	}
}

// openWebUIWriter reads an answer.
type openWebUIWriter struct {
	answer
	names map[string]string // of tools, by the ids of their calls
}

// output reads a part of an answer in the form that newer versions keep next to the content.
func (w *openWebUIWriter) output(place string, part openWebUIOutput) {
	switch part.Type {
	case "message":
		w.c.addText(&w.m, joined(part.Content))
	case "reasoning":
		w.c.setReasoning(&w.m, joined(part.Content))
	case "function_call":
		if w.names == nil {
			w.names = map[string]string{}
		}
		w.names[part.CallID] = loquat.Clip(part.Name, maxName)
		w.c.callTool(&w.m, part.CallID, part.Name, part.Arguments)
	case "function_call_output":
		w.result(part.CallID, w.names[part.CallID], joined(part.Output))
	case "open_webui:code_interpreter":
		w.ran(part.ID, part.Code, joined(part.Output))
	default:
		w.c.note("%s of type %q is left out", place, loquat.Clip(part.Type, loquat.Excerpt))
	}
}

// ran adds code that ran, as a tool call with its result.
func (w *openWebUIWriter) ran(id, code, output string) {
	const tool = "code_interpreter"
	id = cmp.Or(id, fmt.Sprintf("code-%d", w.c.added))
	w.c.callTool(&w.m, id, tool, string(loquat.Quote(code)))
	w.result(id, tool, output)
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
	detailsHead = regexp.MustCompile(`^<details type="(reasoning|tool_calls|code_interpreter)"`)
	attribute   = regexp.MustCompile(`([a-z_]+)="([^"]*)"`)
	codeFence   = regexp.MustCompile("^```.*\n|\n```$")
	quoteMark   = regexp.MustCompile(`(?m)^> ?`)
)

// detailsBlock is a block of HTML in an answer.
type detailsBlock struct {
	kind, attributes, inner string
	rest                    string // the content after the block
}

// cutDetails finds the first block of a content. before is the text before the block, or the whole content without one.
// Each search stops at the end of the block: one pattern for whole blocks would read the rest of the content for each
// block whose summary is not closed, which takes an hour for 2 MB of them.
func cutDetails(content string) (before string, block detailsBlock, found bool) {
	const mark, end = `<details type="`, "</details>"
	for at := 0; ; at += len(mark) {
		next := strings.Index(content[at:], mark)
		if next < 0 {
			return content, block, false
		}
		at += next
		head := detailsHead.FindStringSubmatch(content[at:min(len(content), at+len(mark)+len(`code_interpreter"`))])
		if head == nil {
			continue
		}
		attributes, tail, opened := strings.Cut(content[at+len(head[0]):], ">")
		inner, rest, closed := strings.Cut(tail, end)
		if !opened || !closed { // nor is a later block closed
			return content, block, false
		}
		inner = strings.TrimLeft(inner, "\t\n\f\r ")
		if summary, text, ok := strings.Cut(inner, "</summary>"); ok && strings.HasPrefix(summary, "<summary>") {
			inner = text
		}
		return content[:at], detailsBlock{head[1], attributes, inner, rest}, true
	}
}

// details reads an answer in which reasoning and tool calls are blocks of HTML.
func (w *openWebUIWriter) details(content string) {
	for {
		text, block, found := cutDetails(content)
		w.c.addText(&w.m, strings.TrimSpace(text))
		if !found {
			return
		}
		content = block.rest
		w.block(block)
	}
}

func (w *openWebUIWriter) block(block detailsBlock) {
	inner := html.UnescapeString(block.inner)
	values := map[string]string{}
	for _, a := range attribute.FindAllStringSubmatch(block.attributes, -1) {
		values[a[1]] = html.UnescapeString(a[2])
	}
	switch block.kind {
	case "reasoning":
		w.c.setReasoning(&w.m, quoteMark.ReplaceAllString(inner, ""))
		return
	case "code_interpreter":
		w.ran(values["id"], codeFence.ReplaceAllString(strings.TrimSpace(inner), ""), textOf([]byte(values["output"])))
		return
	}
	w.c.callTool(&w.m, values["id"], values["name"], textOf([]byte(values["arguments"])))
	result := textOf([]byte(values["result"]))
	if result == "" {
		result = strings.TrimSpace(inner)
	}
	w.result(values["id"], values["name"], result)
}
