package sse

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// listEvents reads a stream and returns one string for each event.
func listEvents(r io.Reader, maxEvent int) []string {
	var out []string
	for ev, err := range Events(r, maxEvent) {
		if err != nil {
			return append(out, "error "+err.Error())
		}
		kind := [...]string{"message", "no data", "comment", "unknown"}[ev.Kind]
		s := fmt.Sprintf("%s %q %q id=%q", kind, ev.Name, ev.Data, ev.ID)
		if ev.Retry > 0 {
			s += " retry=" + ev.Retry.String()
		}
		if ev.Unterminated {
			s += " unterminated"
		}
		out = append(out, s)
	}
	return out
}

func TestEvents(t *testing.T) {
	for _, tc := range []struct {
		name, in string
		want     []string
	}{
		{"nothing", "", nil},
		{"blank lines", "\n\n\r\n\r", nil},
		{"data", "data: a\n\n", []string{`message "" "a" id=""`}},
		{"no space", "data:a\n\n", []string{`message "" "a" id=""`}},
		{"one space only", "data:  a\n\n", []string{`message "" " a" id=""`}},
		{"lines are joined", "data: a\ndata:\ndata: b\n\n", []string{`message "" "a\n\nb" id=""`}},
		{"no colon", "data\n\n", []string{`message "" "" id=""`}},
		{"carriage returns", "data: a\rdata: b\r\rdata: c\r\r", []string{`message "" "a\nb" id=""`, `message "" "c" id=""`}},
		{"crlf", "event: e\r\ndata: a\r\n\r\n", []string{`message "e" "a" id=""`}},
		{"byte order mark", "\xef\xbb\xbfdata: a\n\n", []string{`message "" "a" id=""`}},
		{"second byte order mark is part of a field", "\xef\xbb\xbf\xef\xbb\xbfdata: a\n\n", []string{`unknown "\ufeffdata" "a" id=""`}},
		{"comments", ": OPENROUTER PROCESSING\n\n:\n\n", []string{`comment "" "OPENROUTER PROCESSING" id=""`, `comment "" "" id=""`}},
		{"comment inside", "data: a\n: ping\ndata: b\n\n", []string{`comment "" "ping" id=""`, `message "" "a\nb" id=""`}},
		{"unterminated", "data: a\n\ndata: b", []string{`message "" "a" id=""`, `message "" "b" id="" unterminated`}},
		{"line without blank", "data: b\n", []string{`message "" "b" id="" unterminated`}},
		{"event without data", "event: e\n\ndata: a\n\n", []string{`message "" "a" id=""`}},
		{"id alone, kept", "id: 7\n\ndata: a\n\n", []string{`no data "" "" id="7"`, `message "" "a" id="7"`}},
		{"id with NUL", "id: 7\x00\ndata: a\n\n", []string{`message "" "a" id=""`}},
		{"retry", "retry: 1500\n\nretry: 1.5\ndata: a\n\n", []string{`no data "" "" id="" retry=1.5s`, `message "" "a" id=""`}},
		{"unknown field", `error: {"a":1}` + "\n\n", []string{`unknown "error" "{\"a\":1}" id=""`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for how, r := range map[string]io.Reader{
				"whole":           strings.NewReader(tc.in),
				"by bytes":        iotest.OneByteReader(strings.NewReader(tc.in)),
				"by halves":       iotest.HalfReader(strings.NewReader(tc.in)),
				"data with error": iotest.DataErrReader(strings.NewReader(tc.in)),
			} {
				if got := listEvents(r, 0); fmt.Sprint(got) != fmt.Sprint(tc.want) {
					t.Errorf("%s:\n got %q\nwant %q", how, got, tc.want)
				}
			}
		})
	}
}

func TestCutStream(t *testing.T) {
	cut := errors.New("reset")
	r := io.MultiReader(strings.NewReader("data: a\n\ndata: b\n"), iotest.ErrReader(cut))
	got := listEvents(r, 0)
	want := []string{`message "" "a" id=""`, "error reset"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %q, want %q: an event that is cut by an error is not returned", got, want)
	}
}

func TestBounds(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	if got := listEvents(strings.NewReader("data: "+long+"\n\n"), 0); len(got) != 1 || !strings.Contains(got[0], long) {
		t.Errorf("a line of 1 MiB is not complete")
	}
	for name, in := range map[string]string{
		"line":  "data: " + long,
		"event": strings.Repeat("data: x\n", 200_000),
	} {
		for _, err := range Events(strings.NewReader(in), 1<<19) {
			if !errors.Is(err, ErrTooLarge) {
				t.Errorf("%s over the bound: %v", name, err)
			}
		}
	}
	many := strings.Repeat("data: x\n\n: comment\n\n", 100_000)
	if got := listEvents(strings.NewReader(many), 64); len(got) != 200_000 {
		t.Errorf("got %d events: the bound must apply to single events, not to the stream", len(got))
	}
}

func TestStuckReader(t *testing.T) {
	for _, err := range Events(stuck{}, 0) {
		if !errors.Is(err, io.ErrNoProgress) {
			t.Errorf("got %v", err)
		}
	}
}

type stuck struct{}

func (stuck) Read([]byte) (int, error) { return 0, nil }

func TestNoAllocationsPerEvent(t *testing.T) {
	allocs := func(n int) float64 {
		in := []byte(strings.Repeat("id: 1\nevent: e\ndata: {\"a\":1}\ndata: b\n\n: ping\n\n", n))
		return testing.AllocsPerRun(5, func() {
			for _, err := range Events(bytes.NewReader(in), 0) {
				if err != nil {
					t.Fatal(err)
				}
			}
		})
	}
	if few, many := allocs(1000), allocs(10_000); many > few {
		t.Errorf("%v allocations for 1,000 events, %v for 10,000", few, many)
	}
}

