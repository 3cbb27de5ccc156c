package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"

	"loquat"
)

// Export returns a session as a file, which the caller closes. The formats are json, markdown and
// html. Reading fails if the file is cut off.
func (c *Client) Export(ctx context.Context, sessionID, format string) (io.ReadCloser, error) {
	var out io.ReadCloser
	call := get(url.Values{"format": {format}}, "sessions", sessionID, "export")
	err := c.attempts(ctx, func() error {
		resp, err := c.send(ctx, call, nil)
		if err != nil {
			return err
		}
		if resp.StatusCode >= 300 {
			defer resp.Body.Close()
			return c.problem(ctx, resp)
		}
		out = resp.Body
		return nil
	})
	return out, err
}

// ImportOptions say how sessions are imported.
type ImportOptions struct {
	NewIDs  bool   // each session gets a new id; the call is then not repeated
	AgentID string // of all sessions, unless empty
}

// Import imports the sessions in an archive. write is called with each attempt, and writes the
// archive.
func (c *Client) Import(ctx context.Context, o ImportOptions, write func(io.Writer) error) (report loquat.ImportReport, err error) {
	call := &call{method: http.MethodPost, path: []string{"sessions", "import"}, header: http.Header{"Content-Type": {"application/json"}}, query: url.Values{"new_ids": {strconv.FormatBool(o.NewIDs)}}}
	if o.AgentID != "" {
		call.query.Set("agent_id", o.AgentID)
	}
	once := func() error { return c.importOnce(ctx, call, write, &report) }
	if o.NewIDs {
		err = once()
	} else {
		err = c.attempts(ctx, once)
	}
	return report, err
}

func (c *Client) importOnce(ctx context.Context, call *call, write func(io.Writer) error, report *loquat.ImportReport) error {
	body, w := io.Pipe()
	wrote := make(chan error, 1)
	go func() {
		err := write(w)
		w.CloseWithError(err)
		wrote <- err
	}()
	resp, err := c.sendBody(ctx, call, body)
	if err == nil {
		defer resp.Body.Close()
		if resp.StatusCode >= 300 {
			err = c.problem(ctx, resp)
		} else if json.NewDecoder(resp.Body).Decode(report) != nil {
			err = c.unreachable(ctx, io.ErrUnexpectedEOF)
		}
	}
	body.Close() // ends write, if the server answered before it had read all
	if writeErr := <-wrote; writeErr != nil && !errors.Is(writeErr, io.ErrClosedPipe) {
		return fmt.Errorf("write the archive: %w", writeErr)
	}
	return err
}

// WriteWhole writes a file that gets its name when it is whole, so that an export that breaks off leaves nothing
// that looks like one.
func WriteWhole(path string, write func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".loquat-export-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	if err := errors.Join(write(f), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
