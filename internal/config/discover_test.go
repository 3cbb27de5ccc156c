package config_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"loquat"
	"loquat/internal/config"
)

// answering makes an HTTP client whose answers are by host.
func answering(hosts map[string]http.HandlerFunc) *http.Client {
	return &http.Client{Transport: roundTrip(func(req *http.Request) (*http.Response, error) {
		handler, ok := hosts[req.URL.Host]
		if !ok {
			return nil, fmt.Errorf("dial %s: connection refused", req.URL.Host)
		}
		done := make(chan *http.Response, 1)
		go func() {
			w := httptest.NewRecorder()
			handler(w, req)
			done <- w.Result()
		}()
		select {
		case resp := <-done:
			return resp, nil
		case <-req.Context().Done():
			return nil, req.Context().Err()
		}
	})}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

func lists(models ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path != "/v1/models" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		data := []map[string]string{}
		for _, m := range models {
			data = append(data, map[string]string{"id": m})
		}
		fmt.Fprintf(w, `{"object":"list","data":%s}`, config.Encode(data))
	}
}

func says(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, text) }
}

func withKey(key string, next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		if req.Header.Get("Authorization") != "Bearer "+key {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		next(w, req)
	}
}

func TestDiscover(t *testing.T) {
	const ollama, llama, vllm = "127.0.0.1:11434", "127.0.0.1:8080", "127.0.0.1:8000"
	type hosts = map[string]http.HandlerFunc
	stuck := func(_ http.ResponseWriter, req *http.Request) { <-req.Context().Done() }
	for _, tt := range []struct {
		name     string
		vars     map[string]string
		hosts    hosts
		base     string // "" means nothing is found
		model    string
		key      string
		errorHas string
	}{
		{name: "nothing"},
		{name: "one local", hosts: hosts{vllm: lists("v1", "v2")}, base: "http://127.0.0.1:8000/v1", model: "v1"},
		{name: "order counts, not speed", hosts: hosts{vllm: lists("v"), ollama: func(w http.ResponseWriter, r *http.Request) { time.Sleep(config.ProbeTimeout / 2); lists("o")(w, r) }},
			base: "http://127.0.0.1:11434/v1", model: "o"},
		{name: "a stuck one is passed over", hosts: hosts{ollama: stuck, llama: lists("l")}, base: "http://127.0.0.1:8080/v1", model: "l"},
		{name: "another server on the port", hosts: hosts{llama: says("<html>"), vllm: lists("v")}, base: "http://127.0.0.1:8000/v1", model: "v"},
		{name: "JSON, but no list", hosts: hosts{llama: says(`{"status": "ok"}`)}},
		{name: "no models yet", hosts: hosts{ollama: says(`{"object":"list","data":null}`), vllm: lists("v")}, base: "http://127.0.0.1:8000/v1", model: "v"},
		{name: "no models yet, but one is named", vars: map[string]string{"LOQUAT_MODEL": "mine"}, hosts: hosts{ollama: says(`{"object":"list","data":null}`)},
			base: "http://127.0.0.1:11434/v1", model: "mine"},
		{name: "named model", vars: map[string]string{"LOQUAT_MODEL": "mine"}, hosts: hosts{vllm: lists("v")}, base: "http://127.0.0.1:8000/v1", model: "mine"},

		{name: "key and model need no network", vars: map[string]string{"OPENAI_API_KEY": "sk-1234", "LOQUAT_MODEL": "gpt"}, base: "https://api.openai.com/v1", model: "gpt", key: "sk-1234"},
		{name: "key asks for models", vars: map[string]string{"OPENAI_API_KEY": "sk-1234"}, hosts: hosts{"api.openai.com": withKey("sk-1234", lists("first")), ollama: lists("o")},
			base: "https://api.openai.com/v1", model: "first", key: "sk-1234"},
		{name: "base URL alone", vars: map[string]string{"OPENAI_BASE_URL": "http://gpu/v1/"}, hosts: hosts{"gpu": lists("g")}, base: "http://gpu/v1", model: "g"},
		{name: "wrong key", vars: map[string]string{"OPENAI_API_KEY": "sk-1234"}, hosts: hosts{"api.openai.com": withKey("other", lists("x"))}, errorHas: "401 Unauthorized; check that the backend runs, OPENAI_API_KEY,"},
		{name: "unreachable", vars: map[string]string{"OPENAI_BASE_URL": "http://me:hunter22@gpu/v1"}, errorHas: "asking http://***@gpu/v1"},
		{name: "no scheme", vars: map[string]string{"OPENAI_BASE_URL": "gpu:8080/v1", "LOQUAT_MODEL": "mine"}, errorHas: "OPENAI_BASE_URL has to begin with http:// or https://"},
		{name: "hosted without models", vars: map[string]string{"OPENAI_BASE_URL": "http://gpu/v1"}, hosts: hosts{"gpu": lists()}, errorHas: "lists no models"},
		{name: "hosted and stuck", vars: map[string]string{"OPENAI_BASE_URL": "http://gpu/v1"}, hosts: hosts{"gpu": stuck}, errorHas: "deadline"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				got, err := config.Discover(t.Context(), world{vars: tt.vars}.env(), answering(tt.hosts))
				switch {
				case tt.errorHas != "":
					if err == nil || !strings.Contains(err.Error(), tt.errorHas) || strings.Contains(err.Error(), "hunter22") || strings.Contains(err.Error(), "sk-1234") {
						t.Errorf("Discover = %+v, %v, want an error with %q", got, err, tt.errorHas)
					}
				case err != nil || got.Notice == "":
					t.Errorf("Discover = %+v, %v", got, err)
				case tt.base == "":
					if got.Config != nil {
						t.Errorf("found %s", config.Encode(got.Config.Redacted()))
					}
				case got.Config == nil:
					t.Errorf("found nothing: %s", got.Notice)
				default:
					base, _, err := got.Config.Base(loquat.DefaultAgent)
					if err != nil || base.String("base_url") != tt.base || base.String("model") != tt.model || base.String("api_key") != tt.key {
						t.Errorf("found %s, %v, want %s at %s", config.Encode(base), err, tt.model, tt.base)
					}
					selectors := config.Loaded{Selectors: []string{base.String("provider")}, Owners: []config.Owner{owner{}}}
					if problems := got.Config.Check(selectors); len(problems) > 0 {
						t.Errorf("what was found is wrong: %v", problems)
					}
				}
			})
		})
	}
}
