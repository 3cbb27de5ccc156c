//go:build unix

package monitoring_test

import (
	"context"
	"crypto/tls"
	"database/sql"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	_ "modernc.org/sqlite" // writes a file as a newer program would

	"loquat"
	"loquat/internal/backend"
	"loquat/internal/client"
	"loquat/internal/e2e/binary"
)

// incidents are the entries of docs/incidents.md that no alert tells, by what they quote: each function provokes the
// incident and returns what is seen where the page says to look. TestAlertsFire provokes the others.
var incidents = map[string]func(t *testing.T) string{
	"the configuration cannot be used":                            invalidConfiguration,
	"use the program that made it, or a newer one":                olderProgram,
	"ended or restarted the requests that the last run left":      killedServer,
	`"bound":"requests_per_minute"`:                               userAtBound,
	"the token is not known":                                      removedToken,
	"is neither the address of this server nor server.public_url": unknownHost,
	"the new certificate cannot be used":                          wrongCertificate,
	`"error":"the backend answered 401 Unauthorized`:              refusedKey,
	`"active_request_id"`:                                         silentBackend,
	`"action":"token_made"`:                                       stolenToken,
	"loquat.db":                                                   fullDirectory,
	"see the log of loquat backup --follow, and whether it runs":  oldCopies,
}

// oldCopies stops a follower, so that its copies get old.
func oldCopies(t *testing.T) string {
	data, destination := t.TempDir(), t.TempDir()
	binary.Start(t, nil, "serve", "--demo", "--listen", "127.0.0.1:0", "--data", data)
	path, err := binary.Path()
	if err != nil {
		t.Fatal(err)
	}
	follower, err := binary.Launch(path, nil, "backup", "--follow", destination, "--data", data)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { follower.End(t) })
	binary.Eventually(t, "the first copy", func() bool {
		code, _ := binary.Exit(t, "backup", "--list", destination, "--max-age", "1m")
		return code == binary.ExitOK
	})
	follower.End(t)
	said := ""
	binary.Eventually(t, "old copies", func() bool {
		var code int
		code, said = binary.Exit(t, "backup", "--list", destination, "--max-age", "1s")
		return code == 1
	})
	return said
}

// Every alert has its entry in the guide, and every entry without one is provoked.
func TestIncidents(t *testing.T) {
	guide := read(t, "../incidents.md")
	for _, m := range alertName.FindAllStringSubmatch(read(t, "alerts.yml"), -1) {
		if !strings.Contains(guide, "`"+m[1]+"`") {
			t.Errorf("the guide has no entry for %s", m[1])
		}
	}
	for _, name := range regexp.MustCompile("`(Loquat[A-Z]\\w+)`").FindAllStringSubmatch(guide, -1) {
		if !strings.Contains(read(t, "alerts.yml"), "- alert: "+name[1]+"\n") {
			t.Errorf("there is no alert %s", name[1])
		}
	}
	var quoted []string
	for _, m := range regexp.MustCompile("``(.+?)``").FindAllStringSubmatch(guide, -1) {
		quoted = append(quoted, m[1])
	}
	for line := range strings.Lines(guide) {
		if strings.HasPrefix(line, "| ") && !strings.Contains(line, "`Loquat") && !strings.Contains(line, "``") && !strings.HasPrefix(line, "| symptom") {
			t.Errorf("nothing provokes the entry %s", line)
		}
	}
	for quote, provoke := range incidents {
		if !slices.Contains(quoted, quote) {
			t.Errorf("the guide does not quote %q", quote)
		}
		t.Run(quote, func(t *testing.T) {
			t.Parallel()
			if seen := provoke(t); !strings.Contains(seen, quote) {
				t.Errorf("it is not in\n%s", seen)
			}
		})
	}
	if len(quoted) != len(incidents) {
		t.Errorf("the guide quotes %d texts, and %d are provoked: %q", len(quoted), len(incidents), quoted)
	}
}

