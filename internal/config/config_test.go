package config_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"loquat"
	"loquat/internal/config"
)

// world is an Environment made of maps.
type world struct{ vars, files map[string]string }

func (w world) env() config.Environment {
	return config.Environment{
		Lookup: func(name string) (string, bool) { v, ok := w.vars[name]; return v, ok },
		ReadFile: func(path string) ([]byte, error) {
			b, ok := w.files[path]
			if !ok {
				return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
			}
			return []byte(b), nil
		},
	}
}

// owner owns the keys of a provider as the tests need them.
type owner struct{}

func (owner) ConfigSchema() config.Schema {
	return config.Schema{
		{Key: "model", Kind: config.String, Required: true},
		{Key: "base_url", Kind: config.String},
		{Key: "endpoint_options", Kind: config.Labels},
		{Key: "api_key", Kind: config.String, Secret: true},
		{Key: "pin", Kind: config.String, Secret: true},
		{Key: "timeout", Kind: config.Number, Default: 60, Min: new(0.001), Max: new(86400.0)},
		{Key: "debug_stream", Kind: config.Boolean},
		{Key: "retry_on_status", Kind: config.DelayMap},
		{Key: "retry_on_timeout", Kind: config.Delays},
		{Key: "stream_recovery.mode", Kind: config.String, Default: "disabled", Enum: []string{"disabled", "early_only"}},
		{Key: "stream_recovery.max_retries", Kind: config.Integer, Min: new(0.0)},
		{Key: "tools", Kind: config.Objects},
	}
}

type optionsOwner struct{}

func (optionsOwner) ConfigSchema() config.Schema {
	return config.Schema{{Key: "request_options", Kind: config.Object}}
}

var around = config.Loaded{
	Compiled:  []string{"loquat.provider", "loquat.options"},
	Selectors: []string{"generic"},
	Owners:    []config.Owner{owner{}, optionsOwner{}},
}

// schemaAround returns the keys of the owners in around.
func schemaAround() config.Schema {
	return slices.Concat(owner{}.ConfigSchema(), optionsOwner{}.ConfigSchema())
}

// parse parses a configuration and fails the test if it cannot.
func parse(t *testing.T, text string) *config.Config {
	t.Helper()
	c, problems := config.Parse([]byte(text), world{}.env())
	if len(problems) > 0 {
		t.Fatalf("Parse(%s) = %v", text, problems)
	}
	return c
}

func lines(problems []config.Problem) string {
	var out []string
	for _, p := range problems {
		kind := ""
		if p.Warning {
			kind = "warning: "
		}
		out = append(out, kind+p.String())
	}
	return strings.Join(out, "\n")
}

func TestSyntax(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"nothing", "", "line 1, column 1: is empty"},
		{"blanks", " \n ", "line 1, column 1: is empty"},
		{"no object", `[1]`, "is a list; must be one JSON object"},
		{"null", `null`, "is null; must be one JSON object"},
		{"duplicate", "{\n  \"a\": {\"b\": 1,\n   \"b\": 2}}", "line 3, column 4: a.b is given twice"},
		{"same name, escaped", `{"a": 1, "\u0061": 2}`, "a is given twice"},
		{"open", "{\n\"a\": {", "line 2, column 7: a ends too early"},
		{"trailing comma", `{"a": 1,}`, "line 1, column 8: a is not valid JSON: invalid character ',' at start of value; JSON has no comma before a closing bracket or brace"},
		{"single quotes", `{'a': 1}`, "line 1, column 2: is not valid JSON: invalid character '\\'' at start of value; strings need double quotes"},
		{"two commas", `{"a": [1,,2]}`, "at start of value"},
		{"comment within", "{\n  // so\n}", "JSON has no comments"},
		{"after the end", "{}\n {}", "line 2, column 2: has text after its end"},
		{"invalid UTF-8", "{\"a\": \"\xff\"}", "line 1, column 8: a is not valid JSON"},
		{"columns are characters", "{\"é\": x}", "line 1, column 7: é is not valid JSON"},
		{"129 levels", `{"a":` + strings.Repeat("[", 128) + strings.Repeat("]", 128) + "}", "nested too deep"},
		{"comment", "{} // so", "text after its end"},
	} {
		c, problems := config.Parse([]byte(tt.text), world{}.env())
		if c != nil || len(problems) != 1 || !strings.Contains(problems[0].String(), tt.want) {
			t.Errorf("%s: Parse = %v, %v, want %q", tt.name, c, problems, tt.want)
		}
	}
	deepest := `{"a":` + strings.Repeat("[", 127) + strings.Repeat("]", 127) + "}"
	if _, problems := config.Parse([]byte(deepest), world{}.env()); len(problems) > 0 {
		t.Errorf("128 levels: %v", problems)
	}
}

