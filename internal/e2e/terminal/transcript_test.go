//go:build unix

package terminal_test

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"loquat"
	"loquat/internal/e2e/binary"
)

// firstReply is a reply with the usual parts of Markdown.
var firstReply = script{"text": "# A loquat\n\nis a **fruit** of a tree. It has\n\n- a stone\n- a skin\n\n```go\nfmt.Println(\"loquat\")\n```\n"}

func TestSendAndReply(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.session(t, "one", "A first chat", firstReply)
	x := s.chat(t, 80, 24, "one")
	x.golden("empty-80")
	x.press("What is a loquat?")
	x.wait("What is")
	x.golden("typed-80")
	x.press("enter")
	x.wait("fmt.Println", "tokens")
	x.golden("reply-80")
	x.resize(60, 16)
	x.golden("reply-60")
	x.resize(200, 40)
	x.golden("reply-200")
	x.resize(50, 16)
	x.golden("too-small")
}

// A new chat gets its session with the first message, and its title from it.
func TestNewChat(t *testing.T) {
	t.Parallel()
	s := serve(t)
	x := s.chat(t, 80, 24, "")
	x.golden("new-80")
	x.press("Good morning", "enter")
	x.wait("scripted backend", "tokens", "Good morning  ")
	x.press("ctrl+n", "Another one")
	x.wait("A new chat", "Another one")
	x.press("enter")
	x.wait("Another one   ", "tokens")
	list, err := s.Sessions(t.Context(), loquat.SessionQuery{})
	if err != nil || len(list.Sessions) != 2 {
		t.Fatalf("the server has %d sessions, want 2 (%v)", len(list.Sessions), err)
	}
}

func TestStreaming(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.session(t, "stream", "Streams", script{"reasoning": "First I think about the stone, then about the skin.", "text": "The first paragraph has **bold** words.\n\nThe second one is not complete, and goes on and on", "stall_after": 22})
	x := s.chat(t, 80, 20, "stream")
	x.press("Go", "enter")
	x.wait("not complete", "writing")
	x.golden("streaming-80")
	x.resize(60, 20)
	x.golden("streaming-60")
	x.resize(200, 30)
	x.golden("streaming-200")
	x.resize(80, 20)
	x.press("ctrl+t")
	x.wait("First I think")
	x.golden("reasoning-open-80")
	x.press("\x1b") // as most terminals send Esc
	x.wait("was cancelled")
	x.golden("stopped-80")
}

func TestThinkingAndWaiting(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.session(t, "think", "Thinks", script{"reasoning": "I think and think and think", "text": "never", "stall_after": 4})
	s.session(t, "wait", "Waits", script{"delay_ms": 600_000})
	x := s.chat(t, 80, 16, "think")
	x.press("Go", "enter")
	x.wait("Thinking", "thinking")
	x.golden("thinking-80")
	y := s.chat(t, 80, 16, "wait")
	y.press("Go", "enter")
	y.wait("waiting for the model")
	y.golden("waiting-80")
}

// toolServer has a plugin with tools and elements.
func toolServer(t *testing.T) server {
	t.Helper()
	dir, err := filepath.Abs("testdata/plugin")
	if err != nil {
		t.Fatal(err)
	}
	s := serveConfig(t, `, "plugins": ["loquat.providers.reference_generic_compatible", "loquat.features.request_options", "loquat.features.compact_range", "path:`+dir+`"]`)
	binary.Eventually(t, "the plugins", func() bool { // one that runs a tool answers nothing else
		list, err := s.Plugins(t.Context())
		return err == nil && !slices.ContainsFunc(list, func(p loquat.Plugin) bool { return p.State != "running" })
	})
	return s
}

func call(name, arguments string) map[string]any {
	return map[string]any{"id": "call_" + name, "name": name, "arguments": arguments}
}

func TestTools(t *testing.T) {
	t.Parallel()
	s := toolServer(t)
	s.session(t, "tools", "Tools", script{"text": "I ask the tools.", "tool_calls": []any{call("count", `{"steps": 14}`), call("fail", `{"why":"a test"}`)}})
	x := s.chat(t, 80, 30, "tools")
	x.press("Use them", "enter")
	x.wait("closing reply", "written by", "tokens")
	x.golden("tools-80")
	x.press("tab", "up", "up")
	x.wait("▌ ✓ count")
	x.press("o")
	x.wait("counted 14")
	x.golden("tool-open-80")
	x.press("esc")
	x.resize(60, 30)
	x.press("ctrl+end")
	x.golden("tools-60")
}

