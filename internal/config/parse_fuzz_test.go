package config_test

import (
	"encoding/json"
	"errors"
	"testing"
	"unicode/utf8"

	"loquat/internal/config"
)

// FuzzParse parses any file as a configuration. The file is refused with a place, or it can
// be checked, redacted and used, and the redacted form is valid JSON.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		`{}`, `{"a":1,"a":2}`, `[]`, `{"providers":null,"agents":7}`,
		`{"providers":{"main":{"provider":"p","model":"${MODEL:-m}","api_key":"${file:/key}","base_url":"http://u:p@h/v1"}}}`,
		`{"providers":{"a":{"retry_on_status":{"500":"1, 2","x":[-1]},"rate_limit_retry_delays_seconds":[1e300]}},"agents":{"default":{"provider":"a"}}}`,
		`{"server":{"listen":":0","auth_tokens":[{"name":"n","token":"$$t","scope":"session"}]},"events":{"retention_seconds":1e99}}`,
	} {
		f.Add([]byte(s))
	}
	env := config.Environment{
		Lookup: func(name string) (string, bool) { return "value of " + name, name == "SET" },
		ReadFile: func(path string) ([]byte, error) {
			if path == "/key" {
				return []byte("secret\n"), nil
			}
			return nil, errors.New("there is no such file")
		},
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, problems := config.Parse(data, env)
		for _, p := range problems {
			if p.Path == "" || p.Message == "" {
				t.Errorf("%q: a problem without place or words: %+v", data, p)
			}
		}
		if c == nil {
			if !config.Failed(problems) {
				t.Errorf("%q: refused without a reason", data)
			}
			return
		}
		c.Check(config.Loaded{})
		shown, err := json.Marshal(c.Redacted())
		if err != nil || !utf8.Valid(shown) {
			t.Errorf("%q is shown as %q: %v", data, shown, err)
		}
		config.NewRedactor(c.Secrets()).Redact(string(data))
	})
}
