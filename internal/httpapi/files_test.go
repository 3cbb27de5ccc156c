package httpapi

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"

	"loquat"
	"loquat/internal/httpapi/route"
)

// Files in folders are served with the headers of the page, and the document does not list
// them.
func TestFilesInFolders(t *testing.T) {
	r := newRig(t)
	document := r.do("GET", "/openapi.json", "").body
	files, err := r.api.files(fstest.MapFS{
		"index.html":          {Data: []byte("<p>page")},
		"static/app.css":      {Data: []byte("p {}")},
		"static/js/deep/a.js": {Data: []byte("1")},
	}, document)
	if err != nil {
		t.Fatal(err)
	}
	table := r.api.table.Options
	table.Files = files
	r.api.table = route.NewTable(table)
	for path, media := range map[string]string{
		"/": "text/html; charset=utf-8", "/static/app.css": "text/css; charset=utf-8", "/static/js/deep/a.js": "text/javascript; charset=utf-8",
	} {
		got := r.do("GET", path, "").want(t, 200)
		h := got.Header
		if h.Get("Content-Type") != media || h.Get("Cache-Control") != "no-cache" || h.Get("Content-Security-Policy") != filePolicy || h.Get("ETag") == "" {
			t.Errorf("%s: %v", path, h)
		}
		r.do("GET", path, "", "If-None-Match: "+h.Get("ETag")).wantNothing(t, 304)
		r.do("HEAD", path, "").wantNothing(t, 200)
		r.do("POST", path, "{}").wantProblem(t, 405, loquat.CodeMethodNotAllowed)
	}
	for _, path := range []string{"/static", "/static/js", "/index.html", "/static/app.CSS", "/static/none.css"} {
		r.do("GET", path, "").wantProblem(t, 404, loquat.CodeNotFound)
	}
	if p := r.do("GET", "/static/app.css/", "").wantProblem(t, 404, loquat.CodeNotFound); !strings.Contains(p.Detail, `use "/static/app.css"`) {
		t.Errorf("a slash too many: %s", p.Detail)
	}
	w := httptest.NewRecorder()
	q := httptest.NewRequest(http.MethodGet, r.server.URL+"/metrics", nil)
	r.api.metrics.handler.ServeHTTP(w, q)
	if want := `loquat_http_answers_total{method="GET",route="/static/app.css",status="200"} 1`; !strings.Contains(w.Body.String(), want) {
		t.Errorf("metrics lack %s", want)
	}
	if _, err := r.api.files(fstest.MapFS{"static/a.exe": {}}, document); err == nil || !strings.Contains(err.Error(), "static/a.exe") {
		t.Errorf("an unknown media type: %v", err)
	}
}
