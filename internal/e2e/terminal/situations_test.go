//go:build unix

package terminal_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"loquat"
	"loquat/internal/client"
	"loquat/internal/e2e/binary"
)

// Sizes outside of the allowed range do no harm.
func TestOddSizes(t *testing.T) {
	t.Parallel()
	s := library(t)
	x := s.chat(t, 80, 24, "s0")
	x.wait("all about stones")
	for _, size := range [][2]int{{1, 1}, {60, 10}, {59, 10}, {300, 4}, {2, 60}, {500, 200}, {60, 10}} {
		x.resize(size[0], size[1])
		time.Sleep(50 * time.Millisecond)
	}
	x.wait("all about stones")
	x.golden("smallest-60")
}

// SIGTERM gives the terminal back as it was.
func TestTermination(t *testing.T) {
	t.Parallel()
	s := library(t)
	x := s.chat(t, 80, 24, "s0")
	x.wait("all about stones")
	if err := x.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-x.done
	if out := x.output(); !strings.Contains(out, "\x1b[?1049l") || !strings.Contains(out, "continue with: loquat chat") {
		t.Errorf("the end of the output is %q", out[max(0, len(out)-400):])
	}
	if err := x.cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// A server that accepts connections and says nothing: the send can be given up, and stays.
func TestSilentServer(t *testing.T) {
	t.Parallel()
	s := library(t)
	target, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			_, _ = io.Copy(io.Discard, r.Body) // net/http notices only then that the client is gone
			<-r.Context().Done()
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close)
	t.Cleanup(front.CloseClientConnections)
	x := server{s.Client, front.URL}.chat(t, 80, 20, "s0")
	x.press("Are you there?", "enter")
	x.wait("Esc gives up")
	x.press("esc")
	x.wait("not sent", "> Are you there?")
}

// A server in the process of the client ends with it.
func TestOwnServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	x := start(t, 80, 24, nil, "--demo", "--data", dir)
	x.wait("● connected")
	x.press("Hello", "enter")
	x.wait("scripted backend", "tokens")
	x.press("ctrl+c")
	<-x.done
	if err := x.cmd.Wait(); err != nil {
		t.Error(err)
	}
	if out := x.output(); !strings.Contains(out, "continue with: loquat chat --data "+dir+" --demo --session ") {
		t.Errorf("the end of the output is %q", out[max(0, len(out)-300):])
	}
}

// Two clients of one chat show the same, and what another client changes before the messages that
// are shown moves nothing.
func TestTwoClients(t *testing.T) {
	t.Parallel()
	s := serve(t)
	create := loquat.NewSession{SessionID: "two", Metadata: loquat.Object{}.Set("title", "Two clients")}
	for i := range 200 {
		create.Messages = append(create.Messages, user(fmt.Sprintf("message %03d", i)))
	}
	if _, err := s.CreateSession(t.Context(), create); err != nil {
		t.Fatal(err)
	}
	x, y := s.chat(t, 80, 20, "two"), s.chat(t, 80, 20, "two")
	y.press("pgup", "pgup", "pgup")
	y.wait("message 180")
	before, _, _ := strings.Cut(y.screen(), "──")
	if _, err := s.DeleteMessages(t.Context(), "two", []int{3, 4, 150}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.ModifyMessage(t.Context(), "two", 5, "changed"); err != nil {
		t.Fatal(err)
	}
	x.press("Hello from x", "enter")
	x.wait("scripted backend", "tokens")
	time.Sleep(300 * time.Millisecond)
	if after, _, _ := strings.Cut(y.screen(), "──"); after != before {
		t.Errorf("the screen was\n%s\nand is\n%s", before, after)
	}
	y.press("ctrl+home")
	y.wait("message 002", "message 005")
	y.press("pgdown")
	y.wait("changed")
	y.press("ctrl+end")
	y.wait("scripted backend", "tokens")
}

// Large texts are pasted, sent, shown and scrolled.
func TestLargeTexts(t *testing.T) {
	t.Parallel()
	s := toolServer(t)
	big := strings.Repeat("large words of a long line ", 80_000) // 2 MB in one line
	s.session(t, "large", "Large", script{"text": "Short."}, user("Before"), reply(big), loquat.NewMessage{Role: loquat.RoleTool, Content: strings.Repeat("line of output\n", 50_000), Metadata: loquat.Object{}.Set("tool_name", "big")}, user("After"))
	x := s.chat(t, 80, 24, "large")
	x.wait("After", "50000 lines in all")
	x.press("tab", "up")
	x.wait("▌ ✓ big")
	x.press("o")
	x.gone("50000 lines in all")
	x.press("o")
	x.wait("50000 lines in all")
	x.press("esc")
	x.wait("Enter sends")
	x.press("ctrl+home")
	x.wait("Before", "large words")
	x.press("ctrl+end")
	x.wait("50000 lines in all")
	x.paste(strings.Repeat("pasted words\n", 2000) + "the end")
	x.wait("the end")
	x.press("enter")
	x.wait("Short.", "tokens")
}

// A reply whose stream breaks begins again, and is shown once.
func TestRestartedStream(t *testing.T) {
	t.Parallel()
	s := serveConfig(t, `, "stream_recovery": {"mode": "aggressive", "max_retries": 2}`)
	s.session(t, "broken", "Broken", script{"text": "one two three four five six seven eight", "attempts": []any{map[string]any{"drop_after": 5}, map[string]any{}}})
	x := s.chat(t, 80, 20, "broken")
	x.press("Go", "enter")
	x.wait("eight", "tokens")
	if n := strings.Count(x.screen(), "one two"); n != 1 {
		t.Errorf("the reply is %d times on the screen:\n%s", n, x.screen())
	}
}

// The server comes back with another directory of data: what it does not have is left.
func TestOtherData(t *testing.T) {
	t.Parallel()
	k := startKillable(t)
	s := k.server(t)
	s.session(t, "old", "Old", nil, user("Of the old data"))
	x := s.chat(t, 80, 20, "old")
	x.wait("Of the old data")
	k.kill(t)
	k.args[len(k.args)-1] = t.TempDir()
	k.start(t)
	x.wait("could not be loaded")
	x.dismiss("● connected") // what was still being loaded failed, too
	x.press("ctrl+n", "On the new data", "enter")
	x.wait("scripted backend", "tokens")
}

// A chat that nobody has used for longer than events are kept is followed like any other.
func TestOldChat(t *testing.T) {
	t.Parallel()
	s := serveConfig(t, `, "events": {"retention_seconds": 1}`)
	s.session(t, "old", "Old", nil, user("Of long ago"))
	page, err := s.Session(t.Context(), "old")
	if err != nil {
		t.Fatal(err)
	}
	s.session(t, "other", "Other", nil)
	binary.Eventually(t, "the end of the old events", func() bool {
		if _, err := s.AppendMessage(t.Context(), "other", user("Something else")); err != nil {
			t.Fatal(err)
		}
		_, err := s.Events(t.Context(), client.Query{Since: &page.CursorEventID, SessionID: "old", List: true})
		return loquat.CodeOf(err) == loquat.CodeGone
	})
	x := s.chat(t, 80, 20, "old")
	x.wait("Of long ago")
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if screen := x.screen(); strings.Contains(screen, "next attempt") {
			t.Fatalf("it connects again and again:\n%s", screen)
		}
	}
	if _, err := s.AppendMessage(t.Context(), "old", user("Of today")); err != nil {
		t.Fatal(err)
	}
	x.wait("Of today")
	x.press("Hello again", "enter")
	x.wait("scripted backend", "tokens")
}

