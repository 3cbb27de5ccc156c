package httpapi

import (
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"loquat"
	"loquat/internal/asset"
	"loquat/internal/chat"
	"loquat/internal/httpapi/route"
	"loquat/internal/strictjson"
)

func (a *api) assetRoutes() []route.Route {
	const path = "/sessions/{session_id}/assets"
	return []route.Route{
		{
			Method: http.MethodPost, Path: path, ID: "storeAsset", Tag: "assets", Summary: "Upload an image to a session",
			Serve: a.storeAsset, Change: true, Upload: imageMedia(), Responses: []route.Response{{Status: http.StatusCreated, Body: loquat.Asset{}}},
			Query: []route.Param{{Name: "name", Doc: "The name of the image; it replaces the file name of a form."}},
		},
		{
			Method: http.MethodGet, Path: path + "/{asset_id}", ID: "getAsset", Tag: "assets", Summary: "Load an image, or a range of it",
			Serve: a.getAsset, Responses: []route.Response{
				{Status: http.StatusOK, Body: imageBytes(nil), Media: "image/*"},
				{Status: http.StatusPartialContent, Body: imageBytes(nil), Media: "image/*"},
				{Status: http.StatusNotModified},
			},
		},
		{
			Method: http.MethodDelete, Path: path + "/{asset_id}", ID: "deleteAsset", Tag: "assets", Summary: "Delete an image that no message uses",
			Serve: a.deleteAsset, Change: true, Responses: []route.Response{{Status: http.StatusNoContent}},
		},
	}
}

const (
	formMedia = "multipart/form-data"
	anyMedia  = "application/octet-stream" // counts as no type

	// maxFormBytes is what a form may add to the image in it.
	maxFormBytes = 64 << 10

	// uploadTimeout is how long an image may take to arrive.
	uploadTimeout = 10 * time.Minute
)

// imageBytes is the raw content of an image.
type imageBytes []byte

// Schema returns the schema of a binary body.
func (imageBytes) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Format: "binary"}
}

// imageMedia returns the media types of the body of an upload.
func imageMedia() map[string]any {
	out := map[string]any{anyMedia: imageBytes(nil), formMedia: imageForm{}}
	for _, media := range asset.MediaTypes() {
		out[media] = imageBytes(nil)
	}
	return out
}

// imageForm is the form that browsers upload with.
type imageForm struct {
	File imageBytes `json:"file"`
}

// upload is an image that is being received.
type upload struct {
	name      string
	mediaType string // as the client declares it, or ""
	content   io.Reader
}

func (a *api) storeAsset(x *route.Exchange) error {
	in, err := readUpload(x.R)
	if err != nil {
		return err
	}
	if name := x.Query.Text("name"); name != "" {
		if err := chat.CheckAssetName("query.name", name); err != nil {
			return err
		}
		in.name = name
	}
	stored, err := a.chat.Assets.AddAsset(x.R.Context(), x.Call, x.Path("session_id"), in.name, in.mediaType, in.content)
	if err != nil {
		return err
	}
	x.W.Header().Set("Location", "/sessions/"+x.Path("session_id")+"/assets/"+stored.AssetID)
	return x.Reply(http.StatusCreated, stored)
}

// readUpload returns the image in a body. The body is an image, or a form with one image.
func readUpload(r *http.Request) (upload, error) {
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && !strings.EqualFold(encoding, "identity") {
		return upload{}, loquat.Errorf(loquat.CodeUnsupportedMedia, "a body with Content-Encoding %q is not understood; send the image as it is", loquat.Clip(encoding, loquat.Excerpt))
	}
	if isMultipart(r) {
		return readForm(r)
	}
	claimed, err := claimedType(r.Header.Get("Content-Type"))
	return upload{mediaType: claimed, content: r.Body}, err
}

func isMultipart(r *http.Request) bool {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && kind == formMedia
}

// claimedType parses the declared media type of an image. It returns "" if none is declared.
func claimedType(given string) (string, error) {
	if given == "" {
		return "", nil
	}
	kind, _, err := mime.ParseMediaType(given)
	switch {
	case err == nil && kind == anyMedia:
		return "", nil
	case err == nil && asset.IsSupported(kind):
		return kind, nil
	}
	return "", loquat.Errorf(loquat.CodeUnsupportedMedia, "an image of type %q is not understood; send %s, or a form with one as its file",
		loquat.Clip(given, loquat.Excerpt), strings.Join(asset.MediaTypes(), ", "))
}

