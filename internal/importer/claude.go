package importer

import (
	"encoding/json"
	"fmt"
	"strings"

	"loquat"
)

// claude is a conversation in conversations.json of Claude's export.
type claude struct {
	UUID        string `json:"uuid"`
	Name        string `json:"name"`
	Model       string `json:"model"`
	CreatedAt   moment `json:"created_at"`
	UpdatedAt   moment `json:"updated_at"`
	IsStarred   bool   `json:"is_starred"`
	CurrentLeaf string `json:"current_leaf_message_uuid"`
	Project     struct {
		Name string `json:"name"`
	} `json:"project"`
	Messages []claudeMessage `json:"chat_messages"`
}

type claudeMessage struct {
	UUID        string        `json:"uuid"`
	Parent      string        `json:"parent_message_uuid"`
	Sender      string        `json:"sender"`
	Text        string        `json:"text"`
	Content     []claudeBlock `json:"content"`
	CreatedAt   moment        `json:"created_at"`
	Attachments []struct {
		Name    string `json:"file_name"`
		Content string `json:"extracted_content"`
	} `json:"attachments"`
	Files []struct {
		UUID string `json:"file_uuid"`
		Name string `json:"file_name"`
		Kind string `json:"file_kind"`
	} `json:"files"`
}

type claudeBlock struct {
	Type      string            `json:"type"`
	Text      string            `json:"text"`
	Thinking  string            `json:"thinking"`
	ID        string            `json:"id"`
	Name      string            `json:"name"`
	Input     json.RawMessage   `json:"input"`
	ToolUseID string            `json:"tool_use_id"`
	Content   json.RawMessage   `json:"content"`
	IsError   bool              `json:"is_error"`
	Citations []json.RawMessage `json:"citations"`
}

func readClaude(c *conversation, raw []byte) error {
	var in claude
	if err := json.Unmarshal(raw, &in); err != nil {
		return fmt.Errorf("cannot be read: %w", err)
	}
	c.begin(in.UUID, in.CreatedAt.Time, in.UpdatedAt.Time)
	c.label(in.Name, in.IsStarred, false, nil)
	if in.Project.Name != "" {
		c.note("the project %q is left out", loquat.Clip(in.Project.Name, loquat.Excerpt))
	}
	nodes := make([]node, len(in.Messages)) // older exports do not link them
	for i, m := range in.Messages {
		nodes[i] = node{id: m.UUID, parent: m.Parent, at: m.CreatedAt.Time}
	}
	t := newTree(c, nodes, in.CurrentLeaf)
	t.readBranches(t.last(in.CurrentLeaf), simpleReader(func(i int) {
		readClaudeMessage(c, fmt.Sprintf("chat_messages[%d]", i), in.Model, in.Messages[i])
	}))
	return nil
}

// readClaudeMessage reads one message. An answer with tool calls becomes several messages: one for
// each round of calls and one for each result.
func readClaudeMessage(c *conversation, place, model string, in claudeMessage) {
	role := loquat.RoleUser
	if in.Sender == "assistant" {
		role = loquat.RoleAssistant
	} else if in.Sender != "human" {
		c.note("%s is of the sender %q and is left out", place, loquat.Clip(in.Sender, loquat.Excerpt))
		return
	}
	a := c.newAnswer(in.UUID, role, model, in.CreatedAt.Time)
	for i, b := range in.Content {
		if b.Type == "tool_result" {
			a.flush()
			readClaudeResult(c, fmt.Sprintf("%s.content[%d]", place, i), in, b)
			continue
		}
		readClaudeBlock(c, fmt.Sprintf("%s.content[%d]", place, i), b, &a.m)
	}
	if len(in.Content) == 0 {
		a.m.Content = in.Text
	}
	for _, file := range in.Attachments {
		c.addText(&a.m, strings.TrimSpace(file.Name+"\n\n"+file.Content))
	}
	for _, f := range in.Files {
		if entry := c.files.find(f.UUID); entry != nil && f.UUID != "" && f.Kind != "document" {
			c.attachFile(&a.m, place, f.UUID, f.Name)
		} else {
			c.note("%s: the file %q is not in the export", place, loquat.Clip(f.Name, loquat.Excerpt))
		}
	}
	a.flush()
}

func readClaudeBlock(c *conversation, place string, b claudeBlock, m *loquat.Message) {
	switch b.Type {
	case "text":
		c.addText(m, b.Text)
		if len(b.Citations) > 0 {
			c.note("%s: %d citations are left out", place, len(b.Citations))
		}
	case "voice_note":
		c.addText(m, b.Text)
	case "thinking":
		c.setReasoning(m, b.Thinking)
	case "tool_use":
		c.callTool(m, b.ID, b.Name, string(b.Input))
	case "token_budget": // counts only
	default:
		c.note("%s of type %q is left out", place, loquat.Clip(b.Type, loquat.Excerpt))
	}
}

// readClaudeResult adds the message with the result of a tool: a text, or a list of blocks.
func readClaudeResult(c *conversation, place string, in claudeMessage, b claudeBlock) {
	m := c.toolResult(b.ToolUseID, b.Name, "", in.CreatedAt.Time)
	if b.IsError {
		m.Metadata = m.Metadata.Set(loquat.MetaIsError, true)
	}
	var blocks []claudeBlock
	if json.Unmarshal(b.Content, &m.Content) != nil {
		if json.Unmarshal(b.Content, &blocks) != nil && len(b.Content) > 0 && string(b.Content) != "null" {
			c.note("%s: the result of %s cannot be read", place, loquat.Clip(b.Name, loquat.Excerpt))
		}
	}
	for _, block := range blocks {
		if block.Type == "text" {
			c.addText(&m, block.Text)
		} else {
			c.note("%s: a result of type %q is left out", place, loquat.Clip(block.Type, loquat.Excerpt))
		}
	}
	c.add("", m)
}
