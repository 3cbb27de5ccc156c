package config_test

import (
	"testing"

	"loquat/internal/config"
)

func TestNormalizeURL(t *testing.T) {
	for given, want := range map[string]string{
		"":                               "",
		"no URL":                         "no URL",
		"https://api.example/v1":         "https://api.example/v1",
		" HTTPS://API.Example:443/v1// ": "https://api.example/v1",
		"http://api.example:80":          "http://api.example",
		"http://api.example/":            "http://api.example",
		"http://api.example:":            "http://api.example",
		"http://api.example:443/v1":      "http://api.example:443/v1",
		"https://api.example:80/v1":      "https://api.example:80/v1",
		"https://api.example/V1":         "https://api.example/V1",
		"https://api.example/a%2Fb/":     "https://api.example/a%2Fb",
		"https://api.example/v1/?k=V":    "https://api.example/v1?k=V",
		"https://api.example/v1#part":    "https://api.example/v1",
		"https://Me:Pass@API.example/":   "https://Me:Pass@api.example",
		"http://[FE80::443]:80/v1":       "http://[fe80::443]/v1",
		"https://[::1]:443/":             "https://[::1]",
	} {
		if got := config.NormalizeURL(given); got != want {
			t.Errorf("NormalizeURL(%q) = %q, want %q", given, got, want)
		}
		if again := config.NormalizeURL(want); again != want {
			t.Errorf("NormalizeURL(%q) = %q", want, again)
		}
	}
}
