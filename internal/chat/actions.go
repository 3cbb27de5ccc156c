package chat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"loquat"
	"loquat/internal/plugin"
	"loquat/internal/settings"
	"loquat/internal/store"
	"loquat/internal/ui"
)

// The bounds of an action: its run time, its wait for another action of the same
// application plugin, and the size of such a plugin's state in bytes.
const (
	actionTimeout = 15 * time.Minute
	actionWait    = 30 * time.Second
	maxState      = 1 << 20
)

// Action is a call of an action.
type Action struct {
	loquat.Action
	ActionID  string
	SessionID string // "" when the action belongs to no session
	IfMatch   *Match // precondition on the session; nil means none
	By        By
}

// RunAction runs an action and returns its result. It fails when no plugin, or more than
// one, has the action.
func (s *Service) RunAction(ctx context.Context, a Action) (json.RawMessage, error) {
	var pc settings.Context
	var err error
	if a.SessionID != "" {
		if pc, err = s.contextForAction(ctx, a); err != nil {
			return nil, err
		}
	}
	query := plugin.ActionQuery{ActionID: a.ActionID, Owner: a.ActionOwner, Plugin: a.Plugin}
	actors := s.plugins.Only(a.By.Rules.AllowsPlugin).Actors(query)
	if a.ElementID != "" && len(actors) > 0 {
		if actors, a.Params, err = s.fromElement(ctx, a, pc, actors); err != nil {
			return nil, err
		}
	}
	p, err := query.TheActor(actors)
	if err != nil {
		return nil, err
	}
	call := plugin.ActionCall{ActionID: a.ActionID, SessionID: a.SessionID, Params: a.Params, Config: pc.Redacted, Host: s.host(a)}
	if call.Params == nil {
		call.Params = loquat.Object{}
	}
	if p.Kind() == plugin.KindApplication {
		return s.actWithState(ctx, p, call)
	}
	out, err := s.act(ctx, p, call)
	return out.Result, err
}

// contextForAction asks the backend for models only when the action names an element.
func (s *Service) contextForAction(ctx context.Context, a Action) (settings.Context, error) {
	h, err := readHead(ctx, s.store, a.SessionID)
	if err == nil {
		err = a.IfMatch.check(h)
	}
	if err != nil {
		return settings.Context{}, err
	}
	return s.settings.Context(ctx, h.AgentID, overridesOf(h), a.ElementID != "")
}

// fromElement finds the element that an action comes from. The element decides which plugin
// runs the action, and its fixed_params and inputs decide the params.
func (s *Service) fromElement(ctx context.Context, a Action, pc settings.Context, actors []plugin.Plugin) ([]plugin.Plugin, loquat.Object, error) {
	if a.SessionID == "" {
		var err error
		if pc, err = s.settings.GlobalContext(ctx); err != nil {
			return nil, nil, err
		}
	}
	var found []plugin.Plugin
	var element loquat.Object
	for _, e := range s.settings.LastElements(ctx, pc, actors) {
		i := slices.IndexFunc(actors, func(p plugin.Plugin) bool { return p.Name() == e.String("plugin") })
		if i >= 0 && e.String("id") == a.ElementID && e.String("action_id") == a.ActionID && !slices.Contains(found, actors[i]) {
			found, element = append(found, actors[i]), e
		}
	}
	switch len(found) {
	case 0:
		if why := s.settings.Missing(actors); why != "" {
			return nil, nil, loquat.Errorf(loquat.CodeUnavailable, "the action cannot run: %s", why)
		}
		return nil, nil, loquat.Invalid("body.element_id", "names no element of the action %q; load the UI schema again", loquat.Clip(a.ActionID, loquat.Excerpt))
	case 1:
		params, faults := ui.BuildActionParams(element, a.Params)
		return found, params, loquat.InvalidFields(faults)
	}
	return found, nil, nil // more than one: the caller reports it
}