// readForm returns the image in a form, which must have exactly one field.
func readForm(r *http.Request) (upload, error) {
	form, err := r.MultipartReader()
	if err != nil {
		return upload{}, route.Malformed("body", "is not a form: %v", err)
	}
	part, err := form.NextPart()
	if err == io.EOF {
		return upload{}, loquat.Invalid("body.file", "is missing")
	}
	if err != nil {
		return upload{}, formError(err)
	}
	if name := part.FormName(); name != "file" {
		return upload{}, loquat.Invalid(strictjson.Join("body", name), "is not a field of this form; the field is file")
	}
	claimed, err := claimedType(part.Header.Get("Content-Type"))
	return upload{name: part.FileName(), mediaType: claimed, content: &formFile{form: form, part: part}}, err
}

// formError returns the error of a form that cannot be parsed. An error of reading the body
// is returned unchanged.
func formError(err error) error {
	if e, ok := errors.AsType[*loquat.Error](err); ok {
		return e
	}
	return route.Malformed("body", "is an incomplete form")
}

// formFile reads the file in a form. It returns io.EOF only if the form ends correctly
// after the file.
type formFile struct {
	form *multipart.Reader
	part *multipart.Part
	end  error // the result at the end of the file; the form cannot be read again
}

func (f *formFile) Read(p []byte) (int, error) {
	if f.end != nil {
		return 0, f.end
	}
	n, err := f.part.Read(p)
	if err == io.EOF {
		err = f.rest()
	} else if err != nil {
		err = formError(err)
	}
	f.end = err
	return n, err
}

// rest returns io.EOF if nothing follows the file in the form.
func (f *formFile) rest() error {
	switch next, err := f.form.NextPart(); {
	case err == io.EOF:
		return io.EOF
	case err != nil:
		return formError(err)
	default:
		return loquat.Invalid(strictjson.Join("body", next.FormName()), "is not allowed; the form has only the field file")
	}
}

func (a *api) getAsset(x *route.Exchange) error {
	image, content, err := a.chat.Assets.OpenAsset(x.R.Context(), x.Path("session_id"), x.Path("asset_id"))
	if err != nil {
		return err
	}
	defer content.Close()
	disposition := "inline"
	if image.Name != "" {
		disposition = mime.FormatMediaType(disposition, map[string]string{"filename": image.Name})
	}
	h := x.W.Header()
	h.Set("Content-Type", image.MediaType)
	h.Set("Content-Disposition", disposition)
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'")
	h.Set("Cache-Control", "private, max-age=31536000, immutable")
	h.Set("ETag", `"`+image.SHA256+`"`)
	http.ServeContent(&contentWriter{ResponseWriter: x.W}, x.R, "", time.Time{}, content)
	return nil
}

// contentWriter replaces the plain-text errors of http.ServeContent with problems.
type contentWriter struct {
	http.ResponseWriter
	failed bool
}

func (w *contentWriter) WriteHeader(status int) {
	switch w.failed = status >= http.StatusBadRequest; {
	case status == http.StatusPreconditionFailed:
		route.WriteProblem(w.ResponseWriter, loquat.Errorf(loquat.CodePreconditionFailed, "the image does not match If-Match"))
	case status == http.StatusRequestedRangeNotSatisfiable:
		route.SendProblem(w.ResponseWriter, route.NewProblem(status, loquat.CodeInvalid, "header.Range names no bytes of the image; Content-Range has its size"))
	case w.failed:
		route.WriteProblem(w.ResponseWriter, loquat.Errorf(loquat.CodeInternal, "serve an image: status %d", status))
	default:
		w.ResponseWriter.WriteHeader(status)
	}
}

func (w *contentWriter) Write(b []byte) (int, error) {
	if w.failed {
		return len(b), nil
	}
	return w.ResponseWriter.Write(b)
}

func (a *api) deleteAsset(x *route.Exchange) error {
	if err := a.chat.Assets.RemoveAsset(x.R.Context(), x.Call, x.Path("session_id"), x.Path("asset_id")); err != nil {
		return err
	}
	x.W.WriteHeader(http.StatusNoContent)
	return nil
}
