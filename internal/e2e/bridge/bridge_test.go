package bridge_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"loquat"
	"loquat/internal/client"
	"loquat/internal/e2e/binary"
	"loquat/internal/phx/phxtest"
)

// The kills of the server, and of the bridge, in a run of TestBridgeCrash, unless
// LOQUAT_BRIDGE_ROUNDS says otherwise.
const bridgeRounds, bridgeRoundsShort = 4, 2

// The npm client hears every event once and in order while the server is killed again
// and again, and so is the bridge.
func TestBridgeCrash(t *testing.T) {
	phxtest.Dir(t) // or all of this is for nothing
	rounds := bridgeRounds
	if testing.Short() {
		rounds = bridgeRoundsShort
	}
	rounds = binary.Number(t, "LOQUAT_BRIDGE_ROUNDS", rounds)
	t.Run("in serve", func(t *testing.T) { testBridgeCrash(t, newTown(t, false), rounds) })
	t.Run("standing alone", func(t *testing.T) { testBridgeCrash(t, newTown(t, true), rounds) })
}

// town is a server and the bridge that its apps use.
type town struct {
	t              *testing.T
	server, bridge *binary.Mover // bridge is nil when it is in the server
	endpoint       string
}

func newTown(t *testing.T, alone bool) *town {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) string {
		return binary.WriteFile(t, filepath.Join(dir, name), text)
	}
	tw := &town{t: t}
	own := binary.FreeAddress(t)
	tw.endpoint = "ws://" + own + "/bridge"
	section := `{"server_id": "home"}`
	if alone {
		at := binary.FreeAddress(t)
		tw.endpoint = "ws://" + at + "/bridge"
		section = fmt.Sprintf(`{"url": %q, "server_id": "home", "token": "town-secret-of-server"}`, tw.endpoint)
		cfg := write("bridge.json", `{"bridge": {"servers": {"home": "town-secret-of-server"}}, "server": {"auth_tokens": [
			{"name": "prometheus", "token": "town-secret-for-metrics", "scope": "read"},
			{"name": "one", "token": "town-secret-for-one", "scope": "session", "session_id": "one"}]}}`)
		tw.bridge = &binary.Mover{T: t, Address: at, Args: []string{"bridge", "--config", cfg, "--listen", at}}
	}
	cfg := write("server.json", fmt.Sprintf(`{"providers": {"main": {"provider": "reference_generic_compatible", "model": "m", "base_url": "http://127.0.0.1:1/v1"}},
		"server": {"auth_tokens": [{"name": "all", "token": "town-secret-token", "scope": "full"}]}, "bridge": %s}`, section))
	tw.server = &binary.Mover{T: t, Address: own, Args: []string{"serve", "--config", cfg, "--listen", own, "--data", filepath.Join(dir, "data")}}
	for _, m := range []*binary.Mover{tw.server, tw.bridge} {
		if m != nil {
			m.Start()
			t.Cleanup(m.Kill)
		}
	}
	return tw
}

