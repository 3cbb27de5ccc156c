//go:build unix

package terminal_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"loquat/internal/backend"
	"loquat/internal/client"
	"loquat/internal/e2e/binary"
)

func regexpCount(text, part string) int { return strings.Count(text, part) }

// killable is a server that can be killed and started again.
type killable struct {
	*binary.Process
	args []string
	url  string
}

func startKillable(t *testing.T) *killable {
	t.Helper()
	file := binary.WriteConfig(t, config(binary.ScriptedBackend(t, backend.Options{}), ""))
	address := binary.FreeAddress(t)
	k := &killable{args: []string{"serve", "--config", file, "--listen", address, "--data", t.TempDir()}, url: (&url.URL{Scheme: "http", Host: address}).String()}
	k.start(t)
	return k
}

func (k *killable) start(t *testing.T) {
	t.Helper()
	k.Process = binary.Start(t, nil, k.args...)
}

func (k *killable) kill(t *testing.T) {
	t.Helper()
	k.Kill(t)
}

func (k *killable) client(t *testing.T) *client.Client { return binary.NewClient(t, k.url) }

func (k *killable) server(t *testing.T) server { return server{k.client(t), k.url} }

// The server is killed while a reply streams, and comes back: nothing is lost, nothing is shown
// twice, and the chat goes on.
func TestKilledServer(t *testing.T) {
	t.Parallel()
	k := startKillable(t)
	s := k.server(t)
	words := make([]string, 60)
	for i := range words {
		words[i] = fmt.Sprintf("word%02d", i)
	}
	s.session(t, "kill", "Killed", script{"attempts": []any{map[string]any{"text": strings.Join(words, " "), "stall_after": 40}, map[string]any{"text": "After the restart."}}})
	x := s.chat(t, 80, 24, "kill")
	x.press("Go", "enter")
	x.wait("word35")
	k.kill(t)
	x.wait("connection lost")
	x.golden("lost-80")
	time.Sleep(time.Second)
	k.start(t)
	x.wait("● connected", "the server stopped while it was written")
	page, err := s.Session(t.Context(), "kill")
	if err != nil {
		t.Fatal(err)
	}
	screen := x.screen()
	for _, w := range words {
		want := strings.Count(page.Messages[1].Content, w)
		if got := strings.Count(screen, w); got != want {
			t.Errorf("%s is on the screen %d times, and the message has it %d times", w, got, want)
		}
	}
	x.press("More", "enter")
	x.wait("After the restart.")
	if got := strings.Count(x.screen(), "word05"); got != 1 {
		t.Errorf("word05 is on the screen %d times", got)
	}
}

// The reply ends while the terminal has no focus: it rings.
func TestNotification(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.session(t, "bell", "Rings", script{"text": "The end.", "delay_ms": 500})
	x := s.chat(t, 80, 20, "bell")
	x.press("focus", "Go", "enter")
	x.wait("The end.", "tokens")
	if strings.Contains(strings.ReplaceAll(x.output(), "\x1b]", ""), "\x07\x07") || rings(x.output()) > 0 {
		t.Error("it rings although the terminal has the focus")
	}
	x.press("Again", "enter", "blur")
	deadline := time.Now().Add(patience)
	for rings(x.output()) == 0 {
		if time.Now().After(deadline) {
			t.Fatal("it does not ring")
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// rings counts the BELs that do not end another sequence.
func rings(output string) (n int) {
	inside := false
	for i := range len(output) {
		switch {
		case output[i] == '\x1b' && i+1 < len(output) && output[i+1] == ']':
			inside = true
		case output[i] == '\x07' && !inside:
			n++
		case output[i] == '\x07', output[i] == '\x1b':
			inside = false
		}
	}
	return n
}

// The server is away when the client starts. It appears later.
func TestServerComesLater(t *testing.T) {
	t.Parallel()
	k := startKillable(t)
	k.kill(t)
	x := start(t, 80, 20, nil, "--server", k.url)
	x.wait("next attempt in", "no answer from")
	x.golden("away-80")
	k.start(t)
	x.wait("● connected")
}
