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

// ReplayHeader names the recording that answers, by its path within the folder of
// recordings; without it the model's name does.
const ReplayHeader = "X-Loquat-Replay"

// maxRecording bounds one recording.
const maxRecording = 64 << 20

// A recording `x.sse` or `x.json` may have a file `x.sse.expected.json` beside it,
// whose http_status and headers are then those of the replay.
const expectedSuffix = ".expected.json"

// Replay answers with recorded bodies, byte for byte.
type Replay struct {
	dir  fs.FS
	only string // the one recording that answers everything, or ""
}

// OpenReplay takes a recording, or a folder of them.
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

// body is the recording that a request chooses.
func (p *Replay) body(r *http.Request, req *chatRequest) (*body, *fault) {
	name := p.only
	if name == "" {
		name = req.Model
		if h := r.Header.Get(ReplayHeader); h != "" {
			name = h
		}
	}
	if !fs.ValidPath(name) || !isRecording(name) {
		return nil, noRecording(name)
	}
	data, err := p.read(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, noRecording(name)
	}
	if err != nil {
		return nil, refuse(http.StatusInternalServerError, "model", "recording_unreadable", "%v", err)
	}
	b := &body{status: http.StatusOK}
	if path.Ext(name) == ".sse" {
		b.contentType, b.frames = contentSSE, frames{first: splitEvents(data)}
	} else {
		b.contentType, b.whole = contentJSON, data
	}
	if err := p.expect(name, b); err != nil {
		return nil, refuse(http.StatusInternalServerError, "model", "recording_unreadable", "%v", err)
	}
	return b, nil
}

func noRecording(name string) *fault {
	return refuse(http.StatusNotFound, "model", "model_not_found",
		"There is no recording %q here: name one that GET /v1/models lists as the model, or in %s.", name, ReplayHeader)
}

// expect takes over the status and the content type that were recorded, if any.
func (p *Replay) expect(name string, b *body) error {
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
		return nil, fmt.Errorf("the recording %s is over %d bytes", name, maxRecording)
	}
	return data, nil
}

// splitEvents cuts a recorded stream after its blank lines; joined, the pieces are
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
