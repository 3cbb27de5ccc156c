package mcphost

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"regexp"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"loquat/internal/plugin"
)

// The bounds of what a plugin may offer.
const (
	maxTools       = 256
	maxPages       = 100
	maxSchemaBytes = 256 << 10 // of one tool
)

// listed is a tool as the process lists it.
type listed struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	InputSchema json.RawMessage `json:"inputSchema"`
	Execution   json.RawMessage `json:"execution"`
}

// onlyAsTask says of a tool that Loquat cannot call it: the SDK has no tasks.
const onlyAsTask = `runs only as a task (execution.taskSupport is "required"), which Loquat does not support`

// needsTask reports whether the tool can only be called as a task.
func (l listed) needsTask() bool {
	var execution struct {
		TaskSupport string `json:"taskSupport"`
	}
	return json.Unmarshal(l.Execution, &execution) == nil && execution.TaskSupport == "required"
}

// takesArguments is false of a tool whose schema has no properties.
func (l listed) takesArguments() bool {
	var schema struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	return json.Unmarshal(l.InputSchema, &schema) == nil && len(schema.Properties) > 0
}

// listTools asks for all tools, page by page. What cannot be taken is named in
// problems.
func (s *session) listTools(ctx context.Context) (tools []listed, problems []string, err error) {
	cursor := ""
	for range maxPages {
		raw, err := s.ask(ctx, listTimeout, nil, func(ctx context.Context, _ *call) error {
			_, err := s.mcp.ListTools(ctx, &mcp.ListToolsParams{Cursor: cursor})
			return err
		})
		if err != nil {
			return nil, nil, fmt.Errorf("list its tools: %w", err)
		}
		var page struct {
			Tools      []json.RawMessage `json:"tools"`
			NextCursor string            `json:"nextCursor"`
		}
		if err := json.Unmarshal(raw, &page); err != nil {
			return nil, nil, fmt.Errorf("list its tools: the answer cannot be read: %w", err)
		}
		for _, raw := range page.Tools {
			if len(tools) == maxTools {
				return tools, append(problems, fmt.Sprintf("tools: it offers more than %d; the others are left out", maxTools)), nil
			}
			var tool listed
			if err := json.Unmarshal(raw, &tool); err != nil {
				problems = append(problems, fmt.Sprintf("tools[%d]: is no tool: %v", len(tools)+len(problems), err))
				continue
			}
			tools = append(tools, tool)
		}
		if page.NextCursor == "" || page.NextCursor == cursor {
			return tools, problems, nil
		}
		cursor = page.NextCursor
	}
	return tools, append(problems, fmt.Sprintf("tools: the list has more than %d pages; the others are left out", maxPages)), nil
}

// callable is what chat-completions backends take as the name of a function.
var callable = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// offer turns what a process lists into tools for models. What a model cannot be
// shown, or must not, is left out; problems say what nobody meant to be.
func (p *Plugin) offer(all []listed) (tools []plugin.Tool, problems []string) {
	seen := map[string]bool{}
	for _, l := range all {
		leave := func(format string, args ...any) {
			problems = append(problems, fmt.Sprintf("tool %q is left out: ", l.Name)+fmt.Sprintf(format, args...))
		}
		parameters := json.RawMessage(bytes.TrimSpace(l.InputSchema))
		if len(parameters) == 0 {
			parameters = json.RawMessage(`{"type":"object","properties":{}}`)
		}
		switch {
		case seen[l.Name]:
			leave("it is listed twice; the first counts")
		case p.manifest.reserved(l.Name):
		case !callable.MatchString(l.Name):
			leave("models can call names of 1 to 64 letters, digits, underscores and hyphens only")
		case parameters[0] != '{':
			leave("its inputSchema is no object")
		case len(l.InputSchema)+len(l.Description) > maxSchemaBytes:
			leave("its description and schema have more than %d bytes", maxSchemaBytes)
		case l.needsTask():
			leave("it %s", onlyAsTask)
		default:
			tools = append(tools, newTool(p, l, parameters))
		}
		seen[l.Name] = true
	}
	return tools, problems
}

// tool is a tool of a process, in whichever life it is.
type tool struct {
	plugin *Plugin
	name   string
	schema json.RawMessage
}

func newTool(p *Plugin, l listed, parameters json.RawMessage) *tool {
	type function struct {
		Name        string          `json:"name"`
		Description string          `json:"description,omitempty"`
		Parameters  json.RawMessage `json:"parameters"`
	}
	schema, _ := json.Marshal(struct { // the process's parts were decoded from JSON
		Type     string   `json:"type"`
		Function function `json:"function"`
	}{"function", function{l.Name, l.Description, parameters}})
	return &tool{plugin: p, name: l.Name, schema: schema}
}

func (t *tool) Name() string            { return t.name }
func (t *tool) Schema() json.RawMessage { return t.schema }

// about tells a plugin that has settings with what settings a tool is called, and for
// whom. Servers that show no elements know nothing of Loquat and are told nothing.
func (p *Plugin) about(call plugin.ToolCall) map[string]any {
	if len(p.manifest.UI) == 0 {
		return nil
	}
	return map[string]any{"session_id": call.SessionID, "request_id": call.RequestID, "config": orObject(call.Concealed)}
}

// Call has the process run the tool.
func (t *tool) Call(ctx context.Context, call plugin.ToolCall) (plugin.ToolResult, error) {
	var progress func(part)
	if call.Progress != nil {
		progress = func(p part) { call.Progress(p.text, p.progress, p.total) }
	}
	a, err := t.plugin.call(ctx, use{tool: t.name, arguments: call.Arguments, about: t.plugin.about(call), progress: progress})
	if err != nil {
		return plugin.ToolResult{}, err
	}
	return a.result(), nil
}
