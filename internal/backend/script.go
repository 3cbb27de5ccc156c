package backend

import (
	"encoding/json"
	"fmt"
	"loquat/internal/strictjson"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// scriptHeader is the header for a Script. `loquat_script` in the body is an alternative. If
// a request has both, the header's directives win.
const scriptHeader = "X-Loquat-Script"

// Script sets what the backend answers, how fast, and how it fails. The zero value changes
// nothing. docs/backend.md describes each directive.
type Script struct {
	ID        string            `json:"id"`         // attempts are counted for each id; default: the script itself
	Attempts  []json.RawMessage `json:"attempts"`   // one script per attempt, merged over this one; the last repeats
	FailTimes int               `json:"fail_times"` // number of attempts with faults; 0: all

	// The content of the reply.
	Text            *string         `json:"text"`
	Refusal         string          `json:"refusal"`
	Reasoning       string          `json:"reasoning"`
	ReasoningField  string          `json:"reasoning_field"`
	ToolCalls       []scriptedCall  `json:"tool_calls"`
	RepeatToolCalls bool            `json:"repeat_tool_calls"` // also after tool results
	Chunks          int             `json:"chunks"`
	ChunkBytes      int             `json:"chunk_bytes"`
	Usage           json.RawMessage `json:"usage"`
	NoUsage         bool            `json:"no_usage"`
	FinishReason    string          `json:"finish_reason"`
	NoFinishReason  bool            `json:"no_finish_reason"`
	NoDone          bool            `json:"no_done"`
	ContentType     string          `json:"content_type"`
	ContentEncoding string          `json:"content_encoding"` // gzip and deflate compress the body; others are only named

	// The pace and the framing of a stream.
	Rate         *float64 `json:"rate"` // chunks per second; 0: unlimited
	CommentEvery int      `json:"comment_every"`
	Reframe      Reframe  `json:"reframe"`

	// Faults.
	DelayMS          int             `json:"delay_ms"`
	FirstByteDelayMS int             `json:"first_byte_delay_ms"`
	Status           int             `json:"status"`
	RetryAfter       json.RawMessage `json:"retry_after"` // seconds, or any text
	Body             json.RawMessage `json:"body"`        // a string is sent as it is
	DropAfter        *int            `json:"drop_after"`
	Drop             string          `json:"drop"`
	StallAfter       *int            `json:"stall_after"`
	ErrorAfter       *int            `json:"error_after"`
	MalformedAfter   *int            `json:"malformed_after"`
	TruncateUTF8     bool            `json:"truncate_utf8"`
}

type scriptedCall struct {
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"` // a string is sent as it is
}

// The ways in which drop_after closes the connection.
const (
	dropReset = "reset" // with a TCP reset
	dropShort = "short" // before the end of the body
	dropClean = "clean" // as if the response were complete
)

// layer holds the directives that one script sets. Scripts are merged layer over layer. A
// null removes the directive of the layers below.
type layer map[string]json.RawMessage

func parseLayer(data []byte) (layer, error) {
	o, err := strictjson.Object(data)
	if err != nil {
		return nil, fmt.Errorf("a script must be a JSON object: %w", err)
	}
	return layer(o), nil
}

// mergeOver returns below with the directives of l set.
func (l layer) mergeOver(below layer) layer {
	if len(l) == 0 {
		return below
	}
	merged := layer{}
	maps.Copy(merged, below)
	for key, value := range l {
		if string(value) == "null" {
			delete(merged, key)
			continue
		}
		merged[key] = value
	}
	return merged
}

func (l layer) script() (Script, error) {
	var s Script
	if len(l) == 0 {
		return s, nil
	}
	data, err := json.Marshal(l)
	if err != nil {
		return s, err
	}
	if err := strictjson.Decode(data, &s); err != nil {
		return s, fmt.Errorf("%w; docs/backend.md lists the directives", err)
	}
	return s, s.validate()
}

// validateAttempts validates the script and all of its attempts.
func (l layer) validateAttempts() error {
	s, err := l.script()
	for i := 0; err == nil && i < len(s.Attempts); i++ {
		_, err = l.scriptOfAttempt(s, i)
	}
	return err
}

// scriptOfAttempt returns the script of an attempt, counted from 0.
func (l layer) scriptOfAttempt(s Script, attempt int) (Script, error) {
	if len(s.Attempts) > 0 {
		i := min(attempt, len(s.Attempts)-1)
		top, err := parseLayer(s.Attempts[i])
		if err != nil {
			return s, fmt.Errorf("attempts[%d]: %w", i, err)
		}
		for _, key := range []string{"id", "attempts", "fail_times"} {
			if _, ok := top[key]; ok {
				return s, fmt.Errorf("attempts[%d].%s: belongs to the script as a whole", i, key)
			}
		}
		merged, err := top.mergeOver(l).script()
		if err != nil {
			return s, fmt.Errorf("attempts[%d]: %w", i, err)
		}
		s = merged
	}
	if s.FailTimes > 0 && attempt >= s.FailTimes {
		s = s.withoutFaults()
	}
	return s, nil
}

// scriptFor returns the script of a request, and the number of the script's attempt, from 1.
// The number is 0 if attempts are not counted, because the script has no id and does not
// depend on the attempt.
func (b *Backend) scriptFor(r *http.Request, req *chatRequest) (Script, int, error) {
	l := b.base
	for _, data := range [][]byte{req.Script, []byte(r.Header.Get(scriptHeader))} {
		if len(data) == 0 || string(data) == "null" {
			continue
		}
		top, err := parseLayer(data)
		if err != nil {
			return Script{}, 0, err
		}
		l = top.mergeOver(l)
	}
	s, err := l.script()
	if err != nil || s.ID == "" && len(s.Attempts) == 0 && s.FailTimes == 0 {
		return s, 0, err
	}
	if err := l.validateAttempts(); err != nil {
		return s, 0, err
	}
	n := b.attempts.next(l.key(s))
	s, err = l.scriptOfAttempt(s, n)
	return s, n + 1, err
}

// key returns the key by which attempts are counted.
func (l layer) key(s Script) string {
	if s.ID != "" {
		return s.ID
	}
	data, err := json.Marshal(l) // sorts the directives, so that equal scripts have equal keys
	if err != nil {
		panic(err) // cannot happen: the layer was parsed from JSON
	}
	return string(data)
}

func (s Script) withoutFaults() Script {
	s.DelayMS, s.FirstByteDelayMS, s.Status = 0, 0, 0
	s.RetryAfter, s.Body = nil, nil
	s.DropAfter, s.StallAfter, s.ErrorAfter, s.MalformedAfter = nil, nil, nil, nil
	s.TruncateUTF8 = false
	return s
}

// The bounds of a script's numbers.
const (
	maxChunks     = 100_000_000 // for filler; maxTextChunks is the bound for text
	maxTextChunks = 1_000_000
	maxChunkBytes = 1 << 20
	maxDelay      = 30 * time.Minute
	maxWhole      = 64 << 20 // bytes of text in an answer that is not streamed
)

func (s Script) validate() error {
	bounds := []struct {
		name       string
		value, max int
	}{
		{"chunks", s.Chunks, maxChunks},
		{"chunk_bytes", s.ChunkBytes, maxChunkBytes},
		{"comment_every", s.CommentEvery, maxChunks},
		{"fail_times", s.FailTimes, maxChunks},
		{"delay_ms", s.DelayMS, int(maxDelay / time.Millisecond)},
		{"first_byte_delay_ms", s.FirstByteDelayMS, int(maxDelay / time.Millisecond)},
	}
	for _, b := range bounds {
		if b.value < 0 || b.value > b.max {
			return fmt.Errorf("%s: %d is out of range, allowed is 0 to %d", b.name, b.value, b.max)
		}
	}
	positions := []struct {
		name string
		at   *int
		min  int
	}{
		{"drop_after", s.DropAfter, -1}, {"stall_after", s.StallAfter, 0},
		{"error_after", s.ErrorAfter, 0}, {"malformed_after", s.MalformedAfter, 0},
	}
	for _, p := range positions {
		if p.at != nil && *p.at < p.min {
			return fmt.Errorf("%s: %d is out of range, allowed is %d and up", p.name, *p.at, p.min)
		}
	}
	switch {
	case s.Text != nil && s.Chunks > maxTextChunks:
		return fmt.Errorf("chunks: a text is cut into at most %d", maxTextChunks)
	case s.Status != 0 && (s.Status < 200 || s.Status > 599):
		return fmt.Errorf("status: %d is out of range, allowed is 200 to 599", s.Status)
	case s.Rate != nil && (*s.Rate < 0 || *s.Rate > 1e6):
		return fmt.Errorf("rate: %v is out of range, allowed is 0 (as fast as it goes) to 1000000", *s.Rate)
	case !slices.Contains([]string{"", dropReset, dropShort, dropClean}, s.Drop):
		return fmt.Errorf("drop: %q is unknown, allowed are reset, short and clean", s.Drop)
	case !slices.Contains([]string{"", "reasoning", "reasoning_content"}, s.ReasoningField):
		return fmt.Errorf("reasoning_field: %q is unknown, allowed are reasoning and reasoning_content", s.ReasoningField)
	case strings.ContainsAny(s.ContentType+s.ContentEncoding+s.retryAfter(), "\r\n"):
		return fmt.Errorf("content_type, content_encoding, retry_after: a header has no line ends")
	}
	return s.Reframe.validate()
}

func (s Script) retryAfter() string { return stringOrRaw(s.RetryAfter) }

// errorBody returns the body of a script that sets a status.
func (s Script) errorBody() *body {
	b := &body{status: s.Status, contentType: contentJSON, retryAfter: s.retryAfter()}
	switch {
	case len(s.Body) == 0:
		b.whole = newAPIError(s.Status, "", "scripted",
			"The scripted backend answers with status %d, as its script says.", s.Status).json()
	case s.Body[0] == '"':
		b.contentType = "text/plain; charset=utf-8"
		b.whole = []byte(stringOrRaw(s.Body))
	default:
		b.whole = s.Body
	}
	return b
}

// stringOrRaw returns the text of a JSON string, or the JSON of any other value.
func stringOrRaw(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	return string(raw)
}

// ParseFaults returns a script of faults such as `status=503,times=2`. A fault consists of
// directives of Script and of the number of attempts for which they hold. The faults apply
// one after another. If the last fault is limited too, later attempts have no faults.
func ParseFaults(faults []string) (json.RawMessage, error) {
	var attempts []layer
	for i, f := range faults {
		l, times, err := parseFault(f)
		if err != nil {
			return nil, fmt.Errorf("fault %q: %w", f, err)
		}
		if times == 0 && i < len(faults)-1 {
			return nil, fmt.Errorf("fault %q: without times=N the faults after it never apply", f)
		}
		for range max(times, 1) {
			attempts = append(attempts, l)
		}
		if times > 0 && i == len(faults)-1 {
			attempts = append(attempts, layer{})
		}
	}
	return json.Marshal(map[string]any{"attempts": attempts})
}

func parseFault(f string) (l layer, times int, err error) {
	l = layer{}
	for pair := range strings.SplitSeq(f, ",") {
		key, value, ok := strings.Cut(pair, "=")
		switch {
		case !ok || key == "":
			return nil, 0, fmt.Errorf("%q is not directive=value", pair)
		case key == "times":
			times, err = strconv.Atoi(value)
			if err != nil || times < 1 || times > 1000 {
				return nil, 0, fmt.Errorf("times: %q is not a number from 1 to 1000", value)
			}
		case json.Valid([]byte(value)):
			l[key] = json.RawMessage(value)
		default:
			quoted, err := json.Marshal(value)
			if err != nil {
				return nil, 0, err
			}
			l[key] = quoted
		}
	}
	if len(l) == 0 {
		return nil, 0, fmt.Errorf("contains no directive")
	}
	_, err = l.script()
	return l, times, err
}

// Overlay merges scripts. The directives of later scripts win.
func Overlay(scripts ...json.RawMessage) (json.RawMessage, error) {
	var merged layer
	for _, s := range scripts {
		if len(s) == 0 {
			continue
		}
		l, err := parseLayer(s)
		if err != nil {
			return nil, err
		}
		merged = l.mergeOver(merged)
	}
	if merged == nil {
		return nil, nil
	}
	return json.Marshal(merged)
}
