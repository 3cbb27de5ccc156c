package mcphost

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"loquat"
	"loquat/internal/config"
	"loquat/internal/plugin"
	"loquat/internal/strictjson"
	"loquat/internal/ui"
)

// UIElements calls the tools under `ui` and returns their elements. It waits up to
// startGrace for a process that was just started or has just ended.
func (p *Plugin) UIElements(ctx context.Context, in ui.Input) ([]loquat.Object, error) {
	if len(p.manifest.UI) == 0 {
		return nil, nil
	}
	p.mu.Lock()
	graceEnd := p.graceEnd
	p.mu.Unlock()
	s, err := p.awaitRunning(ctx, time.Until(graceEnd))
	if err != nil {
		status := p.Status()
		return nil, fmt.Errorf("%w: %s", plugin.ErrDown, cmp.Or(status.Detail, "it is "+status.State))
	}
	var elements []loquat.Object
	for _, name := range p.manifest.UI {
		if !p.lists(name) {
			continue // list has reported the missing tool
		}
		more, err := p.elements(ctx, s, name, in)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		elements = append(elements, more...)
	}
	return elements, nil
}

// elements calls one tool under `ui`.
func (p *Plugin) elements(ctx context.Context, s *session, name string, in ui.Input) ([]loquat.Object, error) {
	a, err := p.callIn(ctx, s, use{tool: name, arguments: p.uiArguments(name, in)})
	if err != nil {
		return nil, err
	}
	data, err := a.data()
	if err != nil {
		return nil, err
	}
	return readElements(data)
}

// uiArguments returns the arguments for a tool under `ui`. They are empty if the tool's
// schema has no properties.
func (p *Plugin) uiArguments(name string, in ui.Input) map[string]any {
	p.mu.Lock()
	tool := p.listed[name]
	p.mu.Unlock()
	if !tool.takesArguments() {
		return map[string]any{}
	}
	arguments := map[string]any{"config": in.Config, "tags": orEmpty(in.Tags), "models": orEmpty(in.Models)}
	if p.Kind() == plugin.KindApplication {
		arguments["state"] = orObject(in.State)
	}
	return arguments
}

// readElements parses {elements: [...]}, or the list alone.
func readElements(data json.RawMessage) ([]loquat.Object, error) {
	var envelope struct {
		Elements []json.RawMessage `json:"elements"`
	}
	var list []json.RawMessage
	if json.Unmarshal(data, &list) != nil {
		if json.Unmarshal(data, &envelope) == nil {
			list = envelope.Elements
		}
	}
	if list == nil {
		return nil, errors.New("it answered neither {elements: [...]} nor a list of elements")
	}
	elements := make([]loquat.Object, len(list))
	for i, raw := range list {
		if json.Unmarshal(raw, &elements[i]) != nil {
			return nil, fmt.Errorf("element #%d is %s; must be an object", i, strictjson.Kind(raw))
		}
	}
	return elements, nil
}

// Actions returns the names of the tools under `actions`.
func (p *Plugin) Actions() []string { return p.manifest.Actions }

// Act calls the tool of an action.
func (p *Plugin) Act(ctx context.Context, call plugin.ActionCall) (plugin.ActionResult, error) {
	if !slices.Contains(p.manifest.Actions, call.ActionID) {
		return plugin.ActionResult{}, loquat.Errorf(loquat.CodeNotFound, "plugin %s has no action %q", p.Name(), call.ActionID)
	}
	arguments := map[string]any{"params": orObject(call.Params), "session_id": call.SessionID, "config": call.Config}
	if p.Kind() == plugin.KindApplication {
		arguments["state"] = orObject(call.State)
	}
	a, err := p.call(ctx, use{tool: call.ActionID, arguments: arguments})
	if err != nil {
		if ctx.Err() == nil && loquat.CodeOf(err) != loquat.CodeUnavailable {
			err = loquat.Errorf(loquat.CodeBackendError, "action %s: %s", call.ActionID, p.opts.Redact(err.Error()))
		}
		return plugin.ActionResult{}, err
	}
	data, err := a.data()
	if err != nil {
		return plugin.ActionResult{}, loquat.Errorf(loquat.CodeBackendError, "action %s of plugin %s: %s", call.ActionID, p.Name(), p.opts.Redact(err.Error()))
	}
	result, err := p.actionResult(data)
	if err != nil {
		return plugin.ActionResult{}, loquat.Errorf(loquat.CodeBackendError, "action %s of plugin %s: %v", call.ActionID, p.Name(), err)
	}
	return result, nil
}

