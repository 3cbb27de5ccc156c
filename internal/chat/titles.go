package chat

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"loquat"
	"loquat/internal/config"
	"loquat/internal/settings"
	"loquat/internal/store"
)

// A session is named after its first message. If its agent has the setting `title`, a model writes a
// better title after the first exchange, in a call that is no request of the session. If the call
// fails or the process dies, the next exchanges try again, up to titleExchanges.
const titleExchanges = 3

// The bounds of all these calls together.
const (
	titlesAtOnce = 4
	titlesWait   = 1000
)

// The bounds of one of them.
const (
	titleTime     = 2 * time.Minute
	titleMessages = 50   // of a session; longer ones keep their title
	titleExcerpt  = 4000 // characters of each message that the model reads
)

const titlePrompt = "You name conversations. You are given the beginning of a conversation between a user and an assistant. " +
	"Answer with a title for it and nothing else: at most six words, in the language of the user, without quotation marks."

// titles lets models write the titles of sessions, in the background.
type titles struct {
	*Requests
	byAgent func() map[string]titleSetting // agents without the setting are missing
	turns   *semaphore.Weighted
	waiting atomic.Int64
}

// titleSetting is the setting `title` of an agent.
type titleSetting struct {
	model  string // "": that of the agent
	prompt string
}

func newTitles(s *Requests) *titles {
	return &titles{Requests: s, byAgent: config.Derived(s.config, titleSettings), turns: semaphore.NewWeighted(titlesAtOnce)}
}

// titleSettings returns the setting of each agent that has it.
func titleSettings(cfg *config.Config) map[string]titleSetting {
	byAgent := map[string]titleSetting{}
	for _, id := range cfg.Agents() {
		base, _, err := cfg.Base(id)
		if err != nil {
			continue
		}
		if title := base.Object("title"); title != nil {
			setting := titleSetting{model: title.String("model"), prompt: title.String("prompt")}
			if setting.prompt == "" {
				setting.prompt = titlePrompt
			}
			byAgent[id] = setting
		}
	}
	return byAgent
}

// consider makes a title for the session of a request that has completed, if it needs one. It
// returns at once.
func (t *titles) consider(q store.Request) {
	if len(t.byAgent()) == 0 {
		return
	}
	if t.waiting.Add(1) > titlesWait {
		t.waiting.Add(-1)
		return // the next exchange tries again
	}
	t.workers.running.Go(func() {
		defer t.waiting.Add(-1)
		if t.turns.Acquire(t.life, 1) != nil {
			return
		}
		defer t.turns.Release(1)
		ctx, cancel := context.WithTimeout(t.life, titleTime)
		defer cancel()
		if err := t.write(ctx, q); err != nil && t.life.Err() == nil {
			t.log.Warn("a session keeps the title of its first message", "session_id", q.SessionID, "error", t.redactor.Redact(err.Error()))
		}
	})
}

// write gives the session of a request a title of a model. Its tokens count for who made the request.
func (t *titles) write(ctx context.Context, q store.Request) error {
	h, first, err := t.firstExchange(ctx, q.SessionID)
	if err != nil || first == nil {
		return err
	}
	e, err := t.settingsOf(ctx, h)
	if err != nil {
		return err
	}
	setting, ok := t.byAgent()[h.AgentID]
	if !ok { // the configuration was changed just now
		return nil
	}
	of := meteredUsage{store.UsageOf{User: h.User, AgentID: h.AgentID}, q.Meter}
	reply, err := t.askResolved(ctx, e, of, h.SessionID, setting.model, askForTitle(setting.prompt, first))
	if err != nil {
		return err
	}
	title := titleIn(reply)
	if title == "" {
		return errors.New("the model wrote no title")
	}
	return t.store.Update(ctx, func(tx *store.Tx) error {
		now, err := tx.Head(q.SessionID)
		if loquat.CodeOf(err) == loquat.CodeNotFound {
			return nil
		}
		if err != nil || !isNamedAfter(now, first[0]) { // somebody gave it a title meanwhile
			return err
		}
		return setDescription(tx, &now, now.AgentID, now.Metadata.Clone().Set(loquat.MetaTitle, title))
	})
}

// firstExchange returns a session and its first exchange: the first message of the user, and the
// first text of the assistant. It returns no exchange if the session needs no title.
func (t *titles) firstExchange(ctx context.Context, sessionID string) (h store.Head, first []loquat.Message, err error) {
	err = t.store.View(ctx, func(r *store.Reader) error {
		if h, err = r.Head(sessionID); loquat.CodeOf(err) == loquat.CodeNotFound {
			return nil // deleted
		} else if err != nil {
			return err
		}
		if _, ok := t.byAgent()[h.AgentID]; !ok || h.Count > titleMessages {
			return nil
		}
		messages, err := r.Messages(h, h.Rev, 0, -1)
		if err == nil {
			first = firstExchange(messages)
		}
		return err
	})
	if first != nil && !isNamedAfter(h, first[0]) {
		first = nil
	}
	return h, first, err
}

// firstExchange returns the first message of the user and the first text of the assistant after it,
// or nil if there are none, or more than titleExchanges exchanges.
func firstExchange(messages []loquat.Message) []loquat.Message {
	asked, answered, exchanges := -1, -1, 0
	for i, m := range messages {
		switch {
		case m.Role == loquat.RoleUser:
			exchanges++
			if asked < 0 {
				asked = i
			}
		case m.Role == loquat.RoleAssistant && asked >= 0 && answered < 0 && strings.TrimSpace(m.Content) != "":
			answered = i
		}
	}
	if answered < 0 || exchanges > titleExchanges {
		return nil
	}
	return []loquat.Message{messages[asked], messages[answered]}
}

