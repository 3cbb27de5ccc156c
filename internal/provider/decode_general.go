package provider

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"loquat"
)

// object is a JSON object for reading.
type object = map[string]json.RawMessage

// decodeGeneral decodes any JSON value that a backend may return. It reads every member
// that a known backend uses and skips values of the wrong type. contentKeys lists the members
// of a choice that may hold the content; the first one present counts.
func decodeGeneral(data []byte, c *chunk, contentKeys ...string) error {
	if err := loquat.CheckDepth(data); err != nil {
		return err
	}
	data = loquat.CleanRaw(data)
	var all object
	if err := json.Unmarshal(data, &all); err != nil {
		var list []object
		if json.Unmarshal(data, &list) != nil || len(list) == 0 {
			return err
		}
		all = list[0] // some backends wrap their error in a list
	}
	if all == nil {
		return fmt.Errorf("null instead of an object")
	}
	c.model = text(all["model"])
	c.usage = asObject(all["usage"])
	c.failure = failureIn(all)
	for _, key := range sortedKeys(all) {
		if noted([]byte(key)) {
			c.notes = append(c.notes, field{[]byte(key), all[key]})
		}
	}
	var choices []json.RawMessage
	if raw, ok := all["choices"]; ok {
		c.choices = json.Unmarshal(raw, &choices) == nil
	}
	if choice := choiceZero(choices); choice != nil {
		c.choice = true
		c.addChoice(choice, contentKeys)
	}
	if c.usage == nil {
		c.usage = asObject(asMap(all["x_groq"])["usage"])
	}
	return nil
}

// choiceZero returns the choice with index 0. A choice without an index counts as 0.
func choiceZero(choices []json.RawMessage) object {
	for _, raw := range choices {
		choice := asMap(raw)
		index, has := choice["index"]
		if len(choice) == 0 || has && string(index) != "null" && number(index) != 0 {
			continue
		}
		return choice
	}
	return nil
}

func (c *chunk) addChoice(choice object, contentKeys []string) {
	c.finish = text(choice["finish_reason"])
	if c.usage == nil {
		c.usage = asObject(choice["usage"])
	}
	var delta object
	for _, key := range contentKeys {
		if delta = asMap(choice[key]); delta != nil {
			c.whole = key == "message"
			break
		}
	}
	thinking := c.addContent(delta["content"])
	c.reasoning, c.reasoningContent = text(delta[reasoningPlain]), text(delta[reasoningContent])
	if len(c.reasoningContent) == 0 && !bytes.Equal(thinking, c.reasoning) {
		c.reasoningContent = thinking
	}
	if len(c.reasoning)+len(c.reasoningContent) == 0 {
		c.reasoning = detailText(delta[reasoningDetails])
	}
	if refusal := text(delta["refusal"]); refusal != nil {
		c.refusal = refusal // replaces a refusal from a content part, which repeats it
	}
	var calls []json.RawMessage
	if json.Unmarshal(delta["tool_calls"], &calls) == nil {
		for _, raw := range calls[:min(len(calls), maxCalls+1)] { // one too many is an error
			c.calls = append(c.calls, generalCall(asMap(raw)))
		}
	}
	if legacy := asMap(delta[functionCall]); legacy != nil && !c.whole {
		d := callDelta{index: -1}
		d.read(legacy, "arguments")
		c.legacy = &d
	}
	for _, key := range sortedKeys(delta) {
		switch key {
		case functionCall:
			if c.legacy != nil || string(delta[key]) == "null" {
				continue
			}
		case "role", "content", reasoningContent, reasoningPlain, "refusal", "tool_calls":
			if isKnownType(key, delta[key]) {
				continue
			}
		}
		c.fields = append(c.fields, field{[]byte(key), delta[key]})
	}
}

// isKnownType reports whether the functions above could read a value. A value that they
// could not read is kept unchanged.
func isKnownType(key string, v json.RawMessage) bool {
	switch v[0] {
	case 'n', '"':
		return true
	case '[':
		return key == "content" || key == "tool_calls"
	case '{':
		return key == "content"
	}
	return key == "role"
}

