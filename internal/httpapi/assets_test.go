package httpapi_test

import (
	"bytes"
	"image"
	"image/png"
	"io"
	"math/rand/v2"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"strings"
	"testing"

	"loquat"
)

// noise is a PNG that does not compress, of about n bytes.
func noise(t *testing.T, seed uint64, n int) []byte {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 1))
	img := image.NewGray(image.Rect(0, 0, 100, max(1, n/100)))
	for i := range img.Pix {
		img.Pix[i] = byte(r.Uint32())
	}
	var b bytes.Buffer
	if err := png.Encode(&b, img); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// form is a body with one or more fields.
func form(t *testing.T, mediaType, content string, fields ...string) (body, contentType string) {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	for _, name := range fields {
		h := textproto.MIMEHeader{}
		h.Set("Content-Disposition", `form-data; name="`+name+`"; filename="dir/cat \"ä\".png"`)
		h.Set("Content-Type", mediaType)
		part, err := w.CreatePart(h)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(part, content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String(), "Content-Type: " + w.FormDataContentType()
}

func TestAssets(t *testing.T) {
	r := newRig(t)
	r.do("POST", "/sessions", `{"session_id":"s"}`).want(t, 201)
	content := noise(t, 1, 200000) // more than other bodies may have
	created := r.do("POST", "/sessions/s/assets?name=K%C3%A4fer.png", string(content), "Content-Type: image/png").want(t, 201)
	id := created.field(t, "asset_id")
	path := "/sessions/s/assets/" + id
	if created.Header.Get("Location") != path || created.field(t, "media_type") != "image/png" || created.field(t, "name") != "Käfer.png" {
		t.Errorf("created %s at %s", created.body, created.Header.Get("Location"))
	}
	got := r.do("GET", path, "").want(t, 200)
	if !bytes.Equal(got.body, content) {
		t.Error("what is loaded differs from what was uploaded")
	}
	for name, want := range map[string]string{
		"Content-Type": "image/png", "X-Content-Type-Options": "nosniff", "Content-Security-Policy": "sandbox; default-src 'none'",
		"Content-Disposition": "inline; filename*=utf-8''K%C3%A4fer.png", "Cache-Control": "private, max-age=31536000, immutable",
		"Etag": `"` + created.field(t, "sha256") + `"`, "Accept-Ranges": "bytes",
	} {
		if got.Header.Get(name) != want {
			t.Errorf("%s is %q, want %q", name, got.Header.Get(name), want)
		}
	}
	if part := r.do("GET", path, "", "Range: bytes=10-19").want(t, 206); !bytes.Equal(part.body, content[10:20]) {
		t.Errorf("bytes 10 to 19 are %x", part.body)
	}
	r.do("GET", path, "", "Range: bytes=999999-").wantProblem(t, 416, loquat.CodeInvalid)
	r.do("GET", path, "", "If-None-Match: "+got.Header.Get("ETag")).want(t, 304)
	r.do("GET", path, "", `If-Match: "x"`).wantProblem(t, 412, loquat.CodePreconditionFailed)
	if head := r.do("HEAD", path, "").want(t, 200); head.ContentLength != int64(len(content)) || len(head.body) > 0 {
		t.Errorf("HEAD tells of %d bytes", head.ContentLength)
	}
	r.do("GET", "/sessions/s/assets/none", "").wantProblem(t, 404, loquat.CodeNotFound)
	r.do("POST", "/sessions", `{"session_id":"other"}`).want(t, 201)
	r.do("GET", "/sessions/other/assets/"+id, "").wantProblem(t, 404, loquat.CodeNotFound)

	attached := `{"role":"user","content":"","attachments":[{"type":"image","asset_id":"` + id + `"}]}`
	r.do("POST", "/sessions/other/messages", attached).wantProblem(t, 422, loquat.CodeInvalid)
	r.do("POST", "/sessions/s/messages", attached).want(t, 201)
	if p := r.do("DELETE", path, "").wantProblem(t, 409, loquat.CodeConflict); !strings.Contains(p.Detail, "message 0") {
		t.Errorf("which message uses it is not told: %s", p.Detail)
	}
	r.do("DELETE", "/sessions/s/messages?indices=0", "").want(t, 200)
	r.do("DELETE", path, "").want(t, 204)
	r.do("DELETE", path, "").wantProblem(t, 404, loquat.CodeNotFound)
	r.do("GET", path, "").wantProblem(t, 404, loquat.CodeNotFound)
}

func TestUploadForms(t *testing.T) {
	r := newRig(t)
	r.do("POST", "/sessions", `{"session_id":"s"}`).want(t, 201)
	content := string(noise(t, 2, 5000))
	body, contentType := form(t, "image/png", content, "file")
	if got := r.do("POST", "/sessions/s/assets", body, contentType).want(t, 201); got.field(t, "name") != `cat "ä".png` {
		t.Errorf("the name of the form became %s", got.body)
	}
	body, contentType = form(t, "application/octet-stream", content, "file")
	if got := r.do("POST", "/sessions/s/assets?name=x", body, contentType).want(t, 201); got.field(t, "name") != "x" || got.field(t, "media_type") != "image/png" {
		t.Errorf("got %s", got.body)
	}
	// Of a small file the end is met in the first read, and asked for again.
	body, contentType = form(t, "image/png", string(noise(t, 3, 100)), "file")
	r.do("POST", "/sessions/s/assets", body, contentType).want(t, 201)
	body, contentType = form(t, "image/png", string(noise(t, 3, 100)), "file", "more")
	r.do("POST", "/sessions/s/assets", body, contentType).wantProblem(t, 422, loquat.CodeInvalid)
	for name, c := range map[string]struct {
		mediaType string
		fields    []string
		cut       int
		status    int
		code      loquat.Code
	}{
		"no field":         {"image/png", nil, 0, 422, loquat.CodeInvalid},
		"another field":    {"image/png", []string{"image"}, 0, 422, loquat.CodeInvalid},
		"two":              {"image/png", []string{"file", "file"}, 0, 422, loquat.CodeInvalid},
		"type of the file": {"text/html", []string{"file"}, 0, 415, loquat.CodeUnsupportedMedia},
		"lie":              {"image/gif", []string{"file"}, 0, 422, loquat.CodeInvalid},
		"cut in the end":   {"image/png", []string{"file"}, 4, 400, loquat.CodeInvalid},
		"cut in the file":  {"image/png", []string{"file"}, 2000, 400, loquat.CodeInvalid},
	} {
		body, contentType := form(t, c.mediaType, content, c.fields...)
		t.Run(name, func(t *testing.T) {
			r.do("POST", "/sessions/s/assets", body[:len(body)-c.cut], contentType).wantProblem(t, c.status, c.code)
		})
	}
	r.do("POST", "/sessions/s/assets", content, "Content-Type: multipart/form-data").wantProblem(t, 400, loquat.CodeInvalid)
}

func TestUploadRefusals(t *testing.T) {
	r := newRig(t)
	r.do("POST", "/sessions", `{"session_id":"s"}`).want(t, 201)
	content := string(noise(t, 3, 5000))
	long := content + strings.Repeat("x", 262144)
	for name, c := range map[string]struct {
		path, body string
		headers    []string
		status     int
		code       loquat.Code
	}{
		"unknown session":  {"/sessions/none/assets", content, []string{"Content-Type: image/png"}, 404, loquat.CodeNotFound},
		"text":             {"/sessions/s/assets", "hello", []string{"Content-Type: text/plain"}, 415, loquat.CodeUnsupportedMedia},
		"svg":              {"/sessions/s/assets", "<svg/>", []string{"Content-Type: image/svg+xml"}, 415, loquat.CodeUnsupportedMedia},
		"no image":         {"/sessions/s/assets", "hello", []string{"Content-Type: image/png"}, 422, loquat.CodeInvalid},
		"lie":              {"/sessions/s/assets", content, []string{"Content-Type: image/webp"}, 422, loquat.CodeInvalid},
		"compressed":       {"/sessions/s/assets", content, []string{"Content-Type: image/png", "Content-Encoding: gzip"}, 415, loquat.CodeUnsupportedMedia},
		"too large":        {"/sessions/s/assets", long, []string{"Content-Type: image/png"}, 413, loquat.CodeTooLarge},
		"name":             {"/sessions/s/assets?name=" + strings.Repeat("n", 256), content, []string{"Content-Type: image/png"}, 422, loquat.CodeInvalid},
		"unprintable name": {"/sessions/s/assets?name=a%0Ab", content, []string{"Content-Type: image/png"}, 422, loquat.CodeInvalid},
		"precondition":     {"/sessions/s/assets", content, []string{"Content-Type: image/png", `If-Match: "0000000000000001"`}, 412, loquat.CodePreconditionFailed},
	} {
		t.Run(name, func(t *testing.T) {
			r.do("POST", c.path, c.body, c.headers...).wantProblem(t, c.status, c.code)
		})
	}
	r.do("POST", "/sessions/s/assets", "", "Content-Type: image/png").wantProblem(t, 422, loquat.CodeInvalid)
	for _, mediaType := range []string{"image/png", "application/octet-stream"} {
		chunked := io.MultiReader(strings.NewReader(content), strings.NewReader(long))
		p := r.doReader("POST", "/sessions/s/assets", chunked, "Content-Type: "+mediaType).wantProblem(t, 413, loquat.CodeTooLarge)
		if !strings.Contains(p.Detail, "limits.max_asset_bytes") {
			t.Errorf("the remedy is not told: %s", p.Detail)
		}
	}
	body, contentType := form(t, "image/png", long, "file")
	r.do("POST", "/sessions/s/assets", body, contentType).wantProblem(t, 413, loquat.CodeTooLarge)
	for hash := range r.images.Hashes() {
		t.Errorf("a refused upload left %s", hash)
	}
}

// An Idempotency-Key makes the repeat of an upload answer with the first's asset; without
// one a second upload is an asset of its own.
func TestUploadAgain(t *testing.T) {
	r := newRig(t)
	r.do("POST", "/sessions", `{"session_id":"s"}`).want(t, 201)
	content, other := string(noise(t, 4, 5000)), string(noise(t, 5, 5000))
	send := func(body string, headers ...string) reply {
		return r.do("POST", "/sessions/s/assets", body, append(headers, "Content-Type: image/png")...)
	}
	first := send(content, "Idempotency-Key: k").want(t, http.StatusCreated)
	again := send(content, "Idempotency-Key: k").want(t, http.StatusCreated)
	if !bytes.Equal(first.body, again.body) {
		t.Errorf("%s, and again %s", first.body, again.body)
	}
	send(other, "Idempotency-Key: k").wantProblem(t, 422, loquat.CodeInvalid)
	if second := send(content).want(t, http.StatusCreated); second.field(t, "asset_id") == first.field(t, "asset_id") || second.field(t, "sha256") != first.field(t, "sha256") {
		t.Errorf("the second is %s, the first %s", second.body, first.body)
	}
	files := 0
	for range r.images.Hashes() {
		files++
	}
	if files != 1 {
		t.Errorf("%d files for one image", files)
	}
}
