package settings

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"loquat"
	"loquat/internal/config"
	"loquat/internal/ui"
)

// accepted returns the overrides that are offered and valid. They were checked when they were
// stored, but the session's agent or the configuration may have changed since. Without this
// check, a base_url of one agent could get the key of another. A chosen endpoint is replaced
// with the configured URL.
func (r *Resolver) accepted(overrides, base loquat.Object, offers []config.Offer) loquat.Object {
	if len(overrides) == 0 {
		return nil
	}
	schema := r.secretSchema()
	out := make(loquat.Object, len(overrides))
	for key, value := range overrides {
		if len(config.CheckOverrides("", loquat.Object{key: value}, base, schema, offers, "")) != 0 || string(value) == "null" {
			continue
		}
		out[key] = value
		i := slices.IndexFunc(offers, func(o config.Offer) bool { return o.Key == key })
		if i >= 0 && offers[i].ChoosesEndpoint() {
			endpoint, _ := config.Endpoint(base, value)
			out[key] = loquat.Quote(endpoint)
		}
	}
	return out
}

// settingsAmong returns the config elements whose values count, with the overrides that
// they offer to sessions.
func (r *Resolver) settingsAmong(elements []loquat.Object) (settings []loquat.Object, offers []config.Offer) {
	for _, e := range elements {
		offer := config.Offer{Key: e.String("key"), Path: ui.ConfigPath(e)}
		if settingKey(e) == "" || !offer.Overridable(r.schema) {
			continue
		}
		settings = append(settings, e)
		if !e.Bool("secret") {
			offers = append(offers, offer)
		}
	}
	return settings, offers
}

// requestOptionsOffer allows overrides of request_options even if the plugin with the element
// for it is not loaded.
var requestOptionsOffer = config.Offer{Key: "request_options"}

// writeThrough writes each effective value at its element's config_path.
func writeThrough(cfg loquat.Object, settings []loquat.Object, overrides, base loquat.Object) loquat.Object {
	return ui.WriteThrough(cfg, settings, ui.Values(settings, ui.Layers{Overrides: overrides, Base: base}))
}

// Merger makes the new overrides of a session from its present ones and those given.
type Merger func(before, given loquat.Object) loquat.Object

// CheckOverrides checks the overrides that a change gives against what the agent offers.
// The overrides that the session has already are not checked again.
func (r *Resolver) CheckOverrides(ctx context.Context, agentID string, before loquat.Object, raw json.RawMessage, merge Merger) error {
	const location = "body.metadata.overrides"
	var given loquat.Object
	if err := json.Unmarshal(raw, &given); err != nil {
		return loquat.Invalid(location, "has to be an object of config keys")
	}
	if len(given) == 0 {
		return nil
	}
	given = r.RestoreSecrets(agentID, given, before)
	pc, err := r.Context(ctx, agentID, merge(before, given), true)
	if err != nil {
		return err
	}
	return loquat.InvalidFields(r.faultsOf(given, pc, r.gatherAll(ctx, pc, r.Elements), location))
}

// faultsOf checks overrides before they are stored, against the rules of the configuration and
// of the elements that offer them.
func (r *Resolver) faultsOf(given loquat.Object, pc Context, elements []loquat.Object, location string) []loquat.FieldError {
	settings, offers := r.settingsAmong(elements)
	faults := config.CheckOverrides(location, given, pc.base, r.secretSchema(), append(offers, requestOptionsOffer), r.Missing(r.pluginsOf(pc)))
	faults = append(faults, config.Placeholders(location, given)...)
	for _, e := range settings {
		key := e.String("key")
		place := location + "." + loquat.Clip(key, loquat.Excerpt)
		reported := slices.ContainsFunc(faults, func(f loquat.FieldError) bool {
			return f.Location == place || strings.HasPrefix(f.Location, place+".")
		})
		path := ui.ConfigPath(e)
		if reported || key == "base_url" || len(path) > 0 && path[0] == "base_url" { // package config checks it
			continue
		}
		if err := ui.CheckValue(e, given[key]); err != nil {
			faults = append(faults, loquat.FieldError{Location: place, Message: err.Error()})
		}
	}
	return faults
}

// RestoreSecrets returns the overrides that a client gave. Where the client repeats the
// redacted form of a secret that the session has, the result has the secret.
func (r *Resolver) RestoreSecrets(agentID string, given, before loquat.Object) loquat.Object {
	base, _, err := r.config.Now().Base(agentID)
	if err != nil {
		base = nil // CheckAgent reports an unknown agent
	}
	return config.RestoreSecrets(given, before, base)
}

// Values returns the effective value of every setting, with its source. Of secrets it
// says only whether they are set.
func (r *Resolver) Values(ctx context.Context, agentID string, overrides loquat.Object) (map[string]ui.Value, error) {
	pc, err := r.Context(ctx, agentID, overrides, true)
	if err != nil {
		return nil, err
	}
	defer r.resolved.drop(agentID, overrides)
	elements := r.gatherAll(ctx, pc, r.Elements)
	_, offers := r.settingsAmong(elements)
	values := ui.Values(elements, ui.Layers{
		Overrides: r.accepted(overrides, pc.base, append(offers, requestOptionsOffer)), Base: pc.base, Defaults: r.schemaDefaults(),
	})
	secrets := r.secretSchema()
	for _, e := range elements {
		key := settingKey(e)
		if v, ok := values[key]; ok {
			v.Value = pc.configured.RedactAt([]string{key}, v.Value, secrets)
			if path := ui.ConfigPath(e); len(path) > 0 {
				v.Value = pc.configured.RedactAt(path, v.Value, secrets)
			}
			values[key] = v
		}
	}
	return values, nil
}

// schemaDefaults returns the defaults that the schemas of the plugins name, by key.
func (r *Resolver) schemaDefaults() loquat.Object {
	defaults := loquat.Object{}
	for _, f := range r.schema {
		if f.Default != nil {
			defaults.Set(f.Key, f.Default)
		}
	}
	return defaults
}
