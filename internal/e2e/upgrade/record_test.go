package upgrade_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"loquat"
	"loquat/internal/client"
	"loquat/internal/e2e/binary"
)

var (
	record  = flag.String("record", "", "program of an older version, which makes a data directory in testdata before TestOlderVersions")
	version = flag.String("version", "", "version of that program, which names the files in testdata")
)

// recorder lets an older version of the program make a data directory.
type recorder struct {
	t       *testing.T
	ctx     context.Context
	dir     string
	program string
	backend string // URL
	server  *binary.Process
	c       *client.Client
	out     recording
}

// recordOlder writes testdata/data-of-VERSION.tar.gz, a data directory whose server was killed, and
// testdata/served-by-VERSION.json.gz, what that version served from it. It needs python3.
func recordOlder(t *testing.T) {
	if *version == "" {
		t.Fatal("-record needs -version")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	r := &recorder{t: t, ctx: ctx, dir: t.TempDir(), program: recordedProgram(t), out: recording{Version: *version, Tokens: map[string]string{}}}
	r.backend = r.launch("backend", "--listen", "127.0.0.1:0", "--rate", "300").URL
	r.makeGone()
	r.serve("data", 0)
	r.talk()
	r.fork()
	r.useTools()
	r.endBadly()
	r.useImages()
	r.grantAccess()
	r.server.End(t)
	r.serve("data", 0) // so that the write-ahead log that is kept is short
	r.interrupt()
	r.keep()
}

// recordedProgram returns the path of the older version.
func recordedProgram(t *testing.T) string {
	t.Helper()
	program, err := filepath.Abs(*record)
	if err != nil || *record == "" {
		t.Fatalf("-record names no program (%v)", err)
	}
	return program
}

// launch starts the program.
func (r *recorder) launch(args ...string) *binary.Process {
	r.t.Helper()
	p, err := binary.Launch(r.program, nil, args...)
	if err == nil {
		r.t.Cleanup(func() { p.End(r.t) })
		err = p.Listening()
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return p
}

// serve starts the server with a data directory.
func (r *recorder) serve(data string, retention int) {
	r.t.Helper()
	tools, err := filepath.Abs("testdata/tools")
	r.must(err)
	r.serveWith(data, configure(r.backend, retention, tools))
}

// serveWith starts the server with a data directory and a configuration.
func (r *recorder) serveWith(data, text string) {
	r.t.Helper()
	config := filepath.Join(r.dir, "loquat.json")
	r.must(os.WriteFile(config, []byte(text), 0o600))
	r.server = r.launch("serve", "--config", config, "--listen", "127.0.0.1:0", "--data", filepath.Join(r.dir, data))
	var err error
	r.c, err = client.New(r.server.URL, client.Options{Token: r.out.Tokens["owner"]})
	r.must(err)
	r.t.Cleanup(r.c.CloseIdleConnections)
	binary.Eventually(r.t, "the plugin", func() bool {
		s, err := load(r.ctx, r.server.URL, r.out.Tokens["owner"], "/plugins")
		r.must(err)
		return !bytes.Contains(s.Body, []byte(`"starting"`))
	})
}

func (r *recorder) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// makeGone makes a session whose events retention removes.
func (r *recorder) makeGone() {
	r.serve("data", 1)
	r.create("early", "default", "", "hello", "a second message")
	r.finish(r.send("early", loquat.Send{Content: new("the events of this request are removed")}))
	since := loquat.EventID(0)
	binary.Eventually(r.t, "retention", func() bool {
		_, err := r.c.Events(r.ctx, client.Query{Since: &since})
		return loquat.CodeOf(err) == loquat.CodeGone
	})
	r.server.End(r.t)
}

// create creates a session. script is what the backend does, a JSON object.
func (r *recorder) create(id, agent, script string, messages ...string) {
	r.t.Helper()
	s := loquat.NewSession{SessionID: id, AgentID: agent}
	if script != "" {
		s.Metadata = loquat.Object{"overrides": json.RawMessage(`{"request_options": {"loquat_script": ` + script + `}}`)}
	}
	for _, text := range messages {
		s.Messages = append(s.Messages, loquat.NewMessage{Role: "user", Content: text})
	}
	_, err := r.c.CreateSession(r.ctx, s)
	r.must(err)
}

func (r *recorder) send(session string, s loquat.Send) (requestID string) {
	r.t.Helper()
	answer, err := r.c.Send(r.ctx, session, s)
	r.must(err)
	r.out.Requests = append(r.out.Requests, answer.RequestID)
	if s.RequestID != "" {
		r.out.Repeat = repeatedSend{SessionID: session, Send: s, Answer: answer}
	}
	return answer.RequestID
}

func (r *recorder) finish(requestID string) {
	r.t.Helper()
	binary.FollowRequest(r.ctx, r.t, r.c, requestID)
}

// talk makes a session with every change of messages, and one with many messages.
func (r *recorder) talk() {
	r.create("talk", "default", "")
	for _, text := range []string{"What is a loquat?", "Ein Mispelbaum, \u0000 \u2028 \"früh\" 🍊", strings.Repeat("long ", 200)} {
		r.finish(r.send("talk", loquat.Send{Content: &text, Metadata: loquat.Object{"note": json.RawMessage(`{"n":1.50,"deep":[null,true]}`)}}))
	}
	r.finish(r.send("talk", loquat.Send{Content: new("repeat me"), RequestID: "chosen-by-the-client"}))
	r.finish(r.send("talk", loquat.Send{Content: new("not streamed"), Stream: new(false)}))
	for _, role := range []string{"system", "assistant", "user"} {
		_, err := r.c.AppendMessage(r.ctx, "talk", loquat.NewMessage{Role: role, Content: "appended as " + role})
		r.must(err)
	}
	for i, text := range []string{"an edited question", "an edited reply", ""} {
		_, err := r.c.ModifyMessage(r.ctx, "talk", i, text)
		r.must(err)
	}
	_, err := r.c.DeleteMessages(r.ctx, "talk", []int{3, 5})
	r.must(err)
	_, err = r.c.UpdateSession(r.ctx, "talk", loquat.SessionPatch{AgentID: new("reasoning"), Metadata: loquat.Object{"title": json.RawMessage(`"A title"`)}})
	r.must(err)
	r.finish(r.send("talk", loquat.Send{Content: new("think, from here on"), DeleteFrom: new(7)}))

	r.create("many", "default", "", strings.Fields(strings.Repeat("one two three four five ", 12))...)
	_, err = r.c.AppendMessage(r.ctx, "many", loquat.NewMessage{Role: "user", Content: "the last"})
	r.must(err)
}

// fork makes a fork and a session that is deleted.
func (r *recorder) fork() {
	fork, err := r.c.Fork(r.ctx, "talk", loquat.Fork{UpToIndex: new(3), AgentID: "brief"})
	r.must(err)
	r.finish(r.send(fork.SessionID, loquat.Send{Content: new("go on in the fork")}))
	r.create("deleted", "default", "", "soon removed")
	r.finish(r.send("deleted", loquat.Send{Content: new("the last question")}))
	r.must(r.c.DeleteSession(r.ctx, "deleted"))
}

func (r *recorder) useTools() {
	r.create("tools", "tools", `{"tool_calls": [{"id": "a", "name": "count", "arguments": {"to": 3}}, {"id": "b", "name": "missing", "arguments": {}}]}`)
	r.finish(r.send("tools", loquat.Send{Content: new("count"), StreamTools: true}))
}

// endBadly makes requests that are cancelled, that fail and that are retried.
func (r *recorder) endBadly() {
	r.create("cancelled", "default", `{"chunks": 500, "rate": 50, "chunk_bytes": 8}`)
	id := r.send("cancelled", loquat.Send{Content: new("stop soon")})
	r.awaitEvents("cancelled", 8)
	_, err := r.c.Cancel(r.ctx, id)
	r.must(err)
	r.finish(id)
	r.create("failed", "default", `{"status": 400, "body": {"error": {"message": "no"}}}`)
	r.finish(r.send("failed", loquat.Send{Content: new("fail")}))
	r.create("retried", "default", `{"id": "retry", "attempts": [{"status": 503}, {}]}`)
	r.finish(r.send("retried", loquat.Send{Content: new("retry")}))
	r.create("broken", "default", `{"id": "broken", "chunks": 6, "chunk_bytes": 8, "attempts": [{"drop_after": 3}, {}]}`)
	r.finish(r.send("broken", loquat.Send{Content: new("break in the middle")}))
}

// awaitEvents waits for n events of a session after its cursor.
func (r *recorder) awaitEvents(session string, n int) {
	r.t.Helper()
	for _, err := range r.c.FollowJSON(r.ctx, client.Query{SessionID: session}) {
		r.must(err)
		if n--; n == 0 {
			return
		}
	}
}

func (r *recorder) useImages() {
	r.create("images", "default", "")
	var assets []loquat.Asset
	for i := range 3 {
		req, err := http.NewRequestWithContext(r.ctx, http.MethodPost, r.server.URL+"/sessions/images/assets?name=noise", bytes.NewReader(binary.Photo(uint64(i), 900)))
		r.must(err)
		req.Header.Set("Content-Type", "image/png")
		resp, err := http.DefaultClient.Do(req)
		r.must(err)
		var a loquat.Asset
		r.must(json.NewDecoder(resp.Body).Decode(&a))
		r.must(resp.Body.Close())
		assets = append(assets, a)
	}
	r.finish(r.send("images", loquat.Send{Content: new("look"), Attachments: []json.RawMessage{
		json.RawMessage(fmt.Sprintf(`{"type": "image", "asset_id": %q}`, assets[0].AssetID)),
		json.RawMessage(fmt.Sprintf(`{"type": "image", "asset_id": %q}`, assets[1].AssetID)),
	}}))
	binary.Call(r.t, http.MethodDelete, r.server.URL+"/sessions/images/assets/"+assets[2].AssetID, "")
	for _, a := range assets {
		r.out.Served = append(r.out.Served, served{Token: "owner", Path: "/sessions/images/assets/" + a.AssetID})
	}
}

// grantAccess makes tokens and devices. From then on the server requires a token.
func (r *recorder) grantAccess() {
	for _, name := range []string{"device", "removed device"} {
		p, err := r.c.Pair(r.ctx, loquat.NewPairing{})
		r.must(err)
		var d struct {
			DeviceID string `json:"device_id"`
			Token    string `json:"token"`
		}
		claim := fmt.Sprintf(`{"code": %q, "device_name": %q}`, p.Code, name)
		r.must(json.Unmarshal([]byte(binary.Call(r.t, http.MethodPost, r.server.URL+"/pairing/claim", claim)), &d))
		r.out.Tokens[name] = d.Token
		if name == "removed device" {
			r.must(r.c.RemoveDevice(r.ctx, d.DeviceID))
		}
	}
	for _, n := range []loquat.NewToken{{Name: "owner", Scope: "full"}, {Name: "reader", Scope: "read"}, {Name: "guest", Scope: "session", SessionID: "talk"}, {Name: "revoked", Scope: "full"}} {
		token, err := r.c.MakeToken(r.ctx, n)
		r.must(err)
		r.out.Tokens[n.Name] = token.Token
		r.c, err = client.New(r.server.URL, client.Options{Token: r.out.Tokens["owner"]})
		r.must(err)
		r.t.Cleanup(r.c.CloseIdleConnections)
		if n.Name == "revoked" {
			r.must(r.c.RevokeToken(r.ctx, token.TokenID))
		}
	}
}

// interrupt kills the server while requests stream, reason and run a tool, and while a send
// waits.
func (r *recorder) interrupt() {
	slow := `{"chunks": 120, "chunk_bytes": 8, "rate": 20}`
	r.create("cut-text", "default", slow, "before")
	r.create("cut-reasoning", "default", fmt.Sprintf(`{"reasoning": %q, "rate": 20}`, strings.Repeat("so then ", 60)))
	r.create("cut-tool", "tools", `{"tool_calls": [{"id": "a", "name": "linger", "arguments": {}}]}`)
	r.create("cut-queued", "default", slow)
	var mu sync.Mutex
	var followed sync.WaitGroup
	ctx, stop := context.WithCancel(r.ctx)
	followers := make([]followerRecord, 4)
	for i, id := range []string{"cut-text", "cut-reasoning", "cut-tool", "cut-queued"} {
		s, err := r.c.Session(r.ctx, id)
		r.must(err)
		followers[i].Snapshot = s
		c := r.c
		followed.Go(func() {
			for e, err := range c.FollowJSON(ctx, client.Query{SessionID: id, Since: &s.CursorEventID, OmitSession: true}) {
				if err != nil {
					return
				}
				mu.Lock()
				followers[i].Events = append(followers[i].Events, e.JSON)
				r.out.Newest = max(r.out.Newest, e.ID)
				mu.Unlock()
			}
		})
		r.send(id, loquat.Send{Content: new("be interrupted"), StreamTools: true})
	}
	r.send("cut-queued", loquat.Send{Content: new("answer after the restart"), OnBusy: "queue"})
	binary.Eventually(r.t, "events", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return min(len(followers[0].Events), len(followers[1].Events), len(followers[3].Events)) >= 11 && len(followers[2].Events) >= 10
	})
	mu.Lock()
	r.server.Kill(r.t)
	r.out.Killed = time.Now().UTC()
	r.out.Followers = followers
	mu.Unlock()
	stop()
	followed.Wait()
}

// keep writes the data directory, lets the older version open a copy and writes what that
// served.
func (r *recorder) keep() {
	r.must(pack(dataOf(*version), filepath.Join(r.dir, "data")))
	r.must(unpack(dataOf(*version), filepath.Join(r.dir, "copy")))
	r.serve("copy", 0)
	awaitEnds(r.ctx, r.t, r.c, r.out.Requests)
	r.addPaths()
	for i, s := range r.out.Served {
		got, err := load(r.ctx, r.server.URL, r.out.Tokens[s.Token], s.Path)
		r.must(err)
		got.Token = s.Token
		r.out.Served[i] = got
	}
	r.must(writeJSON(servedBy(*version), r.out))
}

// addPaths lists what the older version is asked for.
func (r *recorder) addPaths() {
	add := func(token, format string, args ...any) {
		r.out.Served = append(r.out.Served, served{Token: token, Path: fmt.Sprintf(format, args...)})
	}
	sessions, err := r.c.Sessions(r.ctx, loquat.SessionQuery{Limit: 200})
	r.must(err)
	add("owner", "/sessions?limit=200")
	for _, s := range sessions.Sessions {
		add("owner", "/sessions/%s", s.SessionID)
		add("owner", "/sessions/%s/messages?from=1&limit=2", s.SessionID)
		add("owner", "/sessions/%s/messages?from=%d", s.SessionID, max(0, s.MessageCount-2))
		add("owner", "/events?session_id=%s", s.SessionID)
		add("owner", "/events?session_id=%s&since_id=%s&session=omit", s.SessionID, loquat.EventID(0))
	}
	add("owner", "/events?session_id=talk&since_id=%s", loquat.EventID(0))
	for _, id := range r.out.Requests {
		add("owner", "/requests/%s", id)
		add("owner", "/events?request_id=%s&session=omit", id)
	}
	for id := loquat.EventID(0); id <= r.out.Newest; id += max(1, r.out.Newest/5) {
		add("owner", "/events?since_id=%s&session=omit", id)
	}
	add("owner", "/events?since_id=%s", r.out.Newest+1_000_000)
	for _, path := range []string{"/sessions/deleted", "/events?session_id=deleted", "/tokens", "/devices"} {
		add("owner", "%s", path)
	}
	for token := range r.out.Tokens {
		add(token, "/sessions/talk/messages?limit=1")
		add(token, "/sessions/many/messages?limit=1")
		add(token, "/tokens")
	}
}
