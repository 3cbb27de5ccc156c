package config_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"loquat"
	"loquat/internal/config"
)

const secretive = `{
	"bridge": {"token": "bridge-token", "servers": {"home": "home-token"}},
	"store": {"url": "postgres://user:p%40ss@db/loquat"},
	"server": {"auth_tokens": [{"name": "n", "token": "http-token", "scope": "full"}]},
	"headers": [{"Authorization": "Bearer deep"}, {"password": ["one-of-two", 123456]}],
	"tools": [{"note": "${file:/held}"}],
	"providers": {"p": {"provider": "generic", "model": "m", "api_key": "provider-key", "pin": "0815",
		"base_url": "https://only-user@example.org/v1", "stream_recovery": {"mode": "disabled"}}},
	"agents": {"default": {"provider": "p", "api_key": "", "pin": null}}}`

func secretConfig(t *testing.T) *config.Config {
	t.Helper()
	c, problems := config.Parse([]byte(secretive), world{files: map[string]string{"/held": "from-a-file\n"}}.env())
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return c
}

func TestSecrets(t *testing.T) {
	want := []string{"0815", "123456", "Bearer deep", "bridge-token", "from-a-file", "home-token", "http-token",
		"one-of-two", "only-user", "p%40ss", "p@ss", "provider-key"}
	if got := secretConfig(t).Secrets(owner{}); !slices.Equal(got, want) {
		t.Errorf("Secrets = %q, want %q", got, want)
	}
}

func TestRedacted(t *testing.T) {
	c := secretConfig(t)
	shown := c.Redacted(owner{})
	text := string(config.Encode(shown))
	for _, secret := range c.Secrets(owner{}) {
		if strings.Contains(text, secret) {
			t.Errorf("%s is shown in %s", secret, text)
		}
	}
	provider := shown.Object("providers").Object("p")
	for place, tt := range map[string]struct{ got, want json.RawMessage }{
		"api_key":        {provider["api_key"], json.RawMessage(`{"set":true}`)},
		"empty api_key":  {shown.Object("agents").Object("default")["api_key"], json.RawMessage(`{"set":false}`)},
		"null pin":       {shown.Object("agents").Object("default")["pin"], nil}, // is absent
		"user part":      {provider["base_url"], json.RawMessage(`"https://***@example.org/v1"`)},
		"server's token": {shown.Object("bridge")["servers"], json.RawMessage(`{"home":{"set":true}}`)},
		"what is plain":  {provider["model"], json.RawMessage(`"m"`)},
		"default":        {provider["timeout"], json.RawMessage(`60`)},
		"inner default":  {shown.Object("server")["listen"], json.RawMessage(`"127.0.0.1:8787"`)},
		"a file's value": {shown["tools"], json.RawMessage(`[{"note":{"set":true}}]`)},
	} {
		if string(tt.got) != string(tt.want) {
			t.Errorf("%s is shown as %s, want %s", place, tt.got, tt.want)
		}
	}
	if c.Raw().Object("providers").Object("p").String("api_key") != "provider-key" {
		t.Error("redaction changed the configuration")
	}
}

// The passwords of store.url and store.listen_url are secret wherever they are, also if the URL
// is written wrong.
func TestDatabaseURLIsRedacted(t *testing.T) {
	for url, want := range map[string]string{
		"postgres://u:s3cret@h/d":                        "postgres://u:***@h/d",
		"postgres://u:?s3cret#@h/d":                      "postgres://u:***@h/d",
		"postgres://u:top/s3cret@h/d":                    "postgres://u:***@h/d",
		"postgres://u:top s3cret@h/d":                    "postgres://u:***@h/d",
		"postgres://h/d?user=u&password=s3cret":          "postgres://h/d?user=u&password=***",
		"postgres://u@h/d?sslpassword=s3cret&sslcert=/c": "postgres://u@h/d?sslpassword=***&sslcert=/c",
	} {
		for _, key := range []string{"url", "listen_url"} {
			c, problems := config.Parse(config.Encode(map[string]any{"store": map[string]string{key: url}}), world{}.env())
			if found := strings.Contains(fmt.Sprint(problems, c.Check(config.Loaded{})), "write @ as %40"); found != strings.Contains(url, "top/") {
				t.Errorf("%s: the problems are %v and %v", url, problems, c.Check(config.Loaded{}))
			}
			if got := c.Redacted(owner{}).Object("store").String(key); got != want {
				t.Errorf("%s is shown as %s", url, got)
			}
			if text := config.NewRedactor(c.Secrets(owner{})).Redact("connect to " + url); strings.Contains(text, "s3cret") {
				t.Errorf("a text shows %s", text)
			}
		}
	}
}

