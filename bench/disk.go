package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"loquat"
	"loquat/internal/client"
)

// The parameters of the run.
const (
	diskRequests   = 1000
	diskIncrements = 1000
	diskBytes      = 20
	diskAtOnce     = 50
	diskRate       = 500 // increments per second of each
	diskSlow       = 5   // clients that read slowly all the time
)

// The aims: the size of the data directory relative to the final messages, the time for the
// cleanup after the end of the last request, the size of the write-ahead log, and the largest
// data directory relative to an older version's.
const (
	diskRatio     = 2
	diskCleanUp   = 60 * time.Second
	walAllowed    = 128 << 20
	maxPeakToBase = 0.5
)

// benchDisk streams a million increments through the real program and measures the space
// that they take on disk. It also checks that a client which paused before the cleanup
// resumes correctly. If an older version is given, it does the same before.
func benchDisk(w io.Writer) ([]verdict, error) {
	p := program{path: productPath}
	var err error
	if productPath == "" {
		p, err = buildProgram()
	} else {
		p.dir, err = os.MkdirTemp("", "loquat-bench-")
	}
	if err != nil {
		return nil, err
	}
	defer p.remove()
	var base *diskRun
	if basePath != "" {
		fmt.Fprintln(w, "older version:")
		if base, err = measureDisk(w, program{path: basePath, dir: p.dir}, "older"); err != nil {
			return nil, fmt.Errorf("older version: %w", err)
		}
		fmt.Fprintln(w, "Loquat:")
	}
	d, err := measureDisk(w, p, "disk")
	if err != nil {
		return nil, err
	}
	return d.verdicts(base), nil
}

