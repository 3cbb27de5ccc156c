package openai

import (
	"encoding/json"
	"fmt"
	"strings"

	"loquat"
)

// maxItems bounds the items of an input.
const maxItems = 10_000

// readInput returns the messages of an input: a text, or a list of items. Neighbouring items of the
// assistant (reasoning, a message, calls) are one message, as chat completions have it.
func readInput(place string, raw json.RawMessage, lookup itemLookup) ([]loquat.NewMessage, error) {
	if raw == nil {
		return nil, loquat.Invalid(place, "is missing; it has to be a text or a list of items")
	}
	messages, err := readMessages(place, raw, lookup)
	if err != nil {
		return nil, err
	}
	if len(messages) == 0 {
		return nil, loquat.Invalid(place, "is empty; it has to end in a message of the user or the output of a function")
	}
	if last := messages[len(messages)-1].Role; last == loquat.RoleAssistant {
		return nil, loquat.Invalid(place, "ends in an item of the assistant; it has to end in a message of the user or the output of a function")
	}
	return messages, nil
}

// readMessages is readInput for items that need not end in a particular one.
func readMessages(place string, raw json.RawMessage, lookup itemLookup) ([]loquat.NewMessage, error) {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return []loquat.NewMessage{{Role: loquat.RoleUser, Content: text}}, nil
	}
	r := inputReader{lookup: lookup}
	err := r.readList(place, raw)
	return r.out, err
}

// itemLookup returns the item of a response by its id.
type itemLookup func(id string) (loquat.Object, error)

// inputReader gathers messages from items.
type inputReader struct {
	out     []loquat.NewMessage
	pending *loquat.NewMessage // of the assistant; more items may belong to it
	calls   []loquat.ToolCall  // of pending
	lookup  itemLookup
}

func (r *inputReader) readList(place string, raw json.RawMessage) error {
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		return loquat.Invalid(place, "has to be a text or a list of items")
	}
	if len(list) > maxItems {
		return loquat.Invalid(place, "has %d items; at most %d are allowed", len(list), maxItems)
	}
	for i, item := range list {
		at := fmt.Sprintf("%s[%d]", place, i)
		var fields loquat.Object
		if json.Unmarshal(item, &fields) != nil || fields == nil {
			return loquat.Invalid(at, "has to be an object")
		}
		if err := r.read(at, fields); err != nil {
			return err
		}
	}
	r.flush()
	return nil
}

// read reads one item.
func (r *inputReader) read(at string, item loquat.Object) error {
	switch kind := item.String("type"); kind {
	case "", "message":
		return r.readMessage(at, item)
	case "function_call":
		return r.readCall(at, item)
	case "function_call_output":
		return r.readOutput(at, item)
	case "reasoning":
		return r.readReasoning(at, item)
	case itemCompaction:
		return r.readCompaction(at, item)
	case "item_reference":
		found, err := r.lookup(item.String("id"))
		if err != nil && loquat.CodeOf(err) != loquat.CodeNotFound {
			return err
		}
		if err != nil {
			return loquat.Invalid(at+".id", "names no item of a response that is stored: %q; send the item itself", loquat.Clip(item.String("id"), loquat.Excerpt))
		}
		return r.read(at, found)
	default:
		return loquat.Invalid(at+".type", "is %q; it has to be message, function_call, function_call_output, reasoning, compaction or item_reference", loquat.Clip(kind, loquat.Excerpt))
	}
}

func (r *inputReader) readMessage(at string, item loquat.Object) error {
	text, images, err := readContent(at+".content", item["content"])
	if err != nil {
		return err
	}
	switch role := item.String("role"); role {
	case "user":
		r.add(loquat.NewMessage{Role: loquat.RoleUser, Content: text, Attachments: images})
	case "system", "developer":
		r.add(loquat.NewMessage{Role: loquat.RoleSystem, Content: text})
	case "assistant":
		if r.pending != nil && (r.pending.Content != "" || len(r.calls) > 0) {
			r.flush()
		}
		r.assistant().Content = text
	default:
		return loquat.Invalid(at+".role", "is %q; it has to be user, assistant, system or developer", loquat.Clip(role, loquat.Excerpt))
	}
	return nil
}