func TestLiveTool(t *testing.T) {
	t.Parallel()
	s := toolServer(t)
	s.session(t, "live", "Live", script{"tool_calls": []any{call("wait", `{"steps": 9}`)}})
	x := s.chat(t, 80, 20, "live")
	x.press("Use it", "enter")
	x.wait("step 9", "running tools")
	x.golden("tool-live-80")
}

func TestFailures(t *testing.T) {
	t.Parallel()
	s := serveConfig(t, `, "retry_on_status": {"503": [600]}`)
	s.session(t, "fails", "Fails", script{"status": 400, "body": map[string]any{"error": map[string]any{"message": "the model is broken \x1b[2J"}}})
	s.session(t, "again", "Again", script{"status": 503})
	x := s.chat(t, 80, 16, "fails")
	x.press("Go", "enter")
	x.wait("The reply failed", "Ctrl-R")
	x.golden("failure-80")
	y := s.chat(t, 60, 16, "again")
	y.press("Go", "enter")
	y.wait("attempt 2 in")
	y.until("a countdown", func(screen string) bool { return regexp.MustCompile(`in 59\d s`).MatchString(screen) })
	y.golden("retry-60")
	// The error is there again after a restart of the client, and Ctrl-R asks again.
	z := s.chat(t, 80, 16, "fails")
	z.wait("The reply failed")
	if _, err := s.UpdateSession(t.Context(), "fails", loquat.SessionPatch{Metadata: loquat.Object{}.Set("overrides", map[string]any{"request_options": map[string]any{"loquat_script": script{"text": "Now it works.", "status": nil}}})}); err != nil {
		t.Fatal(err)
	}
	z.press("ctrl+r")
	z.wait("Now it works.")
	z.gone("The reply failed")
	x.wait("Now it works.")
}

func TestImages(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.session(t, "images", "Images", nil,
		loquat.NewMessage{Role: loquat.RoleUser, Content: "Look", Metadata: loquat.Object{}.Set("attachments", []any{
			map[string]string{"type": "image", "url": "https://example.org/a.png"},
			map[string]string{"type": "image", "data_url": "data:image/png;base64," + onePixel}})},
		reply("Here is one: ![a tree](https://example.org/tree.png) and [a link](https://example.org/page)."))
	x := s.chat(t, 80, 16, "images")
	x.wait("tree.png")
	x.golden("images-80")
	if !strings.Contains(x.output(), "https://example.org/page") {
		t.Error("the link has no address")
	}
}

const onePixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

func TestLongSession(t *testing.T) {
	t.Parallel()
	s := serve(t)
	create := loquat.NewSession{SessionID: "long", Metadata: loquat.Object{}.Set("title", "Ten thousand messages")}
	for i := range 5000 {
		create.Messages = append(create.Messages, user(fmt.Sprintf("question %d", i+1)), reply(fmt.Sprintf("answer %d has **two** lines\n\nhere is the second", i+1)))
	}
	if _, err := s.CreateSession(t.Context(), create); err != nil {
		t.Fatal(err)
	}
	x := s.chat(t, 80, 20, "long")
	x.wait("answer 5000")
	x.golden("long-end-80")
	x.press("ctrl+home")
	x.wait("question 1\n")
	x.gone("loading message")
	x.golden("long-home-80")
	for range 40 { // through pages that are not loaded yet
		x.page("pgdown")
	}
	x.golden("long-middle-80")
	x.press("ctrl+end")
	x.wait("answer 5000")
	for range 24 {
		x.page("pgup")
	}
	x.golden("long-above-80")
}

// hostile sets the title of a terminal, clears its screen, writes to its clipboard and turns the
// text around.
const hostile = "\x1b]0;owned\x07\x1b[2J\x1b]52;c;b3duZWQ=\x07\u009b31m\u202eDETACER\u2066 &#27;[31m&#x9b;2J"

// foreign finds the sequences that texts of others would have, if they came through.
var foreign = regexp.MustCompile("\x1b\\]0;owned|\x1b\\]52;|\u009b|\u202e|\u2066|\x1b\\]2;[^\x07]*\x1b")

