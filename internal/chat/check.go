package chat

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"loquat"
)

// maxID is the length of a session_id and a request_id.
const maxID = 64

// checkID wants an id that a client chose to be one.
func checkID(location, id string) error {
	ok := len(id) <= maxID && !strings.ContainsFunc(id, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' && r != '-'
	})
	if !ok {
		return loquat.Invalid(location, "has to be at most %d letters, digits, _ or -", maxID)
	}
	return nil
}

// checkNewSession checks a session that is to be made, and makes its messages.
func (s *Service) checkNewSession(p *NewSession) ([]loquat.Message, error) {
	if err := checkID("body.session_id", p.SessionID); err != nil {
		return nil, err
	}
	cleanObject(p.Metadata)
	if err := s.checkDescription(p.AgentID, true, p.Metadata); err != nil {
		return nil, err
	}
	messages := make([]loquat.Message, len(p.Messages))
	for i, n := range p.Messages {
		location := fmt.Sprintf("body.messages[%d]", i)
		m, err := checkMessage(location, n)
		if err != nil {
			return nil, err
		}
		if err := s.checkAttachmentsFor(location, p.AgentID, p.Metadata, m); err != nil {
			return nil, err
		}
		messages[i] = m
	}
	return messages, nil
}

// checkDescription checks an agent that was named, and the overrides that were given:
// those that stood there before are not the caller's fault.
func (s *Service) checkDescription(agentID string, agentNamed bool, given loquat.Object) error {
	base, _, err := s.config.Base(agentID)
	if err != nil && agentNamed {
		return loquat.Invalid("body.agent_id", "is %q, which is no agent; there is %s", agentID, strings.Join(s.config.Agents(), ", "))
	}
	raw, ok := given[loquat.MetaOverrides]
	if err != nil || !ok {
		return nil
	}
	const location = "body.metadata.overrides"
	var overrides loquat.Object
	if err := json.Unmarshal(raw, &overrides); err != nil {
		return loquat.Invalid(location, "has to be an object of config keys")
	}
	faults := s.faultsOf(overrides, base, location)
	if len(faults) == 0 {
		return nil
	}
	return &loquat.Error{Code: loquat.CodeInvalid, Detail: faults[0].Location + " " + faults[0].Message, Fields: faults}
}

// checkMessage makes the message that a client gives.
func checkMessage(location string, p NewMessage) (loquat.Message, error) {
	if !loquat.ValidRole(p.Role) {
		return loquat.Message{}, loquat.Invalid(location+".role", "is %q; it has to be user, assistant, system or tool", p.Role)
	}
	m := newMessage(p.Role)
	m.Content = cleanText(p.Content)
	cleanObject(p.Metadata)
	m.Metadata = p.Metadata
	if len(p.Attachments) > 0 {
		m.Metadata = m.Metadata.Clone().Set(loquat.MetaAttachments, p.Attachments)
	}
	return m, nil
}

// checkSend checks what can be checked of a send without the session.
func checkSend(p *Send) (storedSend, error) {
	if err := checkID("body.request_id", p.RequestID); err != nil {
		return storedSend{}, err
	}
	out := storedSend{Stream: p.Stream, StreamTools: p.StreamTools, DeleteFrom: p.DeleteFrom}
	speaks := p.Content != nil || len(p.Attachments) > 0
	switch {
	case p.OnBusy != BusyReject && p.OnBusy != BusyQueue && p.OnBusy != BusyInterrupt:
		return out, loquat.Invalid("body.on_busy", "is %q; it has to be reject, queue or interrupt", p.OnBusy)
	case p.OnBusy != BusyReject && !speaks:
		return out, loquat.Invalid("body.on_busy", "%s needs content or attachments", p.OnBusy)
	case p.OnBusy != BusyReject && p.DeleteFrom != nil:
		return out, loquat.Invalid("body.delete_from", "goes only with on_busy reject")
	case p.DeleteFrom != nil && *p.DeleteFrom < 0:
		return out, loquat.Invalid("body.delete_from", "has to be an index, 0 or more")
	}
	if !speaks {
		if len(p.Metadata) > 0 {
			return out, loquat.Invalid("body.metadata", "belongs to a user message, and there is no content for one")
		}
		return out, nil
	}
	n := NewMessage{Role: loquat.RoleUser, Metadata: p.Metadata, Attachments: p.Attachments}
	if p.Content != nil {
		n.Content = *p.Content
	}
	m, err := checkMessage("body", n)
	out.Message = &m
	return out, err
}

// cleanText replaces U+0000, which not every store can keep.
func cleanText(s string) string { return strings.ReplaceAll(s, "\x00", "\ufffd") }

// cleanObject does the same to all texts of an object, in place.
func cleanObject(o loquat.Object) {
	for key, raw := range o {
		o[key] = cleanRaw(raw)
		if name := cleanText(key); name != key {
			o[name] = o[key]
			delete(o, key)
		}
	}
}

// cleanRaw replaces the escape of U+0000 in JSON, but not `\\u0000`, which is a
// backslash and five characters.
func cleanRaw(raw json.RawMessage) json.RawMessage {
	escape := []byte(`\u0000`)
	if !bytes.Contains(raw, escape) {
		return raw
	}
	out := make([]byte, 0, len(raw))
	for i := 0; i < len(raw); i++ {
		switch {
		case raw[i] != '\\':
			out = append(out, raw[i])
		case bytes.HasPrefix(raw[i:], escape):
			out = append(out, `\ufffd`...)
			i += len(escape) - 1
		default:
			out = append(out, raw[i], raw[i+1])
			i++
		}
	}
	return out
}

// mergePatch applies an RFC 7396 merge patch to an object and returns the result.
func mergePatch(target, patch loquat.Object) loquat.Object {
	out := target.Clone()
	if out == nil {
		out = loquat.Object{}
	}
	for key, value := range patch {
		if string(bytes.TrimSpace(value)) == "null" {
			delete(out, key)
			continue
		}
		var inner loquat.Object
		if json.Unmarshal(value, &inner) != nil || inner == nil {
			out[key] = value
			continue
		}
		out = out.Set(key, mergePatch(out.Object(key), inner))
	}
	return out
}
