package provider

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"loquat"
)

// encode returns the request's body. known has the encoded start of long histories.
func (s *settings) encode(ctx context.Context, req loquat.LLMRequest, known *historyCache) (*body, error) {
	fields := s.fields(req)
	e := encoder{settings: s, assets: assets{ctx: ctx, open: req.OpenAsset}}
	e.raw(`{"model":`)
	e.text(s.model)
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		e.raw(",")
		e.text(key)
		e.raw(":")
		e.buf = append(e.buf, fields[key]...)
	}
	e.raw(`,"messages":[`)
	start, rest, err := s.split(ctx, req, known)
	if err != nil {
		return nil, err
	}
	if err := e.history(start, rest); err != nil {
		return nil, err
	}
	e.raw("]}")
	e.flush()
	return &e.body, nil
}

// fields returns the body's members except model and messages.
func (s *settings) fields(req loquat.LLMRequest) loquat.Object {
	fields := loquat.Object{}.Set("stream", req.Stream)
	if req.Stream && s.includeUsage {
		fields["stream_options"] = json.RawMessage(`{"include_usage":true}`)
	}
	if tools := uniqueTools(req.Tools, s.tools); len(tools) > 0 {
		fields["tools"] = listOf(tools)
		fields["tool_choice"] = s.toolChoice
	}
	for key, v := range req.Params {
		if loquat.IsReservedParam(key) {
			continue
		}
		if len(v) == 0 || string(v) == "null" {
			delete(fields, key)
		} else {
			fields[key] = v
		}
	}
	if _, ok := fields["tools"]; !ok && len(req.Params["tool_choice"]) == 0 { // backends refuse a choice without tools
		delete(fields, "tool_choice")
	}
	return fields
}

// uniqueTools concatenates lists of tool schemas. Of several schemas with one name it keeps the first.
func uniqueTools(lists ...[]json.RawMessage) []json.RawMessage {
	var out []json.RawMessage
	seen := map[string]bool{}
	for _, raw := range slices.Concat(lists...) {
		name := string(text(asMap(asMap(raw)["function"])["name"]))
		if name != "" && seen[name] {
			continue
		}
		seen[name] = true
		out = append(out, raw)
	}
	return out
}

type encoder struct {
	settings *settings
	assets   assets
	body     body
	buf      []byte // the part under construction
	began    bool   // a turn was written
}

func (e *encoder) raw(s string)  { e.buf = append(e.buf, s...) }
func (e *encoder) text(s string) { e.buf = loquat.AppendString(e.buf, s) }

func (e *encoder) flush() {
	if len(e.buf) > 0 {
		e.body.add(e.buf)
		e.buf = nil
	}
}

// next separates a turn from the one before.
func (e *encoder) next() {
	if e.began {
		e.raw(",")
	}
	e.began = true
}

// history writes the encoded start of a history and the turns after it.
func (e *encoder) history(start encodedHistory, rest []turn) error {
	if e.settings.mergeSystem {
		var texts []string
		rest, texts = takeSystem(rest)
		if texts = slices.Concat(start.system, texts); len(texts) > 0 {
			e.next()
			if err := e.turn(turn{Message: loquat.Message{Role: loquat.RoleSystem, Content: strings.Join(texts, "\n\n")}}); err != nil {
				return err
			}
		}
	}
	for _, p := range start.pieces {
		e.next()
		if p.turn != nil {
			if err := e.turn(p.turn.unshared()); err != nil {
				return err
			}
			continue
		}
		e.flush()
		e.body.add(p.bytes)
	}
	for _, t := range rest {
		e.next()
		if err := e.turn(t); err != nil {
			return err
		}
	}
	return nil
}

func (e *encoder) turn(t turn) error {
	e.raw(`{"role":`)
	e.text(t.Role)
	e.raw(`,"content":`)
	switch {
	case len(t.images) > 0:
		e.parts(t)
	case t.Content == "" && len(t.calls) > 0 && e.settings.emptyContent == emptyNull:
		e.raw("null")
	default:
		e.text(t.Content)
	}
	if t.Role == loquat.RoleTool {
		e.raw(`,"tool_call_id":`)
		e.text(t.Metadata.String(loquat.MetaToolCallID))
	}
	if err := e.calls(t.calls); err != nil {
		return err
	}
	if t.echo {
		for _, key := range []string{reasoningContent, reasoningPlain, reasoningDetails} {
			if v := t.Metadata[key]; len(v) > 0 {
				e.raw(",")
				e.text(key)
				e.raw(":")
				e.buf = append(e.buf, v...)
			}
		}
	}
	e.raw("}")
	return nil
}

// parts writes text and images as a list of content parts.
func (e *encoder) parts(t turn) {
	for i := range t.images {
		e.assets.resolve(&t.images[i])
	}
	texts := []string{t.Content}
	for _, img := range t.images {
		texts = append(texts, img.note)
	}
	e.raw("[")
	comma := ""
	for _, text := range texts {
		if text != "" {
			e.raw(comma + `{"type":"text","text":`)
			e.text(text)
			e.raw("}")
			comma = ","
		}
	}
	for _, img := range t.images {
		if img.url == nil && img.file == nil {
			continue
		}
		e.raw(comma + `{"type":"image_url","image_url":{"url":`)
		if img.file != nil {
			e.raw(`"data:` + img.file.mediaType + `;base64,`)
			e.flush()
			e.body.addFile(img.file)
			e.raw(`"`)
		} else {
			e.flush()
			e.body.add(img.url)
		}
		e.raw("}}")
		comma = ","
	}
	e.raw("]")
}

// callAsItCame encodes a call as the backend sent it. The arguments that the service
// makes up for a custom call are left out.
func callAsItCame(c loquat.ToolCall) ([]byte, error) {
	if c.Extra.String("type") == customTool && c.Extra.Object(customTool) != nil {
		return json.Marshal(c.Extra.Clone().Set("id", c.ID))
	}
	if strings.TrimSpace(c.Arguments) == "" {
		c.Arguments = "{}"
	}
	return c.MarshalJSON()
}

func (e *encoder) calls(calls []loquat.ToolCall) error {
	for i, c := range calls {
		raw, err := callAsItCame(c)
		if err != nil {
			return loquat.Errorf(loquat.CodeInternal, "encode tool call %s: %v", c.Name, err)
		}
		if i == 0 {
			e.raw(`,"tool_calls":[`)
		} else {
			e.raw(",")
		}
		e.buf = append(e.buf, raw...)
	}
	if len(calls) > 0 {
		e.raw("]")
	}
	return nil
}
