package httpapi

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"loquat"
	"loquat/internal/archive"
	"loquat/internal/chat"
	"loquat/internal/httpapi/route"
	"loquat/internal/importer"
	"loquat/internal/transcript"
)

// importRoute is the operation id of the route that imports sessions.
const importRoute = "importSessions"

const (
	// importTimeout is how long a file may take to arrive and to be imported.
	importTimeout = time.Hour
	// maxImports is how many imports run at a time, because each may hold a large session in memory.
	maxImports = 2
	// importWait is how long an import waits for others to end.
	importWait = 5 * time.Second
)

const zipMedia = "application/zip"

// anyFile is a file of any content.
type anyFile []byte

// Schema returns the schema of a file.
func (anyFile) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Format: "binary", Description: "An archive, or an export of ChatGPT, Claude, LibreChat or Open WebUI."}
}

func (a *api) archiveRoutes() []route.Route {
	return []route.Route{
		{
			Method: http.MethodGet, Path: "/sessions/{session_id}/export", ID: "exportSession", Tag: "sessions", Summary: "Export a session with its images",
			Serve: a.exportSession, Large: true, Query: []route.Param{{
				Name: "format", Kind: route.Text, OneOf: []string{"json", "markdown", "html"}, Default: "json",
				Doc: "An archive that can be imported again, or a text for readers.",
			}},
			Responses: []route.Response{{Status: http.StatusOK, Body: anyFile(nil), Media: "application/json", ETag: true, Doc: "An archive, a Markdown text or an HTML page"}},
		},
		{
			Method: http.MethodPost, Path: "/sessions/import", ID: importRoute, Tag: "sessions", Summary: "Import the sessions in a file, each whole or not at all",
			Users: true, Serve: a.importSessions, Upload: map[string]any{"application/json": anyFile(nil), zipMedia: anyFile(nil), anyMedia: anyFile(nil)},
			Query: []route.Param{
				{Name: "new_ids", Kind: route.Flag, Doc: "Give each session a new id."},
				{Name: "agent_id", Kind: route.ID, Doc: "The agent of all sessions. Otherwise archives say it, and sessions of other applications get the agent default."},
			},
			Responses: []route.Response{{Status: http.StatusOK, Body: loquat.ImportReport{}, Doc: "What became of the sessions; some may have failed"}},
		},
	}
}

// exportForms are the forms of an export.
var exportForms = map[string]struct {
	media, suffix string
	write         func(io.Writer, archive.Session) error
}{
	"json":     {"application/json; charset=utf-8", ".json", writeArchive},
	"markdown": {"text/markdown; charset=utf-8", ".md", transcript.WriteMarkdown},
	"html":     {"text/html; charset=utf-8", ".html", transcript.WriteHTML},
}

func writeArchive(w io.Writer, s archive.Session) error {
	out := archive.NewWriter(w)
	if err := out.Write(s); err != nil {
		return err
	}
	return out.Close()
}

func (a *api) exportSession(x *route.Exchange) error {
	form := exportForms["json"]
	if name := x.Query.Text("format"); name != "" {
		form = exportForms[name]
	}
	s, checkpoint, err := a.chat.Archived(x.R.Context(), x.Path("session_id"))
	if err != nil {
		return err
	}
	x.Encoded(sizeOf(s.Messages))
	x.Tag(checkpoint)
	h := x.W.Header()
	h.Set("Content-Type", form.media)
	h.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": "loquat-" + s.SessionID + form.suffix}))
	h.Set("Content-Security-Policy", transcript.Policy+"; sandbox")
	h.Set("Cache-Control", "no-store")
	x.W.WriteHeader(http.StatusOK)
	if x.R.Method == http.MethodHead {
		return nil
	}
	out := bufio.NewWriterSize(x.W, writeBytes)
	if err = form.write(out, s); err == nil {
		err = out.Flush()
	}
	if err != nil {
		if x.R.Context().Err() == nil {
			a.log.Warn("could not export a session", "session", s.SessionID, "error", err)
		}
		panic(http.ErrAbortHandler) // a part must not look like the whole
	}
	return nil
}

// sizeOf returns about how many bytes messages have.
func sizeOf(messages []loquat.Message) (n int) {
	for _, m := range messages {
		n += len(m.Content) + m.Metadata.Size()
	}
	return n
}

// importSessions imports a file while it arrives.
func (a *api) importSessions(x *route.Exchange) error {
	if err := checkImportMedia(x.R.Header); err != nil {
		return err
	}
	wait := time.NewTimer(importWait)
	defer wait.Stop()
	select {
	case a.imports <- struct{}{}:
		defer func() { <-a.imports }()
	case <-x.R.Context().Done():
		return x.R.Context().Err()
	case <-wait.C:
		return loquat.Errorf(loquat.CodeUnavailable, "%d imports run at present; try again later", maxImports)
	}
	return a.access.follow(x, x.W.(*responseWriter).who, a.importFile)
}

func (a *api) importFile(x *route.Exchange) error {
	agent := x.Query.Text("agent_id")
	o := importer.Options{CreateTemp: a.chat.Assets.CreateTemp, MaxImage: a.now().limits.MaxAssetBytes, AgentID: agent}
	if agent == "" {
		o.AgentID = loquat.DefaultAgent
	}
	file, err := importer.Open(x.R.Body, o)
	if err != nil {
		return importError(err)
	}
	defer file.Close()
	report, err := a.chat.Import(x.R.Context(), file.Sessions(), chat.ImportOptions{NewIDs: x.Query.Flag("new_ids"), AgentID: agent, By: x.Call.By})
	if err != nil {
		return err
	}
	if report.Format = file.Format; report.Error != "" && len(report.Sessions) == 0 {
		return route.Malformed("body", "%s", report.Error)
	}
	return x.Reply(http.StatusOK, report)
}

// checkImportMedia refuses a body that is declared as something else than a file of sessions.
func checkImportMedia(h http.Header) error {
	if encoding := h.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		return loquat.Errorf(loquat.CodeUnsupportedMedia, "a body with Content-Encoding %q is not understood; send the file as it is", loquat.Clip(encoding, loquat.Excerpt))
	}
	given := h.Get("Content-Type")
	if kind, _, err := mime.ParseMediaType(given); given == "" || err == nil && (kind == "application/json" || kind == zipMedia || kind == anyMedia || kind == "application/x-zip-compressed") {
		return nil
	}
	return loquat.Errorf(loquat.CodeUnsupportedMedia, "a file of type %q is not understood; send application/json or %s", loquat.Clip(given, loquat.Excerpt), zipMedia)
}

// importError returns the error of a file that cannot be opened.
func importError(err error) error {
	if e, ok := errors.AsType[*loquat.Error](err); ok {
		return e
	}
	if _, ok := errors.AsType[*fs.PathError](err); ok {
		return &loquat.Error{Code: loquat.CodeUnavailable, Detail: "the file cannot be stored at the moment; nothing was imported, try again", Err: err}
	}
	return route.Malformed("body", "%s", err)
}
