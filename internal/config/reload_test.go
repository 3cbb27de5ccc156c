package config_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"loquat"
	"loquat/internal/config"
)

const reloadBase = `{
	"providers": {"main": {"provider": "p", "model": "m", "api_key": "old key"}, "a.b": {"provider": "p", "model": "m"}},
	"agents": {"default": {"provider": "main", "request_options": {"top_k": 12345678901234567890}}},
	"server": {"listen": "127.0.0.1:1", "public_url": "https://a.example"}, "limits": {"max_body_bytes": 2048, "max_asset_bytes": 4096},
	"store": {"url": "postgres://u:secret@db/x"}, "timeout": 5
}`

func parsed(t *testing.T, text string) *config.Config {
	t.Helper()
	env := config.Environment{
		Lookup:   func(name string) (string, bool) { return "/home", name == "HOME" },
		ReadFile: func(path string) ([]byte, error) { return []byte("from " + path), nil },
	}
	c, problems := config.Parse([]byte(text), env)
	if config.Failed(problems) {
		t.Fatal(problems)
	}
	return c
}

// A change names its key and the new value without secrets, and says whether it needs a restart.
func TestChanges(t *testing.T) {
	for _, c := range []struct{ name, from, to, want string }{
		{"nothing", ``, ``, ``},
		{"the order and the spaces", `"model": "m", "api_key"`, `"model":   "m","api_key"`, ``},
		{"a value", `"model": "m", "api_key"`, `"model": "n", "api_key"`, `providers.main.model="n"`},
		{"a secret", `old key`, `new key`, `providers.main.api_key={"set":true}`},
		{"a secret of a file", `"model": "m", "api_key": "old key"`, `"model": "${file:/x}", "api_key": "old key"`, `providers.main.model={"set":true}`},
		{"a name with a dot", `"a.b": {"provider": "p", "model": "m"}`, `"a.b": {"provider": "p", "model": "n"}`, `providers.a.b.model="n"`},
		{"below the third name", `12345678901234567890`, `12345678901234567891`, `agents.default.request_options={"top_k":12345678901234567891}`},
		{"a password in a URL", `u:secret@db/x`, `u:other@db/x`, `store.url!="postgres://u:***@db/x"`},
		{"at the top", `"timeout": 5`, `"timeout": 6`, `timeout=6`},
		{"a key that goes", `, "timeout": 5`, ``, `timeout=`},
		{"null is the same as none", `"timeout": 5`, `"timeout": null`, `timeout=`},
		{"an object that comes", `"timeout": 5`, `"timeout": 5, "events": {"retention_seconds": 60}`, `events.retention_seconds=60`},
		{"an empty object that comes", `"agents": {`, `"agents": {"quiet": {}, `, `agents.quiet={}`},
		{"an object that goes", `, "store": {"url": "postgres://u:secret@db/x"}`, ``, `store.url!=`},
		{"several", `"listen": "127.0.0.1:1", "public_url": "https://a.example"`, `"listen": "127.0.0.1:2", "public_url": "https://b.example"`, `server.listen!="127.0.0.1:2" server.public_url="https://b.example"`},
		{"an object that becomes something else", `{"max_body_bytes": 2048, "max_asset_bytes": 4096}`, `7`, `limits=7`},
	} {
		t.Run(c.name, func(t *testing.T) {
			base := strings.ReplaceAll(reloadBase, "\n\t\"store\"", " \"store\"")
			if strings.Count(base, c.from) == 0 {
				t.Fatalf("%s is not in the base", c.from)
			}
			to := base
			if c.from != "" {
				to = strings.Replace(base, c.from, c.to, 1)
			}
			var got []string
			for _, change := range parsed(t, base).Changes(parsed(t, to)) {
				sign := "="
				if change.Restart {
					sign = "!="
				}
				got = append(got, fmt.Sprintf("%s%s%s", change.Key, sign, change.Value))
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("got %s, want %s", strings.Join(got, " "), c.want)
			}
		})
	}
}

// A reload keeps the keys that need a restart, and takes all others.
func TestReloaded(t *testing.T) {
	next := `{
		"providers": {"other": {"provider": "p", "model": "n", "api_key": "${file:/key}"}},
		"server": {"listen": "0.0.0.0:2", "debug_listen": "127.0.0.1:3", "allowed_origins": ["https://c.example"]},
		"limits": {"max_body_bytes": 9999, "max_asset_bytes": 9999}, "plugins": ["x"], "telemetry": {"content": true}
	}`
	using := parsed(t, reloadBase)
	got := using.Reloaded(parsed(t, next), config.ProcessEnvironment())
	var want loquat.Object
	err := json.Unmarshal([]byte(`{
		"providers": {"other": {"provider": "p", "model": "n", "api_key": "from /key"}},
		"server": {"listen": "127.0.0.1:1", "allowed_origins": ["https://c.example"]},
		"limits": {"max_body_bytes": 9999, "max_asset_bytes": 4096}, "store": {"url": "postgres://u:secret@db/x"}
	}`), &want)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(fromObject(got.Raw()), fromObject(want)) {
		t.Errorf("got %s, want %s", config.Encode(got.Raw()), config.Encode(want))
	}
	if got.Server.Listen != "127.0.0.1:1" || got.Limits.MaxBodyBytes != 9999 || got.Limits.MaxAssetBytes != 4096 || got.Telemetry.Content {
		t.Errorf("the decoded values are %+v %+v", got.Server, got.Limits)
	}
	redacted := string(config.Encode(got.Redacted()))
	if strings.Contains(redacted, "from /key") {
		t.Error("the value that was read from a file is not redacted")
	}
	if again := got.Reloaded(parsed(t, reloadBase), config.ProcessEnvironment()); len(using.Changes(again)) > 0 {
		t.Errorf("back again differs: %v", using.Changes(again))
	}
	for _, key := range []string{"store.url", "server.tls.cert_file", "plugins", "push.web.subject"} {
		if !config.NeedsRestart(key) {
			t.Errorf("%s needs no restart", key)
		}
	}
	for _, key := range []string{"server.auth_tokens", "plugins_of_mine", "limits.max_inflight", "providers.store"} {
		if config.NeedsRestart(key) {
			t.Errorf("%s needs a restart", key)
		}
	}
}

// A derived value is computed once for each configuration.
func TestDerived(t *testing.T) {
	one, two := parsed(t, reloadBase), parsed(t, reloadBase)
	live, computed := config.NewLive(one), 0
	of := config.Derived(live, func(*config.Config) int { computed++; return computed })
	for _, want := range []int{1, 1} {
		if got := of(); got != want {
			t.Errorf("got %d", got)
		}
	}
	live.Set(two)
	for range 2 {
		if got := of(); got != 2 || live.Now() != two {
			t.Errorf("after a change: %d", got)
		}
	}
}