// measureDisk measures one program.
func measureDisk(w io.Writer, p program, data string) (*diskRun, error) {
	backend, err := p.start("backend", "--listen", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer backend.stop()
	server, err := p.serve(fmt.Sprintf(`{"providers": {"main": {"provider": "reference_generic_compatible", "model": "lorem", "base_url": "%s/v1",
		"request_options": {"loquat_script": {"chunks": %d, "chunk_bytes": %d, "rate": %d}}}}}`, backend.url, diskIncrements, diskBytes, diskRate), data)
	if err != nil {
		return nil, err
	}
	defer server.stop()
	c, err := client.New(server.url, client.Options{})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	defer cancel()
	d := &diskRun{ctx: ctx, client: c, dir: p.data(data), w: w}
	return d, d.run(server.url)
}

// diskRun is one run and its measurements, in bytes.
type diskRun struct {
	ctx    context.Context
	client *client.Client
	dir    string
	w      io.Writer

	largest, largestWAL int64 // written by the goroutine of sample until it has ended

	final, size      int64 // of the replies, and of the data directory after the cleanup
	folds, different int
}

func (d *diskRun) run(url string) error {
	stopSampling := d.sample()
	stopSlow, err := d.readSlowly(url)
	if err != nil {
		return err
	}
	began := time.Now()
	middle, err := d.send(diskRequests / 2)
	if err != nil {
		return err
	}
	if _, err := d.send(diskRequests - diskRequests/2); err != nil {
		return err
	}
	took := time.Since(began)
	stopSlow()
	atEnd, err := dirSize(d.dir)
	if err != nil {
		return err
	}
	var stored map[string][]byte
	if stored, d.final, err = d.stored(); err != nil {
		return err
	}
	time.Sleep(diskCleanUp)
	stopSampling()
	if d.size, err = dirSize(d.dir); err != nil {
		return err
	}
	wal := fileSize(filepath.Join(d.dir, "loquat.db-wal"))
	fmt.Fprintf(d.w, "%d increments of %d bytes in %d requests, %d at a time: %s\n", diskRequests*diskIncrements, diskBytes, diskRequests, diskAtOnce, took.Round(time.Second))
	fmt.Fprintf(d.w, "final messages %.1f MB; data directory %.1f MB at the end of the last request, at most %.1f MB, %.1f MB after %s (%.2f times the messages)\n",
		mb(d.final), mb(atEnd), mb(d.largest), mb(d.size), diskCleanUp, float64(d.size)/float64(d.final))
	fmt.Fprintf(d.w, "write-ahead log: at most %.1f MB, %.1f MB at the end; %d clients read slowly\n", mb(d.largestWAL), mb(wal), diskSlow)
	d.folds = 2 * len(stored)
	d.different, err = d.foldAgain(middle, stored)
	return err
}

// verdicts compares the run with the aims. base is nil without an older version.
func (d *diskRun) verdicts(base *diskRun) []verdict {
	all := []verdict{
		{fmt.Sprintf("data directory at most %d times the final messages, within %s", diskRatio, diskCleanUp),
			d.size <= diskRatio*d.final, fmt.Sprintf("%.1f MB of %.1f MB", mb(d.size), mb(diskRatio*d.final))},
		{fmt.Sprintf("write-ahead log never above %d MB, with slow readers", walAllowed>>20), d.largestWAL <= walAllowed, fmt.Sprintf("%.1f MB", mb(d.largestWAL))},
		{"clients with a cursor from before the cleanup fold to the stored sessions", d.different == 0, fmt.Sprintf("%d folds, %d differ", d.folds, d.different)},
	}
	if base == nil {
		return all
	}
	ratio := float64(d.largest) / float64(base.largest)
	return append(all, verdict{fmt.Sprintf("largest data directory, with the write-ahead log, at most %g times the older version's", maxPeakToBase),
		ratio <= maxPeakToBase, fmt.Sprintf("%.2f: %.1f MB of %.1f MB", ratio, mb(d.largest), mb(base.largest))})
}

func mb(n int64) float64 { return float64(n) / (1 << 20) }

func fileSize(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

// sample records the largest sizes until stop is called.
func (d *diskRun) sample() (stop func()) {
	ctx, cancel := context.WithCancel(d.ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			d.largestWAL = max(d.largestWAL, fileSize(filepath.Join(d.dir, "loquat.db-wal")))
			if n, err := dirSize(d.dir); err == nil {
				d.largest = max(d.largest, n)
			}
			time.Sleep(20 * time.Millisecond)
		}
	}()
	return func() { cancel(); <-ended }
}

// readSlowly follows all events with clients that read 64 KiB per second.
func (d *diskRun) readSlowly(url string) (stop func(), err error) {
	ctx, cancel := context.WithCancel(d.ctx)
	var all sync.WaitGroup
	for range diskSlow {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/events/stream?since_id="+loquat.EventID(0).String(), nil)
		if err != nil {
			cancel()
			return nil, err
		}
		all.Go(func() {
			for ctx.Err() == nil {
				resp, err := http.DefaultClient.Do(req)
				if err != nil {
					continue
				}
				for err == nil {
					_, err = io.CopyN(io.Discard, resp.Body, 4<<10)
					time.Sleep(time.Second / 16)
				}
				resp.Body.Close()
			}
		})
	}
	return func() { cancel(); all.Wait() }, nil
}

// pausedClient is a client that folded all events up to a cursor and then paused.
type pausedClient struct {
	at    loquat.EventID
	folds map[string]*loquat.Fold
}

// send sends n requests, each to a session of its own, and waits for their ends. Half way
// through, while requests stream, a client reads up to the newest event and pauses.
func (d *diskRun) send(n int) (*pausedClient, error) {
	var all sync.WaitGroup
	var failed errorOnce
	places := make(chan struct{}, diskAtOnce)
	middle := &pausedClient{folds: map[string]*loquat.Fold{}}
	for i := range n {
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			failed.note(d.sendOne())
		})
		if i == n/2 {
			all.Go(func() {
				time.Sleep(diskIncrements * time.Second / diskRate / 2) // until the requests that just started are half way through
				failed.note(d.catchUp(middle))
			})
		}
	}
	all.Wait()
	return middle, failed.get()
}