func (r *inputReader) readCall(at string, item loquat.Object) error {
	f := function{item.String("namespace"), item.String("name")}
	call := loquat.ToolCall{ID: item.String("call_id"), Name: f.called(), Arguments: item.String("arguments")}
	if call.ID == "" || f.Name == "" {
		return loquat.Invalid(at, "has to have call_id, name and arguments")
	}
	r.assistant()
	r.calls = append(r.calls, call)
	return nil
}

func (r *inputReader) readOutput(at string, item loquat.Object) error {
	id := item.String("call_id")
	if id == "" {
		return loquat.Invalid(at+".call_id", "is missing; it has to be the call_id of the function_call")
	}
	text, images, err := readContent(at+".output", item["output"])
	if err != nil {
		return err
	}
	r.add(loquat.NewMessage{Role: loquat.RoleTool, Content: text, Attachments: images, Metadata: loquat.Object{}.Set(loquat.MetaToolCallID, id)})
	return nil
}

func (r *inputReader) readReasoning(at string, item loquat.Object) error {
	for _, key := range []string{"content", "summary"} {
		raw := item[key]
		if len(raw) == 0 || string(raw) == "null" {
			continue
		}
		text, _, err := readContent(at+"."+key, raw)
		if err != nil {
			return err
		}
		if text == "" {
			continue
		}
		if r.pending != nil && (r.pending.Content != "" || len(r.calls) > 0) {
			r.flush()
		}
		m := r.assistant()
		if before := m.Metadata.String(loquat.MetaReasoningContent); before != "" {
			text = before + "\n" + text
		}
		m.Metadata = m.Metadata.Set(loquat.MetaReasoningContent, text)
		return nil
	}
	return nil // encrypted reasoning of another service
}

// assistant returns the message of the assistant to which the present item belongs.
func (r *inputReader) assistant() *loquat.NewMessage {
	if r.pending == nil {
		r.pending = &loquat.NewMessage{Role: loquat.RoleAssistant}
	}
	return r.pending
}

func (r *inputReader) flush() {
	if r.pending == nil {
		return
	}
	if len(r.calls) > 0 {
		r.pending.Metadata = r.pending.Metadata.Set(loquat.MetaToolCalls, r.calls)
	}
	r.out, r.pending, r.calls = append(r.out, *r.pending), nil, nil
}

func (r *inputReader) add(m loquat.NewMessage) {
	r.flush()
	r.out = append(r.out, m)
}

// readContent returns the text and the images of a content: a text, or a list of parts.
func readContent(at string, raw json.RawMessage) (text string, images []json.RawMessage, err error) {
	if json.Unmarshal(raw, &text) == nil && string(raw) != "null" {
		return text, nil, nil
	}
	var parts []loquat.Object
	if len(raw) == 0 || json.Unmarshal(raw, &parts) != nil {
		return "", nil, loquat.Invalid(at, "has to be a text or a list of parts")
	}
	var texts []string
	for i, part := range parts {
		place := fmt.Sprintf("%s[%d]", at, i)
		switch kind := part.String("type"); kind {
		case "input_text", "output_text", "text", "reasoning_text", "summary_text":
			texts = append(texts, part.String("text"))
		case "refusal":
			texts = append(texts, part.String("refusal"))
		case "input_image":
			image, err := readImage(place, part)
			if err != nil {
				return "", nil, err
			}
			images = append(images, image)
		default:
			return "", nil, loquat.Invalid(place+".type", "is %q, which a chat-completions backend does not take here; use input_text, output_text or input_image", loquat.Clip(kind, loquat.Excerpt))
		}
	}
	return strings.Join(texts, "\n"), images, nil
}

// readImage returns an image part as an attachment.
func readImage(at string, part loquat.Object) (json.RawMessage, error) {
	url := part.String("image_url")
	if url == "" {
		return nil, loquat.Invalid(at+".image_url", "is missing; it has to be a URL or a data: URL, because files are not kept here")
	}
	key := "url"
	if strings.HasPrefix(url, "data:") {
		key = "data_url"
	}
	return json.Marshal(loquat.Object{}.Set("type", "image").Set(key, url))
}