// Values that only process plugins know are treated as secret.
func TestRedactedHidesWhatOnlyProcessesKnow(t *testing.T) {
	for plugins, want := range map[string]string{`["path:/weather"]`: `{"set":true}`, `[]`: `"s3cret"`} {
		shown := parse(t, `{"providers": {"p": {"provider": "x", "model": "m", "timeout": 7, "weather_pin": "s3cret"}}, "agents": {"default": {"provider": "p", "weather_pin": "s3cret"}},
			"plugins": `+plugins+`, "weather_pin": "s3cret"}`).Redacted(owner{})
		provider := shown.Object("providers").Object("p")
		for place, got := range map[string]json.RawMessage{
			"the top": shown["weather_pin"], "a provider": provider["weather_pin"], "an agent": shown.Object("agents").Object("default")["weather_pin"],
		} {
			if string(got) != want {
				t.Errorf("with plugins %s, %s shows %s", plugins, place, got)
			}
		}
		if string(provider["timeout"]) != "7" || string(provider["model"]) != `"m"` || shown.Object("agents").Object("default").String("provider") != "p" {
			t.Errorf("with plugins %s, what is known is shown as %s", plugins, config.Encode(shown))
		}
	}
}

func TestRedactedShowsTheAgentThatHolds(t *testing.T) {
	shown := parse(t, `{`+main+`, "timeout": 5}`).Redacted(owner{})
	if got := string(shown["agents"]); got != `{"default":{"provider":"main"}}` {
		t.Errorf("agents = %s", got)
	}
	if _, ok := shown.Object("providers").Object("main")["timeout"]; ok {
		t.Error("a default hides the value of the top level")
	}
}

func TestRedact(t *testing.T) {
	m := config.NewRedactor([]string{"abc", "abcd", "abcdefgh", `q"u<te`, "p@ss word", "naïve"})
	for text, want := range map[string]string{
		"":                       "",
		"abc":                    "abc", // too short to be redacted
		"abcd":                   "***",
		"xabcdefghx abcd":        "x***x ***",
		`{"k": "q\"u<te"}`:       `{"k": "***"}`,
		`{"k": "q\"u\u003cte"}`:  `{"k": "***"}`,
		"/v1?key=p%40ss+word":    "/v1?key=***",
		"/v1/p@ss%20word/models": "/v1/***/models",
		"naïve naive":            "*** naive",
	} {
		if got := m.Redact(text); got != want {
			t.Errorf("Redact(%s) = %s, want %s", text, got, want)
		}
	}
	later := new(config.Redactor)
	if got := later.Redact("abcd"); got != "abcd" {
		t.Errorf("a redactor without secrets made %s", got)
	}
	for _, more := range [][]string{{"abcd"}, {"abcdefgh", "abcd"}, nil} {
		later.Add(more)
	}
	if got := later.Redact("abcdefgh abcd"); got != "*** ***" {
		t.Errorf("a redactor that learned made %s", got)
	}
}

func TestSchemaOffers(t *testing.T) {
	schema := schemaAround()
	keys := func(base loquat.Object) (keys []string) {
		for _, o := range config.SchemaOffers(schema, base) {
			keys = append(keys, o.Key)
		}
		slices.Sort(keys)
		return slices.Compact(keys)
	}
	got := keys(loquat.Object{})
	want := []string{"debug_stream", "model", "request_options", "retry_on_status", "retry_on_timeout", "stream_recovery", "timeout", "tools"}
	if !slices.Equal(got, want) {
		t.Errorf("SchemaOffers = %v, want %v", got, want)
	}
	if got := keys(loquat.Object{}.Set("endpoint_options", map[string]string{})); !slices.Contains(got, "base_url") {
		t.Errorf("with endpoint_options = %v", got)
	}
}

// An offer under another key follows the rules of the place where its value applies.
func TestOverridesOfPaths(t *testing.T) {
	const at = "body.metadata.overrides"
	base := loquat.Object{}.Set("base_url", "http://a/v1").Set("endpoint_options", map[string]string{"b": "http://b/v1"})
	for _, tt := range []struct {
		path  string
		value string
		want  string
	}{
		{"stream_recovery.mode", `"early_only"`, ""},
		{"stream_recovery.mode", `"sometimes"`, at + `.mine is "sometimes"; must be one of`},
		{"stream_recovery.mode", `null`, ""},
		{"stream_recovery", `{"mode": 1}`, at + ".mine.mode is a number; must be a string"},
		{"colour.of.the.sky", `["blue"]`, ""},
		{"timeout", `"5"`, at + ".mine is a string; must be a number"},
		{"request_options.temperature", `1`, ""},
		{"request_options.stream", `true`, at + ".mine.stream is set by the service itself"},
		{"base_url", `"http://b/v1"`, ""},
		{"base_url", `"http://evil/v1"`, at + ".mine is not among the endpoints"},
		{"base_url.host", `"x"`, at + ".mine can never be overridden"},
		{"endpoint_options.b", `"http://evil/v1"`, at + ".mine can never be overridden"},
		{"api_key", `"x"`, at + ".mine can never be overridden"},
		{"pin", `"x"`, at + ".mine can never be overridden"},
		{"headers.Authorization", `"x"`, at + ".mine can never be overridden"},
		{"server.listen", `"x"`, at + ".mine can never be overridden"},
		{"plugins.0", `"x"`, at + ".mine can never be overridden"},
	} {
		got := config.CheckOverrides(at, loquat.Object{"mine": json.RawMessage(tt.value)}, base, schemaAround(), []config.Offer{{Key: "mine", Path: strings.Split(tt.path, ".")}}, "")
		text := ""
		if len(got) > 0 {
			text = got[0].Location + " " + got[0].Message
		}
		if len(got) > 1 || (tt.want == "") != (text == "") || !strings.HasPrefix(text, tt.want) {
			t.Errorf("%s at %s: %v, want %q", tt.value, tt.path, got, tt.want)
		}
	}
}