func TestReferences(t *testing.T) {
	env := world{
		vars: map[string]string{"NAME": "value", "EMPTY": "", "DOLLARS": "${NAME} $$", "BAD": "\xff"},
		files: map[string]string{"/plain": "held", "/unix": "held\n", "/dos": "held\r\n", "/two": "held\n\n",
			"/ref": "${NAME}\n", "/binary": "\xff"},
	}.env()
	for _, tt := range []struct{ text, want, problem string }{
		{text: `plain`, want: `plain`},
		{text: `${NAME}`, want: `value`},
		{text: `a ${NAME} b ${NAME}`, want: `a value b value`},
		{text: `${EMPTY}`, want: ``},
		{text: `${EMPTY:-x}`, want: `x`},
		{text: `${NONE:-x:-y}`, want: `x:-y`},
		{text: `${NONE:-}`, want: ``},
		{text: `${NAME:-x}`, want: `value`},
		{text: `$$`, want: `$`},
		{text: `$${NAME}`, want: `${NAME}`},
		{text: `$$$$`, want: `$$`},
		{text: `$NAME costs 5$`, want: `$NAME costs 5$`},
		{text: `${DOLLARS}`, want: `${NAME} $$`},
		{text: `${file:/plain}`, want: `held`},
		{text: `${file:/unix}`, want: `held`},
		{text: `${file:/dos}`, want: `held`},
		{text: `${file:/two}`, want: "held\n"},
		{text: `${file:/ref}`, want: "${NAME}"},
		{text: `Bearer ${file:/unix}`, want: "Bearer held"},
		{text: `${NONE}`, problem: "the environment variable NONE is not set"},
		{text: `${BAD}`, problem: "the environment variable BAD is not UTF-8"},
		{text: `${file:/none}`, problem: "the file /none cannot be read"},
		{text: `${file:/binary}`, problem: "is not UTF-8"},
		{text: `${file:relative}`, problem: "does not name an absolute path"},
		{text: `${NAME`, problem: "has ${ without }"},
		{text: `${}`, problem: "is not a reference"},
		{text: `${1ST}`, problem: "is not a reference"},
		{text: `${MY-KEY:-sk-secret}`, problem: "has ${MY-KEY:-…}, which is not a reference"},
		{text: `${A:-${B}}`, problem: "is not a reference"},
	} {
		// At the top, in an object and in a list, references are the same.
		quoted, _ := json.Marshal(tt.text)
		c, problems := config.Parse(fmt.Appendf(nil, `{"a": %s, "o": {"k": [1, %s]}}`, quoted, quoted), env)
		if tt.problem != "" {
			if len(problems) != 2 || problems[0].Path != "a" || problems[1].Path != "o.k[1]" || !strings.Contains(problems[0].Message, tt.problem) {
				t.Errorf("%s: problems %v, want two with %q", tt.text, problems, tt.problem)
			}
			continue
		}
		if len(problems) > 0 || c.Raw().String("a") != tt.want {
			t.Errorf("%s = %q, %v, want %q", tt.text, c.Raw().String("a"), problems, tt.want)
		}
		var inner []any
		config.MustDecode(c.Raw().Object("o")["k"], &inner)
		if inner[1] != tt.want {
			t.Errorf("%s in a list = %q, want %q", tt.text, inner[1], tt.want)
		}
	}
	if c, _ := config.Parse([]byte(`{"${NAME}": 1}`), env); c.Raw()["${NAME}"] == nil {
		t.Error("a key was expanded")
	}
}

func TestFind(t *testing.T) {
	files := map[string]string{"loquat.json": "{}", "/xdg/loquat/loquat.json": "{}", "/home/.config/loquat/loquat.json": "{}"}
	vars := map[string]string{"LOQUAT_CONFIG": "/named.json", "XDG_CONFIG_HOME": "/xdg", "HOME": "/home"}
	w := world{vars, files}
	expect := func(flag, want string) {
		t.Helper()
		if got := config.Find(flag, w.env()); got != want {
			t.Errorf("Find(%q) = %q, want %q", flag, got, want)
		}
	}
	expect("/flag.json", "/flag.json")
	expect("", "/named.json")
	delete(vars, "LOQUAT_CONFIG")
	expect("", "loquat.json")
	delete(files, "loquat.json")
	expect("", "/xdg/loquat/loquat.json")
	delete(vars, "XDG_CONFIG_HOME")
	expect("", "/home/.config/loquat/loquat.json")
	delete(files, "/home/.config/loquat/loquat.json")
	expect("", "")
	if c, problems := config.Load("/flag.json", w.env()); c != nil || !strings.Contains(lines(problems), "/flag.json: cannot be read") {
		t.Errorf("Load of an absent file = %v, %v", c, problems)
	}
	closed := config.Environment{Lookup: w.env().Lookup, ReadFile: func(path string) ([]byte, error) {
		return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrPermission}
	}}
	if _, problems := config.Load(config.Find("", closed), closed); !strings.Contains(lines(problems), "run the command from a directory that its user may read") {
		t.Errorf("Load in a directory of another user = %v", problems)
	}
}

