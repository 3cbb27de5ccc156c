package browser_test

import (
	"testing"

	"github.com/chromedp/chromedp"

	"loquat/internal/backend"
	"loquat/internal/e2e/binary"
)

// The page of the API shows in a browser within its policy, its contents lead to the
// operations, and it fits a phone.
func TestBrowserDocs(t *testing.T) {
	b := newBrowser(t)
	url, _ := binary.ServerAt(t, `{"providers": {"main": {"provider": "reference_generic_compatible", "model": "demo", "base_url": "`+
		binary.ScriptedBackend(t, backend.Options{})+`/v1"}}}`)
	p := b.open(t, url+"/docs")
	p.run(chromedp.EmulateViewport(1200, 800))
	p.until("the style is applied", `getComputedStyle(document.body).display === "grid"`)
	p.press(`nav a[href="#send"]`)
	const inView = `((r) => r.top >= 0 && r.top < innerHeight)(document.querySelector(location.hash).getBoundingClientRect())`
	p.until("the contents lead to an operation", `location.hash === "#send" && `+inView)
	p.press(`#send a[href="#schema-Send"]`)
	p.until("an operation leads to its schemas", `location.hash === "#schema-Send" && `+inView)
	p.run(chromedp.EmulateViewport(360, 740, chromedp.EmulateMobile))
	p.until("the page fits a phone's width", `document.documentElement.scrollWidth <= 360`)
	p.calm()
}