// addContent reads a content: a string, a part, or a list of parts. It returns the
// text of the thinking parts.
func (c *chunk) addContent(raw json.RawMessage) (thinking []byte) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil
	}
	var parts []json.RawMessage
	switch raw[0] {
	case '"':
		c.text = text(raw)
		return nil
	case '{':
		parts = []json.RawMessage{raw}
	default:
		if json.Unmarshal(raw, &parts) != nil {
			return nil
		}
	}
	for _, raw := range parts {
		if raw[0] == '"' {
			c.text = append(c.text, text(raw)...)
			continue
		}
		part := asMap(raw)
		switch string(text(part["type"])) {
		case "text", "output_text":
			c.text = append(c.text, text(part["text"])...)
		case "thinking":
			thinking = append(thinking, thinkingText(part["thinking"])...)
		case "refusal":
			c.refusal = append(c.refusal, text(part["refusal"])...)
		default:
			c.parts = append(c.parts, raw)
		}
	}
	return thinking
}

// thinkingText reads a string, or a list of text parts.
func thinkingText(raw json.RawMessage) []byte {
	if len(raw) > 0 && raw[0] == '"' {
		return text(raw)
	}
	var parts []json.RawMessage
	var out []byte
	if json.Unmarshal(raw, &parts) == nil {
		for _, p := range parts {
			out = append(out, text(asMap(p)["text"])...)
		}
	}
	return out
}

// detailText returns the text within reasoning_details.
func detailText(raw json.RawMessage) []byte {
	var details []json.RawMessage
	var out []byte
	if json.Unmarshal(raw, &details) != nil {
		return nil
	}
	for _, d := range details {
		detail := asMap(d)
		if t := text(detail["text"]); len(t) > 0 {
			out = append(out, t...)
		} else {
			out = append(out, text(detail["summary"])...)
		}
	}
	return out
}

func generalCall(call object) callDelta {
	c := callDelta{index: -1, id: text(call["id"])}
	if raw, ok := call["index"]; ok {
		if n := number(raw); n >= 0 {
			c.index = n
		}
	}
	kind, argument := "function", "arguments"
	fn := asMap(call[kind])
	if custom := asMap(call[customTool]); fn == nil && custom != nil {
		c.custom, fn, kind, argument = true, custom, customTool, customInput
	}
	c.read(fn, argument)
	for _, key := range sortedKeys(call) {
		if key != "id" && key != "index" && (key != kind || fn == nil) {
			c.extra = append(c.extra, field{[]byte(key), call[key]})
		}
	}
	return c
}

// read copies the name, the argument and the unknown fields from fn.
func (c *callDelta) read(fn object, argument string) {
	c.name = text(fn["name"])
	switch args := fn[argument]; {
	case len(args) == 0 || string(args) == "null":
	case args[0] == '"':
		c.args = text(args)
	default:
		var buf bytes.Buffer
		if json.Compact(&buf, args) == nil {
			c.args = buf.Bytes()
		}
	}
	for _, key := range sortedKeys(fn) {
		if key != "name" && key != argument {
			c.fnExtra = append(c.fnExtra, field{[]byte(key), fn[key]})
		}
	}
}

// failureIn finds the error that an answer reports, under any of its known names.
func failureIn(all object) json.RawMessage {
	if raw := all["error"]; !saysNothing(raw) && string(raw) != "{}" && string(raw) != "false" {
		return raw
	}
	_, hasChoices := all["choices"]
	if string(text(all["object"])) != "error" && (hasChoices || all["usage"] != nil) {
		return nil
	}
	for _, key := range []string{"message", "detail"} {
		if !saysNothing(all[key]) {
			raw, err := json.Marshal(all)
			if err != nil {
				return all[key]
			}
			return raw
		}
	}
	return nil
}

func text(raw json.RawMessage) []byte {
	var s string
	if len(raw) == 0 || raw[0] != '"' || json.Unmarshal(raw, &s) != nil || s == "" {
		return nil
	}
	return []byte(strings.ReplaceAll(s, "\x00", "\ufffd"))
}

func asMap(raw json.RawMessage) object {
	var o object
	if json.Unmarshal(raw, &o) != nil {
		return nil
	}
	return o
}

func asObject(raw json.RawMessage) json.RawMessage {
	if len(raw) > 0 && raw[0] == '{' {
		return raw
	}
	return nil
}

// number reads an integer, which may be in quotes. It returns -1 for anything else.
func number(raw json.RawMessage) int {
	n, err := strconv.Atoi(strings.Trim(string(raw), `"`))
	if err != nil {
		return -1
	}
	return n
}

func sortedKeys(o object) []string {
	keys := make([]string, 0, len(o))
	for k := range o {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
