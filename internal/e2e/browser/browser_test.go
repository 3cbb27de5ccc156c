package browser_test

import (
	"context"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
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
