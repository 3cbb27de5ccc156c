package provider

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"loquat"
	"loquat/internal/config"
	"loquat/internal/ui"
)

// The tags that the adapter uses.
const (
	tagTools     = "supports_tools"
	tagImages    = "supports_images"
	tagReasoning = "supports_reasoning"
)

// UIElements returns the settings that a session may change, including the model, and
// the fields to show under messages and in the status bar.
func (p *Provider) UIElements(_ context.Context, in ui.Input) ([]loquat.Object, error) {
	can := func(tag string) bool { return in.Config == nil || slices.Contains(in.Tags, tag) }
	elements := []loquat.Object{element("model_picker", "key", "model", "label", "Model", "order", 0)}
	for _, f := range schema {
		switch {
		case f.Label == "", f.Group == groupReasoning && !can(tagReasoning), f.Group == groupTools && !can(tagTools):
			continue
		}
		if e := setting(f, in); e != nil {
			elements = append(elements, e)
		}
	}
	return append(elements, shownOfMessages(can(tagReasoning))...), nil
}

// shownOfMessages returns the fields to show below messages and in the status bar.
func shownOfMessages(reasoning bool) []loquat.Object {
	exists := func(path string) map[string]any { return map[string]any{"path": path, "exists": true} }
	elements := []loquat.Object{
		element("message_footer", "key", "usage", "data", "metadata.usage_total_tokens_formatted", "template", "{{data}} tokens",
			"condition", exists("metadata.usage_total_tokens")),
		element("status_bar", "key", "model", "data", "metadata.model", "condition", exists("metadata.model")),
		element("status_bar", "key", "usage", "data", "metadata.usage_total_tokens_formatted", "template", "{{data}} tokens",
			"condition", exists("metadata.usage_total_tokens")),
	}
	if reasoning {
		elements = append(elements, element("message_footer", "key", "reasoning", "data", "metadata.usage_reasoning_tokens_formatted",
			"template", "{{data}} reasoning tokens", "condition", map[string]any{"all": []any{
				exists("metadata.usage_reasoning_tokens"), map[string]any{"not": map[string]any{"path": "metadata.usage_reasoning_tokens", "eq": 0}}}}))
	}
	return elements
}

// element returns an element. fields holds names and values alternately.
func element(uiType string, fields ...any) loquat.Object {
	e := loquat.Object{}.Set("ui_type", uiType)
	for i := 0; i < len(fields); i += 2 {
		e.Set(fields[i].(string), fields[i+1])
	}
	return e
}

// setting returns the config element of a field, or nil if there is nothing to choose.
func setting(f config.Field, in ui.Input) loquat.Object {
	e := element("config", "key", f.Key, "label", f.Label, "description", f.Doc)
	switch f.Kind {
	case config.Boolean:
		e.Set("type", "checkbox")
	case config.Number, config.Integer:
		e.Set("type", "number")
	case config.Delays:
		e.Set("type", "text").Set("format", "json").Set("placeholder", "[1, 2.5]")
	case config.DelayMap:
		e.Set("type", "multiline").Set("format", "json").Set("placeholder", `{"503": [1, 2.5]}`)
	default:
		e.Set("type", "text")
	}
	if len(f.Enum) > 0 {
		e.Set("type", "select").Set("options", f.Enum)
	}
	if f.Required {
		e.Set("required", true)
	}
	if strings.Contains(f.Key, ".") {
		// With a separate key, a session can change a single key of the object.
		e.Set("key", strings.ReplaceAll(f.Key, ".", "_")).Set("config_path", f.Key).Set("default", f.Default)
	}
	switch f.Key {
	case "model":
		return modelSetting(e, in.Models)
	case "base_url":
		return endpointSetting(e, in.Config)
	case "timeout":
		e.Set("placeholder", fmt.Sprint(f.Default))
	case "tool_choice": // the choices that are words; a config may also name a tool
		e.Set("type", "dropdown").Set("options", []string{"auto", "none", "required"})
	case "stream_recovery.max_retries":
		enabled := func(mode string) map[string]any { return map[string]any{"path": "stream_recovery.mode", "eq": mode} }
		e.Set("condition", map[string]any{"any": []any{enabled(recoverEarlyOnly), enabled(recoverAggressive)}})
	}
	return e
}