// act runs an action of a plugin. The client sees an error that has a code; other errors
// go to the log.
func (s *Service) act(ctx context.Context, p plugin.Plugin, call plugin.ActionCall) (plugin.ActionResult, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, actionTimeout, loquat.Errorf(loquat.CodeUnavailable, "the action %q of plugin %s took longer than %s", loquat.Clip(call.ActionID, loquat.Excerpt), p.Name(), actionTimeout))
	defer cancel()
	out, err := plugin.Act(ctx, p, call)
	if err == nil {
		err = checkOutcome(p, out)
	}
	if err == nil || ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return out, err
	}
	if e, ok := errors.AsType[*loquat.Error](err); ok && e.Code != loquat.CodeInternal {
		redacted := *e
		redacted.Detail = s.redactor.Redact(e.Detail)
		return plugin.ActionResult{}, &redacted
	}
	s.log.Error("an action failed", "action_id", call.ActionID, "plugin", p.Name(), "session_id", call.SessionID, "error", err)
	return plugin.ActionResult{}, &loquat.Error{Code: loquat.CodeBackendError, Err: err,
		Detail: fmt.Sprintf("the plugin %s failed at the action %q; the server's log says why", p.Name(), loquat.Clip(call.ActionID, loquat.Excerpt))}
}

// checkOutcome refuses a result or a state that cannot be stored.
func checkOutcome(p plugin.Plugin, out plugin.ActionResult) error {
	if len(out.Result) > 0 && !json.Valid(out.Result) {
		return errors.New("its result is not valid JSON")
	}
	for name, err := range map[string]error{"result": loquat.CheckDepth(out.Result), "state": out.State.CheckDepth()} {
		if err != nil {
			return loquat.Errorf(loquat.CodeBackendError, "the %s in the answer of plugin %s cannot be used: %v", name, p.Name(), err)
		}
	}
	return nil
}

// errStopping refuses what is not begun any more because the server stops.
var errStopping = loquat.Errorf(loquat.CodeUnavailable, "the server is shutting down; try again in a moment")

// actWithState runs an action of an application plugin. Actions of one plugin run one after the
// other on this node, because each gets the state that the one before returned. An action runs
// to its end even if the caller disconnects. Otherwise the new state would be lost. If an action
// at another node changed the state meanwhile, the new state is not stored and the call fails
// with CodeConflict. The action does not run again by itself, because it may have done more than
// compute a state.
func (s *Service) actWithState(ctx context.Context, p plugin.Plugin, call plugin.ActionCall) (json.RawMessage, error) {
	turn := s.states[p.Name()]
	wait := time.NewTimer(actionWait)
	defer wait.Stop()
	select {
	case turn <- struct{}{}:
		defer func() { <-turn }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-s.life.Done():
		return nil, errStopping
	case <-wait.C:
		return nil, loquat.Errorf(loquat.CodeUnavailable, "another action of plugin %s has been running for more than %s; try again later", p.Name(), actionWait)
	}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	defer context.AfterFunc(s.life, func() { cancel(errStopping) })()
	err := s.store.View(ctx, func(r *store.Reader) (err error) {
		call.State, err = r.PluginState(p.Name())
		return err
	})
	if s.life.Err() != nil {
		return nil, errStopping
	}
	if err != nil {
		return nil, err
	}
	former := call.State.Clone() // the plugin may change its copy
	out, err := s.act(ctx, p, call)
	if err != nil || out.State == nil {
		return out.Result, err
	}
	if size := len(loquat.Object{}.Set("state", out.State)["state"]); size > maxState {
		return nil, loquat.Errorf(loquat.CodeBackendError, "the plugin %s returned a state of %d bytes; at most %d are stored, so its state did not change", p.Name(), size, maxState)
	}
	replaced, err := store.Do(ctx, s.store, func(tx *store.Tx) (bool, error) { return tx.ReplacePluginState(p.Name(), former, out.State) })
	s.settings.Invalidate() // elements may depend on the state
	if err == nil && !replaced {
		err = loquat.Errorf(loquat.CodeConflict, "another action changed the state of plugin %s while the action %q ran, so its new state was not stored; try again", p.Name(), loquat.Clip(call.ActionID, loquat.Excerpt))
	}
	if err != nil {
		return nil, err
	}
	return out.Result, nil
}
