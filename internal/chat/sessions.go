package chat

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"loquat"
	"loquat/internal/store"
)

// storedSnapshot is a Snapshot as the answer to an Idempotency-Key stores it. It leaves out
// the messages of a long session, which are read later at its revision, outside of the
// transaction.
type storedSnapshot struct {
	loquat.Snapshot
	Checkpoint loquat.EventID `json:"checkpoint"`
	Rev        int64          `json:"rev"`
	Count      int            `json:"count"`
}

// completeSnapshot returns the snapshot with its messages.
func (s *Service) completeSnapshot(ctx context.Context, a storedSnapshot) (loquat.Snapshot, error) {
	out := a.Snapshot
	out.Checkpoint = a.Checkpoint
	if out.Messages != nil {
		return out, nil
	}
	err := s.store.View(ctx, func(r *store.Reader) error {
		h, err := r.Head(a.SessionID)
		if err == nil {
			out.Messages, err = r.Messages(h, a.Rev, 0, -1)
		}
		return err
	})
	if err == nil && len(out.Messages) != a.Count { // a repeat, after retention removed the revision
		err = loquat.Errorf(loquat.CodeGone, "the answer to this call is no longer kept; load session %s", a.SessionID)
	}
	if err != nil {
		return loquat.Snapshot{}, err
	}
	return out, nil
}

// CreateSession creates a session. It publishes session_created and checkpoint, and then, if p has
// a Send, what that publishes.
func (s *Service) CreateSession(ctx context.Context, call Call, p loquat.NewSession) (loquat.Snapshot, error) {
	if p.SessionID == "" {
		p.SessionID = newID()
	}
	if p.AgentID == "" {
		p.AgentID = loquat.DefaultAgent
	}
	messages, attachments, fault := s.checkNewSession(ctx, &p)
	var first storedSend
	if p.Send != nil && fault == nil {
		first, fault = checkSend(p.Send)
		fault = inSend(fault)
	}
	if fault != nil && call.IdempotencyKey == "" {
		return loquat.Snapshot{}, fault
	}
	if err := s.Requests.lookForRoomIn(ctx, call, p.Send); err != nil {
		return loquat.Snapshot{}, err
	}
	out, err := launching(ctx, s.Requests, func(tx *store.Tx, sent *sent) (storedSnapshot, error) {
		return runOnce(tx, call, func() (out storedSnapshot, err error) {
			if fault != nil { // reported only here, because a repeat gets the first answer
				return out, fault
			}
			planned := store.Head{SessionID: p.SessionID, AgentID: p.AgentID, Metadata: p.Metadata}
			if err := checkAttachments(s.settings, attachments, &tx.Reader, planned); err != nil {
				return out, err
			}
			if err := call.By.mayCreate(tx, p); err != nil {
				return out, err
			}
			h, err := createUnusedSession(tx, p.SessionID, p.AgentID, withTitle(p.Metadata, messages))
			if err != nil {
				return out, err
			}
			if err := tx.SetUser(&h, p.User); err != nil {
				return out, err
			}
			for _, m := range messages {
				if _, err := tx.AppendMessage(&h, m); err != nil {
					return out, err
				}
			}
			if p.Send == nil {
				return s.created(tx, call, &h, "")
			}
			if err := publishCreated(tx, &h, ""); err != nil {
				return out, err
			}
			if err := s.Requests.sendFirst(tx, call, &h, *p.Send, first, sent); err != nil {
				return out, err
			}
			return s.changed(tx, h)
		})
	})
	if err != nil {
		return loquat.Snapshot{}, err
	}
	return s.completeSnapshot(ctx, out)
}

// createUnusedSession creates an empty session under an id that was never used.
func createUnusedSession(tx *store.Tx, sessionID, agentID string, metadata loquat.Object) (store.Head, error) {
	taken, err := tx.Taken(sessionID)
	if err != nil {
		return store.Head{}, err
	}
	if taken {
		return store.Head{}, loquat.Errorf(loquat.CodeConflict, "session_id %q is taken; choose another, or leave it out", sessionID)
	}
	return tx.CreateSession(sessionID, agentID, metadata)
}

// created publishes a new session and returns its answer.
func (s *Service) created(tx *store.Tx, call Call, h *store.Head, source string) (storedSnapshot, error) {
	if call.Discard {
		if err := tx.DiscardWith(*h, s.store.Owner()); err != nil {
			return storedSnapshot{}, err
		}
	}
	if err := publishCreated(tx, h, source); err != nil {
		return storedSnapshot{}, err
	}
	return s.changed(tx, *h)
}

