package plugin

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"loquat"
)

// ActionQuery selects the plugins that run an action. An empty field matches any value.
type ActionQuery struct {
	ActionID string
	Owner    string // action_owner: application, feature or provider_extension
	Plugin   string // name of the plugin
}

// ownerOf returns the action_owner of a plugin's actions.
func ownerOf(p Plugin) string {
	switch p.Kind() {
	case KindExtension, KindFeature:
		return p.Kind()
	}
	return KindApplication
}

// Actors returns the plugins that match q, in the order of the configuration.
func (r *Registry) Actors(q ActionQuery) []Plugin {
	var out []Plugin
	for _, p := range r.plugins {
		if (q.Owner == "" || q.Owner == ownerOf(p)) && (q.Plugin == "" || q.Plugin == p.Name()) && slices.Contains(ActionsOf(p), q.ActionID) {
			out = append(out, p)
		}
	}
	return out
}

// ActionsOf returns the action_ids that a plugin runs.
func ActionsOf(p Plugin) []string {
	actions := []string{}
	if a, ok := p.(Actor); ok {
		_ = contain(func() error { actions = append(actions, a.Actions()...); return nil }) // a plugin that panics has no actions
	}
	return actions
}

// TheActor returns the single plugin that runs the action. It fails if there are none or several.
func (q ActionQuery) TheActor(actors []Plugin) (Plugin, error) {
	switch len(actors) {
	case 0:
		return nil, loquat.Errorf(loquat.CodeNotFound, "no loaded plugin runs the action %q%s; GET /plugins lists what there is", loquat.Clip(q.ActionID, loquat.Excerpt), q.restriction())
	case 1:
		return actors[0], nil
	}
	var candidates []string
	for _, p := range actors {
		candidates = append(candidates, fmt.Sprintf("%s (%s)", p.Name(), ownerOf(p)))
	}
	return nil, loquat.Errorf(loquat.CodeConflict, "several plugins run the action %q: %s; choose one with plugin or action_owner", loquat.Clip(q.ActionID, loquat.Excerpt), strings.Join(candidates, ", "))
}

func (q ActionQuery) restriction() string {
	var out string
	if q.Owner != "" {
		out += fmt.Sprintf(" with action_owner %q", loquat.Clip(q.Owner, loquat.Excerpt))
	}
	if q.Plugin != "" {
		out += fmt.Sprintf(" of plugin %q", loquat.Clip(q.Plugin, loquat.Excerpt))
	}
	return out
}

// Act runs an action of p, which must be an Actor. It returns when ctx ends, even if the
// plugin hangs. A panic of the plugin becomes an error.
func Act(ctx context.Context, p Plugin, call ActionCall) (ActionResult, error) {
	type outcome struct {
		result ActionResult
		err    error
	}
	done := make(chan outcome, 1)
	go func() {
		var out outcome
		out.err = contain(func() (err error) {
			out.result, err = p.(Actor).Act(ctx, call)
			return err
		})
		done <- out
	}()
	select {
	case out := <-done:
		return out.result, out.err
	case <-ctx.Done():
		return ActionResult{}, context.Cause(ctx)
	}
}
