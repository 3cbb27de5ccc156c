package upgrade_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"loquat"

	"github.com/google/uuid"
)

// recording is what a version of the program served from a data directory.
type recording struct {
	Version string    `json:"version"`
	Killed  time.Time `json:"killed"` // when its server was killed

	// Newest is the newest event that anybody had seen when the server was killed. Later
	// ids belong to the events that the next start writes.
	Newest loquat.EventID `json:"newest_event_id"`

	// Tokens holds the secrets of tokens and devices by name.
	Tokens map[string]string `json:"tokens"`

	// Requests lists every request.
	Requests []string `json:"requests"`

	// Repeat is a send that was answered before.
	Repeat repeatedSend `json:"repeat"`

	// Followers are those that followed when the server was killed.
	Followers []followerRecord `json:"followers"`

	// Served are answers of the next start of that version, after every request had ended.
	Served []served `json:"served"`
}

type repeatedSend struct {
	SessionID string            `json:"session_id"`
	Send      loquat.Send       `json:"send"`
	Answer    loquat.SendResult `json:"answer"`
}

// followerRecord is a follower of one session: the snapshot from which it started, and the
// events that it had received.
type followerRecord struct {
	Snapshot loquat.Snapshot   `json:"snapshot"`
	Events   []json.RawMessage `json:"events"`
}

// served is the answer to a GET.
type served struct {
	Token  string          `json:"token"` // its name
	Path   string          `json:"path"`
	Status int             `json:"status"`
	ETag   string          `json:"etag,omitempty"`
	Body   json.RawMessage `json:"body,omitempty"`
	Code   loquat.Code     `json:"code,omitempty"`   // of an error
	SHA256 string          `json:"sha256,omitempty"` // of a body that is not JSON
}

// load makes a GET.
func load(ctx context.Context, url, token, path string) (s served, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+path, nil)
	if err != nil {
		return s, err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return s, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return s, err
	}
	s = served{Path: path, Status: resp.StatusCode, ETag: resp.Header.Get("ETag")}
	switch contentType := resp.Header.Get("Content-Type"); {
	case resp.StatusCode >= 400: // the texts of errors may change
		var problem struct{ Code loquat.Code }
		err = json.Unmarshal(body, &problem)
		s.Code = problem.Code
	case strings.HasPrefix(contentType, "application/json"):
		var compact bytes.Buffer
		err = json.Compact(&compact, body)
		s.Body = compact.Bytes()
	default:
		sum := sha256.Sum256(body)
		s.SHA256 = hex.EncodeToString(sum[:])
	}
	return s, err
}

// comparable returns an answer in a form that is equal for two programs that open the same
// directory. What a start writes itself has ids and times of its own.
func (r recording) comparable(t *testing.T, s served) string {
	t.Helper()
	var body any
	if s.Body != nil {
		decoder := json.NewDecoder(bytes.NewReader(s.Body))
		decoder.UseNumber()
		if err := decoder.Decode(&body); err != nil {
			t.Fatalf("%s: %v", s.Path, err)
		}
	}
	if answer, ok := body.(map[string]any); ok && strings.HasPrefix(s.Path, "/events?since_id") {
		answer["events"] = r.settledEvents(answer)
	}
	if answer, ok := body.(map[string]any); ok && strings.HasPrefix(s.Path, "/sessions?") {
		answer["sessions"] = r.settledSessions(answer)
	}
	if answer, ok := body.(map[string]any); ok {
		dropGained(s.Path, answer)
	}
	etag := strings.Trim(s.ETag, `"`)
	n := r.normalizerOf(body, etag)
	text, err := json.MarshalIndent(n.normalize(body), "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d %s etag %v %s\n%s\n", s.Status, s.Code, n.normalize(etag), s.SHA256, text)
}

