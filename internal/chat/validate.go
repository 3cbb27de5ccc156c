package chat

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"loquat/internal/settings"
	"maps"
	"slices"
	"strings"

	"loquat"
)

// maxID is the length of a session_id and a request_id.
const maxID = 64

// checkID checks an id that a client chose.
func checkID(location, id string) error {
	ok := len(id) <= maxID && !strings.ContainsFunc(id, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' && r != '-'
	})
	if !ok {
		return loquat.Invalid(location, "has to be at most %d letters, digits, _ or -", maxID)
	}
	return nil
}

// checkNewSession validates a session that is to be created, and returns its messages.
func (s *Service) checkNewSession(ctx context.Context, p *loquat.NewSession) (messages []loquat.Message, attachments []attachment, err error) {
	if err := checkID("body.session_id", p.SessionID); err != nil {
		return nil, nil, err
	}
	if p.User != "" {
		if err := loquat.CheckUser("body.user", p.User); err != nil {
			return nil, nil, err
		}
	}
	p.Metadata.Clean()
	if err := checkLabels(p.Metadata); err != nil {
		return nil, nil, err
	}
	v, err := s.checkGivenOverrides(ctx, "", p.AgentID, p.Metadata, mergePatch)
	if err != nil {
		return nil, nil, err
	}
	if err := s.checkDescription(p.AgentID, true, v); err != nil {
		return nil, nil, err
	}
	if given := p.Metadata.Object(loquat.MetaOverrides); given != nil {
		p.Metadata = p.Metadata.Clone().Set(loquat.MetaOverrides, s.settings.RestoreSecrets(p.AgentID, given, nil))
	}
	messages = make([]loquat.Message, len(p.Messages))
	var faults []loquat.FieldError
	for i, n := range p.Messages {
		m, attached, err := checkMessage(fmt.Sprintf("body.messages[%d]", i), n)
		messages[i], attachments, faults = m, append(attachments, attached...), append(faults, fieldsOf(err)...)
		if len(faults) >= loquat.MaxFieldErrors {
			break
		}
	}
	return messages, attachments, loquat.InvalidFields(faults)
}

// checkLabels checks the labels that a change of metadata gives.
func checkLabels(given loquat.Object) error {
	var f loquat.FieldErrors
	loquat.CheckLabels(&f, "body.metadata", given)
	return f.Err()
}

// overrideCheck is the result of checking the overrides of a change. The check asks plugins,
// and a transaction must not wait for plugins. So the check runs before the transaction, for
// the agent that the session has at that time.
type overrideCheck struct {
	agentID string // "" when the change gives no overrides
	err     error
}

// errAgentChanged makes a change start again, because its overrides were checked for another
// agent than the session has now.
var errAgentChanged = errors.New("the agent of the session has changed")

// checkGivenOverrides checks the overrides in the metadata of a change. sessionID is "" for a
// new session. The overrides are checked for agentID, or for the session's agent if agentID is
// "".
func (s *Service) checkGivenOverrides(ctx context.Context, sessionID, agentID string, given loquat.Object, merge settings.Merger) (overrideCheck, error) {
	raw, ok := given[loquat.MetaOverrides]
	if !ok {
		return overrideCheck{}, nil
	}
	var before loquat.Object
	if sessionID != "" {
		h, err := readHead(ctx, s.store, sessionID)
		if loquat.CodeOf(err) == loquat.CodeNotFound {
			return overrideCheck{}, nil // the change itself reports it
		}
		if err != nil {
			return overrideCheck{}, err
		}
		before = overridesOf(h)
		if agentID == "" {
			agentID = h.AgentID
		}
	}
	if s.settings.CheckAgent("", agentID) != nil {
		return overrideCheck{}, nil // checkDescription reports it if the change names the agent
	}
	err := s.settings.CheckOverrides(ctx, agentID, before, raw, merge)
	if ctx.Err() != nil {
		return overrideCheck{}, context.Cause(ctx)
	}
	return overrideCheck{agentID, err}, nil
}

// checkDescription checks the agent if the change names one, then returns the result of the
// overrides' check.
func (s *Service) checkDescription(agentID string, agentNamed bool, v overrideCheck) error {
	if agentNamed {
		if err := s.settings.CheckAgent("body.agent_id", agentID); err != nil {
			return err
		}
	}
	if v.agentID != "" && v.agentID != agentID {
		return errAgentChanged
	}
	return v.err
}

// maxRechecks bounds how often a change starts again because the agent changed.
const maxRechecks = 5

// withOverrideCheck checks the given overrides, then runs the change with the result. It starts
// again if the session's agent changed meanwhile.
func (s *Service) withOverrideCheck(ctx context.Context, sessionID, agentID string, given loquat.Object, merge settings.Merger, change func(overrideCheck) error) error {
	for range maxRechecks {
		v, err := s.checkGivenOverrides(ctx, sessionID, agentID, given, merge)
		if err != nil {
			return err
		}
		if err := change(v); !errors.Is(err, errAgentChanged) {
			return err
		}
	}
	return loquat.Errorf(loquat.CodeConflict, "the agent of session %s keeps changing; try again", sessionID)
}

