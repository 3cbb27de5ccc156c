package provider

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"loquat"
)

// Models returns the models that {base_url}/models lists. If the backend has no such
// route, Models returns none and no error.
func (p *Provider) Models(ctx context.Context, c loquat.Object) ([]loquat.Model, error) {
	if len(c["model"]) == 0 {
		c = c.Clone().Set("model", "none") // the config may not name a model yet
	}
	s, err := p.settingsOf(c)
	if err != nil {
		return nil, err
	}
	x := exchange{Provider: p, settings: &s, method: http.MethodGet, path: "models"}
	a, f := x.attempt(ctx)
	if f != nil {
		switch f.status {
		case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented:
			return nil, nil
		}
		return nil, f.asError(s.secrets, 1)
	}
	defer a.close()
	data, err := a.readAll()
	if err != nil {
		return nil, a.failed(ctx, err, failConnect).asError(s.secrets, 1)
	}
	models, err := decodeModels(data)
	if err != nil {
		f := failure{kind: failBackend, message: string(data), err: err, requestID: a.requestID()}
		return nil, f.asError(s.secrets, 1)
	}
	for i := range models {
		redactModel(&models[i], s.secrets)
	}
	return models, nil
}

// decodeModels reads a list of descriptors, either bare or under `data` or `models`. It
// skips descriptors without an id.
func decodeModels(data []byte) ([]loquat.Model, error) {
	if err := loquat.CheckDepth(data); err != nil {
		return nil, err
	}
	var list []json.RawMessage
	all := asMap(data)
	found := json.Unmarshal(data, &list) == nil
	for _, key := range []string{"data", "models"} {
		if found {
			break
		}
		raw, ok := all[key]
		found = ok && json.Unmarshal(raw, &list) == nil
	}
	if !found {
		return nil, fmt.Errorf("the list of models cannot be read")
	}
	var models []loquat.Model
	for _, raw := range list {
		var m loquat.Model
		if json.Unmarshal(raw, &m) == nil && m.ID != "" {
			models = append(models, m)
		}
	}
	return models, nil
}