func TestDefaults(t *testing.T) {
	c := config.New(nil, world{vars: map[string]string{"HOME": "/home"}}.env())
	want := config.Server{Listen: "127.0.0.1:8787", DataDir: "/home/.local/share/loquat", ShutdownGrace: config.DefaultShutdownGrace, Drain: config.DefaultDrain}
	if fmt.Sprint(c.Server) != fmt.Sprint(want) {
		t.Errorf("server = %+v, want %+v", c.Server, want)
	}
	if c.Limits != (config.Limits{MaxBodyBytes: 8388608, MaxAssetBytes: 20971520, MaxImportBytes: 1073741824, MaxResponseBytes: 67108864, MaxToolRounds: 50, MaxToolResultBytes: 262144, MaxRunningRequests: 10_000, MinFreeDiskBytes: -1,
		MaxConnections: 4096, MaxConnectionsPerAddress: 1024,
		MaxFollowers: 1024, MaxFollowersPerToken: 512, MaxInflightBytes: 64 << 20, MaxInflightBytesPerToken: 32 << 20}) || c.Events.Retention.Seconds() != 604800 {
		t.Errorf("limits = %+v, events = %+v", c.Limits, c.Events)
	}
	if !c.Loads("any.plugin") || c.PluginCache() != "/home/.local/share/loquat/plugin-cache" {
		t.Errorf("plugins = %v, cache %s", c.Plugins, c.PluginCache())
	}
	c = parse(t, `{"plugins": ["a"], "server": {"data_dir": "/d", "shutdown_grace_seconds": 0.5}, "events": {"retention_seconds": 0}, "limits": {"max_tool_rounds": 3, "max_tool_result_bytes": 2048}}`)
	if c.Loads("b") || !c.Loads("a") || c.PluginCache() != "/d/plugin-cache" || c.Server.ShutdownGrace.Seconds() != 0.5 ||
		c.Events.Retention != 0 || c.Limits.MaxToolRounds != 3 || c.Limits.MaxToolResultBytes != 2048 || c.Limits.MaxBodyBytes != config.DefaultMaxBodyBytes {
		t.Errorf("what the file says is not what holds: %+v", c)
	}
}

const main = `"providers": {"main": {"provider": "generic", "model": "m"}}`

