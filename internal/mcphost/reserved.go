package mcphost

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"loquat"
	"loquat/internal/plugin"
	"loquat/internal/ui"
)

// UIElements asks the tools under `ui`. A process that does not run shows nothing.
func (p *Plugin) UIElements(ctx context.Context, in ui.Input) ([]loquat.Object, error) {
	if len(p.manifest.UI) == 0 {
		return nil, nil
	}
	if _, err := p.running(); err != nil {
		return nil, nil
	}
	var elements []loquat.Object
	for _, name := range p.manifest.UI {
		more, err := p.elements(ctx, name, in)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		elements = append(elements, more...)
	}
	return elements, nil
}

// elements asks one tool under `ui`.
func (p *Plugin) elements(ctx context.Context, name string, in ui.Input) ([]loquat.Object, error) {
	a, err := p.call(ctx, use{tool: name, arguments: p.uiArguments(name, in)})
	if err != nil {
		return nil, err
	}
	data, err := a.data()
	if err != nil {
		return nil, err
	}
	return readElements(data)
}

// uiArguments are what a tool under `ui` is called with: nothing, when it has no
// input properties.
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

// readElements reads {elements: [...]}, or the list alone.
func readElements(data json.RawMessage) ([]loquat.Object, error) {
	var envelope struct {
		Elements *[]loquat.Object `json:"elements"`
	}
	var elements []loquat.Object
	if json.Unmarshal(data, &elements) == nil && elements != nil {
		return elements, nil
	}
	if err := json.Unmarshal(data, &envelope); err != nil || envelope.Elements == nil {
		return nil, errors.New("it answered neither {elements: [...]} nor a list of elements")
	}
	return *envelope.Elements, nil
}

// Actions are the tools under `actions`.
func (p *Plugin) Actions() []string { return p.manifest.Actions }

// Act has the process run an action.
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
			err = loquat.Errorf(loquat.CodeBackendError, "action %s: %s", call.ActionID, p.opts.Mask(err.Error()))
		}
		return plugin.ActionResult{}, err
	}
	data, err := a.data()
	if err != nil {
		return plugin.ActionResult{}, loquat.Errorf(loquat.CodeBackendError, "action %s of plugin %s: %s", call.ActionID, p.Name(), p.opts.Mask(err.Error()))
	}
	return p.actionResult(data), nil
}

// actionResult takes {result}, and of an application plugin {result?, state}, apart.
// Everything else is the result as it stands.
func (p *Plugin) actionResult(data json.RawMessage) plugin.ActionResult {
	var o loquat.Object
	if json.Unmarshal(data, &o) != nil || o == nil {
		return plugin.ActionResult{Result: data}
	}
	result, hasResult := o["result"]
	state, hasState := o["state"]
	switch {
	case hasResult && len(o) == 1:
		return plugin.ActionResult{Result: result}
	case p.Kind() == plugin.KindApplication && hasState && (len(o) == 1 || hasResult && len(o) == 2):
		var next loquat.Object
		if json.Unmarshal(state, &next) == nil && next != nil {
			return plugin.ActionResult{Result: result, State: next}
		}
	}
	return plugin.ActionResult{Result: data}
}

// EditRequest lets the tools under `transforms` change what goes to the model.
func (p *Plugin) EditRequest(ctx context.Context, req *loquat.LLMRequest) error {
	for _, name := range p.manifest.Transforms {
		if err := p.transform(ctx, name, req); err != nil {
			return loquat.Errorf(loquat.CodeBackendError, "plugin %s could not edit the call of the model: %s: %v", p.Name(), name, err)
		}
	}
	return nil
}

func (p *Plugin) transform(ctx context.Context, name string, req *loquat.LLMRequest) error {
	s, err := p.running()
	if err != nil {
		return errors.New("the plugin is not running")
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
		"config": orObject(req.Concealed), "session_id": req.SessionID, "request_id": req.RequestID,
		"messages": orEmpty(req.Messages), "params": orObject(req.Params),
	}
}

// applyTransform puts what a transform answers into the request.
func applyTransform(data json.RawMessage, req *loquat.LLMRequest) error {
	var edit struct {
		Messages *[]loquat.Message `json:"messages"`
		Params   loquat.Object     `json:"params"`
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&edit); err != nil {
		return fmt.Errorf("it did not answer {messages?, params?}: %w", err)
	}
	for _, key := range loquat.ReservedParams() {
		if _, ok := edit.Params[key]; ok {
			return fmt.Errorf("it set params.%s; %s are not its to set", key, strings.Join(loquat.ReservedParams(), ", "))
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
		req.Params = edit.Params
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
