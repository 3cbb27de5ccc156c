package openai_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"loquat/internal/backend"
	"loquat/internal/e2e/binary"
)

// dial opens a WebSocket for responses.
func dial(t *testing.T, url, token string) (*websocket.Conn, *http.Response, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	ws, resp, err := websocket.Dial(ctx, url+"/responses", &websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer " + token}}})
	if err == nil {
		ws.SetReadLimit(1 << 20)
		t.Cleanup(func() { _ = ws.CloseNow() })
	}
	return ws, resp, err
}

// turn sends a message and returns the events up to the end of the response, or the error.
func turn(t *testing.T, ws *websocket.Conn, message string) (out []map[string]any) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := ws.Write(ctx, websocket.MessageText, []byte(message)); err != nil {
		t.Fatal(err)
	}
	for {
		_, body, err := ws.Read(ctx)
		if err != nil {
			t.Fatalf("%.200s: %v", message, err)
		}
		var e map[string]any
		if err := json.Unmarshal(body, &e); err != nil {
			t.Fatalf("%v: %s", err, body)
		}
		out = append(out, e)
		switch e["type"] {
		case "response.completed", "response.failed", "response.incomplete", "error":
			return out
		}
	}
}

// A WebSocket has the events of a stream, and its responses continue each other.
func TestResponsesOnASocket(t *testing.T) {
	schemas := readOpenResponses(t)
	url, _ := responseServer(t)
	ws, _, err := dial(t, url, fullToken)
	if err != nil {
		t.Fatal(err)
	}
	for name, body := range complianceCases {
		t.Run(name, func(t *testing.T) {
			got := turn(t, ws, `{"type": "response.create", `+strings.TrimPrefix(body, "{"))
			checkEvents(t, schemas, got)
			streamed, _ := events(t, callAPI(t, "POST", url+"/responses", `{"stream": true, `+strings.TrimPrefix(strings.Replace(body, `"stream": true, `, "", 1), "{")), 1000)
			if a, b := kinds(got), kinds(streamed); a != b || !strings.HasSuffix(a, "response.completed") {
				t.Errorf("the socket has the events %s, the stream %s", a, b)
			}
		})
	}
	first := turn(t, ws, `{"type": "response.create", "input": "one"}`)
	second := turn(t, ws, fmt.Sprintf(`{"type": "response.create", "previous_response_id": %q, "input": "two"}`, idOf(first)))
	if a, b := conversationIn(first), conversationIn(second); a != b {
		t.Errorf("the conversations are %s and %s", a, b)
	}
}

// kinds returns the types of events, neighbours of one type once.
func kinds(list []map[string]any) (out string) {
	last := ""
	for _, e := range list {
		if kind := e["type"].(string); kind != last {
			out, last = out+" "+kind, kind
		}
	}
	return out
}

func lastResponse(list []map[string]any) map[string]any {
	r, _ := list[len(list)-1]["response"].(map[string]any)
	return r
}

func idOf(list []map[string]any) string { return fmt.Sprint(lastResponse(list)["id"]) }

func conversationIn(list []map[string]any) string {
	return fmt.Sprint(lastResponse(list)["conversation"])
}