func TestCheck(t *testing.T) {
	provider := func(keys string) string {
		return `{"providers": {"main": {"provider": "generic", "model": "m", ` + keys + `}}}`
	}
	server := func(keys string) string { return `{` + main + `, "server": {` + keys + `}}` }
	for _, tt := range []struct{ name, text, want string }{
		{"minimal", `{` + main + `}`, ""},
		{"keys of providers may stand in any layer", `{` + main + `, "timeout": 3, "agents": {"default": {"provider": "main", "timeout": 4}}}`, ""},
		{"model above", `{"model": "m", "providers": {"main": {"provider": "generic"}}}`, ""},
		{"model below", `{"providers": {"main": {"provider": "generic"}}, "agents": {"default": {"provider": "main", "model": "m"}}}`, ""},
		{"a bridge needs no provider", `{"bridge": {"servers": {"home": "t"}}}`, ""},

		{"nothing", `{}`, `providers: is missing`},
		{"no provider", `{"providers": {}}`, `providers: is empty`},
		{"providers of a wrong kind", `{"providers": []}`, `providers: is a list; must be an object`},
		{"provider of a wrong kind", `{"providers": {"main": 3}}`, `providers.main: is a number; must be an object`},
		{"no selector", `{"providers": {"main": {"model": "m"}}}`, `providers.main.provider: is missing; must be one of generic`},
		{"unknown selector", `{"providers": {"main": {"provider": "x", "model": "m"}}}`, `providers.main.provider: is "x", which no loaded plugin provides; must be one of generic`},
		{"no model", `{"providers": {"main": {"provider": "generic"}}}`, `providers.main.model: is missing`},
		{"no model for one agent's provider", `{"providers": {"a": {"provider": "generic"}, "b": {"provider": "generic", "model": "m"}}, "agents": {"default": {"provider": "b"}}}`, `providers.a.model: is missing`},

		{"string", provider(`"base_url": 1`), `providers.main.base_url: is a number; must be a string`},
		{"number", provider(`"timeout": "60"`), `providers.main.timeout: is a string; must be a number`},
		{"too small", provider(`"timeout": 0`), `providers.main.timeout: is 0; must be from 0.001 to 86400`},
		{"too large", provider(`"timeout": 1e9`), `providers.main.timeout: is 1e9; must be from 0.001 to 86400`},
		{"integer", provider(`"stream_recovery": {"max_retries": 1.5}`), `providers.main.stream_recovery.max_retries: is 1.5; must be an integer`},
		{"negative", provider(`"stream_recovery": {"max_retries": -1}`), `must be at least 0`},
		{"enum", provider(`"stream_recovery": {"mode": "always"}`), `providers.main.stream_recovery.mode: is "always"; must be one of disabled, early_only`},
		{"no object", provider(`"stream_recovery": true`), `providers.main.stream_recovery: is a boolean; must be an object`},
		{"boolean", provider(`"debug_stream": 1`), `must be true or false`},
		{"labels", provider(`"endpoint_options": {"a": 1}`), `must be an object of strings`},
		{"objects", provider(`"tools": [{}, 1]`), `must be a list of objects`},
		{"delays", provider(`"retry_on_timeout": [1, -1]`), `providers.main.retry_on_timeout: entry 1 is -1; must be seconds`},
		{"every code", provider(`"retry_on_status": {"429": [1], "700": [1]}`), "providers.main.retry_on_status.429: cannot be listed here; use the key rate_limit_retry_delays_seconds\nproviders.main.retry_on_status.700: is not an HTTP status code"},
		{"codes of a wrong kind", provider(`"retry_on_status": []`), `providers.main.retry_on_status: is a list; must be an object`},

		{"unknown key", provider(`"timout": 3`), `warning: providers.main.timout: is known to no loaded part; did you mean timeout?`},
		{"unknown key, nothing near", provider(`"colour_of_the_sky": 3`), "warning: providers.main.colour_of_the_sky: is known to no loaded part"},
		{"unknown key beside a process", `{"providers": {"main": {"provider": "generic", "model": "m", "sides": 3}}, "plugins": ["loquat.provider", "path:/p"]}`,
			"warning: providers.main.sides: is not checked: no compiled-in plugin knows it, but a plugin that is a process may"},
		{"unknown inner key", provider(`"stream_recovery": {"mod": "disabled"}`), `warning: providers.main.stream_recovery.mod: is known to no loaded part; did you mean mode?`},
		{"unknown top key", `{` + main + `, "sever": {}}`, `warning: sever: is known to no loaded part; did you mean server?`},

		{"reserved options", provider(`"request_options": {"stream": true, "model": "x", "user": "u"}`), "providers.main.request_options.model: is set by the service itself; every other parameter is allowed\nproviders.main.request_options.stream: is set"},
		{"options of a wrong kind", provider(`"request_options": 1`), `providers.main.request_options: is a number; must be an object`},

		{"several providers, no agent", `{"providers": {"a": {"provider": "generic", "model": "m"}, "b": {"provider": "generic", "model": "m"}}}`, `agents: is missing, and there are 2 providers; add agents.default with provider set to one of a, b`},
		{"no default agent", `{` + main + `, "agents": {"x": {"provider": "main"}, "y": {"provider": "main"}}}`, `agents: has 2 agents and none named default`},
		{"lone agent", `{` + main + `, "agents": {"x": {"provider": "main"}}}`, ""},
		{"unknown provider", `{` + main + `, "agents": {"default": {"provider": "mian"}}}`, `agents.default.provider: names "mian", which is not among the providers; must be one of main`},
		{"provider of a wrong kind at an agent", `{` + main + `, "agents": {"default": {"provider": 1}}}`, `agents.default.provider: is a number`},
		{"an agent of a wrong kind", `{` + main + `, "agents": {"default": "main"}}`, `agents.default: is a string; must be an object`},

		{"plugins", `{` + main + `, "plugins": ["loquat.provider", "path:/abs", "path:rel", "x.y", "loquat.provider"]}`,
			"plugins[2]: is \"path:rel\"; after path: comes an absolute directory\nplugins[3]: is \"x.y\", which is not compiled in; must be path: and an absolute directory, or one of loquat.provider, loquat.options\nplugins[4]: is \"loquat.provider\", which is listed already"},
		{"plugins of a wrong kind", `{` + main + `, "plugins": [1]}`, `plugins: is a list; must be a list of strings`},

		{"required plugins", `{` + main + `, "plugins": ["loquat.provider", "path:/a"], "required_plugins": ["path:/a", "path:/b", "path:/a", "loquat.options"]}`,
			"required_plugins[1]: is \"path:/b\", which is not loaded; add it to plugins, or remove it here\nrequired_plugins[2]: is \"path:/a\", which is listed already; list it once\nrequired_plugins[3]: is \"loquat.options\", which is not loaded"},
		{"required plugins, no list of plugins", `{` + main + `, "required_plugins": ["loquat.options", "path:/a"]}`, `required_plugins[1]: is "path:/a", which is not loaded`},
		{"required plugins of a wrong kind", `{` + main + `, "required_plugins": "path:/a"}`, `required_plugins: is a string; must be a list of strings`},
		{"required plugins of an agent", `{` + main + `, "agents": {"default": {"required_plugins": []}}}`, `warning: agents.default.required_plugins: is known to no loaded part`},

		{"listen", server(`"listen": "8787"`), `server.listen: is "8787", which is not an address`},
		{"port", server(`"listen": "127.0.0.1:70000"`), `server.listen: has the port "70000"; must be 0 to 65535`},
		{"named port", server(`"listen": "127.0.0.1:http"`), `server.listen: has the port "http"`},
		{"loopback", server(`"listen": "[::1]:0"`), ""},
		{"localhost", server(`"listen": "localhost:0"`), ""},
		{"open", server(`"listen": ":8787"`), `server.listen: is :8787, which others can reach, and there are no server.auth_tokens`},
		{"open with tokens", server(`"listen": ":8787", "auth_tokens": [{"name": "a", "token": "0123456789abcdef", "scope": "full"}]`), ""},
		{"profiles", server(`"debug_listen": "127.0.0.1:6060"`), ""},
		{"profiles for others", server(`"debug_listen": ":6060", "auth_tokens": [{"name": "a", "token": "0123456789abcdef", "scope": "full"}]`), `server.debug_listen: is :6060, which others can reach, and profiles need no token; listen on 127.0.0.1 and reach it through ssh -L, or start with --debug-insecure`},
		{"profiles on the address of the server", server(`"debug_listen": "127.0.0.1:8787"`), `server.debug_listen: is 127.0.0.1:8787, and the server itself listens on 127.0.0.1:8787; choose another port`},
		{"profiles on one of the addresses of the server", server(`"debug_listen": "127.0.0.1:80", "listen": "[::]:80", "auth_tokens": [{"name": "a", "token": "0123456789abcdef", "scope": "full"}]`), `server.debug_listen: is 127.0.0.1:80, and the server itself listens on [::]:80`},
		{"profiles on another address with the same port", server(`"debug_listen": "[::1]:8787"`), ""},
		{"profiles and the server on any port", server(`"debug_listen": "127.0.0.1:0", "listen": "127.0.0.1:0"`), ""},
		{"profiles nowhere", server(`"debug_listen": "6060"`), `server.debug_listen: is "6060", which is not an address`},
		{"public_url", server(`"public_url": "chat.example.org"`), `server.public_url: is not a URL that can be used here; must begin with http:// or https://`},
		{"origin", server(`"allowed_origins": ["https://a", "https://b/c"]`), `server.allowed_origins: entry 1 is more than an origin`},
		{"proxies", server(`"trusted_proxies": ["10.0.0.1", "10.0.0.0/8", "ten"]`), `server.trusted_proxies: entry 2 is "ten"; must be an IP address or a network`},
		{"half a certificate", server(`"tls": {"cert_file": "/c"}`), `server.tls: has only one of cert_file and key_file`},
		{"grace", server(`"shutdown_grace_seconds": -1`), `must be from 0 to 86400`},
		{"token without name", server(`"auth_tokens": [{"token": "0123456789abcdef", "scope": "full"}]`), `server.auth_tokens: entry 0 has no name, or the name of another token`},
		{"one token twice", server(`"auth_tokens": [{"name": "a", "token": "0123456789abcdef", "scope": "full"}, {"name": "b", "token": "0123456789abcdef", "scope": "read"}]`), `entry 1 has no token, or the same as another entry`},
		{"scope", server(`"auth_tokens": [{"name": "a", "token": "0123456789abcdef", "scope": "admin"}]`), `entry 0 has the scope "admin"; must be full, read, session or user`},
		{"user scope", server(`"auth_tokens": [{"name": "a", "token": "0123456789abcdef", "scope": "user"}]`), `must have a user with the scope user`},
		{"user without its scope", server(`"auth_tokens": [{"name": "a", "token": "0123456789abcdef", "scope": "full", "user": "u"}]`), `must have a user with the scope user, and only then`},
		{"user of several lines", server(`"auth_tokens": [{"name": "a", "token": "0123456789abcdef", "scope": "user", "user": "a\nb"}]`), `has a user that is too long or has control characters`},
		{"jwt", server(`"listen": ":8787", "jwt": [{"issuer": "a", "audience": "b", "jwks_url": "https://a/keys"}, {"issuer": "b", "audience": "b", "jwks_url": "http://127.0.0.1:80/keys", "user_claim": "email", "scope_claim": "s"}]`), ""},
		{"roles", server(`"roles": {"user": {"agents": ["default"], "models": ["a/*"], "plugins": [], "bounds": {"requests_per_minute": 1, "tokens_per_day": 0}}}`), ""},
		{"role with another key", server(`"roles": {"user": {"agent": []}}`), `entry "user" is wrong: unknown field "agent"`},
		{"role with a bad name", server(`"roles": {"a b": {}}`), `entry "a b" has a name that cannot be used`},
		{"role with a bound below 0", server(`"roles": {"user": {"bounds": {"sessions": -1}}}`), `entry "user" has a bound below 0`},
		{"role with a bound that is no integer", server(`"roles": {"user": {"bounds": {"sessions": 1.5}}}`), `entry "user" is wrong`},
		{"token with a role that is not there", server(`"auth_tokens": [{"name": "a", "token": "0123456789abcdefghijklmnopqrstuv", "scope": "full", "role": "x"}]`), `server.auth_tokens[0].role: is "x", which server.roles does not have`},
		{"jwt without issuer", server(`"jwt": [{"audience": "b", "jwks_url": "https://a"}]`), `server.jwt: entry 0 has no issuer`},
		{"one issuer twice", server(`"jwt": [{"issuer": "a", "audience": "b", "jwks_url": "https://a"}, {"issuer": "a", "audience": "c", "jwks_url": "https://a"}]`), `entry 1 has no issuer, or the issuer of another entry`},
		{"jwt without audience", server(`"jwt": [{"issuer": "a", "jwks_url": "https://a"}]`), `entry 0 has no audience`},
		{"jwt without TLS", server(`"jwt": [{"issuer": "a", "audience": "b", "jwks_url": "http://a/keys"}]`), `entry 0 has the jwks_url "http://a/keys"; must be an https URL`},
		{"jwt with another key", server(`"jwt": [{"issuer": "a", "audience": "b", "jwks_url": "https://a", "secret": "x"}]`), `entry 0 is wrong: unknown field "secret"`},
		{"session scope", server(`"auth_tokens": [{"name": "a", "token": "0123456789abcdef", "scope": "session"}]`), `must have a session_id with the scope session`},
		{"session_id without its scope", server(`"auth_tokens": [{"name": "a", "token": "0123456789abcdef", "scope": "full", "session_id": "s"}]`), `must have a session_id with the scope session, and only then`},
		{"unknown key of a token", server(`"auth_tokens": [{"name": "a", "token": "0123456789abcdef", "scope": "full", "scopes": []}]`), `entry 0 has the key scopes; must be one of`},
		{"short token", server(`"auth_tokens": [{"name": "a", "token": "0123456789abcde", "scope": "full"}]`), "warning: server.auth_tokens[0].token: is short enough to be guessed"},

		{"prices", `{` + main + `, "prices": {"m": {"input": 0.5, "output": 2}, "main/m": {"input": 1, "output": 2, "cached_input": 0.1}}}`, ""},
		{"price without output", `{` + main + `, "prices": {"m": {"input": 0.5}}}`, `prices: entry "m" is wrong: input or output is missing`},
		{"price below 0", `{` + main + `, "prices": {"m": {"input": 1, "output": -2}}}`, `prices: entry "m" is wrong: a price is below 0`},
		{"price with another key", `{` + main + `, "prices": {"m": {"input": 1, "output": 2, "cache": 1}}}`, `prices: entry "m" is wrong: unknown field "cache"`},
		{"webhooks", `{` + main + `, "webhooks": {"retry_delays_seconds": [1, -1]}}`, `webhooks.retry_delays_seconds: `},
		{"assets", `{` + main + `, "assets": {"url": "https://h/b"}, "store": {"url": "postgres://h/d"}}`, `assets.url: is not the address of a bucket; must begin with s3://`},
		{"assets", `{` + main + `, "assets": {"url": "s3://images"}}`, `assets.url: is given without store.url`},
		{"assets", `{` + main + `, "assets": {"access_key_id": "a", "secret_access_key": "hunter2"}, "store": {"url": "postgres://h/d"}}`, `assets.url: is missing; the credentials in assets are for it`},
		{"assets", `{` + main + `, "assets": {"url": "s3://images", "secret_access_key": "hunter2"}, "store": {"url": "postgres://h/d"}}`, `assets.access_key_id: is missing`},
		{"assets", `{` + main + `, "assets": {"url": "s3://images", "access_key_id": "a"}, "store": {"url": "postgres://h/d"}}`, `assets.secret_access_key: is missing`},
		{"store", `{` + main + `, "store": {"url": "mysql://h/d"}}`, `store.url: is not the address of a database; must begin with postgres://`},
		{"bridge", `{` + main + `, "bridge": {"url": "wss://h/bridge"}}`, "bridge.server_id: is missing; with bridge.url it must name this server\nbridge.token: is missing"},
		{"bridge by http", `{` + main + `, "bridge": {"url": "https://h", "server_id": "s", "token": "t"}}`, `bridge.url: is not a URL`},
		{"limits", `{` + main + `, "limits": {"max_body_bytes": 0, "max_tool_rounds": "9"}}`, "limits.max_body_bytes: is 0; must be at least 1024\nlimits.max_tool_rounds: is a string; must be an integer"},
		{"retention", `{` + main + `, "events": {"retention_seconds": -1}}`, `events.retention_seconds: is -1; must be from 0`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			problems := parse(t, tt.text).Check(around)
			got := strings.Split(lines(problems), "\n")
			want := strings.Split(tt.want, "\n")
			if len(got) != len(want) || tt.want == "" && got[0] != "" {
				t.Fatalf("got\n%s\nwant\n%s", lines(problems), tt.want)
			}
			for i := range want {
				if !strings.Contains(got[i], want[i]) {
					t.Errorf("got\n%s\nwant\n%s", got[i], want[i])
				}
			}
			if !slices.IsSortedFunc(problems, func(a, b config.Problem) int { return strings.Compare(a.Path, b.Path) }) {
				t.Errorf("not sorted by place:\n%s", lines(problems))
			}
		})
	}
}

