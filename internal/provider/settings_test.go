package provider

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"loquat"
	"loquat/internal/config"
	"loquat/internal/provider/providertest"
)

func TestCheckOfNames(t *testing.T) {
	for raw, ok := range map[string]bool{
		`"https://x.example/v1"`:                   true,
		`"https://x.example/v1/chat/completions"`:  false,
		`"https://x.example/v1/chat/completions/"`: false,
		`"ftp://x.example"`:                        false,
	} {
		if err := checkBaseURL([]byte(raw)); (err == nil) != ok {
			t.Errorf("base_url %s: %v", raw, err)
		}
	}
	if checkModel([]byte(`""`)) == nil || checkModel([]byte(`"m"`)) != nil {
		t.Error("a model has to have a name")
	}
}

// configWithKey returns a config whose key, which may have a dot, has a value.
func configWithKey(key, value string) loquat.Object {
	c := providertest.Config(providertest.URL)
	if mode, nested := strings.CutPrefix(key, "stream_recovery."); nested {
		return c.Set("stream_recovery", loquat.Object{mode: json.RawMessage(value)})
	}
	c[key] = json.RawMessage(value)
	return c
}

// A request accepts the values that the check of the configuration accepts, and no others.
func TestReadingAgreesWithTheSchema(t *testing.T) {
	values := []string{
		`null`, `true`, `"true"`, `""`, `"x"`, `{}`, `{"503": [1]}`, `{"429": [1]}`, `[]`, `[1, 2.5]`, `"1, 2.5"`, `[-1]`, `[604801]`,
		`-1`, `0`, `0.0001`, `0.001`, `0.5`, `1`, `2.9`, `3.0`, `1000`, `1001`, `86400`, `86401`, `1e6`, `1e300`,
		`"disabled"`, `"aggressive"`, `"Aggressive"`, `"auto"`, `"string"`, `"null"`,
		`"http://x/v1"`, `"http://x/v1/chat/completions"`, `"ftp://x"`,
	}
	for _, f := range New(Options{}).ConfigSchema() {
		if f.Key == "provider" || f.Key == "endpoint_options" { // a request does not read these
			continue
		}
		for _, value := range values {
			c := configWithKey(f.Key, value)
			faults := config.CheckObject(c, schema)
			_, err := readSettings(c)
			if (err != nil) != config.Failed(faults) {
				t.Errorf("%s = %s: the check says %v, a request %v", f.Key, value, faults, err)
			}
		}
	}
}

// A key that is absent has the default of the schema.
func TestDefaultsOfTheSchema(t *testing.T) {
	absent, err := readSettings(providertest.Config(providertest.URL))
	if err != nil {
		t.Fatal(err)
	}
	given := providertest.Config(providertest.URL)
	recovery := loquat.Object{}
	for _, f := range schema {
		if key, nested := strings.CutPrefix(f.Key, "stream_recovery."); nested {
			recovery.Set(key, f.Default)
		} else if f.Default != nil && f.Key != "base_url" {
			given.Set(f.Key, f.Default)
		}
	}
	stated, err := readSettings(given.Set("stream_recovery", recovery))
	if err != nil || !reflect.DeepEqual(stated, absent) {
		t.Errorf("with the defaults stated: %+v (%v), without: %+v", stated, err, absent)
	}
}
