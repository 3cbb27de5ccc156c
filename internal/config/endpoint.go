package config

import (
	"encoding/json"
	"maps"
	"net/url"
	"slices"
	"strings"

	"loquat"
)

// NormalizeURL returns a base URL in a form for comparison: scheme and host in lower case,
// without default port, trailing slashes and fragment. Other texts are returned unchanged.
func NormalizeURL(s string) string {
	s = strings.TrimSpace(s)
	u, err := url.Parse(s)
	if err != nil || u.Host == "" {
		return s
	}
	u.Host = strings.TrimSuffix(strings.ToLower(u.Host), ":")
	switch u.Scheme {
	case "http":
		u.Host = strings.TrimSuffix(u.Host, ":80")
	case "https":
		u.Host = strings.TrimSuffix(u.Host, ":443")
	}
	u.Path, u.RawPath = strings.TrimRight(u.Path, "/"), strings.TrimRight(u.RawPath, "/")
	u.Fragment, u.RawFragment = "", ""
	return u.String()
}

// Endpoint returns the endpoint of an agent that a session chose: its base_url or one of its
// endpoint_options, as the configuration has it. A choice is compared after NormalizeURL. The
// choice may also be the redacted form of an endpoint with a user part, unless several
// endpoints have this form.
func Endpoint(base loquat.Object, choice json.RawMessage) (configured string, ok bool) {
	var chosen string
	if json.Unmarshal(choice, &chosen) != nil || chosen == "" {
		return "", false
	}
	chosen = NormalizeURL(chosen)
	var shown []string
	for _, endpoint := range endpoints(base) {
		if NormalizeURL(endpoint) == chosen {
			return endpoint, true
		}
		if NormalizeURL((&secretFinder{}).userParts(endpoint)) == chosen {
			shown = append(shown, endpoint)
		}
	}
	if len(shown) != 1 {
		return "", false
	}
	return shown[0], true
}

// endpoints returns the base_url of an agent and its endpoint_options, each once.
func endpoints(base loquat.Object) []string {
	var out []string
	add := func(endpoint string) {
		same := func(known string) bool { return NormalizeURL(known) == NormalizeURL(endpoint) }
		if endpoint != "" && !slices.ContainsFunc(out, same) {
			out = append(out, endpoint)
		}
	}
	add(base.String("base_url"))
	options := base.Object("endpoint_options")
	for _, label := range slices.Sorted(maps.Keys(options)) {
		add(options.String(label))
	}
	return out
}