// modelSetting returns a choice of the models that the backend lists, or a text field without such a list.
func modelSetting(e loquat.Object, models []loquat.Model) loquat.Object {
	var options []option
	for _, m := range models {
		if m.ID == "" {
			continue
		}
		label := m.Name
		if label == "" {
			label = m.ID
		}
		options = append(options, option{m.ID, label})
	}
	if len(options) == 0 {
		return e
	}
	return e.Set("type", "select").Set("options", options)
}

type option struct {
	Value string `json:"value"`
	Label string `json:"label"`
}

// endpointSetting returns a choice of the configured endpoints, or nil if none are configured.
func endpointSetting(e, c loquat.Object) loquat.Object {
	endpoints := c.Object("endpoint_options")
	var options []option
	at := func(url string) int {
		return slices.IndexFunc(options, func(o option) bool { return config.NormalizeURL(o.Value) == config.NormalizeURL(url) })
	}
	for _, label := range slices.Sorted(maps.Keys(endpoints)) {
		if url := endpoints.String(label); url != "" && at(url) < 0 {
			options = append(options, option{url, label})
		}
	}
	if len(options) == 0 {
		return nil
	}
	if url := c.String("base_url"); url != "" && at(url) < 0 {
		options = append(options, option{url, url})
	} else if url != "" {
		options[at(url)].Value = url // as the setting's value has it
	}
	return e.Set("type", "dropdown").Set("options", options)
}

// Tags returns the capabilities of the configured model, according to the model's
// descriptor. Capabilities default to supported, because an unnecessary element does
// less harm than a missing one.
func (p *Provider) Tags(c loquat.Object, models []loquat.Model) []string {
	var model loquat.Object
	if i := slices.IndexFunc(models, func(m loquat.Model) bool { return m.ID == c.String("model") }); i >= 0 {
		model = models[i].Extra
	}
	var tags []string
	if capable(model, model["supported_parameters"], "tools", "function_calling", "tool_use", "tool_calling") {
		tags = append(tags, tagTools)
	}
	forbidden := string(c["allow_image_attachment_base64"]) == "false" && string(c["allow_image_attachment_url"]) == "false"
	if !forbidden && capable(model, model.Object("architecture")["input_modalities"], "images", "vision", "image", "image_input") {
		tags = append(tags, tagImages)
	}
	if capable(model, model["supported_parameters"], "reasoning", "thinking", "include_reasoning") {
		tags = append(tags, tagReasoning)
	}
	return tags
}

// capable reports whether a model has a capability, under any of its names. Backends
// report it as a flag supports_NAME, as a flag or word in `capabilities`, or as a word
// in list. If a backend reports nothing, the capability counts as supported.
func capable(model loquat.Object, list json.RawMessage, names ...string) bool {
	for _, name := range names {
		for _, flag := range []json.RawMessage{model["supports_"+name], model.Object("capabilities")[name]} {
			if is, ok := truth(flag); ok {
				return is
			}
		}
	}
	denied := false
	for _, raw := range []json.RawMessage{model["capabilities"], list} {
		var words []string
		if json.Unmarshal(raw, &words) != nil || words == nil {
			continue
		}
		if slices.ContainsFunc(words, func(w string) bool { return slices.Contains(names, strings.ToLower(w)) }) {
			return true
		}
		denied = true
	}
	return !denied
}

// truth reads true, false, or an object whose `supported` is true or false. ok is false
// for any other value.
func truth(raw json.RawMessage) (is, ok bool) {
	if json.Unmarshal(raw, &is) == nil && string(raw) != "null" {
		return is, true
	}
	var nested struct{ Supported *bool }
	if json.Unmarshal(raw, &nested) == nil && nested.Supported != nil {
		return *nested.Supported, true
	}
	return false, false
}