// publishCreated publishes a new session: session_created, then checkpoint.
func publishCreated(tx *store.Tx, h *store.Head, source string) error {
	if err := publish(tx, h, nil, loquat.Event{Type: loquat.SessionCreated, AgentID: h.AgentID, SourceSessionID: source, CreatedAt: &h.CreatedAt}); err != nil {
		return err
	}
	return tx.Checkpoint(h, nil, false)
}

// changed returns a session as the answer to its change.
func (s *Service) changed(tx *store.Tx, h store.Head) (storedSnapshot, error) {
	out, err := s.snapshotOf(&tx.Reader, h)
	if err == nil && !h.Long() {
		out.Messages, err = tx.Messages(h, h.Rev, 0, -1)
	}
	return out, err
}

// snapshotOf returns the present state of a session without its messages.
func (s *Service) snapshotOf(r *store.Reader, h store.Head) (storedSnapshot, error) {
	out := storedSnapshot{Checkpoint: h.Checkpoint, Rev: h.Rev, Count: h.Count, Snapshot: loquat.Snapshot{CursorEventID: h.Cursor, Session: loquat.Session{
		SessionID: h.SessionID, AgentID: h.AgentID, User: h.User, Origin: h.Origin, CreatedAt: h.CreatedAt, UpdatedAt: h.UpdatedAt, Metadata: s.shown(h.Metadata),
	}}}
	running, ok, err := r.Running(h)
	if ok {
		out.ActiveRequestID = running.RequestID
	}
	return out, err
}

// shown returns the metadata of a session as clients see it: without the secrets in its
// overrides.
func (s *Service) shown(metadata loquat.Object) loquat.Object {
	overrides := metadata.Object(loquat.MetaOverrides)
	if overrides == nil {
		return metadata
	}
	return metadata.Clone().Set(loquat.MetaOverrides, s.settings.RedactOverrides(overrides))
}

// CheckUser returns not_found unless all of the sessions, and the request unless it is "", belong to a user.
func (s *Service) CheckUser(ctx context.Context, user string, sessions []string, request string) error {
	return s.store.View(ctx, func(r *store.Reader) error {
		for _, id := range sessions {
			if err := r.SessionOf(user, id); err != nil {
				return err
			}
		}
		if request == "" {
			return nil
		}
		return r.RequestOf(user, request)
	})
}

// Session returns a session with its messages and cursor, read together.
func (s *Service) Session(ctx context.Context, id string) (loquat.Snapshot, error) {
	return store.Read(ctx, s.store, func(r *store.Reader) (loquat.Snapshot, error) {
		h, out, err := s.describe(r, id)
		if err != nil {
			return out, err
		}
		if out.Waiting, err = waitingOf(r, h); err != nil {
			return out, err
		}
		out.Messages, err = r.Messages(h, h.Rev, 0, -1)
		return out, err
	})
}

// Describe returns a session without its messages and its queue.
func (s *Service) Describe(ctx context.Context, id string) (loquat.Snapshot, error) {
	return store.Read(ctx, s.store, func(r *store.Reader) (loquat.Snapshot, error) {
		_, out, err := s.describe(r, id)
		return out, err
	})
}

func (s *Service) describe(r *store.Reader, id string) (store.Head, loquat.Snapshot, error) {
	h, err := r.Head(id)
	if err != nil {
		return h, loquat.Snapshot{}, err
	}
	a, err := s.snapshotOf(r, h)
	a.Snapshot.Checkpoint = a.Checkpoint
	return h, a.Snapshot, err
}

// UpdateSession merges a patch into a session and publishes checkpoint. A running request
// keeps the settings that it started with. The cursor then stays where it is, before the
// increments of that request.
func (s *Service) UpdateSession(ctx context.Context, call Call, id string, p loquat.SessionPatch) (loquat.Snapshot, error) {
	p.Metadata.Clean()
	named := ""
	if p.AgentID != nil {
		named = *p.AgentID
	}
	var out storedSnapshot
	err := s.withOverrideCheck(ctx, id, named, p.Metadata, mergePatch, func(v overrideCheck) (err error) {
		out, err = change(ctx, s.store, call, func(tx *store.Tx) (storedSnapshot, error) {
			return s.updateSession(tx, loquat.ActorOf(ctx), call, id, p, v)
		})
		return err
	})
	if err != nil {
		return loquat.Snapshot{}, err
	}
	return s.completeSnapshot(ctx, out)
}

