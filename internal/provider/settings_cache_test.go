package provider

import (
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"

	"loquat"
	"loquat/internal/config"
)

// Settings that are kept are those that would be read, also when many configs take turns.
func TestSettingsCache(t *testing.T) {
	p := New(Options{Secrets: config.NewRedactor(nil)})
	configOf := func(i int) loquat.Object {
		return loquat.Object{}.Set("model", fmt.Sprint("m", i)).Set("api_key", fmt.Sprint("key-", i)).Set("timeout", i+1)
	}
	var calls sync.WaitGroup
	for range 4 {
		calls.Go(func() {
			for turn := range 3 * maxCached {
				i := turn % (maxCached + 5)
				c := configOf(i)
				got, err := p.settingsOf(c)
				want, _ := readSettings(c)
				if shown := got.secrets.Redact(fmt.Sprintf("key-%d", i)); err != nil || strings.Contains(shown, "key-") {
					t.Errorf("config %d: %v, the secret is shown as %q", i, err, shown)
				}
				got.secrets = want.secrets
				if !reflect.DeepEqual(got, want) {
					t.Errorf("config %d: %+v, want %+v", i, got, want)
				}
				c.Set("model", "another") // the caller's own
			}
		})
	}
	calls.Wait()
	if n := len(p.parsed.all()); n > maxCached {
		t.Errorf("%d configs are kept", n)
	}
}

func TestSettingsCacheHaveBounds(t *testing.T) {
	p := New(Options{Secrets: config.NewRedactor(nil)})
	large := loquat.Object{}.Set("model", "m").Set("tools", []string{strings.Repeat("x", maxCachedConfig)})
	wrong := loquat.Object{}.Set("model", "m").Set("timeout", "soon")
	for range 2 {
		if _, err := p.settingsOf(large); err != nil {
			t.Fatal(err)
		}
		if _, err := p.settingsOf(wrong); err == nil {
			t.Fatal("a wrong config has settings")
		}
	}
	if n := len(p.parsed.all()); n != 0 {
		t.Errorf("%d configs are kept", n)
	}
}

// A secret that the server learns later is removed from then on.
func TestSettingsCacheKnowLaterSecrets(t *testing.T) {
	secrets := config.NewRedactor(nil)
	p := New(Options{Secrets: secrets})
	c := loquat.Object{}.Set("model", "m")
	for _, want := range []string{"a-later-secret", "***"} {
		s, err := p.settingsOf(c)
		if got := s.secrets.Redact("a-later-secret"); err != nil || got != want {
			t.Errorf("%v: the secret is shown as %q, want %q", err, got, want)
		}
		secrets.Add([]string{"a-later-secret"})
	}
}
