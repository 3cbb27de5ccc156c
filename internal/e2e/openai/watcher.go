// Package openai has a client of responses in the background for tests, and the tests of OpenAI's API with
// the real program.
package openai

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// Watcher asks for a response in the background and follows it, through all faults, by resuming its stream.
type Watcher struct {
	URL   func() string // of /v1/responses, for each connection
	HTTP  *http.Client
	Token string
	Body  string       // of the request for the response, with background and stream
	Most  int          // events that it reads from a connection before it closes the connection; 0 for all
	Kills func() int64 // of the server so far; may be nil

	ID     string
	Events []map[string]any

	Before, After int64 // kills before the response was asked for, and until it ended
	Broken        int   // connections that broke
	Lost          int   // responses whose id did not arrive

	last float64 // sequence number of the last event
}

// Why a watcher connects again.
var (
	errNotServed = errors.New("no server answers")
	errCut       = errors.New("the connection broke")
	errEnough    = errors.New("the watcher closed its connection")
)

func (w *Watcher) kills() int64 {
	if w.Kills == nil {
		return 0
	}
	return w.Kills()
}

// Watch follows until the response has ended.
func (w *Watcher) Watch(ctx context.Context) error {
	w.last = -1
	for ctx.Err() == nil {
		err := w.connect(ctx)
		switch {
		case err == nil:
			w.After = w.kills()
			return nil
		case errors.Is(err, errCut):
			w.Broken++
			if w.ID == "" {
				w.Lost++
			}
		case !errors.Is(err, errNotServed) && !errors.Is(err, errEnough):
			return err
		}
		time.Sleep(50 * time.Millisecond) // until the server listens again
	}
	return fmt.Errorf("response %q of %s has %d events and no end", w.ID, w.Body, len(w.Events))
}

// connect makes one connection. It returns nil if the response has ended.
func (w *Watcher) connect(ctx context.Context) error {
	ctx, disconnect := context.WithCancel(ctx)
	defer disconnect()
	method, url, body := http.MethodGet, w.URL(), ""
	if w.ID != "" {
		url += fmt.Sprintf("/%s?stream=true&starting_after=%.0f", w.ID, w.last)
	} else {
		w.Before = w.kills()
		method, body = http.MethodPost, w.Body
	}
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+w.Token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := w.HTTP.Do(req)
	if err != nil {
		return fmt.Errorf("%w: %w", errNotServed, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusServiceUnavailable {
		return errNotServed
	}
	if resp.StatusCode != http.StatusOK {
		answer, _ := io.ReadAll(resp.Body) // for the message alone
		return fmt.Errorf("%s %s: %s %s", method, url, resp.Status, answer)
	}
	return w.read(bufio.NewReader(resp.Body))
}

// read reads the events of a connection. An event counts once its empty line has arrived.
func (w *Watcher) read(body *bufio.Reader) error {
	data := ""
	for n := 0; w.Most == 0 || n < w.Most; {
		line, err := body.ReadString('\n')
		if err != nil {
			return errCut
		}
		if line != "\n" {
			if value, ok := strings.CutPrefix(line, "data: "); ok {
				data = value
			}
			continue
		}
		if data == "[DONE]\n" {
			return nil
		}
		if data == "" {
			continue
		}
		var e map[string]any
		if err := json.Unmarshal([]byte(data), &e); err != nil {
			return fmt.Errorf("%w: %s", err, data)
		}
		if e["type"] == "error" { // the stream cannot go on at this server; it has no number of its own
			return errCut
		}
		w.Events, w.last, data = append(w.Events, e), e["sequence_number"].(float64), ""
		if e["type"] == "response.created" && w.ID == "" {
			w.ID = e["response"].(map[string]any)["id"].(string)
		}
		n++
	}
	return errEnough
}
