package loquat

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"
)

// encodeReference encodes v with encoding/json, without escaping HTML.
func encodeReference(t *testing.T, v any) string {
	t.Helper()
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSuffix(buf.String(), "\n")
}

var awkward = []string{
	"", "plain", "\"quoted\" \\ /", "\x00\x01\x1f\x7f", "\b\f\n\r\t", "é … 漢字 🙂", "\u2028\u2029\u202a", "<b>&amp;</b>",
	"\xff", "a\xc3", "\xed\xa0\x80", "\ufffd", strings.Repeat("long ", 1000) + "\n",
}

func TestAppendString(t *testing.T) {
	for _, s := range awkward {
		checkString(t, s)
	}
}

// Each character is escaped at each place of a text. The encoder reads several characters at once.
func TestAppendStringAtEachPlace(t *testing.T) {
	for c := range rune(0x180) {
		for at := range 20 {
			checkString(t, strings.Repeat("a", at)+string(c)+strings.Repeat("~", 19-at))
			checkString(t, strings.Repeat("!", at)+string([]byte{byte(c)})+strings.Repeat(" ", 19-at))
		}
	}
}

func FuzzAppendString(f *testing.F) {
	for _, s := range awkward {
		f.Add(s)
	}
	f.Fuzz(checkString)
}

func checkString(t *testing.T, s string) {
	got := string(AppendString([]byte("before"), s))
	if want := "before" + encodeReference(t, s); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if quoted := string(Quote(s)); "before"+quoted != got {
		t.Errorf("Quote(%q) = %q", s, quoted)
	}
}

func FuzzPartialEncoding(f *testing.F) {
	f.Add("s", "r", "assistant", "hello", "reasoning", `"x"`)
	f.Add("", "", "", "\u2028\xff", "a key with \"quotes\"", "{\n \"a\": [1, 2]\r\n}")
	f.Add("s", "r", "assistant", "", "", ``)
	f.Add("0", "0", "0", "0", "0", "\"\xd2\xc8\"")
	f.Fuzz(func(t *testing.T, session, request, role, content, key, value string) {
		e := Event{Type: Partial, SessionID: session, RequestID: request, Message: &Delta{Role: role, Content: content}}
		if raw := new(bytes.Buffer); json.Compact(raw, []byte(value)) == nil {
			e.Message.Metadata = Object{key: raw.Bytes(), "other": json.RawMessage(`[1]`)}
		}
		rec, err := e.Encode()
		if err != nil {
			t.Fatal(err)
		}
		// encoding/json copies invalid UTF-8 in raw values; here each invalid byte becomes U+FFFD.
		if want := string([]rune(encodeReference(t, e))); string(rec.Body) != want {
			t.Errorf("got  %s\nwant %s", rec.Body, want)
		}
		if bytes.ContainsAny(rec.Body, "\n\r") {
			t.Errorf("more than one line: %q", rec.Body)
		}
	})
}

// A partial is one line of valid UTF-8 even if a raw value has several lines, is not valid
// JSON or is not valid UTF-8.
func TestPartialStaysOnOneLine(t *testing.T) {
	for value, want := range map[string]string{
		"{\n\"a\":\r\n1}": `{"a":1}`,
		"{\n":             `null`,
		"":                `null`,
		"\"a\x94\"":       "\"a\ufffd\"",
	} {
		e := Event{Type: Partial, SessionID: "s", Message: &Delta{Metadata: Object{"k": json.RawMessage(value)}}}
		rec, err := e.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if want := `{"type":"partial","session_id":"s","message":{"role":"","content":"","metadata":{"k":` + want + `}}}`; string(rec.Body) != want {
			t.Errorf("%q became %s", value, rec.Body)
		}
	}
}

