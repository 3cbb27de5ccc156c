package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"loquat"
	"loquat/internal/config"
	"loquat/internal/e2e/binary"
)

// What `config check` accepts the server starts with, and what the server refuses
// `config check` refuses too, with the same words.
func TestConfigCheckAgreesWithServe(t *testing.T) {
	dir := t.TempDir()
	binary.WriteFiles(t, dir, map[string]string{"empty.pem": "", "a.pem": "no certificate", "b.pem": "no key", "file": ""})
	for name, manifest := range map[string]string{
		"one": `{"name": "twin", "version": "1", "kind": "tool", "command": "true"}`, "two": `{"name": "twin", "version": "1", "kind": "tool", "command": "true"}`,
		"broken": `{`, "nulls": `{"name": "nulls", "version": "1", "kind": "tool", "command": "true", "args": null, "env": null, "ui": null, "timeout_seconds": null}`,
	} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
		binary.WriteFiles(t, filepath.Join(dir, name), map[string]string{"plugin.json": manifest})
	}
	const provider = `{"provider": "reference_generic_compatible", "model": "m", "base_url": "http://127.0.0.1:1/v1"}`
	with := func(keys string) string { return `{"providers": {"main": ` + provider + `}, ` + keys + `}` }
	option := func(key string) string {
		return `{"providers": {"main": {"provider": "reference_generic_compatible", "model": "m", "base_url": "http://127.0.0.1:1/v1", ` + key + `}}}`
	}
	const reference = `"loquat.providers.reference_generic_compatible"`
	for _, tc := range []struct{ name, config, fault string }{
		{"the least", `{"providers": {"main": ` + provider + `}}`, ""},
		{"endpoints", option(`"endpoint_options": {"a": "https://a.example/v1", "b": "http://127.0.0.1:2/v1/"}`), ""},
		{"an endpoint that is not a URL", option(`"endpoint_options": {"bad": "nope"}`), "providers.main.endpoint_options"},
		{"an endpoint of another scheme", option(`"endpoint_options": {"bad": "ftp://a.example/v1"}`), "providers.main.endpoint_options"},
		{"an empty endpoint", option(`"endpoint_options": {"bad": ""}`), "providers.main.endpoint_options"},
		{"an endpoint with the whole path", option(`"endpoint_options": {"bad": "https://a.example/v1/chat/completions"}`), "providers.main.endpoint_options"},
		{"an endpoint of an agent", with(`"agents": {"default": {"endpoint_options": {"bad": "nope"}}}`), "agents.default.endpoint_options"},
		{"an endpoint of null", option(`"endpoint_options": {"a": "https://a.example/v1", "b": null}`), ""},

		{"null settings", option(`"api_key": null, "timeout": null, "endpoint_options": null, "retry_on_status": null, "stream_recovery": null, "rate_limit_retry_delays_seconds": null,
			"request_options": null, "tools": null, "debug_stream": null, "empty_content": null, "min_request_interval_seconds": null`), ""},
		{"nulls within settings", option(`"retry_on_status": {"500": null}, "stream_recovery": {"mode": null, "max_retries": null}, "request_options": {"stop": null}`), ""},
		{"null at the top", with(`"agents": null, "plugins": null, "plugin_cache_dir": null, "server": null, "store": null, "bridge": null, "limits": null, "events": null, "timeout": null`), ""},
		{"nulls of the service", with(`"server": {"listen": null, "data_dir": null, "public_url": null, "auth_tokens": null, "allowed_origins": null, "trusted_proxies": null, "tls": {"cert_file": null, "key_file": null}, "shutdown_grace_seconds": null},
			"store": {"url": null}, "bridge": {"url": null, "server_id": null, "token": null, "servers": null}, "limits": {"max_body_bytes": null, "max_tool_rounds": null}, "events": {"retention_seconds": null}`), ""},
		{"null for tls", with(`"server": {"tls": null}`), ""},
		{"an agent of nulls", with(`"agents": {"default": {"provider": null, "model": null, "base_url": null}, "gone": null}`), ""},
		{"a token without a session", with(`"server": {"auth_tokens": [{"name": "a", "token": "0123456789abcdef", "scope": "full", "session_id": null}]}`), ""},
		{"null for a required key", `{"providers": {"main": {"provider": "reference_generic_compatible", "model": null}}}`, "providers.main.model"},
		{"null for a provider", `{"providers": {"main": null}}`, "providers"},
		{"null for all providers", `{"providers": null}`, "providers"},
		{"null for the selector", `{"providers": {"main": {"provider": null, "model": "m"}}}`, "providers.main.provider"},
		{"null in a list", with(`"plugins": [null]`), "plugins"},
		{"null in a list of delays", option(`"retry_on_timeout": [null]`), "providers.main.retry_on_timeout"},

		{"a store elsewhere", with(`"store": {"url": "mysql://db/loquat"}`), "store.url"},
		{"an empty store", with(`"store": {}`), ""},
		{"half a certificate", with(`"server": {"tls": {"cert_file": "` + dir + `/a.pem"}}`), "server.tls"},
		{"a certificate that is not there", with(`"server": {"tls": {"cert_file": "` + dir + `/c.pem", "key_file": "` + dir + `/d.pem"}}`), "server.tls"},
		{"a certificate that is none", with(`"server": {"tls": {"cert_file": "` + dir + `/a.pem", "key_file": "` + dir + `/b.pem"}}`), "server.tls"},
		{"two plugins of one name", with(`"plugins": [` + reference + `, "path:` + dir + `/one", "path:` + dir + `/two"]`), "plugins"},
		{"a broken plugin", with(`"plugins": [` + reference + `, "path:` + dir + `/broken"]`), ""},
		{"a plugin with nulls", with(`"plugins": [` + reference + `, "path:` + dir + `/nulls"]`), ""},
		{"a plugin that is not there", with(`"plugins": [` + reference + `, "path:` + dir + `/absent"]`), ""},
		{"the same plugin by two paths", with(`"plugins": [` + reference + `, "path:` + dir + `/one", "path:` + dir + `/one/"]`), "plugins"},
		{"an exposed address", with(`"server": {"listen": "0.0.0.0:0"}`), "server.listen"},
		{"profiles on an exposed address", with(`"server": {"debug_listen": "0.0.0.0:0"}`), "server.debug_listen"},
		{"profiles on loopback", with(`"server": {"debug_listen": "127.0.0.1:0"}`), ""},
		{"an empty data directory", with(`"server": {"data_dir": ""}`), ""},
		{"a bridge without a name", with(`"bridge": {"url": "ws://127.0.0.1:1/bridge"}`), "bridge.server_id"},
		{"a bridge elsewhere", with(`"bridge": {"url": "ws://127.0.0.1:1/bridge", "server_id": "s", "token": "0123456789abcdef"}`), ""},
		{"a bridge alone", `{"bridge": {"servers": {"s": "0123456789abcdef"}}}`, ""},
		{"an address with a path", with(`"server": {"public_url": "https://chat.example/sub", "allowed_origins": ["https://a.example"]}`), ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			file := binary.WriteConfig(t, tc.config)
			var said strings.Builder
			checked := run(t.Context(), []string{"config", "check", file}, strings.NewReader(""), &said, io.Discard)
			opts := serveOptions{config: file, data: t.TempDir()}
			if !strings.Contains(tc.config, `"listen": "`) {
				opts.listen = "127.0.0.1:0"
			}
			_, stop, started := startServer(t.Context(), opts, io.Discard)
			if started == nil {
				stop()
			}
			if (checked == nil) != (started == nil) {
				t.Errorf("config check says\n%s(%v), and serve says: %v", said.String(), checked, started)
			}
			if tc.fault == "" {
				if checked != nil {
					t.Errorf("config check refuses it:\n%s", said.String())
				}
				return
			}
			if !strings.HasPrefix(said.String(), tc.fault+": ") && !strings.Contains(said.String(), "\n"+tc.fault+": ") {
				t.Errorf("config check says\n%s, want a fault at %s", said.String(), tc.fault)
			}
			if started != nil && !strings.Contains(started.Error(), tc.fault) {
				t.Errorf("serve does not name %s: %v", tc.fault, started)
			}
		})
	}
}

// A null at an optional key changes nothing of what the configuration says.
func TestNullIsAbsent(t *testing.T) {
	const plain = `{"providers": {"p": {"provider": "x", "model": "m", "timeout": 7}}, "agents": {"default": {"provider": "p"}}}`
	const nulls = `{"providers": {"p": {"provider": "x", "model": "m", "timeout": 7, "api_key": null}, "q": null}, "timeout": null, "server": {"listen": null, "tls": null}, "limits": null,
		"agents": {"default": {"provider": "p", "timeout": null}, "gone": null}}`
	shown := func(text string) string {
		cfg, problems := config.Parse([]byte(text), config.ProcessEnvironment())
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		base, provider, err := cfg.Base(loquat.DefaultAgent)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(cfg.Agents(), ",") + provider + jsonOf(base) + jsonOf(cfg.Redacted())
	}
	if got, want := shown(nulls), shown(plain); got != want {
		t.Errorf("with nulls it is\n%s, want\n%s", got, want)
	}
}
