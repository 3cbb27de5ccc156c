package provider

import (
	"encoding/json"
	"strings"

	"loquat"
	"loquat/internal/config"
)

// exempt reports whether metadata under a key is never redacted. Exempt are the model's
// own words, which stay unchanged like the reply's content and the arguments of its
// calls, and metadata that this program wrote.
func exempt(key string) bool {
	switch key {
	case loquat.MetaProvider:
		return true
	case reasoningContent, reasoningPlain, reasoningDetails, contentParts, loquat.MetaRefusal, functionCall, customTool:
		return true
	}
	return false
}

// redactChunk removes the secrets of a request from everything in a chunk that is not
// exempt: a backend may repeat what it was sent.
func redactChunk(c *loquat.Chunk, secrets *config.Redactor) {
	redactObject(c.Extra, secrets)
	if c.Reply == nil {
		return
	}
	redactObject(c.Reply.Metadata, secrets)
	c.Reply.FinishReason = secrets.Redact(c.Reply.FinishReason)
	for i := range c.Reply.ToolCalls {
		call := &c.Reply.ToolCalls[i]
		if secrets.Redact(call.ID) != call.ID {
			call.ID = newCallID() // two redacted ids would be equal
		}
		redactObject(call.Extra, secrets)
		redactObject(call.FunctionExtra, secrets)
	}
}

// redactText removes secrets from a backend's text. Within JSON the secrets may be escaped.
func redactText(text string, secrets *config.Redactor) string {
	if json.Valid([]byte(text)) {
		text = string(secrets.RedactJSON(json.RawMessage(strings.TrimSpace(text))))
	}
	return secrets.Redact(text)
}

// redactModel removes secrets from the description of a model.
func redactModel(m *loquat.Model, secrets *config.Redactor) {
	m.ID, m.Name = secrets.Redact(m.ID), secrets.Redact(m.Name)
	redactObject(m.Extra, secrets)
}

// redactObject removes secrets from the names and values of o in place, except the exempt ones.
func redactObject(o loquat.Object, secrets *config.Redactor) {
	for key, value := range o {
		if exempt(key) {
			continue
		}
		o[key] = secrets.RedactJSON(value)
		if name := secrets.Redact(key); name != key {
			o[name] = o[key]
			delete(o, key)
		}
	}
}
