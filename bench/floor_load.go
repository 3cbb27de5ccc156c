package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// target is a server under load: Loquat, an older version or the relay. They are called in
// the same way.
type target struct {
	url    string
	client *http.Client
}

func newTarget(url string) target {
	return target{url, &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 4000}, Timeout: time.Minute}}
}

func (t target) close() { t.client.CloseIdleConnections() }

// post makes a call, which must have the given status.
func (t target) post(path, body string, status int) ([]byte, error) {
	resp, err := t.client.Post(t.url+path, "application/json", strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != status {
		err = fmt.Errorf("POST %s: %s: %.300s", path, resp.Status, text)
	}
	return text, err
}

// createSession creates a session and returns its id.
func (t target) createSession(body string) (string, error) {
	text, err := t.post("/sessions", body, http.StatusCreated)
	if err != nil {
		return "", err
	}
	var s struct {
		SessionID string `json:"session_id"`
	}
	err = json.Unmarshal(text, &s)
	return s.SessionID, err
}

func (t target) send(session, content string) error {
	_, err := t.post("/sessions/"+session+"/send", fmt.Sprintf(`{"content":%q}`, content), http.StatusAccepted)
	return err
}

// markFollower follows one session by Server-Sent Events and notes how long each chunk took
// from its making. It does as little as possible, because it shares the machine with the
// server.
type markFollower struct {
	conn net.Conn
	body io.Reader
	next int             // number of the next chunk
	took []time.Duration // by chunk
}

// followMarks returns once the stream has begun.
func (t target) followMarks(session string, chunks int) (*markFollower, error) {
	address := strings.TrimPrefix(t.url, "http://")
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	f := &markFollower{conn: conn, took: make([]time.Duration, 0, chunks)}
	if err := f.begin(address, session); err != nil {
		conn.Close()
		return nil, err
	}
	return f, nil
}

// begin asks for the stream and reads its first frame, which says where it starts.
func (f *markFollower) begin(address, session string) error {
	if _, err := fmt.Fprintf(f.conn, "GET /events/stream?session=omit&session_id=%s HTTP/1.1\r\nHost: %s\r\n\r\n", session, address); err != nil {
		return err
	}
	resp, err := http.ReadResponse(bufio.NewReaderSize(f.conn, 8<<10), nil)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 300))
		return fmt.Errorf("follow session %s: %s: %s", session, resp.Status, text)
	}
	f.body = resp.Body
	_, err = io.ReadFull(f.body, make([]byte, len("id: 0000000000000000\n\n")))
	return err
}

var requestEnd = []byte(`"type":"request_completed"`)

// run reads the stream until ended returns false for the end of a request.
func (f *markFollower) run(ended func(at time.Time) (more bool)) error {
	buf := make([]byte, 16<<10)
	kept := 0
	for {
		n, err := f.body.Read(buf[kept:])
		now := time.Now()
		data := buf[:kept+n]
		if err := f.readMarks(data, now); err != nil {
			return err
		}
		if i := bytes.Index(data, requestEnd); i >= 0 {
			if !ended(now) {
				return nil
			}
			data = data[i+len(requestEnd):]
		}
		if err != nil {
			return err
		}
		kept = copy(buf, data[max(0, len(data)-len(requestEnd)):])
	}
}

// readMarks notes the chunks that have not been seen before. The final message repeats all.
func (f *markFollower) readMarks(data []byte, now time.Time) error {
	for {
		i := bytes.IndexByte(data, '#')
		if i < 0 || len(data) < i+markLength {
			return nil
		}
		mark := data[i : i+markLength]
		data = data[i+1:]
		number, ok := digits(mark[1:5])
		made, fine := digits(mark[6:16])
		if mark[5] != '@' || mark[16] != '~' || !ok || !fine || int(number) < f.next {
			continue
		}
		if int(number) > f.next {
			return fmt.Errorf("chunk %d follows chunk %d", number, f.next-1)
		}
		f.next++
		f.took = append(f.took, time.Duration((now.UnixMicro()-made+markWraps)%markWraps)*time.Microsecond)
	}
}

func digits(text []byte) (n int64, ok bool) {
	for _, c := range text {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = 10*n + int64(c-'0')
	}
	return n, true
}

// streamLoad is many sessions that stream at once.
type streamLoad struct{ sessions, rate, chunks, followers int }

