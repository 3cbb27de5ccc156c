package backend

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// replayHeader is the header that selects the recording, by its path in the folder of
// recordings. Without it the model's name selects the recording.
const replayHeader = "X-Loquat-Replay"

// maxRecording is the largest size of a recording, in bytes.
const maxRecording = 64 << 20

// expectedSuffix is added to the name of a recording for the file with its http_status and
// headers, such as `x.sse.expected.json` next to `x.sse`. The file is optional.
const expectedSuffix = ".expected.json"

// Replay answers with recorded bodies, byte for byte.
type Replay struct {
	dir  fs.FS
	only string // the recording that answers every request, or ""
}

// OpenReplay opens a recording or a folder of recordings.
func OpenReplay(name string) (*Replay, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, fmt.Errorf("open the recordings: %w", err)
	}
	if info.IsDir() {
		return &Replay{dir: os.DirFS(name)}, nil
	}
	if !isRecording(name) {
		return nil, fmt.Errorf("open the recording %s: a recording's name ends in .sse or .json", name)
	}
	return &Replay{dir: os.DirFS(filepath.Dir(name)), only: filepath.Base(name)}, nil
}

func isRecording(name string) bool {
	return (path.Ext(name) == ".sse" || path.Ext(name) == ".json") && !strings.HasSuffix(name, expectedSuffix)
}

// names lists the recordings.
func (p *Replay) names() ([]string, error) {
	if p.only != "" {
		return []string{p.only}, nil
	}
	var names []string
	err := fs.WalkDir(p.dir, ".", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && isRecording(name) {
			names = append(names, name)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list the recordings: %w", err)
	}
	return names, nil
}

// body returns the recording that a request selects.
func (p *Replay) body(r *http.Request, req *chatRequest) (*body, *apiError) {
	name := p.only
	if name == "" {
		name = req.Model
		if h := r.Header.Get(replayHeader); h != "" {
			name = h
		}
	}
	if !fs.ValidPath(name) || !isRecording(name) {
		return nil, unknownRecording(name)
	}
	data, err := p.read(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, unknownRecording(name)
	}
	if err != nil {
		return nil, newAPIError(http.StatusInternalServerError, "model", "recording_unreadable", "%v", err)
	}
	b := &body{status: http.StatusOK}
	if path.Ext(name) == ".sse" {
		b.contentType, b.frames = contentSSE, frames{first: splitEvents(data)}
	} else {
		b.contentType, b.whole = contentJSON, data
	}
	if err := p.applyExpected(name, b); err != nil {
		return nil, newAPIError(http.StatusInternalServerError, "model", "recording_unreadable", "%v", err)
	}
	return b, nil
}

func unknownRecording(name string) *apiError {
	return newAPIError(http.StatusNotFound, "model", "model_not_found",
		"There is no recording %q here. Name a recording that GET /v1/models lists, as the model or in the header %s.", name, replayHeader)
}

// applyExpected sets the status and the headers that were recorded, if any.
func (p *Replay) applyExpected(name string, b *body) error {
	data, err := p.read(name + expectedSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var expected struct {
		Status  int               `json:"http_status"`
		Headers map[string]string `json:"headers"`
	}
	if err := json.Unmarshal(data, &expected); err != nil {
		return fmt.Errorf("read %s: %w", name+expectedSuffix, err)
	}
	if expected.Status >= 200 && expected.Status <= 599 {
		b.status = expected.Status
	}
	for key, value := range expected.Headers {
		switch strings.ToLower(key) {
		case "content-type":
			b.contentType = value
		case "retry-after":
			b.retryAfter = value
		}
	}
	return nil
}

func (p *Replay) read(name string) ([]byte, error) {
	f, err := p.dir.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxRecording+1))
	if err != nil {
		return nil, fmt.Errorf("read the recording: %w", err)
	}
	if len(data) > maxRecording {
		return nil, fmt.Errorf("the recording %s is larger than %d bytes", name, maxRecording)
	}
	return data, nil
}

// splitEvents splits a recorded stream after each blank line. The concatenated parts are
// the recording.
func splitEvents(data []byte) [][]byte {
	var events [][]byte
	start, end := 0, 0
	for line := range bytes.Lines(data) {
		end += len(line)
		if len(bytes.TrimRight(line, "\r\n")) == 0 {
			events = append(events, data[start:end])
			start = end
		}
	}
	if start < len(data) {
		events = append(events, data[start:])
	}
	return events
}
