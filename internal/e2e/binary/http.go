package binary

import (
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// FreeAddress returns an address of loopback that nobody listens on at the moment. It returns none twice: the
// kernel may choose one again before the first caller listens there.
func FreeAddress(t testing.TB) string {
	t.Helper()
	for {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ln.Close()
		if _, before := given.LoadOrStore(ln.Addr().String(), true); !before {
			return ln.Addr().String()
		}
	}
}

var given sync.Map // the addresses that FreeAddress has returned

// Readiness returns the status of /readyz.
func Readiness(t testing.TB, url string) int {
	t.Helper()
	status, _ := GetOnce(t, url+"/readyz")
	return status
}

// GetOnce makes a GET without retries.
func GetOnce(t testing.TB, url string) (status int, body string) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	return AnswerOf(t, resp)
}

// AnswerOf reads an answer and closes its body.
func AnswerOf(t testing.TB, resp *http.Response) (status int, body string) {
	t.Helper()
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(answer)
}

// Call makes one call of the HTTP API, which must succeed.
func Call(t testing.TB, method, url, body string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode >= 300 {
		t.Fatalf("%s %s: %s %s %v", method, url, resp.Status, b, err)
	}
	return string(b)
}