// errorOnce keeps the first error of many goroutines.
type errorOnce struct {
	mu  sync.Mutex
	err error
}

func (e *errorOnce) note(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err == nil {
		e.err = err
	}
}

func (e *errorOnce) get() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.err
}

func (d *diskRun) sendOne() error {
	s, err := d.client.CreateSession(d.ctx, loquat.NewSession{})
	if err != nil {
		return err
	}
	content := "go on"
	sent, err := d.client.Send(d.ctx, s.SessionID, loquat.Send{Content: &content, Stream: new(true)})
	if err != nil {
		return err
	}
	for d.ctx.Err() == nil {
		r, err := d.client.Request(d.ctx, sent.RequestID)
		if err != nil {
			return err
		}
		if r.Status.Ended() {
			if r.Status != loquat.StatusCompleted {
				return fmt.Errorf("request %s is %s: %s", r.RequestID, r.Status, r.Error)
			}
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return d.ctx.Err()
}

// catchUp folds the events from the client's cursor to the newest event.
func (d *diskRun) catchUp(s *pausedClient) error {
	now, err := d.client.Events(d.ctx, client.Query{})
	if err != nil {
		return err
	}
	for s.at < now.LatestEventID {
		win, err := d.client.Events(d.ctx, client.Query{Since: &s.at, OmitSession: true, Limit: 5000})
		if err != nil || len(win.Events) == 0 {
			return err
		}
		for _, e := range win.Events {
			f := s.folds[e.SessionID]
			if f == nil {
				f = loquat.NewFold(loquat.Snapshot{Session: loquat.Session{SessionID: e.SessionID}})
				s.folds[e.SessionID] = f
			}
			f.Apply(e)
			s.at = e.EventID
		}
	}
	return nil
}

// stored loads the messages of all sessions, and returns the total size of their replies.
func (d *diskRun) stored() (messages map[string][]byte, final int64, err error) {
	messages = map[string][]byte{}
	for token := ""; ; {
		list, err := d.client.Sessions(d.ctx, loquat.SessionQuery{Limit: 200, PageToken: token})
		if err != nil {
			return nil, 0, err
		}
		for _, summary := range list.Sessions {
			s, err := d.client.Session(d.ctx, summary.SessionID)
			if err != nil {
				return nil, 0, err
			}
			for _, m := range s.Messages {
				if m.Role == loquat.RoleAssistant {
					final += int64(len(m.Content))
				}
			}
			if messages[s.SessionID], err = json.Marshal(s.Messages); err != nil {
				return nil, 0, err
			}
		}
		if token = list.NextPageToken; token == "" {
			break
		}
	}
	if len(messages) != diskRequests || final < diskRequests*diskIncrements*diskBytes {
		return nil, 0, fmt.Errorf("%d sessions hold %d bytes of replies, not %d with %d", len(messages), final, diskRequests, diskRequests*diskIncrements*diskBytes)
	}
	return messages, final, nil
}

// foldAgain resumes the paused client, and starts one without any events. It counts the
// sessions that fold to something else than the stored messages.
func (d *diskRun) foldAgain(middle *pausedClient, stored map[string][]byte) (different int, err error) {
	drafts := 0
	for _, f := range middle.folds {
		if f.Draft() != nil {
			drafts++
		}
	}
	fmt.Fprintf(d.w, "a client paused at event %s, with %d incomplete replies\n\n", middle.at, drafts)
	beginning := &pausedClient{folds: map[string]*loquat.Fold{}}
	for _, s := range []*pausedClient{middle, beginning} {
		if err := d.catchUp(s); err != nil {
			return 0, err
		}
		for id, want := range stored {
			f := s.folds[id]
			if f == nil || f.Draft() != nil {
				different++
				continue
			}
			got, err := json.Marshal(f.Messages())
			if err != nil {
				return 0, err
			}
			if !bytes.Equal(got, want) {
				different++
			}
		}
	}
	return different, nil
}
