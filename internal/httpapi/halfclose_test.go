package httpapi_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
)

// A client that closes its half of the connection after the request still reads. It
// must not take silence for success.
func TestHalfClosedConnection(t *testing.T) {
	r := newRig(t)
	address := strings.TrimPrefix(r.server.URL, "http://")
	const body = `{"role":"user","content":"x"}`
	for _, request := range []string{
		"POST /sessions/none/messages HTTP/1.1\r\nHost: " + address + "\r\nContent-Type: application/json\r\nContent-Length: " + fmt.Sprint(len(body)) + "\r\n\r\n" + body,
		"GET /events?since_id=0000000000000000&wait=5 HTTP/1.1\r\nHost: " + address + "\r\n\r\n",
	} {
		for range 50 {
			conn, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := conn.Write([]byte(request)); err != nil {
				t.Fatal(err)
			}
			if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
				t.Fatal(err)
			}
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err == nil && resp.StatusCode < 400 {
				t.Fatalf("%s\nanswered %s", request, resp.Status)
			}
			conn.Close()
		}
	}
}
