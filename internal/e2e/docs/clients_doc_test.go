package docs_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"loquat"
	"loquat/internal/backend"
	"loquat/internal/client"
	"loquat/internal/e2e/binary"
)

// guidedClient is a client of docs/clients.md that runs against the real program.
type guidedClient struct {
	t      *testing.T
	dir    string
	server *binary.Mover
	api    *client.Client
	cmd    *exec.Cmd
	out    *binary.LockedBuffer
	log    *binary.LockedBuffer // what it writes to standard error
}

// newGuidedClient starts a server whose model stalls in the middle of its first reply.
func newGuidedClient(t *testing.T, page string) *guidedClient {
	t.Helper()
	text, ok := guided(t, "clients.md")[page]
	if !ok {
		t.Fatalf("docs/clients.md has no %s", page)
	}
	g := &guidedClient{t: t, dir: t.TempDir()}
	g.write(page, text)
	config := g.write("loquat.json", fmt.Sprintf(`{"providers": {"main": {"provider": "reference_generic_compatible", "model": "demo",
		"base_url": "%s/v1", "request_options": {"loquat_script": {"text": "one two three four", "id": "guide", "rate": 0,
		"attempts": [{"stall_after": 3}, {}]}}}}}`, binary.ScriptedBackend(t, backend.Options{})))
	address := binary.FreeAddress(t)
	g.server = &binary.Mover{T: t, Address: address, Args: []string{"serve", "--config", config, "--listen", address, "--data", filepath.Join(g.dir, "data")}}
	g.server.Start()
	t.Cleanup(func() { g.server.Kill() })
	api, err := client.New("http://"+address, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	g.api = api
	return g
}

func (g *guidedClient) write(name, text string) (path string) {
	g.t.Helper()
	return binary.WriteFile(g.t, filepath.Join(g.dir, name), text)
}

func (g *guidedClient) start(name string, args ...string) {
	g.t.Helper()
	g.out, g.log = &binary.LockedBuffer{}, &binary.LockedBuffer{}
	g.cmd = exec.CommandContext(g.t.Context(), name, args...)
	g.cmd.Dir, g.cmd.Env, g.cmd.Stdout, g.cmd.Stderr = g.dir, binary.CleanEnv(), g.out, g.log
	if err := g.cmd.Start(); err != nil {
		g.t.Fatal(err)
	}
}

// says waits until the client has printed a text.
func (g *guidedClient) says(text string) {
	g.t.Helper()
	for end := time.Now().Add(time.Minute); !strings.Contains(g.out.String(), text); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			g.t.Fatalf("it does not say %q: %s%s", text, g.out, g.log)
		}
	}
}

// crash kills the server and starts it again.
func (g *guidedClient) crash() {
	g.t.Helper()
	g.server.Kill()
	g.server.Start()
}

// The client in Python prints what comes, also over a crash of the server, and comes back to its session.
func TestGuideClientPython(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("there is no python3 here")
	}
	g := newGuidedClient(t, "chat.py")
	ask := func(args ...string) {
		g.start("python3", append([]string{"chat.py", "http://" + g.server.Address}, args...)...)
	}
	ends := func(want string) {
		t.Helper()
		if err := g.cmd.Wait(); err != nil || g.out.String() != want {
			t.Fatalf("it ends with %v and has printed %q, not %q", err, g.out, want)
		}
	}
	ask("Count.")
	g.says("one two three ")
	g.crash()
	ends("one two three \n")
	if !strings.Contains(g.log.String(), "the server stopped unexpectedly") {
		t.Errorf("it does not say why the reply ends early: %s", g.log)
	}
	list, err := g.api.Sessions(t.Context(), loquat.SessionQuery{Limit: 1})
	if err != nil || len(list.Sessions) != 1 {
		t.Fatalf("there are %d sessions, not one (%v)", len(list.Sessions), err)
	}
	ask("Again.", list.Sessions[0].SessionID)
	ends("one two three four\n")
}