func TestEventRoundTrip(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	yes, zero, text, num := true, 0, "", 1.5
	message := Message{ID: "m", Role: RoleTool, Content: "<c>", Metadata: Object{}.Set(MetaToolCallID, "c"), CreatedAt: at}
	for _, e := range []Event{
		{Type: RequestStarted, Stream: &yes},
		{Type: Partial, Message: &Delta{Role: RoleAssistant, Content: "a\n", Metadata: Object{}.Set("reasoning", "<b>")}},
		{Type: Final, Messages: []Message{message}},
		{Type: ToolCalls, ToolCalls: []ToolCall{{ID: "c", Name: "f", Arguments: "{", Extra: Object{}.Set("type", "function")}}},
		{Type: ToolPartial, ToolCallID: "c", Phase: PhaseStart, Payload: &Payload{Part: &text}},
		{Type: ToolPartial, ToolCallID: "c", Phase: PhaseEnd, Payload: &Payload{Result: &message}},
		{Type: MessageAppended, Role: RoleTool, Content: &text, Message: message.AsDelta()},
		{Type: MessageModified, Index: &zero, Content: &text},
		{Type: MessagesDeleted, Indices: []int{0}},
		{Type: RetryScheduled, Attempt: 1, Cause: CauseStatus, Status: 503, DelaySeconds: &num, ResumeAt: &at},
		{Type: Checkpoint, Timestamp: &at, AgentID: "a", Metadata: Object{}.Set("k", nil)},
	} {
		e.SessionID, e.RequestID = "s", "r"
		rec, err := e.Encode()
		if err != nil {
			t.Fatal(err)
		}
		rec.ID, e.EventID = 7, 7
		got, err := rec.Decode()
		if err != nil || !reflect.DeepEqual(got, e) {
			t.Errorf("%s: got %+v, %v", rec.Body, got, err)
		}
	}
}