func TestHostileTexts(t *testing.T) {
	t.Parallel()
	s := toolServer(t)
	s.session(t, "evil", "Evil "+hostile, script{"reasoning": hostile, "text": "The reply " + hostile + "\n\n```\n" + hostile + "\n```\n", "tool_calls": []any{call("evil", `{"a":"`+"\u202e"+`"}`)}},
		loquat.NewMessage{Role: loquat.RoleUser, Content: "A question " + hostile}, reply("An answer "+hostile))
	x := s.chat(t, 80, 40, "evil")
	x.wait("A question")
	x.press("Go", "enter")
	x.wait("closing reply", "tokens")
	x.press("ctrl+t")
	x.wait("▾ Reasoning")
	x.golden("hostile-80")
	x.press("ctrl+l", "d")
	x.wait("Delete the chat")
	x.golden("hostile-dialog-80")
	x.press("n", "esc", "ctrl+k", "Break")
	x.wait("Break")
	x.press("enter")
	x.wait("broken")
	x.golden("hostile-error-80")
	if got := foreign.FindString(x.output()); got != "" {
		t.Errorf("the terminal got %q", got)
	}
}

func TestWideTexts(t *testing.T) {
	t.Parallel()
	s := serve(t)
	wide := "漢字かな交じり文は一行に収まらないので折り返されます。絵文字👩\u200d🚀も🇳🇴も👍🏽も。"
	s.session(t, "wide", "漢字の題名 e\u0301a\u0300o\u0308 👩\u200d🚀 "+wide, nil, user(wide), reply("| 語 | 意味 |\n|---|---|\n| 枇杷 | loquat |\n| e\u0301 | é |\n\n"+wide+"\n\ncombining: e\u0301a\u0300o\u0308n\u0303 "+strings.Repeat("y\u0306", 70)))
	x := s.chat(t, 60, 30, "wide")
	x.wait("枇杷")
	x.golden("wide-60")
	x.press("漢字を書く", "alt+enter", "二行目 👍🏽")
	x.wait("二行目")
	x.golden("wide-typed-60")
	x.resize(200, 24)
	x.golden("wide-200")
}

func TestThemes(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.session(t, "look", "Looks", nil, user("Show"), reply("# Title\n\nSome **bold** text with `code`.\n\n```go\nfunc main() {}\n```\n\n> a quote"))
	styles := map[string]string{}
	for _, theme := range []string{"dark", "light", "none"} {
		x := s.chat(t, 80, 20, "look", "--theme", theme)
		x.wait("a quote")
		x.golden("theme-" + theme + "-80")
		styles[theme] = x.output()
	}
	color := regexp.MustCompile("\x1b\\[[0-9;]*(?:3[0-9]|4[0-9]|9[0-7])(?:;[0-9;]*)?m")
	if got := color.FindString(styles["none"]); got != "" {
		t.Errorf("without colours the terminal got %q", got)
	}
	for _, theme := range []string{"dark", "light"} {
		if !color.MatchString(styles[theme]) {
			t.Errorf("the theme %s has no colours", theme)
		}
	}
	if blue := regexp.MustCompile(`38;5;25[m;]`); !blue.MatchString(styles["light"]) || blue.MatchString(styles["dark"]) {
		t.Error("the themes have the same colours")
	}
	y := start(t, 80, 20, []string{"NO_COLOR=1"}, "--server", s.url, "--session", "look")
	y.wait("a quote", "● connected")
	y.golden("theme-none-80")
	if got := color.FindString(y.output()); got != "" {
		t.Errorf("with NO_COLOR the terminal got %q", got)
	}
	z := s.chat(t, 80, 20, "look")
	z.press("ctrl+k", "theme", "enter")
	z.wait("light")
	z.golden("theme-picker-80")
}

// A dumb terminal, and --plain, get the lines of the plain conversation.
func TestPlainConversation(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for name, x := range map[string]*terminal{
		"plain": start(t, 80, 24, nil, "--server", s.url, "--plain"),
		"dumb":  start(t, 80, 24, []string{"TERM=dumb"}, "--server", s.url),
	} {
		x.wait(">")
		x.press("Hello\r")
		x.wait("scripted backend", "completed")
		if strings.Contains(x.output(), "\x1b[?1049h") {
			t.Errorf("%s takes the whole screen", name)
		}
		x.press("/quit\r")
		<-x.done
	}
}