// The client in JavaScript shows the session as it is stored, whatever changes it and whatever breaks.
func TestGuideClientJavaScript(t *testing.T) {
	if exec.Command("node", "--experimental-eventsource", "--eval", "new EventSource('http://127.0.0.1:1').close()").Run() != nil {
		t.Skip("there is no node with an EventSource here")
	}
	g := newGuidedClient(t, "follow.mjs")
	g.write("run.mjs", `import { call, follow } from "./follow.mjs"
setInterval(() => {}, 1000) // Node.js does not wait for an EventSource that is about to come back
const [url, sessionId] = process.argv.slice(2)
await follow(url, sessionId, (messages, draft) => console.log(JSON.stringify({ messages, draft })))
try { await call(url, "GET", "/sessions/none") } catch ({ code }) { console.log(code) }
`)
	ctx := t.Context()
	s, err := g.api.CreateSession(ctx, loquat.NewSession{})
	if err != nil {
		t.Fatal(err)
	}
	at := "http://" + g.server.Address
	g.start("node", "--no-warnings", "--experimental-eventsource", "run.mjs", at, s.SessionID)
	defer func() {
		_ = g.cmd.Process.Kill()
		_ = g.cmd.Wait() // it was killed
	}()
	g.says("not_found")
	at += "/sessions/" + s.SessionID
	binary.Call(t, "POST", at+"/send", `{"content": "Count."}`)
	g.says(`"draft":"one two three "`)
	g.crash()
	g.shows(s.SessionID)
	binary.Call(t, "POST", at+"/messages", `{"role": "user", "content": "Edited soon"}`)
	binary.Call(t, "PATCH", at+"/messages/2", `{"content": "Edited"}`)
	binary.Call(t, "DELETE", at+"/messages?indices=0,1", "")
	binary.Call(t, "POST", at+"/send", `{}`)
	g.says("one two three four")
	g.shows(s.SessionID)
}

// shows waits until the client's last word on the session is what the server has.
func (g *guidedClient) shows(sessionID string) {
	g.t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		var stored, shown struct {
			Messages []loquat.Message `json:"messages"`
			Active   string           `json:"active_request_id"`
			Draft    string           `json:"draft"`
		}
		if err := json.Unmarshal([]byte(binary.Call(g.t, "GET", "http://"+g.server.Address+"/sessions/"+sessionID, "")), &stored); err != nil {
			g.t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSpace(g.out.String()), "\n")
		err := json.Unmarshal([]byte(lines[len(lines)-1]), &shown)
		if err == nil && stored.Active == "" && shown.Draft == "" && reflect.DeepEqual(stored.Messages, shown.Messages) {
			return
		}
		if time.Now().After(end) {
			g.t.Fatalf("it shows %+v, stored is %+v", shown, stored)
		}
	}
}

// What docs/http.md says to send for what a user wants does it, on a session of two
// questions and two answers.
func TestGuideSending(t *testing.T) {
	page, err := os.ReadFile("../../../docs/http.md")
	if err != nil {
		t.Fatal(err)
	}
	url, c := binary.ServerAt(t, fmt.Sprintf(`{"providers": {"main": {"provider": "reference_generic_compatible", "model": "echo", "base_url": "%s/v1"}}}`,
		binary.ScriptedBackend(t, backend.Options{})))
	for _, tc := range []struct{ fork, send, want string }{
		{"", `{"delete_from": 3}`, "one 1 two two"},
		{"", `{"delete_from": 2, "content": "…"}`, "one 1 … …"},
		{"", `{"delete_from": 3, "keep": true}`, "one 1 two two"},
		{`{"up_to_index": 2}`, `{}`, "one 1 two two"},
	} {
		for _, example := range []string{tc.fork, tc.send} {
			if !strings.Contains(string(page), "`"+example+"`") && example != "" {
				t.Errorf("docs/http.md does not show %s", example)
			}
		}
		var s loquat.SendResult
		created := binary.Call(t, "POST", url+"/sessions", `{"messages": [{"role": "user", "content": "one"}, {"role": "assistant", "content": "1"},
			{"role": "user", "content": "two"}, {"role": "assistant", "content": "2"}]}`)
		if err := json.Unmarshal([]byte(created), &s); err != nil {
			t.Fatal(err)
		}
		if tc.fork != "" {
			if err := json.Unmarshal([]byte(binary.Call(t, "POST", url+"/sessions/"+s.SessionID+"/fork", tc.fork)), &s); err != nil {
				t.Fatal(err)
			}
		}
		if err := json.Unmarshal([]byte(binary.Call(t, "POST", url+"/sessions/"+s.SessionID+"/send", tc.send)), &s); err != nil {
			t.Fatal(err)
		}
		binary.FollowRequest(t.Context(), t, c, s.RequestID)
		page, err := c.Messages(t.Context(), s.SessionID, client.Page{})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, m := range page.Messages {
			got = append(got, m.Content)
		}
		if strings.Join(got, " ") != tc.want {
			t.Errorf("after %s %s the session is %q, not %q", tc.fork, tc.send, got, tc.want)
		}
	}
}