// selected is an owner of keys that is a provider with a required key of its own.
type selected struct{ selector, key string }

func (s selected) Selector() string { return s.selector }

func (s selected) ConfigSchema() config.Schema {
	return config.Schema{{Key: "model", Kind: config.String, Required: true}, {Key: s.key, Kind: config.String, Required: true}}
}

// Each provider needs the required keys of its own plugin, not those of other providers' plugins.
func TestRequiredKeysOfSeveralProviders(t *testing.T) {
	loaded := config.Loaded{Selectors: []string{"one", "two"}, Owners: []config.Owner{selected{"one", "deployment"}, selected{"two", "region"}}}
	c := parse(t, `{"providers": {"a": {"provider": "one", "model": "m"}, "b": {"provider": "two", "region": "r"}}, "agents": {"default": {"provider": "a"}}}`)
	want := "providers.a.deployment: is missing; must be a string\nproviders.b.model: is missing; must be a string"
	if got := lines(c.Check(loaded)); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestCheckKnowsWhatIsLoaded(t *testing.T) {
	options := parse(t, `{"providers": {"main": {"provider": "generic", "model": "m", "request_options": {"user": "u"}}}}`)
	without := around
	without.Owners = []config.Owner{owner{}}
	if got := lines(options.Check(without)); !strings.HasPrefix(got, "warning: providers.main.request_options: is not sent") {
		t.Errorf("request_options without its plugin: %s", got)
	}
	alone := parse(t, `{`+main+`, "timout": 3, "plugins": ["path:/p"]}`)
	none := config.Loaded{Compiled: around.Compiled, Providers: []string{"loquat.provider"}}
	if got := lines(alone.Check(none)); got != "plugins: names no plugin that provides models; add loquat.provider, or leave plugins out" {
		t.Errorf("plugins without one that provides models: %s", got)
	}
	open := parse(t, `{`+main+`, "server": {"listen": "0.0.0.0:1"}}`)
	insecure := around
	insecure.Insecure = true
	if got := open.Check(insecure); len(got) > 0 {
		t.Errorf("an open server that may be insecure: %v", got)
	}
	profiled := parse(t, `{`+main+`, "server": {"debug_listen": "0.0.0.0:1"}}`)
	if got := lines(profiled.Check(insecure)); !strings.HasPrefix(got, "server.debug_listen: ") {
		t.Errorf("profiles beyond loopback on a server that needs no token: %q", got)
	}
	shown := around
	shown.DebugInsecure = true
	if got := profiled.Check(shown); len(got) > 0 {
		t.Errorf("profiles that others may read: %v", got)
	}
}

// The message about an invalid secret does not show its value.
func TestCheckRedactsSecrets(t *testing.T) {
	env := world{files: map[string]string{"/s": "very-secret-mode"}}.env()
	c, _ := config.Parse([]byte(`{"providers": {"main": {"provider": "generic", "model": "m", "stream_recovery": {"mode": "${file:/s}"}}}}`), env)
	got := lines(c.Check(around))
	if strings.Contains(got, "very-secret") || !strings.Contains(got, `is "***"; must be one of`) {
		t.Errorf("Check = %s", got)
	}
}

func TestBase(t *testing.T) {
	c := parse(t, `{
		"timeout": 1, "debug_stream": true, "plugin_cache_dir": "/p", "server": {"listen": "127.0.0.1:1"}, "plugins": ["loquat.provider"],
		"request_options": {"a": 1, "b": {"c": 1, "d": 1}, "e": [1, 2]},
		"providers": {"p": {"provider": "generic", "model": "m", "timeout": 2, "request_options": {"b": {"c": 2}, "e": [3]}}},
		"agents": {"default": {"provider": "p", "timeout": 3, "limits": {}, "request_options": {"b": {"d": null}}}}}`)
	got, providerID, err := c.Base("default")
	want := `{"debug_stream":true,"model":"m","plugin_cache_dir":"/p","provider":"generic","request_options":{"a":1,"b":{"c":2,"d":null},"e":[3]},"timeout":3}`
	if string(config.Encode(got)) != want || providerID != "p" || err != nil {
		t.Errorf("Base = %s, %s, %v, want %s", config.Encode(got), providerID, err, want)
	}
	if _, _, err := c.Base("nobody"); loquat.CodeOf(err) != loquat.CodeInvalid || !strings.Contains(err.Error(), "the agents are: default") {
		t.Errorf("an unknown agent: %v", err)
	}
	lone := parse(t, `{`+main+`, "agents": {"helper": {"provider": "main"}}}`)
	if _, id, err := lone.Base("default"); id != "main" || err != nil {
		t.Errorf("the default of a lone agent = %s, %v", id, err)
	}
	if ids := lone.Agents(); !slices.Equal(ids, []string{"helper"}) {
		t.Errorf("Agents = %v", ids)
	}
	unnamed := parse(t, `{`+main+`, "agents": {"default": {"model": "n"}}}`)
	if base, id, _ := unnamed.Base("default"); id != "main" || base.String("model") != "n" {
		t.Errorf("an agent that leaves out the only provider = %s, %s", config.Encode(base), id)
	}
}

// No agent's config has keys of the service, whose secrets plugins must not see.
func TestBaseWithoutServiceKeys(t *testing.T) {
	c := parse(t, `{`+main+`, "assets": {"url": "s3://b?region=r", "secret_access_key": "planted"}, "bridge": {"token": "planted"},
		"telemetry": {"endpoint": "http://collector", "headers": {"x-key": "planted"}}, "store": {"url": "postgres://u:planted@h/d"},
		"push": {"web": {"subject": "mailto:planted@example.org"}}, "webhooks": {"allow_private_addresses": true}, "prices": {"m": {"input": 1}}}`)
	base, _, err := c.Base("default")
	provider, _ := c.Provider("main")
	if err != nil || len(base) > 2 || len(provider) > 2 {
		t.Errorf("the base is %s, that of the provider %s, %v", config.Encode(base), config.Encode(provider), err)
	}
}

func TestEffective(t *testing.T) {
	c := parse(t, `{"providers": {"p": {"provider": "generic", "model": "m", "api_key": "k", "request_options": {"a": 1, "b": {"c": 1}}}}}`)
	base, _, err := c.Base("default")
	if err != nil {
		t.Fatal(err)
	}
	before := string(config.Encode(base))
	overrides := loquat.Object{
		"model": json.RawMessage(`"n"`), "timeout": json.RawMessage(`null`), "request_options": json.RawMessage(`{"a": null, "b": {"d": "<2>"}}`),
		"api_key": json.RawMessage(`"stolen"`), "provider": json.RawMessage(`"other"`), "server": json.RawMessage(`{}`), "agents": json.RawMessage(`{}`),
		"extra": json.RawMessage(`{"${HOME}": "${HOME}"}`),
	}
	got, id, err := c.Effective("default", overrides)
	want := `{"api_key":"k","extra":{"${HOME}": "${HOME}"},"model":"n","provider":"generic","request_options":{"a":null,"b":{"c":1,"d":"<2>"}}}`
	var same, expected any
	config.MustDecode(config.Encode(got), &same)
	config.MustDecode(json.RawMessage(want), &expected)
	if fmt.Sprint(same) != fmt.Sprint(expected) || id != "p" || err != nil {
		t.Errorf("Effective = %s, %s, %v, want %s", config.Encode(got), id, err, want)
	}
	got["model"] = json.RawMessage(`"changed"`)
	if after := string(config.Encode(base)); after != before {
		t.Errorf("the base config became %s", after)
	}
	if _, _, err := c.Effective("nobody", nil); err == nil {
		t.Error("an unknown agent has an effective config")
	}
}

func BenchmarkEffective(b *testing.B) {
	c, _ := config.Parse([]byte(`{"providers": {"p": {"provider": "generic", "model": "m", "api_key": "k", "request_options": {"a": 1, "b": {"c": 1}}}}}`), world{}.env())
	overrides := loquat.Object{"model": json.RawMessage(`"n"`)}
	for b.Loop() {
		if _, _, err := c.Effective("default", overrides); err != nil {
			b.Fatal(err)
		}
	}
}

func TestPrices(t *testing.T) {
	c := parse(t, `{"prices": {"m": {"input": 2, "output": 10, "cached_input": 1}, "p/m": {"input": 4, "output": 20}}}`)
	used := loquat.Tokens{Input: 1_000_000, CachedInput: 400_000, Output: 100_000}
	for provider, want := range map[string]float64{"other": 1.2 + 0.4 + 1, "p": 4 + 2} {
		price, ok := c.PriceOf(provider, "m")
		if got := price.Cost(used); !ok || got < want-1e-9 || got > want+1e-9 {
			t.Errorf("%s: %v, want %v", provider, got, want)
		}
	}
	if _, ok := c.PriceOf("p", "n"); ok {
		t.Error("a model without a price has one")
	}
}