// ideal is the time that the backend takes.
func (l streamLoad) ideal() time.Duration {
	return time.Duration(l.chunks) * time.Second / time.Duration(l.rate)
}

func (l streamLoad) delivered() int { return l.sessions * l.chunks * l.followers }

// prepare creates the sessions and their followers.
func (l streamLoad) prepare(t target) (sessions []string, followers []*markFollower, err error) {
	for range l.sessions {
		id, err := t.createSession("{}")
		if err != nil {
			return nil, nil, err
		}
		sessions = append(sessions, id)
	}
	followers = make([]*markFollower, l.sessions*l.followers)
	var all sync.WaitGroup
	var failed errorOnce
	places := make(chan struct{}, 64)
	for i := range followers {
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			f, err := t.followMarks(sessions[i%l.sessions], l.chunks)
			failed.note(err)
			followers[i] = f
		})
	}
	all.Wait()
	return sessions, followers, failed.get()
}

// stream sends to all sessions at once and waits until each follower has every chunk.
func (l streamLoad) stream(t target, sessions []string, followers []*markFollower) error {
	return l.streamAt(func(int) target { return t }, sessions, followers)
}

// streamAt is stream with a target for each session.
func (l streamLoad) streamAt(at func(int) target, sessions []string, followers []*markFollower) error {
	var all sync.WaitGroup
	var failed errorOnce
	deadline := time.Now().Add(l.ideal() + 40*time.Second)
	for _, f := range followers {
		all.Go(func() {
			_ = f.conn.SetReadDeadline(deadline)
			err := f.run(func(time.Time) bool { return false })
			if err == nil && f.next != l.chunks {
				err = fmt.Errorf("a follower received %d of %d chunks", f.next, l.chunks)
			}
			failed.note(err)
		})
	}
	for i, id := range sessions {
		all.Go(func() { failed.note(at(i).send(id, orderOf(l.chunks, l.rate))) })
	}
	all.Wait()
	return failed.get()
}

// The closed loop of sends. A client takes a new session after some sends, so that the
// sessions stay short.
const (
	sendClients = 64
	sendWarm    = time.Second
	sendFor     = 4 * time.Second
	sendRotate  = 10
)

// sendLoop is a closed loop: each client sends, waits for the end of its request and sends
// again.
type sendLoop struct {
	target    target
	measuring atomic.Bool
	stopped   atomic.Bool

	mu   sync.Mutex
	took []time.Duration
}

// run calls measured with a function that waits while the loop is measured.
func (l *sendLoop) run(measured func(wait func()) error) error {
	var all sync.WaitGroup
	var failed errorOnce
	for range sendClients {
		all.Go(func() {
			for !l.stopped.Load() {
				if err := l.use(); err != nil {
					failed.note(err)
					l.stopped.Store(true)
				}
			}
		})
	}
	time.Sleep(sendWarm)
	err := measured(func() {
		l.measuring.Store(true)
		time.Sleep(sendFor)
		l.measuring.Store(false)
	})
	l.stopped.Store(true)
	all.Wait()
	failed.note(err)
	return failed.get()
}

// use sends to one session.
func (l *sendLoop) use() error {
	id, err := l.target.createSession("{}")
	if err != nil {
		return err
	}
	f, err := l.target.followMarks(id, 1)
	if err != nil {
		return err
	}
	ends := make(chan time.Time, 1)
	followed := make(chan error, 1)
	go func() {
		followed <- f.run(func(at time.Time) bool { f.next = 0; ends <- at; return true })
	}()
	for n := 0; n < sendRotate && !l.stopped.Load() && err == nil; n++ {
		err = l.sendOnce(id, ends, followed)
	}
	f.conn.Close()
	return err
}

func (l *sendLoop) sendOnce(session string, ends <-chan time.Time, followed <-chan error) error {
	began := time.Now()
	if err := l.target.send(session, orderOf(1, 1_000_000)); err != nil {
		return err
	}
	select {
	case at := <-ends:
		if l.measuring.Load() {
			l.mu.Lock()
			l.took = append(l.took, at.Sub(began))
			l.mu.Unlock()
		}
		return nil
	case err := <-followed:
		return err
	case <-time.After(20 * time.Second):
		return fmt.Errorf("a request of session %s does not end", session)
	}
}
