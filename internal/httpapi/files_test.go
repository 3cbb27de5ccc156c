package httpapi_test

import (
	"strings"
	"testing"
	"testing/fstest"

	"loquat"
	"loquat/internal/httpapi"
)

// Files in folders are served with the headers of the page, and the document does not list
// them.
func TestFilesInFolders(t *testing.T) {
	r := newRigWith(t, func(opts *httpapi.Options) {
		opts.Web = fstest.MapFS{
			"index.html":          {Data: []byte("<p>page")},
			"static/app.css":      {Data: []byte("p {}")},
			"static/js/deep/a.js": {Data: []byte("1")},
		}
	})
	if document := string(r.do("GET", "/openapi.json", "").want(t, 200).body); strings.Contains(document, "/static/") {
		t.Error("the document lists files")
	}
	for path, media := range map[string]string{
		"/": "text/html; charset=utf-8", "/static/app.css": "text/css; charset=utf-8", "/static/js/deep/a.js": "text/javascript; charset=utf-8",
	} {
		got := r.do("GET", path, "").want(t, 200)
		h := got.Header
		if h.Get("Content-Type") != media || h.Get("Cache-Control") != "no-cache" || h.Get("Content-Security-Policy") != httpapi.FilePolicy || h.Get("ETag") == "" {
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
	metrics := r.do("GET", "/metrics", "").want(t, 200).body
	if want := `loquat_http_answers_total{method="GET",route="/static/app.css",status="200"} 1`; !strings.Contains(string(metrics), want) {
		t.Errorf("metrics lack %s", want)
	}
}

// A file of an unknown media type keeps the server from starting.
func TestFileOfUnknownMediaType(t *testing.T) {
	newRigWith(t, func(opts *httpapi.Options) {
		more := *opts
		more.Web = fstest.MapFS{"index.html": {}, "static/a.exe": {}}
		if _, err := httpapi.New(more); err == nil || !strings.Contains(err.Error(), "static/a.exe") {
			t.Errorf("New returns %v", err)
		}
	})
}