func TestEncodeLeavesIDAndSessionOut(t *testing.T) {
	e := Event{EventID: 9, Type: Checkpoint, SessionID: "s", Session: &Session{SessionID: "s"}}
	rec, err := e.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(rec.Body), `{"type":"checkpoint","session_id":"s"}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if e.EventID != 9 || e.Session == nil {
		t.Error("the caller's event has changed")
	}
	rec.ID = 12
	if got, want := string(rec.AppendJSON(nil, nil)), `{"event_id":"0000000000000012","type":"checkpoint","session_id":"s"}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := string(rec.AppendJSON([]byte("data: "), []byte(`{"a":1}`))),
		`data: {"event_id":"0000000000000012","type":"checkpoint","session_id":"s","session":{"a":1}}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func BenchmarkEncodePartial(b *testing.B) {
	e := partialOf("0123456789abcdef", "some words ", nil)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := e.Encode(); err != nil {
			b.Fatal(err)
		}
	}
}

// Clean replaces U+0000, but not the text \u0000 after an escaped backslash.
func TestClean(t *testing.T) {
	for raw, want := range map[string]string{
		`"a\u0000b"`: `"a\ufffdb"`, `"\\u0000"`: `"\\u0000"`, `"\\\u0000"`: `"\\\ufffd"`, `{"\u0000":["\u0000","\u00000"]}`: `{"\ufffd":["\ufffd","\ufffd0"]}`,
		`"\u00e9\n"`: `"\u00e9\n"`, "\"\xff\\u0000\"": "\"\ufffd\\ufffd\"", `7`: `7`, ``: ``,
		`"\u0000\`: `"\ufffd\`, // not JSON
	} {
		if got := string(CleanRaw([]byte(raw))); got != want {
			t.Errorf("%s becomes %s, want %s", raw, got, want)
		}
	}
	o := Object{"a\x00": []byte(`"\u0000"`), "b": []byte(`1`)}
	o.Clean()
	if got := encodeReference(t, o); got != `{"a�":"\ufffd","b":1}` {
		t.Errorf("the object is %s", got)
	}
}

func FuzzCleanRaw(f *testing.F) {
	for _, s := range awkward {
		f.Add(string(Quote(s + `\u0000`)))
	}
	f.Fuzz(func(t *testing.T, text string) {
		var before, after any
		if json.Unmarshal([]byte(text), &before) != nil {
			CleanRaw([]byte(text)) // invalid JSON must not make it panic
			return
		}
		if err := json.Unmarshal(CleanRaw([]byte(text)), &after); err != nil {
			t.Fatalf("%q becomes %q: %v", text, CleanRaw([]byte(text)), err)
		}
		if s, ok := after.(string); ok && s != CleanText(before.(string)) {
			t.Errorf("%q became %q", before, after)
		}
	})
}

// The messages of a large event are encoded as small ones are, into a buffer of the right
// size.
func TestLargeEvents(t *testing.T) {
	at := time.Date(2026, 11, 22, 1, 2, 3, 4_000_000, time.UTC)
	for i, text := range awkward {
		kind := []EventType{Final, ToolResults}[i%2]
		long := strings.Repeat("<"+text+">", largeObject/(len(text)+2)+1)
		e := Event{Type: kind, SessionID: "s", RequestID: []string{"r", ""}[i/2%2], Messages: []Message{
			{ID: "m1", Role: RoleAssistant, Content: long, CreatedAt: at, Metadata: Object{"reasoning": Quote(long), "n": []byte(`1`)}},
			{ID: "m2", Role: RoleTool, Content: text, CreatedAt: at},
		}}
		if !e.isLarge() {
			t.Fatal("it is not large")
		}
		rec, err := e.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if got, want := string(rec.Body), encodeReference(t, e); got != want {
			t.Errorf("%s of %q\ngot  %.300s\nwant %.300s", kind, text, got, want)
		}
		if len(rec.Body) < cap(rec.Body)*9/10 {
			t.Errorf("%s of %q: %d bytes in a buffer of %d", kind, text, len(rec.Body), cap(rec.Body))
		}
		if parsed, err := ParseRecord(rec.Body); err != nil || parsed.Type != kind || parsed.SessionID != "s" || parsed.RequestID != e.RequestID {
			t.Errorf("it is read back as %.300v, %v", parsed, err)
		}
		metadata, err := e.Messages[0].Metadata.Encode()
		if err != nil || string(metadata) != encodeReference(t, e.Messages[0].Metadata) {
			t.Errorf("metadata of %q: %.300s, %v", text, metadata, err)
		}
	}
	broken := Event{Type: Final, Messages: []Message{{Content: strings.Repeat("x", largeObject), Metadata: Object{"m": []byte("{")}}}}
	if _, err := broken.Encode(); err == nil {
		t.Error("metadata that is not valid JSON is encoded")
	}
	if _, err := (Object{"m": []byte("{" + strings.Repeat(" ", largeObject))}).Encode(); err == nil {
		t.Error("an object that is not valid JSON is encoded")
	}
}

// All encoders of a message write what encoding/json does.
func TestEncodersOfMessages(t *testing.T) {
	at := time.Date(2026, 11, 22, 1, 2, 3, 4_000_000, time.UTC)
	for _, metadata := range []Object{nil, {"b": []byte(`[1]`)}, {"b": []byte(`[1]`), "a": []byte(`"<x>"`), "c": []byte(`{}`)}} {
		m := Message{ID: "m\"1", Role: RoleUser, Content: "<a>\n", CreatedAt: at, Metadata: metadata}
		want := encodeReference(t, m)
		encoded, err := metadata.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if metadata == nil {
			encoded = nil
		}
		whole, err := m.AppendJSON([]byte("-"), nil)
		if got := string(whole); err != nil || got != "-"+want {
			t.Errorf("AppendJSON: %s, %v; want %s", got, err, want)
		}
		if got := string(m.AppendEncoded([]byte("-"), encoded)); got != "-"+want {
			t.Errorf("AppendEncoded: %s, want %s", got, want)
		}
		large := map[string]func([]byte) ([]byte, error){"": func(dst []byte) ([]byte, error) { return AppendEscaped(dst, "<a>\n"), nil }}
		without := Message{ID: m.ID, Role: m.Role, CreatedAt: at, Metadata: Object{}}
		for key, raw := range metadata {
			if key == "b" {
				without.Metadata[key] = raw
				continue
			}
			large[key] = func(dst []byte) ([]byte, error) { return append(dst, raw...), nil }
		}
		pieces, err := without.AppendJSON(nil, large)
		if got := string(pieces); err != nil || got != want {
			t.Errorf("AppendJSON with large values: %s, %v; want %s", got, err, want)
		}
	}
	for _, field := range []string{"", "reasoning"} {
		large := map[string]func([]byte) ([]byte, error){field: func(dst []byte) ([]byte, error) { return dst, errors.ErrUnsupported }}
		if _, err := (Message{}).AppendJSON(nil, large); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("a large value %q that cannot be read: %v", field, err)
		}
	}
}

func TestOneLine(t *testing.T) {
	for raw, want := range map[string]string{`{"a": 1}`: `{"a": 1}`, "{\n\"a\":\r1}": `{"a":1}`, "[\n": "[\n", "\"a\x94\"": "\"a\ufffd\""} {
		if got := string(OneLine([]byte(raw))); got != want {
			t.Errorf("%q becomes %q, want %q", raw, got, want)
		}
	}
}

// A DraftBuilder adds up to what a fold shows. A value of another kind replaces the one before.
func TestDraftBuilder(t *testing.T) {
	var b DraftBuilder
	if b.Delta() != nil {
		t.Error("nothing adds up to something")
	}
	deltas := []Delta{
		{Role: RoleAssistant, Content: "a", Metadata: Object{"reasoning": []byte(`"x\"y"`), "reasoning_content": []byte(`"a"`), "list": []byte(`[1]`), "n": []byte(`1`)}},
		{Role: RoleAssistant, Content: "b", Metadata: Object{"reasoning": []byte(`""`), "reasoning_content": []byte(`null`), "list": []byte(` [ ] `), "n": []byte(`2`)}},
		{Role: RoleAssistant, Content: strings.Repeat("c", 3<<20), Metadata: Object{"reasoning": []byte(`"z"`), "reasoning_content": []byte(`""`), "list": []byte(`[2, 3]`), "other": []byte(`"t"`)}},
		{Role: RoleAssistant, Metadata: Object{"other": []byte(`"u"`)}},
	}
	want := deltas[0]
	for i, d := range deltas {
		b.Add(d)
		if i > 0 {
			want = mergeDelta(want, d)
		}
	}
	if got := b.Delta(); !reflect.DeepEqual(*got, want) || string(got.Metadata["reasoning"]) != `"x\"yz"` || string(got.Metadata["list"]) != `[1,2, 3]` || string(got.Metadata["other"]) != `"u"` || string(got.Metadata["reasoning_content"]) != `""` {
		t.Errorf("it adds up to %.200q", got.Metadata)
	}
	if b.Delta() != nil {
		t.Error("it was not emptied")
	}
}

// short is a writer that fails after some writes.
type short struct {
	bytes.Buffer
	left int
}

func (s *short) Write(p []byte) (int, error) {
	if s.left--; s.left < 0 {
		return 0, errors.ErrUnsupported
	}
	return s.Buffer.Write(p)
}

// WriteJSON writes what AppendJSON appends, and stops when it cannot be written.
func TestWriteRecord(t *testing.T) {
	rec := record(t, 12, Event{Type: ErrorEvent, SessionID: "s", Detail: "<b>"})
	if !bytes.Contains(rec.Body, []byte("<b>")) {
		t.Errorf("HTML characters are escaped: %s", rec.Body)
	}
	session := []byte(`{"a":1}`)
	for _, c := range []struct {
		session []byte
		write   func(io.Writer) error
		writes  int
	}{
		{nil, nil, 2},
		{session, func(w io.Writer) error { _, err := w.Write(session); return err }, 5},
	} {
		want := string(rec.AppendJSON(nil, c.session))
		for left := range c.writes + 2 {
			w := short{left: left}
			err := rec.WriteJSON(&w, c.write)
			if (err != nil) != (left < c.writes) || !strings.HasPrefix(want, w.String()) || err == nil && w.String() != want || err != nil && !errors.Is(err, errors.ErrUnsupported) || w.left < -1 {
				t.Errorf("after %d writes: %q, %v; want %q", left, w.String(), err, want)
			}
		}
	}
	if _, err := (Event{Type: Checkpoint, Metadata: Object{"k": []byte(`{`)}}).Encode(); err == nil {
		t.Error("an event that is not valid JSON is encoded")
	}
	if _, err := (Record{Body: []byte(`{`)}).Decode(); err == nil {
		t.Error("a record that is not valid JSON is decoded")
	}
	if got := (Delta{ID: "i", Content: "c"}).AsMessage(); got.ID != "i" || got.Content != "c" || !got.CreatedAt.IsZero() {
		t.Errorf("a message without a time is %+v", got)
	}
	if got := (FieldError{Value: strings.Repeat("x", 2*Excerpt)}).Clipped().Value; got != Clip(strings.Repeat("x", 2*Excerpt), Excerpt) {
		t.Errorf("a long value is %q", got)
	}
}