// ended starts a server that ends by itself, and returns its log.
func ended(t *testing.T, code int, args ...string) string {
	t.Helper()
	path, err := binary.Path()
	if err != nil {
		t.Fatal(err)
	}
	p, err := binary.Launch(path, nil, append([]string{"serve", "--listen", "127.0.0.1:0"}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	_ = p.Cmd.Wait() // its exit code is compared
	if got := p.Cmd.ProcessState.ExitCode(); got != code {
		t.Errorf("exit code %d, want %d", got, code)
	}
	return p.Log.String()
}

func invalidConfiguration(t *testing.T) string {
	return ended(t, 2, "--config", binary.WriteConfig(t, `{"providers": 7}`), "--data", t.TempDir())
}

func olderProgram(t *testing.T) string {
	data := t.TempDir()
	binary.Start(t, nil, "serve", "--demo", "--listen", "127.0.0.1:0", "--data", data).End(t)
	db, err := sql.Open("sqlite", filepath.Join(data, "loquat.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), "PRAGMA user_version = 9999"); err != nil {
		t.Fatal(err)
	}
	return ended(t, 1, "--demo", "--data", data)
}

// stalled starts a server whose backend says one word and then nothing, with a request that runs.
func stalled(t *testing.T, args ...string) (p *binary.Process, sessionID string) {
	t.Helper()
	scripted := binary.ScriptedBackend(t, backend.Options{Script: json.RawMessage(`{"text": "one two three", "stall_after": 1}`)})
	p = binary.Start(t, nil, append([]string{"serve", "--config", binary.WriteConfig(t, `{`+providers(scripted+"/v1", "")+`}`), "--listen", "127.0.0.1:0"}, args...)...)
	s := asked(t, binary.NewClient(t, p.URL))
	binary.Eventually(t, "the first word", func() bool {
		_, events := binary.GetOnce(t, p.URL+"/events?request_id="+s.ActiveRequestID)
		return strings.Contains(events, `"type":"partial"`)
	})
	return p, s.SessionID
}

// asked creates a session with a request.
func asked(t *testing.T, c *client.Client) loquat.Snapshot {
	t.Helper()
	s, err := c.CreateSession(t.Context(), loquat.NewSession{Send: &loquat.Send{Content: new("hi")}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func killedServer(t *testing.T) string {
	data := t.TempDir()
	p, sessionID := stalled(t, "--data", data)
	p.Kill(t)
	again := binary.Start(t, nil, "serve", "--demo", "--listen", "127.0.0.1:0", "--data", data)
	if _, body := binary.GetOnce(t, again.URL+"/sessions/"+sessionID); !strings.Contains(body, `"incomplete":"interrupted"`) {
		t.Errorf("the text is not kept as interrupted: %s", body)
	}
	return again.Log.String()
}

func userAtBound(t *testing.T) string {
	p := faulty(t, nil, `{`+providers(noBackend, "")+`, "server": {"roles": {"few": {"bounds": {"requests_per_minute": 1}}},
		"auth_tokens": [{"name": "ann", "token": "the-token-of-ann-is-long", "scope": "user", "user": "ann", "role": "few"}]}}`)
	answer := ""
	for range 2 {
		_, answer = call(t, http.MethodPost, p.URL+"/sessions", `{"send": {"content": "hi"}}`, "the-token-of-ann-is-long", "")
	}
	return answer
}

// call makes one call, with a token and another name of the host unless they are "".
func call(t *testing.T, method, url, body, token, host string) (status int, answer string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Host = host
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	return binary.AnswerOf(t, resp)
}

// removedToken takes a token out of the configuration, and puts it back as the page says.
func removedToken(t *testing.T) string {
	config := func(name string) string {
		return `{` + providers(noBackend, "") + `, "server": {"auth_tokens": [{"name": "admin", "token": "the-token-of-` + name + `", "scope": "full"}]}}`
	}
	file := binary.WriteConfig(t, config("before"))
	p := binary.Start(t, nil, "serve", "--config", file, "--listen", "127.0.0.1:0", "--data", t.TempDir())
	reload := func(name string, want int) (answer string) {
		t.Helper()
		binary.WriteFile(t, file, config(name))
		if err := p.Cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		binary.Eventually(t, "the reload", func() bool {
			status := 0
			status, answer = call(t, http.MethodGet, p.URL+"/sessions", "", "the-token-of-before", "")
			return status == want
		})
		return answer
	}
	answer := reload("after", http.StatusUnauthorized)
	reload("before", http.StatusOK)
	return answer
}

// unknownHost calls a server as a proxy does, then sets public_url as the page says.
func unknownHost(t *testing.T) string {
	file := binary.WriteConfig(t, `{`+providers(noBackend, "")+`}`)
	p := binary.Start(t, nil, "serve", "--config", file, "--listen", "127.0.0.1:0", "--data", t.TempDir())
	_, answer := call(t, http.MethodGet, p.URL+"/sessions", "", "", "chat.example.org")
	binary.WriteFile(t, file, `{`+providers(noBackend, "")+`, "server": {"public_url": "https://chat.example.org"}}`)
	if _, err := binary.NewClient(t, p.URL).ReloadConfig(t.Context()); err != nil {
		t.Fatal(err)
	}
	if status, answer := call(t, http.MethodGet, p.URL+"/sessions", "", "", "chat.example.org"); status != http.StatusOK {
		t.Errorf("with public_url: %d %s", status, answer)
	}
	return answer
}

// wrongCertificate replaces a certificate, but not its key.
func wrongCertificate(t *testing.T) string {
	dir := t.TempDir()
	certificate, key := binary.SelfSigned(t, 1)
	other, _ := binary.SelfSigned(t, 2)
	binary.WriteFiles(t, dir, map[string]string{"cert.pem": certificate, "key.pem": key})
	p := faulty(t, nil, fmt.Sprintf(`{%s, "server": {"tls": {"cert_file": %q, "key_file": %q}}}`, providers(noBackend, ""), filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")))
	binary.WriteFiles(t, dir, map[string]string{"cert.pem": other})
	binary.Eventually(t, "the check of the files", func() bool {
		conn, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(t.Context(), "tcp", strings.TrimPrefix(p.URL, "https://"))
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
		return strings.Contains(p.Log.String(), "certificate cannot be used")
	})
	return p.Log.String()
}

func refusedKey(t *testing.T) string {
	scripted := binary.ScriptedBackend(t, backend.Options{Script: json.RawMessage(`{"status": 401}`)})
	p := faulty(t, nil, `{`+providers(scripted+"/v1", "")+`}`)
	c := binary.NewClient(t, p.URL)
	s := asked(t, c)
	binary.FollowRequest(t.Context(), t, c, s.ActiveRequestID)
	_, answer := binary.GetOnce(t, p.URL+"/requests/"+s.ActiveRequestID)
	binary.Eventually(t, "`request failed` in the log", func() bool { return strings.Contains(p.Log.String(), "request failed") })
	return answer
}

// silentBackend cancels a request that does not move on, as the page says.
func silentBackend(t *testing.T) string {
	p, sessionID := stalled(t, "--data", t.TempDir())
	_, answer := binary.GetOnce(t, p.URL+"/sessions/"+sessionID)
	if status, busy := call(t, http.MethodPost, p.URL+"/sessions/"+sessionID+"/send", `{"content": "hi"}`, "", ""); status != http.StatusConflict || !strings.Contains(busy, `"busy"`) {
		t.Errorf("a send to the session: %d %s", status, busy)
	}
	c := binary.NewClient(t, p.URL)
	s, err := c.Session(t.Context(), sessionID)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Cancel(t.Context(), s.ActiveRequestID); err != nil {
		t.Fatal(err)
	}
	binary.FollowRequest(t.Context(), t, c, s.ActiveRequestID)
	if status, answer := call(t, http.MethodPost, p.URL+"/sessions/"+sessionID+"/send", `{"content": "hi"}`, "", ""); status != http.StatusAccepted {
		t.Errorf("a send after the cancel: %d %s", status, answer)
	}
	return answer
}

// stolenToken revokes a token while somebody follows with it, as the page says.
func stolenToken(t *testing.T) string {
	p := faulty(t, nil, `{`+providers(noBackend, "")+`, "server": {"auth_tokens": [{"name": "admin", "token": "the-token-of-the-admin", "scope": "full"}]}}`)
	_, made := call(t, http.MethodPost, p.URL+"/tokens", `{"name": "stolen", "scope": "read"}`, "the-token-of-the-admin", "")
	var token loquat.Token
	if err := json.Unmarshal([]byte(made), &token); err != nil {
		t.Fatalf("%v: %s", err, made)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.URL+"/events?since_id=0000000000000000&wait=20", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token.Token)
	ended := make(chan int, 1)
	go func() {
		status := 0
		if resp, err := http.DefaultClient.Do(req); err == nil {
			status = resp.StatusCode
			resp.Body.Close()
		}
		ended <- status
	}()
	binary.Eventually(t, "the use of the token", func() bool {
		_, list := call(t, http.MethodGet, p.URL+"/tokens", "", "the-token-of-the-admin", "")
		return strings.Contains(list, "last_used_on")
	})
	call(t, http.MethodDelete, p.URL+"/tokens/"+token.TokenID, "", "the-token-of-the-admin", "")
	select {
	case status := <-ended:
		if status != http.StatusUnauthorized {
			t.Errorf("a poll of the revoked token ended with %d", status)
		}
	case <-time.After(10 * time.Second):
		t.Error("a poll of the revoked token goes on")
	}
	_, audit := call(t, http.MethodGet, p.URL+"/audit", "", "the-token-of-the-admin", "")
	return audit
}

// fullDirectory fills a data directory, then deletes the sessions as the page says.
func fullDirectory(t *testing.T) string {
	data := t.TempDir()
	p := binary.Start(t, nil, "serve", "--config", binary.WriteConfig(t, `{`+providers(noBackend, "")+`, "events": {"retention_seconds": 1}}`), "--listen", "127.0.0.1:0", "--data", data)
	c := binary.NewClient(t, p.URL)
	for i := range 10 {
		id := fmt.Sprint("large-", i)
		if _, err := c.CreateSession(t.Context(), loquat.NewSession{SessionID: id}); err != nil {
			t.Fatal(err)
		}
		if _, err := c.AppendMessage(t.Context(), id, loquat.NewMessage{Role: "user", Content: strings.Repeat("large ", 200_000)}); err != nil {
			t.Fatal(err)
		}
	}
	size := func() (bytes int64) {
		for _, name := range []string{"loquat.db", "loquat.db-wal"} {
			if info, err := os.Stat(filepath.Join(data, name)); err == nil {
				bytes += info.Size()
			}
		}
		return bytes
	}
	before := size()
	deleteSessions(t.Context(), t, c)
	for end := time.Now().Add(90 * time.Second); size() > before/2; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the files had %d bytes, and still have %d", before, size())
		}
	}
	files, err := os.ReadDir(data)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(files)
}

func deleteSessions(ctx context.Context, t *testing.T, c *client.Client) {
	t.Helper()
	for i := range 10 {
		if err := c.DeleteSession(ctx, fmt.Sprint("large-", i)); err != nil {
			t.Fatal(err)
		}
	}
}
