package openai

import (
	"encoding/json"
	"net/http"
	"slices"

	"loquat"
	"loquat/internal/httpapi/route"
	"loquat/internal/settings"
)

// openAIModel describes a model by a name that requests may use. The fields of the backend's own
// description come along.
type openAIModel struct {
	_       struct{} `additionalProperties:"true"`
	ID      string   `json:"id"`
	Object  string   `json:"object" enum:"model"`
	Created int64    `json:"created" doc:"In seconds. Without a time of the backend, the start of the server."`
	OwnedBy string   `json:"owned_by" doc:"The provider_id, or loquat for an agent."`
}

// openAIModelList is a list of all models.
type openAIModelList struct {
	Object string        `json:"object" enum:"list"`
	Data   []openAIModel `json:"data"`
}

func (a *API) listModels(x *route.Exchange) error {
	list := []loquat.Object{}
	for _, m := range a.catalog.NamedModels(x.R.Context(), x.Call.By) {
		list = append(list, a.describe(m))
	}
	return x.Reply(http.StatusOK, loquat.Object{}.Set("object", "list").Set("data", list))
}

func (a *API) getModel(x *route.Exchange) error {
	name := x.Path("model")
	all := a.catalog.NamedModels(x.R.Context(), x.Call.By)
	i := slices.IndexFunc(all, func(m settings.NamedModel) bool { return m.Name == name })
	if i < 0 {
		return loquat.Errorf(loquat.CodeNotFound, "the model %q is not listed; GET /v1/models lists all", loquat.Clip(name, loquat.Excerpt))
	}
	return x.Reply(http.StatusOK, a.describe(all[i]))
}

// describe returns the model as OpenAI's API describes it.
func (a *API) describe(m settings.NamedModel) loquat.Object {
	out := m.Model.Extra.Clone()
	if m.Model.Name != "" {
		out = out.Set("name", m.Model.Name)
	}
	out = out.Set("id", m.Name).Set("object", "model").Set("owned_by", m.Owner)
	var created int64
	if json.Unmarshal(out["created"], &created) != nil || created == 0 {
		out.Set("created", a.started.Unix())
	}
	return out
}