func (s *Service) updateSession(tx *store.Tx, actor loquat.Actor, call Call, id string, p loquat.SessionPatch, v overrideCheck) (storedSnapshot, error) {
	h, err := headFor(tx, call, id)
	if err != nil {
		return storedSnapshot{}, err
	}
	agent := h.AgentID
	if p.AgentID != nil {
		agent = *p.AgentID
	}
	if err := s.checkDescription(agent, p.AgentID != nil, v); err != nil {
		return storedSnapshot{}, err
	}
	if p.AgentID != nil {
		if err := call.By.mayUse(agent); err != nil {
			return storedSnapshot{}, err
		}
	}
	if err := checkLabels(p.Metadata); err != nil {
		return storedSnapshot{}, err
	}
	if agent != h.AgentID {
		entry := loquat.AuditEntry{Action: loquat.AuditAgentChanged, Target: id, Actor: actor, Detail: loquat.AuditDetail("agent_id", agent, "before", h.AgentID, "user", h.User)}
		if err := tx.Audit(entry); err != nil {
			return storedSnapshot{}, err
		}
	}
	return s.describeSession(tx, h, agent, s.mergeMetadata(agent, h.Metadata, p.Metadata))
}

// describeSession changes the agent and the metadata of a session and publishes checkpoint.
func (s *Service) describeSession(tx *store.Tx, h store.Head, agent string, metadata loquat.Object) (storedSnapshot, error) {
	if err := setDescription(tx, &h, agent, metadata); err != nil {
		return storedSnapshot{}, err
	}
	return s.changed(tx, h)
}

// setDescription changes the agent and the metadata of a session and publishes checkpoint.
func setDescription(tx *store.Tx, h *store.Head, agent string, metadata loquat.Object) error {
	_, busy, err := tx.Running(*h)
	if err != nil {
		return err
	}
	tx.Describe(h, agent, metadata)
	return tx.Checkpoint(h, nil, busy)
}

// SetOverride replaces the override of one setting and publishes checkpoint. Unlike a merge
// patch it keeps a null within the value and removes what the value leaves out. A value of
// null removes the override.
func (s *Service) SetOverride(ctx context.Context, call Call, id, key string, value json.RawMessage) (loquat.Snapshot, error) {
	given := loquat.Object{key: value}
	given.Clean()
	var out storedSnapshot
	err := s.withOverrideCheck(ctx, id, "", loquat.Object{}.Set(loquat.MetaOverrides, given), replaceKeys, func(v overrideCheck) (err error) {
		out, err = change(ctx, s.store, call, func(tx *store.Tx) (storedSnapshot, error) {
			h, err := headFor(tx, call, id)
			if err != nil {
				return storedSnapshot{}, err
			}
			if err := s.checkDescription(h.AgentID, false, v); err != nil {
				return storedSnapshot{}, atValue(err, key)
			}
			before := overridesOf(h)
			overrides := replaceKeys(before, s.settings.RestoreSecrets(h.AgentID, given, before))
			return s.describeSession(tx, h, h.AgentID, h.Metadata.Clone().Set(loquat.MetaOverrides, overrides))
		})
		return err
	})
	if err != nil {
		return loquat.Snapshot{}, err
	}
	return s.completeSnapshot(ctx, out)
}

// atValue returns an error about an override with the location body.value, for a call that sets
// only this override.
func atValue(err error, key string) error {
	e, ok := errors.AsType[*loquat.Error](err)
	if !ok || len(e.Fields) == 0 {
		return err
	}
	place := "body.metadata.overrides." + loquat.Clip(key, loquat.Excerpt)
	out := *e
	out.Detail, out.Fields = strings.ReplaceAll(e.Detail, place, "body.value"), slices.Clone(e.Fields)
	for i, f := range e.Fields {
		if rest, ok := strings.CutPrefix(f.Location, place); ok {
			out.Fields[i].Location = "body.value" + rest
		}
	}
	return &out
}

// DeleteSession ends the requests of a session and makes the session unreachable, in one
// transaction. The session_id stays taken.
func (s *Service) DeleteSession(ctx context.Context, call Call, id string) error {
	return s.Requests.deleteSession(ctx, call, id)
}

// deleteSession does what DeleteSession of the service says.
func (s *Requests) deleteSession(ctx context.Context, call Call, id string) error {
	var ended []store.Request
	_, err := change(ctx, s.store, call, func(tx *store.Tx) (out struct{}, err error) {
		h, err := headFor(tx, call, id)
		if err != nil {
			return out, err
		}
		if ended, err = tx.Unended(&h); err != nil {
			return out, err
		}
		for i := range ended {
			if ended[i].Status == loquat.StatusRunning {
				tx.Signal(signalDeleted, ended[i].RequestID)
				s.countOpen(tx, h, &ended[i])
			}
			if err := s.finish(tx, h, &ended[i], loquat.StatusCancelled, ""); err != nil {
				return out, err
			}
		}
		tx.AfterCommit(func() { s.recent.forgetSession(h.SID) })
		return out, tx.DeleteSession(&h)
	})
	if err != nil {
		return err
	}
	for _, q := range ended {
		s.workers.cancel(q.RequestID, store.ErrFenced)
	}
	return nil
}

