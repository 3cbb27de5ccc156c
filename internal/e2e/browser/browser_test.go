package browser_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"loquat/internal/backend"
	"loquat/internal/e2e/binary"
)

// browser is Chromium without a window. Each page has a window of its own: one behind
// another would not be drawn.
type browser struct{ ctx context.Context }

// newBrowser starts the browser, or skips the test where there is none.
func newBrowser(t *testing.T) *browser {
	t.Helper()
	if testing.Short() {
		t.Skip("a browser takes its time")
	}
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		t.Skip("no Chromium on this machine: the page is not looked at in a browser")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox,
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.WSURLReadTimeout(time.Minute))
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	ctx, cancelAllocator := chromedp.NewExecAllocator(ctx, options...)
	ctx, cancelBrowser := chromedp.NewContext(ctx)
	t.Cleanup(func() {
		_ = chromedp.Cancel(ctx) // and waits until the process has ended
		cancelBrowser()
		cancelAllocator()
		cancel()
	})
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("%s does not start: %v", path, err)
	}
	return &browser{ctx}
}

// page is one window with the page at url in it.
type page struct {
	t   *testing.T
	ctx context.Context

	mu     sync.Mutex
	faults []string // what its console complained about
}

// open opens a window that shares no cookie with others.
func (b *browser) open(t *testing.T, url string) *page {
	t.Helper()
	ctx, cancel := chromedp.NewContext(b.ctx, chromedp.WithNewBrowserContext())
	t.Cleanup(cancel)
	p := &page{t: t, ctx: ctx}
	err := chromedp.Listen(ctx, func(ev any) {
		switch e := ev.(type) {
		case *runtime.EventExceptionThrown:
			text := e.ExceptionDetails.Text
			if e.ExceptionDetails.Exception != nil {
				text += " " + e.ExceptionDetails.Exception.Description
			}
			p.complain(text)
		case *log.EventEntryAdded:
			if e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning {
				p.complain(e.Entry.Text + " " + e.Entry.URL)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	p.run(chromedp.Navigate(url))
	return p
}

func (p *page) complain(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = append(p.faults, text)
}

// calm fails the test for what the console complained about, unless it holds one of
// the words expected, and forgets it.
func (p *page) calm(expected ...string) {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, fault := range p.faults {
		known := false
		for _, word := range expected {
			known = known || strings.Contains(fault, word)
		}
		if !known {
			p.t.Errorf("the browser complains: %s", fault)
		}
	}
	p.faults = nil
}

func (p *page) run(steps ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	if err := chromedp.Do(p.ctx, steps...); err != nil {
		p.t.Fatal(err)
	}
}

// until waits for an expression of the page to be true.
func (p *page) until(what, expression string) {
	p.t.Helper()
	for end := time.Now().Add(40 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		// While a page is replaced by the next there is nothing to ask.
		if holds, err := chromedp.Run(p.ctx, chromedp.Evaluate[bool]("Boolean("+expression+")")); err == nil && holds {
			return
		}
	}
	text, _ := chromedp.Run(p.ctx, chromedp.Evaluate[string]("document.body.innerText"))
	p.t.Fatalf("never: %s. The page says:\n%s", what, text)
}

// press clicks what a user would: a button that can be seen.
func (p *page) press(selector string) {
	p.t.Helper()
	p.run(chromedp.Click(chromedp.CSS(selector), chromedp.NodeVisible))
}

func (p *page) typeInto(selector, text string) {
	p.t.Helper()
	p.run(chromedp.SendKeys(chromedp.CSS(selector), text, chromedp.NodeVisible))
}

// texts are the texts of what matches a selector.
func (p *page) texts(selector string) []string {
	p.t.Helper()
	texts, err := chromedp.Run(p.ctx, chromedp.Evaluate[[]string](fmt.Sprintf("Array.from(document.querySelectorAll(%q), (e) => e.textContent)", selector)))
	if err != nil {
		p.t.Fatal(err)
	}
	return texts
}

// last is the last message that is shown; streamed is what the backend's script says.
const (
	last     = `document.querySelector("#transcript > li:last-of-type .text")?.textContent`
	live     = `document.querySelector("#state").dataset.state === "live"`
	streamed = "one two three"
	token    = "a-token-for-the-browser-alone"
)

// A user signs in, sends, stops, loads again in the middle, has two windows, sees the
// server die and come back, and signs out: nothing is lost, and nothing is there twice.
func TestBrowser(t *testing.T) {
	b := newBrowser(t)
	// Each answer ends in silence, so that what comes next happens in the middle of it.
	script := fmt.Sprintf(`{"text": %q, "chunks": 3, "stall_after": 4}`, streamed)
	config := filepath.Join(t.TempDir(), "loquat.json")
	if err := os.WriteFile(config, fmt.Appendf(nil, `{
		"providers": {"main": {"provider": "reference_generic_compatible", "model": "demo", "base_url": "%s/v1"}},
		"server": {"auth_tokens": [{"name": "me", "token": %q, "scope": "full"}]}}`,
		binary.ScriptedBackend(t, backend.Options{Script: json.RawMessage(script)}), token), 0o600); err != nil {
		t.Fatal(err)
	}
	data := t.TempDir()
	server := binary.Start(t, nil, "serve", "--config", config, "--data", data, "--listen", "127.0.0.1:0")
	listen := strings.TrimPrefix(server.URL, "http://")

	p := b.open(t, server.URL)
	p.signIn()
	p.calm("401")

	p.typeInto("#content", "first"+kb.Enter)
	p.until("the answer streams", last+` === "one two three"`)
	p.press("#stop")
	p.until("it was stopped", `document.querySelector("#stop").hidden && document.body.innerText.includes("Ends early: cancelled")`)
	p.until("the keyboard is at the message box", `document.activeElement.id === "content"`)

	p.typeInto("#content", "second"+kb.Enter)
	p.until("the second answer streams", `document.querySelectorAll("#transcript > li").length === 4 && `+last+` === "one two three"`)
	p.run(chromedp.Reload())
	p.until("the answer is there again", last+` === "one two three" && !document.querySelector("#stop").hidden`)
	address, err := chromedp.Run(p.ctx, chromedp.Location())
	if err != nil {
		t.Fatal(err)
	}
	other := b.open(t, address)
	other.signIn()
	other.until("the other window shows it", `document.querySelectorAll("#transcript > li").length === 4 && `+last+` === "one two three"`)
	other.calm("401")
	p.calm()

	_ = server.Cmd.Process.Kill()
	_ = server.Cmd.Wait()
	p.until("the line is lost", `!(`+live+`)`)
	p.typeInto("#content", "third"+kb.Enter)
	p.until("it says so", `document.querySelector("#notice").textContent.includes("cannot be reached")`)
	binary.Start(t, nil, "serve", "--config", config, "--data", data, "--listen", listen)
	want := []string{"first", streamed, "second", streamed}
	for _, window := range []*page{p, other} {
		window.until("the line is back, and the answer has its end",
			live+` && document.querySelector("#stop").hidden && document.body.innerText.includes("Ends early: interrupted")`)
		if got := window.texts("#transcript .text"); !reflect.DeepEqual(got, want) {
			t.Errorf("after the crash %q is shown, want %q", got, want)
		}
		window.calm("net::ERR", "Failed to load resource")
	}
	p.until("what was not sent is kept", `document.querySelector("#content").value.trim() === "third"`)

	p.press("#sign-out")
	p.until("the token is asked for again", `document.querySelector("dialog[open] #token") && !document.querySelector("#transcript .text")`)
	p.calm("401")
}

func (p *page) signIn() {
	p.t.Helper()
	p.until("the token is asked for", `document.activeElement.id === "token"`)
	p.typeInto("#token", "wrong"+kb.Enter)
	p.until("a wrong token is refused", `document.querySelector("dialog .fault").textContent.includes("not known")`)
	p.run(chromedp.Evaluate[chromedp.Void](`document.querySelector("#token").select()`)) // typing takes its place
	p.typeInto("#token", token+kb.Enter)
	p.until("the user is in", live+` && !document.querySelector("dialog[open]") && !document.querySelector("#sign-out").hidden`)
}

// The page shows the elements of plugins in their places, and always as text. An action with
// a dialog can be run with the keyboard alone, and an image can be sent with a message.
func TestBrowserElements(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("there is no python3 here")
	}
	b := newBrowser(t)
	s := newShowcase(t)
	const attack = `<img src=x onerror="document.title='broken'"><script>document.title='broken'</script>`
	s.call("PATCH", "/sessions/show", string(binary.MustJSON(t, map[string]any{"metadata": map[string]any{"title": attack}})))
	s.call("POST", "/sessions/show/messages", string(binary.MustJSON(t, map[string]any{"role": "assistant", "content": attack,
		"metadata": map[string]any{"usage": attack, "reasoning": attack, "tool_calls": []any{map[string]any{"id": "1", "function": map[string]any{"name": attack, "arguments": attack}}}}})))

	p := b.open(t, s.url+"/#show")
	p.until("the session", live+` && document.querySelectorAll("#transcript > li").length === 3 && document.querySelectorAll("#actions button").length >= 3`)
	p.until("texts are texts", `document.querySelector("#title").textContent === `+string(binary.MustJSON(t, attack))+` && document.title === "Loquat" && !document.querySelector("#transcript img, main script")`)
	p.until("footer, status, model and field", `["#transcript .footer span", "#status", "#model select", "#sessions .quiet", "#attach button"].every((s) => document.querySelector(s)?.textContent)`)

	p.press("#open-settings")
	p.until("each kind of setting", `["text", "multiline", "checkbox", "select", "dropdown", "number"].every((k) => document.querySelector("dialog[open] [data-key=setting_" + k + "]"))`)
	p.run(chromedp.KeyEvent(kb.Escape))
	p.until("settings are closed", `!document.querySelector("dialog[open]")`)

	p.run(chromedp.Evaluate[chromedp.Void](`Array.from(document.querySelectorAll("#actions button")).find((b) => b.textContent === "session_action").focus()`), chromedp.KeyEvent(kb.Enter))
	p.until("the dialog", `document.querySelector("dialog[open] input") === document.activeElement`)
	p.run(chromedp.KeyEvent("word" + kb.Enter))
	p.until("the action ran", `!document.querySelector("dialog[open]") && document.querySelector("#notice").textContent === "session_action: done."`)

	image, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(dot, "data:image/gif;base64,"))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "dot.gif")
	if err := os.WriteFile(file, image, 0o600); err != nil {
		t.Fatal(err)
	}
	p.run(chromedp.SetUploadFiles(chromedp.CSS("#attach input[type=file]"), []string{file}))
	p.until("the image is attached", `document.querySelector("#attachments").textContent.includes("dot.gif")`)
	p.typeInto("#content", "look"+kb.Enter)
	p.until("the image is shown", `document.querySelector("#transcript li.user img")?.naturalWidth === 1`)
	p.until("the answer is complete", `document.querySelector("#stop").hidden && `+last+`?.includes("scripted backend")`)

	p.run(chromedp.EmulateViewport(360, 740, chromedp.EmulateMobile))
	p.until("all fits a phone's width", `!Array.from(document.querySelectorAll("body *")).some((e) => !e.closest("nav ul") && e.checkVisibility() && e.getBoundingClientRect().right > 360)`)
	p.until("every control has a name", `Array.from(document.querySelectorAll("button, select, textarea, input:not([hidden])")).every((e) => e.textContent.trim() || e.labels?.length)`)
	p.calm()
}

// Where a reply has no text, or ends early, the page says why instead of showing an empty bubble.
func TestBrowserEndings(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("there is no python3 here")
	}
	b := newBrowser(t)
	s := newShowcase(t)
	for _, metadata := range []map[string]any{{"refusal": "I <b>cannot</b>."}, {"finish_reason": "length", "reasoning": "first", "reasoning_content": "second"}, {}} {
		s.call("POST", "/sessions/show/messages", string(binary.MustJSON(t, map[string]any{"role": "assistant", "content": "", "metadata": metadata})))
	}
	p := b.open(t, s.url+"/#show")
	p.until("the session", live+` && document.querySelectorAll("#transcript > li").length === 5`)
	for i, want := range map[int]string{
		3: "The model refused: I <b>cannot</b>.",
		4: "The reply was cut at the token limit (finish_reason length).|The reply has no text.",
		5: "The reply has no text.",
	} {
		p.until(want, fmt.Sprintf(`Array.from(document.querySelectorAll("#transcript > li:nth-of-type(%d) .remark"), (e) => e.textContent).join("|") === %s`, i, binary.MustJSON(t, want)))
	}
	p.until("no bubble is empty", `Array.from(document.querySelectorAll("#transcript .text")).every((e) => e.textContent)`)
	p.until("both kinds of reasoning", `document.querySelector("#transcript > li:nth-of-type(4) details").textContent.includes("second\n\nfirst")`)
	p.calm()
}
