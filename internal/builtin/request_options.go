// Package builtin holds the feature plugins that are compiled in, one file each.
package builtin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"loquat"
	"loquat/internal/config"
	"loquat/internal/plugin"
	"loquat/internal/ui"
)

// RequestOptions merges the config key `request_options` into the calls of models: sampling,
// token limits, reasoning settings and any other parameter of a backend.
type RequestOptions struct{}

// requestOptionsKey is the key that the plugin owns.
const requestOptionsKey = "request_options"

// Name is the plugin's reference.
func (RequestOptions) Name() string { return "loquat.features.request_options" }

// Kind is feature.
func (RequestOptions) Kind() string { return plugin.KindFeature }

// ConfigSchema returns the schema of request_options.
func (RequestOptions) ConfigSchema() config.Schema {
	return config.Schema{{
		Key: requestOptionsKey, Kind: config.Object, Check: checkRequestOptions,
		Doc: "Extra parameters that are merged into every chat request; null removes the field of that name.",
	}}
}

func checkRequestOptions(raw json.RawMessage) error {
	var options loquat.Object
	if err := json.Unmarshal(raw, &options); err != nil {
		return errors.New("has to be an object of request parameters")
	}
	var bad []string
	for _, key := range slices.Sorted(maps.Keys(options)) {
		if loquat.IsReservedParam(key) {
			bad = append(bad, loquat.Clip(key, loquat.Excerpt))
		}
	}
	if len(bad) > 0 {
		return fmt.Errorf("cannot have %s, which the server sets itself", strings.Join(bad, ", "))
	}
	return nil
}

// EditsMessages returns false: the plugin does not read or change messages.
func (RequestOptions) EditsMessages() bool { return false }

// EditRequest adds the options to the call.
func (RequestOptions) EditRequest(_ context.Context, req *loquat.LLMRequest) error {
	for key, value := range req.Config.Object(requestOptionsKey) {
		if loquat.IsReservedParam(key) {
			continue
		}
		if req.Params == nil {
			req.Params = loquat.Object{}
		}
		req.Params[key] = value
	}
	return nil
}

// UIElements returns a setting that is edited as JSON.
func (RequestOptions) UIElements(context.Context, ui.Input) ([]loquat.Object, error) {
	return []loquat.Object{loquat.Object{}.
		Set("ui_type", "config").
		Set("key", requestOptionsKey).
		Set("type", "multiline").
		Set("format", "json").
		Set("label", "Request options").
		Set("description", "Extra parameters of every chat request, as a JSON object; null removes the field of that name.").
		Set("placeholder", `{"temperature": 0.7, "stop": ["END"]}`)}, nil
}

// The plugin interfaces that this plugin implements.
var (
	_ plugin.Plugin        = RequestOptions{}
	_ plugin.RequestEditor = RequestOptions{}
	_ plugin.Elements      = RequestOptions{}
	_ config.Owner         = RequestOptions{}
)