func testBridgeCrash(t *testing.T, tw *town, rounds int) {
	api, err := client.New("http://"+tw.server.Address, client.Options{Token: "town-secret-token"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	session := tw.post(ctx, "/sessions", `{}`)
	app := phxtest.Start(t, phxtest.Options{URL: tw.endpoint, Package: phxtest.Packages[rounds%len(phxtest.Packages)], Vsn: "2.0.0"})
	app.Join("events:server:home", map[string]any{"token": "town-secret-token"}, true)
	var start struct {
		LatestEventID loquat.EventID `json:"latest_event_id"`
	}
	if err := json.Unmarshal(app.Until("joined").Response, &start); err != nil {
		t.Fatal(err)
	}
	for i := range 2 * rounds {
		for range 10 {
			tw.post(ctx, "/sessions/"+session+"/messages", `{"role": "user", "content": "hello"}`)
		}
		victim := tw.server
		if tw.bridge != nil && i%2 == 0 {
			victim = tw.bridge
		}
		victim.Kill()
		victim.Start()
	}
	tw.post(ctx, "/sessions/"+session+"/messages", `{"role": "user", "content": "the last"}`)
	var want []string
	window, err := api.Events(ctx, client.Query{Since: &start.LatestEventID, OmitSession: true, Limit: 5000})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range window.Events {
		want = append(want, e.EventID.String())
	}
	for i, id := range want {
		said := app.Next()
		for said.Type != "event" {
			if said.Type == "gap" || strings.Contains(string(said.Response), `"gap"`) {
				t.Fatalf("a gap before event %d: %s", i, said.Response)
			}
			said = app.Next()
		}
		if said.EventID() != id {
			t.Fatalf("event %d is %s, want %s", i, said.EventID(), id)
		}
	}
	t.Logf("%d kills, %d events, each received once and in order", 2*rounds, len(want))
}

// post sends something until it is acknowledged, and returns the session's id.
func (tw *town) post(ctx context.Context, path, body string) string {
	tw.t.Helper()
	for ctx.Err() == nil {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+tw.server.Address+path, strings.NewReader(body))
		if err != nil {
			tw.t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer town-secret-token")
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		var answer struct {
			SessionID string `json:"session_id"`
		}
		err = json.NewDecoder(resp.Body).Decode(&answer)
		resp.Body.Close()
		if resp.StatusCode == http.StatusCreated && err == nil {
			return answer.SessionID
		}
		tw.t.Fatalf("POST %s: %s", path, resp.Status)
	}
	tw.t.Fatal("the server does not answer")
	return ""
}

// The client in docs/bridge.md works unchanged.
func TestBridgeDoc(t *testing.T) {
	dir := phxtest.Dir(t)
	doc, err := os.ReadFile("../../../docs/bridge.md")
	if err != nil {
		t.Fatal(err)
	}
	code := regexp.MustCompile("(?s)```js\n(.*?)```").FindSubmatch(doc)
	if code == nil {
		t.Fatal("there is no client in docs/bridge.md")
	}
	file := filepath.Join(dir, fmt.Sprintf("doc-%d.mjs", os.Getpid())) // in the directory of its npm packages
	if err := os.WriteFile(file, code[1], 0o600); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(file)
	tw := newTown(t, false)
	out := &binary.LockedBuffer{}
	cmd := exec.Command("node", file, tw.endpoint, "home", "town-secret-token")
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	}()
	says := func(text string) {
		t.Helper()
		for end := time.Now().Add(30 * time.Second); !strings.Contains(out.String(), text); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("it does not say %q: %s", text, out)
			}
		}
	}
	says("load the sessions again")
	tw.post(t.Context(), "/sessions", `{}`)
	says("session_created")
	tw.server.Kill()
	tw.server.Start()
	session := tw.post(t.Context(), "/sessions", `{}`)
	tw.post(t.Context(), "/sessions/"+session+"/messages", `{"role": "user", "content": "hello"}`)
	says("message_appended")
	if n := strings.Count(out.String(), "session_created"); n != 2 {
		t.Errorf("it hears of %d sessions: %s", n, out)
	}
}

// A separate bridge reports its health to everybody, and its metrics to callers with a token.
func TestBridgeMetrics(t *testing.T) {
	tw := newTown(t, true)
	url := "http://" + tw.bridge.Address
	get := func(path, token string) (status int, body string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(b)
	}
	for _, path := range []string{"/healthz", "/readyz"} {
		if status, body := get(path, ""); status != http.StatusOK {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	for token, want := range map[string]int{"": 401, "wrong": 401, "town-secret-of-server": 401, "town-secret-for-one": 403} {
		if status, body := get("/metrics", token); status != want || strings.Contains(body, "loquat_") {
			t.Errorf("with %q: %d %s", token, status, body)
		}
	}
	for began := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		status, body := get("/metrics", "town-secret-for-metrics")
		if status == http.StatusOK && strings.Contains(body, `loquat_bridge_server_connected{server_id="home"} 1`) && strings.Contains(body, "\nprocess_start_time_seconds ") {
			break
		}
		if time.Since(began) > time.Minute {
			t.Fatalf("%d %s", status, body)
		}
	}
}
