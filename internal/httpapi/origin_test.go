package httpapi_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"testing"
)

// More than one Host or Origin is refused: a proxy may have checked another one than the
// server does.
func TestOneHostAndOneOrigin(t *testing.T) {
	r := newRig(t)
	address := r.server.Listener.Addr().String()
	const good, evil = "Origin: https://app.example\r\n", "Origin: https://evil.example\r\n"
	host, evilHost := "Host: "+address+"\r\n", "Host: evil.example\r\n"
	for _, tt := range []struct {
		name, headers string
		status        int
	}{
		{"none", host, 200},
		{"one that is allowed", host + good, 200},
		{"one that is not", host + evil, 403},
		{"allowed, then not", host + good + evil, 400},
		{"not, then allowed", host + evil + good, 400},
		{"the same twice", host + good + good, 400},
		{"empty, then not", host + "Origin: \r\n" + evil, 400},
		{"in other case", host + good + "oRiGiN: https://evil.example\r\n", 400},
		{"a list", host + "Origin: https://app.example, https://evil.example\r\n", 403},
		{"two hosts", host + evilHost, 400},
		{"two hosts, the evil one first", evilHost + host, 400},
		{"the same host twice", host + host, 400},
	} {
		t.Run(tt.name, func(t *testing.T) {
			conn, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			fmt.Fprintf(conn, "GET /sessions HTTP/1.1\r\n%s\r\n", tt.headers)
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != tt.status {
				t.Errorf("the answer is %s, want %d", resp.Status, tt.status)
			}
			if resp.StatusCode >= 400 && resp.Header.Get("Access-Control-Allow-Origin") != "" {
				t.Error("the refusal allows an origin")
			}
		})
	}
}