// The list is loaded as far as it is looked at.
func TestLongList(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for i := range 120 {
		s.session(t, fmt.Sprintf("n%03d", i), fmt.Sprintf("Chat %03d", i), nil)
	}
	x := s.chat(t, 80, 20, "n119")
	x.press("ctrl+l")
	x.wait("> Chat 119")
	if _, err := s.AppendMessage(t.Context(), "n003", user("This chat comes to the top")); err != nil {
		t.Fatal(err)
	}
	x.until("the chat at the top", func(screen string) bool {
		return strings.Index(screen, "Chat 003") > 0 && strings.Index(screen, "Chat 003") < strings.Index(screen, "> Chat 119")
	})
	for range 3 {
		x.press("end")
		time.Sleep(200 * time.Millisecond)
	}
	x.wait("> Chat 000")
}

// Ten messages wait at most. The eleventh stays in the composer.
func TestFullQueue(t *testing.T) {
	t.Parallel()
	_, x := busy(t)
	for i := range 10 {
		x.press(fmt.Sprint("waiting ", i), "enter")
		x.wait(fmt.Sprintf("%d. waits: waiting %d", i+1, i))
	}
	x.press("one too many", "enter")
	x.wait("not sent", "> one too many")
}

// A file that cannot be written is an error that says so.
func TestExportThatFails(t *testing.T) {
	t.Parallel()
	s := library(t)
	x := s.chat(t, 80, 20, "s0")
	x.press("/export /does/not/exist/a.md", "enter")
	x.wait("the export failed")
	dir := t.TempDir()
	x.press("esc", "/export "+dir+"/b.json", "enter")
	x.wait("was written to")
	b, err := os.ReadFile(filepath.Join(dir, "b.json"))
	if err != nil || !json.Valid(b) {
		t.Errorf("the archive is %.60q (%v)", b, err)
	}
}

// A terminal that answers nothing gets its screen all the same.
func TestSilentTerminal(t *testing.T) {
	t.Parallel()
	s := library(t)
	x := s.chat(t, 80, 20, "s0", "--theme", "auto")
	x.wait("all about stones")
	y := start(t, 80, 20, []string{"TERM=vt100"}, "--server", s.url, "--session", "s0")
	y.wait("all about stones")
}

// A token of one session has its chat, and no list.
func TestTokenOfOneSession(t *testing.T) {
	t.Parallel()
	s := library(t)
	token, err := s.MakeToken(t.Context(), loquat.NewToken{Name: "guest", Scope: "session", SessionID: "s0"})
	if err != nil {
		t.Fatal(err)
	}
	x := start(t, 200, 24, nil, "--server", s.url, "--token", token.Token, "--session", "s0")
	x.wait("● connected", "all about stones")
	x.gone("loading")
	x.press("More", "enter")
	x.wait("scripted backend", "tokens")
	x.golden("one-session-200")
}

// A token that is revoked while the client runs ends the connection, and the screen says why.
func TestRevokedToken(t *testing.T) {
	t.Parallel()
	s := library(t)
	token, err := s.MakeToken(t.Context(), loquat.NewToken{Name: "cook"})
	if err != nil {
		t.Fatal(err)
	}
	admin, err := client.New(s.url, client.Options{Token: token.Token})
	if err != nil {
		t.Fatal(err)
	}
	defer admin.CloseIdleConnections()
	guest, err := admin.MakeToken(t.Context(), loquat.NewToken{Name: "guest"})
	if err != nil {
		t.Fatal(err)
	}
	x := start(t, 80, 20, nil, "--server", s.url, "--token", guest.Token, "--session", "s0")
	x.wait("● connected", "all about stones")
	if err := admin.RevokeToken(t.Context(), guest.TokenID); err != nil {
		t.Fatal(err)
	}
	x.dismiss("Ctrl-R connects again") // what was still being loaded failed, too
	x.golden("revoked-80")
}
