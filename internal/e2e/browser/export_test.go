package browser_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"loquat"
	"loquat/internal/archive"
	"loquat/internal/archive/archivetest"
	"loquat/internal/transcript"
)

// An exported page runs nothing and loads nothing, whatever the session has in it, when it is
// opened as a file and from a server that adds no policy.
func TestBrowserExport(t *testing.T) {
	var loaded atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		loaded.Add(1)
		w.Header().Set("Content-Type", "text/javascript")
		_, _ = w.Write([]byte("window.ran = true"))
	}))
	t.Cleanup(server.Close)
	payloads := []string{
		`<script>window.ran = true</script>`, `</div></article><script src="` + server.URL + `/a.js"></script>`, `<img src="` + server.URL + `/x.png" onerror="window.ran = true">`,
		`<svg onload="window.ran = true"></svg>`, `"><iframe src="` + server.URL + `"></iframe>`, `</style><script>window.ran = true</script>`, `</title><script>window.ran = true</script>`,
		"```\n</pre><script>window.ran = true</script>\n```", `<a href="javascript:window.ran=true" id="x">click</a>`, `<link rel="stylesheet" href="` + server.URL + `/a.css">`,
		`<meta http-equiv="refresh" content="0;url=` + server.URL + `">`, `<base href="` + server.URL + `">`, `<form action="` + server.URL + `"><input autofocus onfocus="window.ran=true">`,
		`<!--`, `--!><script>window.ran = true</script>`, "<\x00script>window.ran = true</script>", `<details open ontoggle="window.ran = true">`, `<style>@import "` + server.URL + `/a.css"</style>`,
	}
	image := archivetest.Image(5)
	image.AssetID, image.Name = "a", payloads[4]
	s := archive.Session{SessionID: "hostile", AgentID: payloads[1], Metadata: loquat.Object{}.Set("title", strings.Join(payloads, " ")), Images: []archive.Image{image}}
	for _, text := range payloads {
		attached := []loquat.Object{loquat.Object{}.Set("type", "image").Set("asset_id", "a"), loquat.Object{}.Set("url", server.URL+"/"+text), loquat.Object{}.Set("data_url", "data:image/png;base64,"+text), loquat.Object{}.Set("data_url", "data:text/html;base64,PHNjcmlwdD4=")}
		metadata := loquat.Object{}.Set("model", text).Set("reasoning", text).Set("tool_name", text).Set("incomplete", text).Set("tool_calls", []loquat.ToolCall{{Name: text, Arguments: text}}).Set("attachments", attached)
		for _, role := range []string{"user", "assistant", "tool", text} {
			s.Messages = append(s.Messages, loquat.Message{Role: role, Content: text, Metadata: metadata})
		}
	}
	path := filepath.Join(t.TempDir(), "export.html")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := transcript.WriteHTML(f, s); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	plain := httptest.NewServer(http.FileServer(http.Dir(filepath.Dir(path))))
	t.Cleanup(plain.Close)
	b := newBrowser(t)
	for _, url := range []string{"file://" + path, plain.URL + "/export.html"} {
		p := b.open(t, url)
		p.until("the page is there", `document.readyState === "complete" && document.querySelectorAll("article").length === `+strconv.Itoa(len(s.Messages)))
		p.until("the images are shown", `Array.from(document.images).every((i) => i.naturalWidth === 3) && document.images.length === `+strconv.Itoa(len(s.Messages)))
		p.until("the style applies", `getComputedStyle(document.querySelector("article")).borderLeftWidth === "4px"`)
		p.until("nothing ran and the page has only its own elements", `window.ran === undefined && document.querySelectorAll("script,iframe,svg,a,link,base,form,input,object,embed").length === 0 && document.querySelectorAll("style").length === 1`)
		p.until("texts are shown as they are", `Array.from(document.querySelectorAll("article > div")).some((e) => e.textContent.includes("onerror="))`)
		p.calm()
	}
	if n := loaded.Load(); n > 0 {
		t.Errorf("the page loaded %d files of another server", n)
	}
}
