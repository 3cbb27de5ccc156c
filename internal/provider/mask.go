package provider

import (
	"encoding/json"
	"net/url"
	"slices"
	"strings"

	"loquat"
)

// mask replaces the secrets of a config in what a backend says.
type mask []string

const masked = "***"

// shortestSecret keeps a secret of a letter or two from masking half of a text.
const shortestSecret = 4

func newMask(c loquat.Object) mask {
	var m mask
	for key, raw := range c {
		m.collect(key, raw)
	}
	// The longest first: a secret may hold another.
	slices.SortFunc(m, func(a, b string) int { return len(b) - len(a) })
	return slices.Compact(m)
}

func (m *mask) collect(key string, raw json.RawMessage) {
	if len(raw) == 0 || raw[0] != '"' && raw[0] != '{' || key == "messages" || key == "tools" {
		return
	}
	if raw[0] == '{' {
		for k, v := range asMap(raw) {
			m.collect(k, v)
		}
		return
	}
	value := string(text(raw))
	if loquat.SecretName(key) {
		m.add(value)
		m.add(strings.TrimPrefix(value, "Bearer "))
		return
	}
	if u, err := url.Parse(value); err == nil && u.User != nil {
		password, _ := u.User.Password()
		m.add(password)
		m.add(u.User.String())
	}
}

func (m *mask) add(secret string) {
	if len(secret) >= shortestSecret {
		*m = append(*m, secret)
	}
}

func (m mask) text(s string) string {
	for _, secret := range m {
		s = strings.ReplaceAll(s, secret, masked)
	}
	return s
}
