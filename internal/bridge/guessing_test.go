package bridge

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// A bridge without a server in its process limits guessing as a server does. An address
// may try 100 wrong tokens and 20 pairing codes, then one of each per minute. Valid tokens
// are never throttled.
func TestGuessingAtABridge(t *testing.T) {
	const wrong = 150
	claim := func(t *testing.T, url string) int {
		resp, err := http.Post(strings.TrimSuffix(url, "/bridge")+"/pairing/claim", "application/json", strings.NewReader(`{"code":"ZZZZ-0123456789"}`))
		if err != nil {
			t.Fatal(err)
		}
		defer http.DefaultClient.CloseIdleConnections()
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if resp.StatusCode == http.StatusTooManyRequests && resp.Header.Get("Retry-After") == "" {
			t.Error("a refused claim has no Retry-After")
		}
		return resp.StatusCode
	}
	app := func(i int) map[string]any { return map[string]any{"token": fmt.Sprint("guess", i)} }
	server := func(i int) map[string]any {
		return map[string]any{"token": fmt.Sprint("guess", i), "store_id": "s", "latest_event_id": "0000000000000001"}
	}
	for _, c := range []struct {
		name   string
		topic  func(i int) string
		params func(i int) map[string]any
	}{
		{"tokens of apps", func(int) string { return appTopic + "home" }, app},
		{"tokens of servers", func(int) string { return serverTopic + "home" }, server},
		{"both", func(i int) string { return []string{appTopic, serverTopic}[i%2] + "home" }, func(i int) map[string]any {
			return []func(int) map[string]any{app, server}[i%2](i)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := newRemoteServer()
			_, url := newBridge(t, History{})
			f := o.forward(t, url, "server-token")
			until(t, "the server is connected", f.Connected)
			began := time.Now()
			reasons := map[string]int{}
			for i := range wrong {
				_, reason := call(t, url).join(c.topic(i), c.params(i)) // each on a socket of its own
				reasons[reason]++
			}
			most := 100 + 1 + int(time.Since(began)/time.Minute)
			if reasons[reasonUnauthorized] > most || reasons[reasonUnauthorized]+reasons[reasonRateLimited] != wrong {
				t.Errorf("%d guesses are answered with %v", wrong, reasons)
			}
			if _, reason := call(t, url).join(rigTopic, map[string]any{"token": "good"}); reason != "" {
				t.Errorf("a valid token is refused: %s", reason)
			}
			f.Close()
			again := o.forward(t, url, "server-token")
			until(t, "the server is connected again", again.Connected)
			if status := claim(t, url); status == http.StatusTooManyRequests {
				t.Error("wrong tokens use up the pairing codes")
			}
		})
	}
	t.Run("pairing codes", func(t *testing.T) {
		_, url := newBridge(t, History{})
		began := time.Now()
		statuses := map[int]int{}
		for range 60 {
			statuses[claim(t, url)]++
		}
		if most := 20 + 1 + int(time.Since(began)/time.Minute); statuses[http.StatusTooManyRequests] < 60-most {
			t.Errorf("60 guesses are answered with %v", statuses)
		}
	})
}

// A server cannot take the pairing codes of another server of the same bridge by saying that they are its own.
func TestCodesOfAnotherServer(t *testing.T) {
	h := NewHub(Options{Tokens: map[string]string{"home": "a", "other": "b"}, Logger: quiet})
	defer h.Close()
	push := func(server string, codes ...string) {
		t.Helper()
		payload, err := json.Marshal(Access{Codes: codes})
		if err != nil {
			t.Fatal(err)
		}
		if err := h.remotes[server].setAccess(payload); err != nil {
			t.Fatal(err)
		}
	}
	at := func(public string) *remote {
		r, _ := h.serverOf(public + "-0123456789")
		return r
	}
	push("home", "ABCD")
	if at("ABCD") != h.remotes["home"] {
		t.Error("the code of the server is not found")
	}
	push("other", "ABCD", "WXYZ")
	for range 20 { // the order of the servers is random
		if r := at("ABCD"); r != nil {
			t.Fatalf("a code of two servers is passed on to %s", r.id)
		}
	}
	if at("WXYZ") != h.remotes["other"] {
		t.Error("the code of the other server is not found")
	}
	every := make([]string, 0, 10_000)
	for i := range cap(every) {
		every = append(every, fmt.Sprintf("%04d", i))
	}
	push("other", every...)
	if at("9999") != nil {
		t.Error("a server may say that every code is its own")
	}
}