// checkMessage returns the message that a client gives. The caller checks the attachments
// against the session.
func checkMessage(location string, p loquat.NewMessage) (loquat.Message, []attachment, error) {
	if !loquat.ValidRole(p.Role) {
		return loquat.Message{}, nil, loquat.Invalid(location+".role", "is %q; it has to be user, assistant, system or tool", loquat.Clip(p.Role, loquat.Excerpt))
	}
	m := newMessage(p.Role)
	m.Content = loquat.CleanText(p.Content)
	p.Metadata.Clean()
	if string(p.Metadata[loquat.MetaAttachments]) == "null" {
		delete(p.Metadata, loquat.MetaAttachments) // null is the same as leaving it out
	}
	m.Metadata = p.Metadata
	place := location + ".metadata." + loquat.MetaAttachments
	if len(p.Attachments) > 0 {
		if _, twice := p.Metadata[loquat.MetaAttachments]; twice {
			return loquat.Message{}, nil, loquat.Invalid(place, "cannot be given together with %s.attachments; use one of them", location)
		}
		m.Metadata = m.Metadata.Clone().Set(loquat.MetaAttachments, p.Attachments)
		place = location + ".attachments"
	}
	attachments, err := readAttachments(place, &m)
	return m, attachments, err
}

var busyPolicies = []string{loquat.BusyReject, loquat.BusyQueue, loquat.BusyInterrupt, loquat.BusySteer, loquat.BusyRollback}

// checkSend validates a send as far as that is possible without the session.
func checkSend(p *loquat.Send) (storedSend, error) {
	if p.OnBusy == "" {
		p.OnBusy = loquat.BusyReject
	}
	if err := checkID("body.request_id", p.RequestID); err != nil {
		return storedSend{}, err
	}
	out, streams := storedSend{Send: *p}, p.Streams()
	out.Stream, out.RequestID, out.OnBusy = &streams, "", "" // the row has the ids and the policy
	out.Content, out.Attachments, out.Metadata = nil, nil, nil
	speaks := p.Content != nil || len(p.Attachments) > 0
	switch {
	case !slices.Contains(busyPolicies, p.OnBusy):
		return out, loquat.Invalid("body.on_busy", "is %q; it has to be one of %s", loquat.Clip(p.OnBusy, loquat.Excerpt), strings.Join(busyPolicies, ", "))
	case p.OnBusy != loquat.BusyReject && !speaks:
		return out, loquat.Invalid("body.on_busy", "%s needs content or attachments", p.OnBusy)
	case p.OnBusy != loquat.BusyReject && p.DeleteFrom != nil:
		return out, loquat.Invalid("body.delete_from", "goes only with on_busy reject")
	case p.Keep && p.DeleteFrom == nil:
		return out, loquat.Invalid("body.keep", "goes only with delete_from")
	case p.DeleteFrom != nil && *p.DeleteFrom < 0:
		return out, loquat.Invalid("body.delete_from", "has to be an index, 0 or more")
	}
	if !speaks {
		if len(p.Metadata) > 0 {
			return out, loquat.Invalid("body.metadata", "belongs to a user message, and there is no content for one")
		}
		return out, nil
	}
	n := loquat.NewMessage{Role: loquat.RoleUser, Metadata: p.Metadata, Attachments: p.Attachments}
	if p.Content != nil {
		n.Content = *p.Content
	}
	m, attachments, err := checkMessage("body", n)
	out.Message, out.attachments = &m, attachments
	return out, err
}

// inSend names the faults of a send as those of the field send of a body.
func inSend(err error) error {
	faults := slices.Clone(fieldsOf(err))
	if len(faults) == 0 {
		return err
	}
	for i := range faults {
		faults[i].Location = "body.send" + strings.TrimPrefix(faults[i].Location, "body")
	}
	return loquat.InvalidFields(faults)
}

// mergeMetadata merges a patch into the metadata of a session.
func (s *Service) mergeMetadata(agentID string, session, patch loquat.Object) loquat.Object {
	if given := patch.Object(loquat.MetaOverrides); given != nil {
		patch = patch.Clone().Set(loquat.MetaOverrides, s.settings.RestoreSecrets(agentID, given, session.Object(loquat.MetaOverrides)))
	}
	return mergePatch(session, patch)
}

// replaceKeys returns target with each value replaced as a whole, not merged. A null removes
// its key.
func replaceKeys(target, values loquat.Object) loquat.Object {
	out := loquat.Object{}
	maps.Copy(out, target)
	maps.Copy(out, values)
	maps.DeleteFunc(out, func(key string, _ json.RawMessage) bool {
		value, given := values[key]
		return given && string(bytes.TrimSpace(value)) == "null"
	})
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