// dropGained removes what answers have gained since the recorded versions: fields, and a type of event.
func dropGained(path string, answer map[string]any) {
	if strings.HasPrefix(path, "/sessions") {
		delete(answer, "queue")
		delete(answer, "last_request")
	}
	if strings.HasPrefix(path, "/requests/") {
		delete(answer, "usage")
	}
	if strings.HasPrefix(path, "/sessions?") {
		delete(answer, "cursor_event_id")
	}
	events, ok := answer["events"].([]any)
	if !ok {
		return
	}
	answer["events"] = slices.DeleteFunc(events, func(e any) bool { return e.(map[string]any)["type"] == "queue_changed" })
	for _, e := range events {
		if event, ok := e.(map[string]any); ok && event["type"] == "checkpoint" {
			delete(event, "message_count")
		}
	}
}

// settledSessions orders by their ids the sessions that changed after the kill, which are the first
// of a list: a start ends what the kill interrupted concurrently.
func (r recording) settledSessions(answer map[string]any) []any {
	sessions, _ := answer["sessions"].([]any)
	changed := 0
	for _, s := range sessions {
		at, err := time.Parse(time.RFC3339Nano, s.(map[string]any)["updated_at"].(string))
		if err != nil || !at.After(r.Killed) {
			break
		}
		sessions[changed] = r.normalizerOf(s).normalize(s)
		changed++
	}
	slices.SortFunc(sessions[:changed], func(a, b any) int {
		return strings.Compare(a.(map[string]any)["session_id"].(string), b.(map[string]any)["session_id"].(string))
	})
	return sessions
}

// settledEvents leaves out what depends on when a window of all sessions is read: the events
// of the start, and increments, which are superseded when their request has ended.
func (r recording) settledEvents(answer map[string]any) []any {
	events, _ := answer["events"].([]any)
	return slices.DeleteFunc(events, func(e any) bool {
		event := e.(map[string]any)
		kind, id := event["type"], event["event_id"].(string)
		return kind == "partial" || kind == "tool_partial" || id > r.Newest.String()
	})
}

// normalizer replaces ids and times that are later than the kill.
type normalizer struct {
	recording recording
	later     map[string]string // names of event ids
}

// normalizerOf returns a normalizer that knows the ids in values.
func (r recording) normalizerOf(values ...any) normalizer {
	n := normalizer{recording: r, later: map[string]string{}}
	for _, v := range values {
		n.rankLater(v)
	}
	n.nameLater()
	return n
}

var eventID = regexp.MustCompile(`^\d{16}$`)

// rankLater collects the event ids that are later than the kill.
func (n normalizer) rankLater(v any) {
	switch v := v.(type) {
	case map[string]any:
		for _, field := range v {
			n.rankLater(field)
		}
	case []any:
		for _, element := range v {
			n.rankLater(element)
		}
	case string:
		if eventID.MatchString(v) && v > n.recording.Newest.String() {
			n.later[v] = ""
		}
	}
}

// nameLater names the collected ids by their order.
func (n normalizer) nameLater() {
	for i, id := range slices.Sorted(maps.Keys(n.later)) {
		n.later[id] = fmt.Sprint("event ", i+1, " after the kill")
	}
}

func (n normalizer) normalize(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, field := range v {
			v[key] = n.normalize(field)
		}
		delete(v, "last_used_on") // the day of the test
		return v
	case []any:
		for i := range v {
			v[i] = n.normalize(v[i])
		}
		return v
	case string:
		return n.normalizeText(v)
	}
	return v
}

func (n normalizer) normalizeText(s string) string {
	if name, ok := n.later[s]; ok {
		return name
	}
	if at, err := time.Parse(time.RFC3339Nano, s); err == nil && at.After(n.recording.Killed) {
		return "after the kill"
	}
	if id, err := uuid.Parse(s); err == nil && id.Version() == 7 {
		seconds, nanos := id.Time().UnixTime()
		if time.Unix(seconds, nanos).After(n.recording.Killed) {
			return "an id from after the kill"
		}
	}
	return s
}