// isNamedAfter reports whether the title of a session is that of its first message, which nobody has
// changed.
func isNamedAfter(h store.Head, first loquat.Message) bool {
	_, given := h.Metadata[loquat.MetaTitle]
	title := titleOf(first.Content)
	return given == (title != "") && h.Metadata.String(loquat.MetaTitle) == title
}

// forgetTitle removes the title of a session that is that of its first message, if this message is one of those from
// an index on, which are about to be removed. The next message gives the session a title again.
func forgetTitle(tx *store.Tx, h *store.Head, index int) error {
	if index >= titleMessages {
		return nil
	}
	messages, err := tx.Messages(*h, h.Rev, 0, titleMessages)
	if err != nil {
		return err
	}
	first := slices.IndexFunc(messages, func(m loquat.Message) bool { return m.Role == loquat.RoleUser })
	if first < index || !isNamedAfter(*h, messages[first]) {
		return nil
	}
	metadata := h.Metadata.Clone()
	delete(metadata, loquat.MetaTitle)
	tx.Describe(h, h.AgentID, metadata)
	return nil
}

// askForTitle returns a single user message with the texts, so that every backend accepts it.
func askForTitle(prompt string, exchange []loquat.Message) []loquat.Message {
	var text strings.Builder
	for _, m := range exchange {
		fmt.Fprintf(&text, "[%s]\n%s\n\n", m.Role, loquat.Clip(strings.TrimSpace(m.Content), titleExcerpt))
	}
	return []loquat.Message{{Role: loquat.RoleSystem, Content: prompt}, {Role: loquat.RoleUser, Content: text.String()}}
}

// titleIn returns the title that a reply consists of, without what models like to put around it, or
// "".
func titleIn(reply loquat.Reply) string {
	if slices.Contains([]string{"length", "content_filter"}, reply.FinishReason) {
		return ""
	}
	text := loquat.CleanText(reply.Content)
	if _, after, ok := strings.Cut(text, "</think>"); ok { // some backends send reasoning as text
		text = after
	}
	title := strings.TrimLeft(titleOf(text), "# ")
	for _, quotes := range [][2]string{{"**", "**"}, {"*", "*"}, {"`", "`"}, {`"`, `"`}, {"'", "'"}, {"“", "”"}, {"„", "“"}, {"«", "»"}, {"「", "」"}} {
		if inner, ok := strings.CutPrefix(title, quotes[0]); ok && len(inner) > len(quotes[1]) {
			title = strings.TrimSuffix(inner, quotes[1])
		}
	}
	return strings.TrimSpace(title)
}

// settingsOf returns the settings of a session, when its plugins are up.
func (s *Requests) settingsOf(ctx context.Context, h store.Head) (settings.Resolved, error) {
	if err := s.starts.await(ctx, h.AgentID, s.log.With("session_id", h.SessionID)); err != nil {
		return settings.Resolved{}, err
	}
	return s.settings.Resolve(ctx, h.AgentID, overridesOf(h))
}

// AskModel asks the model that a name stands for, for a caller, without a session and without tools. See
// settings.Resolver.Named for the names.
func (s *Requests) AskModel(ctx context.Context, by By, name string, messages []loquat.Message) (loquat.Reply, error) {
	agentID := loquat.DefaultAgent
	if s.settings.CheckAgent("", name) == nil {
		agentID = name
	}
	if err := s.starts.await(ctx, agentID, s.log); err != nil {
		return loquat.Reply{}, err
	}
	e, err := s.settings.Named(ctx, name)
	if err != nil {
		return loquat.Reply{}, err
	}
	of, done, err := s.admitCall(ctx, by, name, e)
	if err != nil {
		return loquat.Reply{}, err
	}
	defer done()
	reply, err := s.askResolved(ctx, e, of, "", "", messages)
	if cause := context.Cause(ctx); err != nil && cause != nil { // the caller disconnected
		err = cause
	}
	return reply, err
}

// askResolved asks with settings, without tools. model "" is theirs. It streams, because the idle timeout would
// end a long answer that is not streamed. What it uses counts for of.
func (s *Requests) askResolved(ctx context.Context, e settings.Resolved, of meteredUsage, sessionID, model string, messages []loquat.Message) (loquat.Reply, error) {
	req := loquat.LLMRequest{ProviderID: e.ProviderID, SessionID: sessionID, Config: e.Config.Clone(), Messages: messages, Stream: true}
	delete(req.Config, "tools")
	if model != "" {
		req.Config.Set("model", model)
	}
	req.Redacted = s.settings.Redact(req.Config)
	input, _ := loquat.EstimateInput(messages)
	of.ProviderID, of.Model = e.ProviderID, req.Config.String("model")
	req.Attempted = func(a loquat.Attempt) { s.other.add(of, a, input) }
	failed := func(err error) error {
		return &loquat.Error{Code: loquat.CodeBackendError, Detail: s.describe(err), Err: err}
	}
	if err := s.plugins.EditRequest(ctx, &req); err != nil {
		return loquat.Reply{}, failed(err)
	}
	for chunk, err := range e.Provider.Chat(ctx, req) {
		if err != nil {
			return loquat.Reply{}, failed(err)
		}
		if chunk.Reply != nil {
			return *chunk.Reply, nil
		}
	}
	return loquat.Reply{}, loquat.Errorf(loquat.CodeBackendError, "provider %s ended without a reply", e.ProviderID)
}
