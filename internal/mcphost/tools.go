package mcphost

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"loquat/internal/plugin"
)

// Bounds of the tools of a plugin.
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

// onlyAsTask is the problem of a tool that must be called as a task. The SDK has no tasks.
const onlyAsTask = `runs only as a task (execution.taskSupport is "required"), which Loquat does not support`

// needsTask reports whether the tool can only be called as a task.
func (l listed) needsTask() bool {
	var execution struct {
		TaskSupport string `json:"taskSupport"`
	}
	return json.Unmarshal(l.Execution, &execution) == nil && execution.TaskSupport == "required"
}

// takesArguments reports whether the tool's schema has properties.
func (l listed) takesArguments() bool {
	var schema struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	return json.Unmarshal(l.InputSchema, &schema) == nil && len(schema.Properties) > 0
}

// listTools asks for all tools, page by page; each page may take up to timeout. problems names the
// entries that are not valid.
func (s *session) listTools(ctx context.Context, timeout time.Duration) (tools []listed, problems []string, err error) {
	cursor := ""
	for range maxPages {
		raw, err := s.ask(ctx, timeout, nil, func(ctx context.Context, _ *call) error {
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
			return nil, nil, fmt.Errorf("list its tools: the answer is not valid: %w", err)
		}
		for _, raw := range page.Tools {
			if len(tools) == maxTools {
				return tools, append(problems, fmt.Sprintf("tools: it offers more than %d; the others are left out", maxTools)), nil
			}
			var tool listed
			if err := json.Unmarshal(raw, &tool); err != nil {
				problems = append(problems, fmt.Sprintf("tools[%d]: is not a tool: %v", len(tools)+len(problems), err))
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

// callable matches the function names that chat-completions backends accept.
var callable = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// offer converts listed tools to tools for models. It leaves out reserved tools and tools
// that models cannot call; problems names the latter.
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
			leave("models can only call names of 1 to 64 letters, digits, underscores and hyphens")
		case parameters[0] != '{':
			leave("its inputSchema is not an object")
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

// tool is a tool of a plugin. It survives restarts of the process.
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
	schema, _ := json.Marshal(struct { // cannot fail: the raw values were decoded from JSON
		Type     string   `json:"type"`
		Function function `json:"function"`
	}{"function", function{l.Name, l.Description, parameters}})
	return &tool{plugin: p, name: l.Name, schema: schema}
}

func (t *tool) Name() string            { return t.name }
func (t *tool) Schema() json.RawMessage { return t.schema }

// about returns the session, request and settings that are sent with a tool call. It
// returns nil for plugins without elements: they are plain MCP servers.
func (p *Plugin) about(call plugin.ToolCall) map[string]any {
	if len(p.manifest.UI) == 0 {
		return nil
	}
	return map[string]any{"session_id": call.SessionID, "request_id": call.RequestID, "config": orObject(call.Redacted)}
}

// Call calls the tool in the process.
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