func TestFrameRoundTrip(t *testing.T) {
	var b []byte
	b = Frame{ID: "0000000000000007"}.Append(b)
	b = Frame{ID: "8\nid: 9", Name: "heart\rbeat", Data: []byte("a\r\nb\rc\n"), Retry: 2 * time.Second}.Append(b)
	b = append(b, ": ping\n"...)
	b = Frame{Data: []byte{}}.Append(b)
	want := []string{
		`no data "" "" id="0000000000000007"`,
		`message "heart beat" "a\nb\nc\n" id="8 id: 9" retry=2s`,
		`comment "" "ping" id="8 id: 9"`,
		`message "" "" id="8 id: 9"`,
	}
	if got := listEvents(bytes.NewReader(b), 0); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

// modelEvents reads a whole stream in a simple way: it splits the stream into lines first.
func modelEvents(in string) []string {
	in = strings.TrimPrefix(in, "\ufeff")
	in = strings.ReplaceAll(strings.ReplaceAll(in, "\r\n", "\n"), "\r", "\n")
	lines := strings.Split(in, "\n")
	var out, data []string
	name, id, marked := "", "", false
	end := func(suffix string) {
		if data != nil {
			out = append(out, fmt.Sprintf("message %q %q id=%q%s", name, strings.Join(data, "\n"), id, suffix))
		} else if marked {
			out = append(out, fmt.Sprintf("no data %q %q id=%q%s", "", "", id, suffix))
		}
		data, name, marked = nil, "", false
	}
	for i, line := range lines {
		if line == "" {
			if i == len(lines)-1 {
				break
			}
			end("")
			continue
		}
		key, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch key {
		case "data":
			data = append(data, value)
		case "event":
			name = value
		case "id":
			if !strings.Contains(value, "\x00") {
				id, marked = value, true
			}
		case "":
			out = append(out, fmt.Sprintf("comment %q %q id=%q", "", value, id))
		default:
			out = append(out, fmt.Sprintf("unknown %q %q id=%q", key, value, id))
		}
	}
	end(" unterminated")
	return out
}

func FuzzEvents(f *testing.F) {
	for _, s := range []string{"data: a\r\n\r\ndata:b\n\n", "\ufeffid: 1\nevent: x\ndata\n\n:c\r\rerror: {}", "data: a\ndata: b\rdata", "\r\n\r"} {
		f.Add(s, uint8(3))
	}
	f.Fuzz(func(t *testing.T, in string, size uint8) {
		if strings.Contains(in, "retry") {
			t.Skip("the model does not support retry")
		}
		want := fmt.Sprint(modelEvents(in))
		r := &smallReader{in: in, size: int(size%17) + 1}
		if got := fmt.Sprint(listEvents(r, 0)); got != want {
			t.Errorf("%q in reads of %d:\n got %s\nwant %s", in, r.size, got, want)
		}
	})
}

// smallReader returns at most size bytes at a time.
type smallReader struct {
	in   string
	size int
}

func (p *smallReader) Read(b []byte) (int, error) {
	if p.in == "" {
		return 0, io.EOF
	}
	n := copy(b[:min(len(b), p.size)], p.in)
	p.in = p.in[n:]
	return n, nil
}

func BenchmarkEvents(b *testing.B) {
	in := []byte(strings.Repeat(`data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"token"},"finish_reason":null}]}`+"\n\n", 2000))
	b.SetBytes(int64(len(in)))
	b.ReportAllocs()
	for b.Loop() {
		for _, err := range Events(bytes.NewReader(in), 0) {
			if err != nil {
				b.Fatal(err)
			}
		}
	}
}

// A slow stream keeps a small buffer. A fast one gets a larger buffer, but no more than that
// for small events.
func TestBufferOfADecoder(t *testing.T) {
	event := "data: " + strings.Repeat("x", 200) + "\n\n"
	for name, c := range map[string]struct {
		read io.Reader
		want int
	}{
		"one event at a time": {iotest.OneByteReader(strings.NewReader(strings.Repeat(event, 200))), firstBuffer},
		"all at once":         {strings.NewReader(strings.Repeat(event, 1000)), fastBuffer},
		"a large event":       {strings.NewReader("data: " + strings.Repeat("x", 20<<10) + "\n\n"), 2 * fastBuffer},
	} {
		d := &decoder{r: c.read, max: 1 << 20}
		for {
			if _, err := d.next(); err != nil {
				break
			}
		}
		if cap(d.buf) != c.want {
			t.Errorf("%s: a buffer of %d bytes, want %d", name, cap(d.buf), c.want)
		}
	}
}

// A large event keeps its bytes while later events are read, and small events after it are
// read as they are.
func TestLargeEventsStay(t *testing.T) {
	large := strings.Repeat("x", LargeEvent)
	in := "data: 1\n\ndata: " + large + "\ndata: end\n\n: note\ndata: 2\nid: 7\n\ndata: " + large + "\r\n\r\ndata: 3"
	var kept [][]byte
	var got []string
	for ev, err := range Events(iotest.HalfReader(strings.NewReader(in)), 0) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, string(ev.Data))
		kept = append(kept, ev.Data)
	}
	if want := []string{"1", large + "\nend", "note", "2", large, "3"}; !slices.Equal(got, want) {
		t.Errorf("it reads %.60q", got)
	}
	for _, i := range []int{1, 4} {
		if i < len(kept) && string(kept[i]) != got[i] {
			t.Errorf("event %d has changed", i)
		}
	}
}
