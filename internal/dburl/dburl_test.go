package dburl_test

import (
	"strings"
	"testing"

	"loquat/internal/dburl"
)

func TestRedact(t *testing.T) {
	for _, c := range []struct {
		url, want, passwords string
		unescaped            bool
	}{
		{"postgres://u:p@h/d", "postgres://u:***@h/d", "p", false},
		{"postgres://u@h/d", "postgres://u@h/d", "", false},
		{"postgres://u@h:5432/d", "postgres://u@h:5432/d", "", false},
		{"postgres://h:5432/d?sslmode=disable", "postgres://h:5432/d?sslmode=disable", "", false},
		{"postgres:///d?host=/run/postgresql&user=a@b", "postgres:///d?host=/run/postgresql&user=a@b", "", false},
		{"postgres://u:p%40s%2Fs@h1:1,h2:2/d?sslmode=off", "postgres://u:***@h1:1,h2:2/d?sslmode=off", "p%40s%2Fs p@s/s", false},
		{"postgres://u:p@[::1]:5432/d", "postgres://u:***@[::1]:5432/d", "p", false},
		{"postgres://u:p@h/d?application_name=a@b", "postgres://u:***@h/d?application_name=a@b", "p", false},
		{"postgres://u:p?q#r@h/d", "postgres://u:***@h/d", "p?q#r", false},
		{"postgres://u:p@s:s@h/d", "postgres://u:***@h/d", "p@s:s", true},
		{"postgres://u:p/s@h/d", "postgres://u:***@h/d", "p/s", true},
		{"postgres://u:p@s/s@h/d", "postgres://u:***@h/d", "p@s/s", true},
		{"postgres://u:p/s?s@h/d", "postgres://u:***@h/d", "p/s?s", true},
		{"postgres://u:p@s?s@h/d?sslmode=off", "postgres://u:***@h/d?sslmode=off", "p@s?s", true},
		{"postgres://h/d?password=p%20q&user=u", "postgres://h/d?password=***&user=u", "p%20q p q", false},
		{"postgres://h:1/d?user=u&pass%77ord=p@q", "postgres://h:1/d?user=u&pass%77ord=***", "p@q", false},
		{"postgres://h/d?sslpassword=p", "postgres://h/d?sslpassword=***", "p", false},
		{"postgres://u:@h/d", "postgres://u:***@h/d", "", false},
		{"nonsense", "nonsense", "", false},
	} {
		got := dburl.Redact(c.url)
		if got.Text != c.want || strings.Join(got.Passwords, " ") != c.passwords || got.Unescaped != c.unescaped {
			t.Errorf("%s: %+v, want %s, %s, %v", c.url, got, c.want, c.passwords, c.unescaped)
		}
	}
}
