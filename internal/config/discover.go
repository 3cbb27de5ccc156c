package config

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"loquat"
)

const (
	// DefaultSelector is the value of `provider` that selects the adapter of most backends.
	DefaultSelector = "reference_generic_compatible"
	// DefaultBaseURL is the backend of a provider that names none.
	DefaultBaseURL = "https://api.openai.com/v1"

	// Local backends answer fast if they run. Hosted ones may need longer.
	probeTimeout  = time.Second
	hostedTimeout = 15 * time.Second

	maxModelsBytes = 4 << 20
)

// localBackend is a backend that people run on their own machine.
type localBackend struct{ name, baseURL string }

// localBackends lists local backends in order of preference.
var localBackends = []localBackend{
	{"Ollama", "http://127.0.0.1:11434/v1"},
	{"llama.cpp", "http://127.0.0.1:8080/v1"},
	{"LM Studio", "http://127.0.0.1:1234/v1"},
	{"vLLM", "http://127.0.0.1:8000/v1"},
}

// Found is the result of discovery. Config is nil if there is no backend.
type Found struct {
	Config *Config
	Notice string // for the log: the backends that were found and not found
}

// Discover makes a configuration when there is no file. It uses OPENAI_API_KEY and
// OPENAI_BASE_URL if one of them is set, else the first local backend that lists models on
// its usual port. The model is LOQUAT_MODEL, else the first listed model.
func Discover(ctx context.Context, env Environment, client *http.Client) (Found, error) {
	model, key := env.get("LOQUAT_MODEL"), env.get("OPENAI_API_KEY")
	baseURL := strings.TrimRight(env.get("OPENAI_BASE_URL"), "/")
	if lower := strings.ToLower(baseURL); baseURL != "" && !strings.HasPrefix(lower, "http://") && !strings.HasPrefix(lower, "https://") {
		return Found{}, errors.New("OPENAI_BASE_URL has to begin with http:// or https://")
	}
	if key != "" || baseURL != "" {
		return discoverHosted(ctx, env, client, cmp.Or(baseURL, DefaultBaseURL), key, model)
	}
	for i, models := range probe(ctx, client) {
		if models == nil || model == "" && len(models) == 0 {
			continue
		}
		if model == "" {
			model = models[0]
		}
		return found(env, localBackends[i].name+" at "+localBackends[i].baseURL, localBackends[i].baseURL, "", model), nil
	}
	return Found{Notice: "found no configuration file, no OPENAI_API_KEY and no local backend"}, ctx.Err()
}

func discoverHosted(ctx context.Context, env Environment, client *http.Client, baseURL, key, model string) (Found, error) {
	if model == "" {
		ctx, cancel := context.WithTimeout(ctx, hostedTimeout)
		defer cancel()
		models, err := listModels(ctx, client, baseURL, key)
		secrets := (&Config{raw: loquat.Object{}.Set("api_key", key).Set("base_url", baseURL)}).Secrets()
		shown := NewRedactor(secrets).Redact(baseURL)
		if err != nil {
			return Found{}, fmt.Errorf("asking %s for its models: %s; check that the backend runs, OPENAI_API_KEY, and OPENAI_BASE_URL, which usually ends in a version such as /v1; if the backend lists no models, set LOQUAT_MODEL",
				shown, NewRedactor(secrets).Redact(err.Error()))
		}
		if len(models) == 0 {
			return Found{}, fmt.Errorf("%s lists no models; set LOQUAT_MODEL to the model to use", shown)
		}
		model = models[0]
	}
	return found(env, "the backend of OPENAI_API_KEY and OPENAI_BASE_URL", baseURL, key, model), nil
}

func found(env Environment, name, baseURL, key, model string) Found {
	provider := loquat.Object{}.Set("provider", DefaultSelector).Set("model", model).Set("base_url", baseURL)
	if key != "" {
		provider.Set("api_key", key)
	}
	raw := loquat.Object{}.Set("providers", map[string]loquat.Object{loquat.DefaultAgent: provider})
	return Found{
		Config: New(raw, env),
		Notice: NewRedactor(SecretsIn(provider)).Redact(fmt.Sprintf("no configuration file; using the model %s of %s", model, name)),
	}
}

// probe asks all local backends concurrently. The entry of one that lists no models is nil.
func probe(ctx context.Context, client *http.Client) [][]string {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	models := make([][]string, len(localBackends))
	var wg sync.WaitGroup
	for i, backend := range localBackends {
		wg.Go(func() {
			if list, err := listModels(ctx, client, backend.baseURL, ""); err == nil {
				models[i] = list
			}
		})
	}
	wg.Wait()
	return models
}

// listModels returns the ids of a backend's models; never nil without an error.
func listModels(ctx context.Context, client *http.Client, baseURL, key string) ([]string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, baseURL+"/models", nil)
	if err != nil {
		return nil, err
	}
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("it answered %s", resp.Status)
	}
	var list struct {
		Object string
		Data   []struct{ ID string }
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxModelsBytes)).Decode(&list); err != nil {
		return nil, fmt.Errorf("its answer is not a list of models: %w", err)
	}
	if list.Data == nil && list.Object != "list" {
		return nil, errors.New("its answer is not a list of models")
	}
	ids := []string{}
	for _, m := range list.Data {
		if m.ID != "" {
			ids = append(ids, m.ID)
		}
	}
	return ids, nil
}