// maxDrafts bounds how often a fork starts again because its source was changed meanwhile.
const maxDrafts = 4

// ForkSession copies a session up to an index. It publishes session_created with
// source_session_id, and checkpoint. The copy has only stored messages, so it has no text of a
// phase that still streams.
func (s *Service) ForkSession(ctx context.Context, call Call, id string, p loquat.Fork) (loquat.Snapshot, error) {
	p.Metadata.Clean()
	for try := 0; ; try++ {
		// The last attempt copies in one transaction, so that no change of the source can
		// make the copy stale.
		out, err := s.tryFork(ctx, call, id, p, try < maxDrafts)
		if err == nil {
			return s.completeSnapshot(ctx, out)
		}
		if !errors.Is(err, store.ErrSourceChanged) {
			return loquat.Snapshot{}, err
		}
	}
}

// tryFork makes one attempt to fork. With prepare it copies most of a long session before the
// last transaction, so that this transaction is short.
func (s *Service) tryFork(ctx context.Context, call Call, id string, p loquat.Fork, prepare bool) (out storedSnapshot, err error) {
	newSession := newID()
	var draft store.Draft
	repeat, err := isReplay(ctx, s.store, call)
	if err == nil && !repeat && prepare {
		draft, err = s.store.PrepareCopy(ctx, id, newSession, p.UpToIndex)
	}
	if err == nil || loquat.CodeOf(err) == loquat.CodeNotFound { // forkSession returns this error, unless the call is a repeat
		err = s.withOverrideCheck(ctx, id, p.AgentID, p.Metadata, mergePatch, func(v overrideCheck) (err error) {
			out, err = change(ctx, s.store, call, func(tx *store.Tx) (storedSnapshot, error) {
				return s.forkSession(tx, call, id, newSession, p, v, draft)
			})
			return err
		})
	}
	if draft.Begun() && (err != nil || out.SessionID != newSession) {
		s.dropDraft(ctx, draft)
	}
	return out, err
}

// dropDraft removes a prepared copy. If that fails, the next start removes it.
func (s *Service) dropDraft(ctx context.Context, draft store.Draft) {
	err := s.store.Update(context.WithoutCancel(ctx), func(tx *store.Tx) error { return tx.DropDraft(draft) })
	if err != nil {
		s.log.Warn("could not remove the unfinished copy of a session", "error", err)
	}
}

func (s *Service) forkSession(tx *store.Tx, call Call, id, newSession string, p loquat.Fork, v overrideCheck, draft store.Draft) (storedSnapshot, error) {
	source, err := tx.Head(id)
	if err != nil {
		return storedSnapshot{}, err
	}
	if p.UpToIndex != nil && (*p.UpToIndex < 0 || *p.UpToIndex >= source.Count) {
		return storedSnapshot{}, loquat.Invalid("body.up_to_index", "has to be the index of one of the %d messages", source.Count)
	}
	agent := source.AgentID
	if p.AgentID != "" {
		agent = p.AgentID
	}
	if err := s.checkDescription(agent, p.AgentID != "", v); err != nil {
		return storedSnapshot{}, err
	}
	if err := call.By.mayAddSession(&tx.Reader, source.User, agent); err != nil {
		return storedSnapshot{}, err
	}
	if err := checkLabels(p.Metadata); err != nil {
		return storedSnapshot{}, err
	}
	h, err := tx.FinishCopy(source, draft, newSession, agent, s.mergeMetadata(agent, forkedMetadata(source.Metadata), p.Metadata), p.UpToIndex)
	if err != nil {
		return storedSnapshot{}, err
	}
	return s.created(tx, call, &h, source.SessionID)
}

// forkedMetadata returns what a fork takes over from the metadata of its source. A new session is
// neither pinned nor archived.
func forkedMetadata(source loquat.Object) loquat.Object {
	out := source.Clone()
	delete(out, loquat.MetaPinned)
	delete(out, loquat.MetaArchived)
	return out
}

// titleLength bounds a title that is taken from a message, in characters.
const titleLength = 80

// withTitle adds a title from the first user message, when there is none.
func withTitle(metadata loquat.Object, messages []loquat.Message) loquat.Object {
	i := slices.IndexFunc(messages, func(m loquat.Message) bool { return m.Role == loquat.RoleUser })
	if i < 0 {
		return metadata
	}
	if _, ok := metadata[loquat.MetaTitle]; ok {
		return metadata
	}
	title := titleOf(messages[i].Content)
	if title == "" {
		return metadata
	}
	return metadata.Clone().Set(loquat.MetaTitle, title)
}

// titleOf returns the first line of a text that is not blank, cut at titleLength.
func titleOf(content string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(content), "\n")
	line = strings.TrimSpace(line)
	return loquat.Clip(line, titleLength)
}