// A response that is not stored can be continued on its connection, and is deleted with it.
func TestSocketWithoutStore(t *testing.T) {
	url, _ := responseServer(t)
	ws, _, err := dial(t, url, fullToken)
	if err != nil {
		t.Fatal(err)
	}
	first := turn(t, ws, `{"type": "response.create", "store": false, "model": "caller", "input": "x", "tools": [`+weatherTool+`]}`)
	call := lastResponse(first)["output"].([]any)[0].(map[string]any)["call_id"]
	second := turn(t, ws, fmt.Sprintf(`{"type": "response.create", "store": false, "model": "caller", "previous_response_id": %q,
		"input": [{"type": "function_call_output", "call_id": %q, "output": "rain"}]}`, idOf(first), call))
	if text, _ := outputText(lastResponse(second)); text != backend.ToolResultsText {
		t.Errorf("the answer is %q", text)
	}
	answer(t, http.StatusNotFound, "GET", url+"/responses/"+idOf(first), "")
	if err := ws.Close(websocket.StatusNormalClosure, ""); err != nil {
		t.Fatal(err)
	}
	binary.Eventually(t, "the deletion of the response", func() bool {
		return callAPI(t, "GET", url+"/responses/"+idOf(second), "").StatusCode == http.StatusNotFound
	})
	list := answer(t, http.StatusOK, "GET", strings.TrimSuffix(url, "v1")+"sessions", "")
	if n := len(list["sessions"].([]any)); n != 0 {
		t.Errorf("%d sessions are left", n)
	}
}

