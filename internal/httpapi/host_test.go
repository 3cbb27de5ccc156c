package httpapi

import "testing"

func TestIsOwn(t *testing.T) {
	for _, tc := range []struct {
		own, host string
		want      bool
	}{
		{"127.0.0.1:80", "127.0.0.1:80", true},
		{"127.0.0.1:80", "localhost:80", true},
		{"[::1]:80", "localhost:80", true},
		{"127.0.0.1:80", "[::ffff:127.0.0.1]:80", true},
		{"192.0.2.7:80", "192.0.2.7:80", true},
		{"192.0.2.7:80", "localhost:80", false},
		{"192.0.2.7:80", "127.0.0.1:80", false},
		{"127.0.0.1:80", "192.0.2.7:80", false},
		{"127.0.0.1:80", "127.0.0.1:81", false},
		{"127.0.0.1:80", "127.0.0.1.example:80", false},
		{"127.0.0.1:80", "", false},
		{"pipe", "pipe", true},
	} {
		if got := isOwn(tc.own, tc.host); got != tc.want {
			t.Errorf("%s on %s: %v", tc.host, tc.own, got)
		}
	}
}