func TestCheckOverrides(t *testing.T) {
	const at = "body.metadata.overrides"
	choice := loquat.Object{}.Set("base_url", "http://a/v1").Set("endpoint_options", map[string]string{"b": "http://b/v1"})
	for _, tt := range []struct {
		overrides string
		base      loquat.Object
		want      []string
	}{
		{`{}`, nil, nil},
		{`{"model": "n", "timeout": 5, "stream_recovery": {"mode": "early_only"}}`, nil, nil},
		{`{"model": null, "request_options": null}`, nil, nil},
		{`{"request_options": {"temperature": 1}}`, nil, nil},
		{`{"base_url": "http://a/v1"}`, choice, nil},
		{`{"base_url": "http://b/v1"}`, choice, nil},
		{`{"base_url": "http://evil/v1"}`, choice, []string{at + ".base_url is not among the endpoints"}},
		{`{"base_url": 1}`, choice, []string{at + ".base_url is not among the endpoints"}},
		{`{"base_url": "http://a/v1"}`, loquat.Object{}.Set("base_url", "http://a/v1"), []string{at + ".base_url is not among the settings"}},
		{`{"api_key": "x", "agents": {}, "bridge": {}, "limits": {}, "plugins": [], "provider": "x", "providers": {}, "server": {}, "store": {}, "token": null}`, nil, []string{
			at + ".agents can never", at + ".api_key can never", at + ".bridge can never", at + ".limits can never", at + ".plugins can never",
			at + ".provider can never", at + ".providers can never", at + ".server can never", at + ".store can never", at + ".token can never"}},
		{`{"pin": "1"}`, nil, []string{at + ".pin can never be overridden"}},
		{`{"modle": "n"}`, nil, []string{at + ".modle is not among the settings of this agent; did you mean model?"}},
		{`{"timeout": "5", "model": 1}`, nil, []string{at + ".model is a number; must be a string", at + ".timeout is a string; must be a number"}},
		{`{"retry_on_status": {"429": [1]}}`, nil, []string{at + ".retry_on_status.429 cannot be listed here"}},
		{`{"request_options": {"messages": [], "stream": false}}`, nil, []string{at + ".request_options.messages is set by", at + ".request_options.stream is set by"}},
		{`{"request_options": 1}`, nil, []string{at + ".request_options is a number; must be an object"}},
	} {
		overrides, _ := config.AsObject(json.RawMessage(tt.overrides))
		schema := schemaAround()
		got := config.CheckOverrides(at, overrides, tt.base, schema, config.SchemaOffers(schema, tt.base), "")
		ok := len(got) == len(tt.want)
		for i := 0; ok && i < len(got); i++ {
			ok = strings.HasPrefix(got[i].Location+" "+got[i].Message, tt.want[i])
		}
		if !ok {
			t.Errorf("CheckOverrides(%s) = %v, want %q", tt.overrides, got, tt.want)
		}
	}
	// Keys that no loaded plugin describes still follow the rules of request_options.
	if got := config.CheckOverrides(at, loquat.Object{}.Set("request_options", map[string]bool{"stream": true}), nil, nil, nil, ""); len(got) != 1 {
		t.Errorf("request_options without its plugin: %v", got)
	}
}

// JSON without a secret stays byte for byte, and JSON with one stays JSON.
func TestRedactJSON(t *testing.T) {
	m := config.NewRedactor([]string{"hunter2", "1234"})
	for raw, want := range map[string]string{
		``:                                    ``,
		`null`:                                `null`,
		`1234`:                                `1234`,
		`{"z": 1, "a": "x\n" , "n": 1234.50}`: `{"z": 1, "a": "x\n" , "n": 1234.50}`,
		`"\u0068unter2"`:                      `"***"`,
		`[ "a" , {"b": "no \"secret\""}]`:     `[ "a" , {"b": "no \"secret\""}]`,
		`{"hunter2": [1234, "of hunter2"]}`:   `{"***":[1234,"of ***"]}`,
		`{"a": {"b": "hunter2"}, "c": 1e400}`: `{"a":{"b":"***"},"c":1e400}`,
		`{broken hunter2`:                     `{broken hunter2`,
	} {
		if got := string(m.RedactJSON(json.RawMessage(raw))); got != want {
			t.Errorf("RedactJSON(%s) = %s, want %s", raw, got, want)
		}
	}
	var none *config.Redactor
	if got := none.RedactJSON(json.RawMessage(`"hunter2"`)); string(got) != `"hunter2"` {
		t.Errorf("no redactor made %s", got)
	}
}