// A socket may outlive a configuration: what its caller may do is looked up for each message.
func TestRoleChangesUnderASocket(t *testing.T) {
	scripted := binary.ScriptedBackend(t, backend.Options{Script: json.RawMessage(`{"rate": 0}`)})
	file := filepath.Join(t.TempDir(), "loquat.json")
	write := func(role string) {
		t.Helper()
		config := fmt.Sprintf(`{
			"server": {"auth_tokens": [{"name": "f", "token": %q, "scope": "full"}, {"name": "ann", "token": %q, "scope": "user", "user": "ann", "role": "r"}], "roles": {"r": %s}},
			"providers": {"main": {"provider": "reference_generic_compatible", "model": "demo", "base_url": "%s/v1"}},
			"agents": {"default": {"provider": "main"}, "other": {"provider": "main"}}}`, fullToken, annsToken, role, scripted)
		if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(`{"agents": ["default", "other"]}`)
	url := binary.Start(t, nil, "serve", "--config", file, "--listen", "127.0.0.1:0", "--data", t.TempDir()).URL
	ws, _, err := dial(t, url+"/v1", annsToken)
	if err != nil {
		t.Fatal(err)
	}
	const message = `{"type": "response.create", "model": "other", "input": "x"}`
	for _, c := range []struct {
		role    string
		allowed bool
	}{{"", true}, {`{"agents": ["default"]}`, false}, {`{"agents": ["other"]}`, true}} {
		if c.role != "" {
			write(c.role)
			answer(t, http.StatusOK, "POST", url+"/config/reload", "{}")
		}
		got := turn(t, ws, message)
		if allowed := strings.HasSuffix(kinds(got), "response.completed"); allowed != c.allowed || !allowed && got[0]["status"] != 403.0 {
			t.Errorf("with the role %s: %v", c.role, got)
		}
	}
}

// Wrong messages get errors, after which the connection goes on. Only tokens of scope full may connect.
func TestFaultsOnASocket(t *testing.T) {
	scripted := binary.ScriptedBackend(t, backend.Options{Script: json.RawMessage(`{"rate": 0}`)})
	server, _ := binary.ServerAt(t, fmt.Sprintf(`{
		"server": {"auth_tokens": [{"name": "f", "token": %q, "scope": "full"}, {"name": "r", "token": "read-token", "scope": "read"}]},
		"limits": {"max_followers_per_token": 2, "max_body_bytes": 100000},
		"providers": {"main": {"provider": "reference_generic_compatible", "model": "demo", "base_url": "%s/v1"}}}`, fullToken, scripted))
	url := server + "/v1"
	ws, _, err := dial(t, url, fullToken)
	if err != nil {
		t.Fatal(err)
	}
	for message, want := range map[string]string{
		`{`:                           "",
		`[]`:                          "",
		`{"input": "x"}`:              "type",
		`{"type": "response.steer"}`:  "type",
		`{"type": "response.create"}`: "input",
		`{"type": "response.create", "input": NaN}`:                                                "input",
		`{"type": "response.create", "input": "x", "input": "y"}`:                                  "input",
		`{"type": "response.create", "input": "x", "stream_id": 1}`:                                "stream_id",
		`{"type": "response.create", "input": "x", "generate": false}`:                             "generate",
		`{"type": "response.create", "input": "x", "background": true}`:                            "background",
		`{"type": "response.create", "input": "x", "previous_response_id": "resp_none"}`:           "previous_response_id",
		`{"type": "response.create", "input": ` + strings.Repeat("[", 30_000):                      "",
		`{"type": "response.create", "input": "` + strings.Repeat(`\ud800`, 20) + `", "model": 7}`: "input",
	} {
		got := turn(t, ws, message)[0]
		fault, _ := got["error"].(map[string]any)
		param, _ := fault["param"].(string)
		if got["status"] != 400.0 || fault["type"] != "invalid_request_error" || fault["message"] == "" || !strings.HasPrefix(param, want) {
			t.Errorf("%.80s gives %v, want the field %q", message, got, want)
		}
		if code := "previous_response_not_found"; want == "previous_response_id" && fault["code"] != code {
			t.Errorf("the code is %v, want %s", fault["code"], code)
		}
	}
	if got := turn(t, ws, `{"type": "response.create", "input": "`+strings.Repeat("x", 90_000)+`"}`); !strings.HasSuffix(kinds(got), "response.completed") {
		t.Errorf("a large message gives%s", kinds(got))
	}
	if _, _, err := dial(t, url, fullToken); err != nil {
		t.Error(err)
	}
	for token, status := range map[string]int{fullToken: http.StatusTooManyRequests, "wrong": http.StatusUnauthorized, "read-token": http.StatusForbidden} {
		if _, resp, err := dial(t, url, token); err == nil || resp == nil || resp.StatusCode != status {
			t.Errorf("%s: %v %v, want the status %d", token, resp, err, status)
		}
	}
	if err := ws.Write(t.Context(), websocket.MessageText, make([]byte, 200_000)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if _, _, err := ws.Read(ctx); websocket.CloseStatus(err) != websocket.StatusMessageTooBig {
		t.Errorf("a message that is too large gives %v", err)
	}
	binary.Eventually(t, "room for another call", func() bool {
		return callAPI(t, "GET", url+"/responses", "").StatusCode == http.StatusBadRequest
	})
	if fault, _ := answer(t, http.StatusBadRequest, "GET", url+"/responses", "")["error"].(map[string]any); fault["type"] != "invalid_request_error" {
		t.Errorf("a plain GET gives %v", fault)
	}
}

// A message may take longer to arrive than a ping is answered in: its sender cannot answer in the middle of it.
func TestSlowMessageOnASocket(t *testing.T) {
	t.Parallel()
	url, _ := responseServer(t)
	conn, err := net.Dial("tcp", strings.TrimSuffix(strings.TrimPrefix(url, "http://"), "/v1"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	body := `{"type": "response.create", "input": "` + strings.Repeat("x", 400) + `"}`
	half := len(body) / 2
	head := []byte{0x81, 0x80 | 126, byte(len(body) >> 8), byte(len(body)), 0, 0, 0, 0} // one frame of text, under a mask of zeros
	fmt.Fprintf(conn, "GET /v1/responses HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: bG9xdWF0IGlzIGEgZnJ1aQ==\r\nAuthorization: Bearer %s\r\n\r\n%s%s", conn.RemoteAddr(), fullToken, head, body[:half])
	time.Sleep(28 * time.Second) // a ping after 15 s, and 10 s for its answer
	if _, err := conn.Write([]byte(body[half:])); err != nil {
		t.Fatal(err)
	}
	var got []byte
	for buf := make([]byte, 4096); !bytes.Contains(got, []byte(`"response.completed"`)); {
		n, err := conn.Read(buf)
		got = append(got, buf[:n]...)
		if err != nil {
			t.Fatalf("%v after %q", err, got)
		}
	}
}