// actionResult parses {result}, and for an application plugin {result?, state}. Any other
// answer is the result itself. An answer with a state must have exactly this form;
// otherwise the state would be lost without an error.
func (p *Plugin) actionResult(data json.RawMessage) (plugin.ActionResult, error) {
	var o loquat.Object
	if json.Unmarshal(data, &o) != nil || o == nil {
		return plugin.ActionResult{Result: data}, nil
	}
	result, hasResult := o["result"]
	state, hasState := o["state"]
	if p.Kind() != plugin.KindApplication || !hasState {
		if hasResult && len(o) == 1 {
			return plugin.ActionResult{Result: result}, nil
		}
		return plugin.ActionResult{Result: data}, nil
	}
	var next loquat.Object
	if json.Unmarshal(state, &next) != nil || next == nil {
		return plugin.ActionResult{}, fmt.Errorf("its state is %s; state must be an object, or left out if it does not change", strictjson.Kind(state))
	}
	for _, key := range slices.Sorted(maps.Keys(o)) {
		if key != "result" && key != "state" {
			return plugin.ActionResult{}, fmt.Errorf("it answered %q next to state; only result and state are allowed, so put it into result", key)
		}
	}
	return plugin.ActionResult{Result: result, State: next}, nil
}

// EditsMessages reports whether the plugin has transforms, which get all messages.
func (p *Plugin) EditsMessages() bool { return len(p.manifest.Transforms) > 0 }

// EditRequest calls the tools under `transforms`, which may change the model's request.
func (p *Plugin) EditRequest(ctx context.Context, req *loquat.LLMRequest) error {
	for _, name := range p.manifest.Transforms {
		if err := p.transform(ctx, name, req); err != nil {
			return loquat.Errorf(loquat.CodeBackendError, "plugin %s could not edit the request to the model: %s: %v", p.Name(), name, err)
		}
	}
	return nil
}

func (p *Plugin) transform(ctx context.Context, name string, req *loquat.LLMRequest) error {
	s, err := p.awaitRunning(ctx, callWait)
	if err != nil {
		return err
	}
	a, err := s.callTool(ctx, p.manifest.timeout(), use{tool: name, arguments: transformArguments(req)})
	if err != nil {
		return err
	}
	data, err := a.data()
	if err != nil {
		return err
	}
	return applyTransform(data, req)
}

func transformArguments(req *loquat.LLMRequest) map[string]any {
	return map[string]any{
		"config": orObject(req.Redacted), "session_id": req.SessionID, "request_id": req.RequestID,
		"messages": orEmpty(req.Messages), "params": config.RedactObject(req.Params, nil),
	}
}

// applyTransform applies a transform's answer to the request.
func applyTransform(data json.RawMessage, req *loquat.LLMRequest) error {
	var edit struct {
		Messages *[]loquat.Message `json:"messages"`
		Params   loquat.Object     `json:"params"`
	}
	if err := strictjson.Decode(data, &edit); err != nil {
		return fmt.Errorf("it did not answer {messages?, params?}: %w", err)
	}
	for _, key := range slices.Sorted(maps.Keys(edit.Params)) {
		if loquat.IsReservedParam(key) {
			return fmt.Errorf("it set params.%s; plugins cannot set %s", loquat.Clip(key, loquat.Excerpt), strings.Join(loquat.ReservedParams(), ", "))
		}
	}
	if edit.Messages != nil {
		for i, m := range *edit.Messages {
			if !loquat.ValidRole(m.Role) {
				return fmt.Errorf("its messages[%d].role is %q", i, m.Role)
			}
		}
		req.Messages = *edit.Messages
	}
	if edit.Params != nil {
		req.Params = config.RestoreSecrets(edit.Params, req.Params, nil)
	}
	return nil
}

func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

func orObject(o loquat.Object) loquat.Object {
	if o == nil {
		return loquat.Object{}
	}
	return o
}
