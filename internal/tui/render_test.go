package tui

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/rogpeppe/go-internal/txtar"
	"pgregory.net/rapid"

	"loquat"
)

var update = flag.Bool("update", false, "write the output into the golden files")

// Each file in testdata contains events and their output: at a terminal of 60 columns, in a
// pipe (stdout and stderr), and as lines of `loquat events`.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no golden files", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			ar, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			events := decodeEvents(t, ar.Files[0].Data)
			got := map[string]string{}
			got["terminal"] = replaceColours(showAtTerminal(events))
			got["stdout"], got["stderr"] = showInPipe(events)
			got["lines"] = formatLines(events)
			compareGolden(t, file, ar, got)
		})
	}
}

func compareGolden(t *testing.T, file string, ar *txtar.Archive, got map[string]string) {
	t.Helper()
	if *update {
		ar.Files = ar.Files[:1]
		for _, name := range []string{"terminal", "stdout", "stderr", "lines"} {
			ar.Files = append(ar.Files, txtar.File{Name: name, Data: []byte(got[name])})
		}
		if err := os.WriteFile(file, txtar.Format(ar), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if len(ar.Files) != 5 {
		t.Fatalf("%s has %d parts, want events and four views; run with -update", file, len(ar.Files))
	}
	for _, part := range ar.Files[1:] {
		if got[part.Name] != string(part.Data) {
			t.Errorf("%s differs:\n%s\nwant:\n%s", part.Name, got[part.Name], part.Data)
		}
	}
}

func decodeEvents(t *testing.T, lines []byte) []loquat.Event {
	t.Helper()
	var events []loquat.Event
	for line := range bytes.Lines(lines) {
		e := loquat.Event{EventID: loquat.EventID(len(events) + 1), SessionID: "s", RequestID: "r"}
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		events = append(events, e)
	}
	return events
}

func showAtTerminal(events []loquat.Event) string {
	var b strings.Builder
	screen := NewScreen(&b, Look{Terminal: true, Color: true, Width: 60})
	show(NewRenderer(screen, screen), events)
	return b.String()
}

func showInPipe(events []loquat.Event) (stdout, stderr string) {
	var out, side strings.Builder
	show(NewRenderer(NewScreen(&out, Look{}), NewScreen(&side, Look{})), events)
	return out.String(), side.String()
}

func formatLines(events []loquat.Event) string {
	var b strings.Builder
	screen := NewScreen(&b, Look{Width: 100})
	for _, e := range events {
		screen.Line(e)
	}
	return b.String()
}

func show(r *Renderer, events []loquat.Event) {
	for _, e := range events {
		r.Show(e)
	}
}

// replaceColours replaces colour sequences by text such as «31», and their end by «».
func replaceColours(s string) string {
	s = strings.ReplaceAll(s, "\x1b[0m", "«»")
	for _, st := range []style{dim, red, yellow, cyan} {
		s = strings.ReplaceAll(s, "\x1b["+string(st)+"m", "«"+string(st)+"»")
	}
	return s
}

// Without colours, the output consists of line feeds, tabs and printable text only, whatever
// texts the events contain.
func TestControlCharactersAreRemoved(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		evil := rapid.StringOf(rapid.OneOf(rapid.RuneFrom([]rune("\x1b\x00\x07\x08\r\n\t\x7f\u0085\u009b\u009d\u202e\u2066\u2028ab[;")), rapid.Rune()))
		text := func() string { return evil.Draw(rt, "text") }
		part := text()
		events := []loquat.Event{
			{Type: loquat.RequestStarted, RequestID: text()},
			{Type: loquat.Partial, RequestID: "r", Message: &loquat.Delta{Content: text(), Metadata: loquat.Object{}.Set("reasoning", text())}},
			{Type: loquat.ToolCalls, RequestID: "r", ToolCalls: []loquat.ToolCall{{ID: "c", Name: text(), Arguments: text()}}},
			{Type: loquat.ToolPartial, RequestID: "r", ToolCallID: "c", Payload: &loquat.Payload{Part: &part}},
			{Type: loquat.ToolResults, RequestID: "r", Messages: []loquat.Message{{Role: "tool", Content: text(),
				Metadata: loquat.Object{}.Set("tool_call_id", "c").Set("tool_name", text())}}},
			{Type: loquat.Final, RequestID: "r", Messages: []loquat.Message{{Role: "assistant", Content: text(),
				Metadata: loquat.Object{}.Set("incomplete", text()).Set("model", text())}, {Role: text(), Content: text()}}},
			{Type: loquat.RetryScheduled, Cause: text()},
			{Type: loquat.ErrorEvent, RequestID: "r", Detail: text()},
			{Type: loquat.RequestCompleted, RequestID: "r"},
		}
		var b strings.Builder
		screen := NewScreen(&b, Look{Terminal: true, Width: 80})
		show(NewRenderer(screen, screen), events)
		for _, e := range events {
			screen.Line(e)
		}
		acts := func(r rune) bool {
			return unicode.IsControl(r) && r != '\n' && r != '\t' || r >= '\u202a' && r <= '\u202e' || r >= '\u2066' && r <= '\u2069' || r == '\u2028' || r == '\u2029'
		}
		if i := strings.IndexFunc(b.String(), acts); i >= 0 {
			rt.Fatalf("the output contains a control character: %q", b.String()[i:])
		}
	})
}

func TestClean(t *testing.T) {
	for text, want := range map[string]string{
		"":                          "",
		"plain\ttext\n":             "plain\ttext\n",
		"a\r\nb":                    "a\nb",
		"\x1b[31mred\x07\x7f":       "␛[31mred␇␡",
		"\u009b31m":                 "\ufffd31m",
		"user\u202egnp.exe":         "user\ufffdgnp.exe",
		"\u2066a\u2069\u202a\u202c": "\ufffda\ufffd\ufffd\ufffd",
		"line\u2028end\u2029":       "line\ufffdend\ufffd",
		"שלום\u200f!":               "שלום\u200f!", // a mark does not reorder other text
		"👩\u200d🚀":                  "👩\u200d🚀",
		"broken\xff":                "broken\ufffd",
	} {
		if got := Clean(text); got != want {
			t.Errorf("Clean(%q) = %q, want %q", text, got, want)
		}
	}
}

// Escaped JSON decodes to the same text and contains no harmful characters.
func TestEscapeJSON(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		text := rapid.StringOf(rapid.OneOf(rapid.RuneFrom([]rune("\x00\x1b\u007f\u009b\u202e\u2069a\"\\")), rapid.Rune())).Draw(rt, "text")
		raw := []byte(loquat.Quote(text))
		got := EscapeJSON(raw)
		var back string
		if err := json.Unmarshal(got, &back); err != nil || back != text {
			rt.Fatalf("%q became %s, which is %q (%v)", text, got, back, err)
		}
		if i := bytes.IndexFunc(got, harmful); i >= 0 {
			rt.Fatalf("%s contains %q", got, got[i:])
		}
	})
}

// For any split of a history into compacted windows, a pipe gets each final text once. A
// terminal does too, unless a stream was restarted.
func TestNoTextTwice(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		history, want, restarted := drawHistory(rt)
		var events []loquat.Event
		for rest := history; len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(rt, "window")
			for _, rec := range loquat.Compact(rest[:n]) {
				e, err := rec.Decode()
				if err != nil {
					rt.Fatal(err)
				}
				events = append(events, e)
			}
			rest = rest[n:]
		}
		if got, _ := showInPipe(events); got != want {
			rt.Fatalf("a pipe got %q, want %q", got, want)
		}
		var out, side strings.Builder
		show(NewRenderer(NewScreen(&out, Look{Terminal: true}), NewScreen(&side, Look{})), events)
		if got := out.String(); !restarted && got != want {
			rt.Fatalf("a terminal got %q, want %q", got, want)
		}
	})
}

// drawHistory generates a request of a few phases. want is the text of its final messages.
func drawHistory(rt *rapid.T) (history []loquat.Record, want string, restarted bool) {
	add := func(e loquat.Event) {
		e.RequestID = "r"
		rec, err := e.Encode()
		if err != nil {
			rt.Fatal(err)
		}
		rec.ID = loquat.EventID(len(history) + 1)
		history = append(history, rec)
	}
	word := rapid.StringMatching(`[a-c\n ]{1,3}`)
	add(loquat.Event{Type: loquat.RequestStarted})
	for range rapid.IntRange(1, 3).Draw(rt, "phases") {
		text := ""
		for range rapid.IntRange(0, 6).Draw(rt, "increments") {
			d := &loquat.Delta{Role: "assistant", Content: word.Draw(rt, "increment")}
			if rapid.IntRange(0, 9).Draw(rt, "restart") == 0 {
				d.Metadata, text, restarted = loquat.Object{}.Set(loquat.MetaStreamRestarted, true), "", true
			}
			text += d.Content
			add(loquat.Event{Type: loquat.Partial, Message: d})
		}
		if rapid.Bool().Draw(rt, "not streamed") {
			text += word.Draw(rt, "last words")
		}
		add(loquat.Event{Type: loquat.Final, Messages: []loquat.Message{{Role: "assistant", Content: text}}})
		want += text
		if text != "" && !strings.HasSuffix(text, "\n") {
			want += "\n"
		}
	}
	add(loquat.Event{Type: loquat.RequestCompleted})
	return history, want, restarted
}

func TestLongToolOutputIsShortened(t *testing.T) {
	var b strings.Builder
	screen := NewScreen(&b, Look{Terminal: true})
	screen.block(plain, strings.Repeat("x\n", maxBlockLines+3))
	if got := b.String(); !strings.HasSuffix(got, "  … and 3 more lines\n") || strings.Count(got, "x") != maxBlockLines {
		t.Errorf("got %q", got)
	}
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestFirstFailedWriteIsKept(t *testing.T) {
	r := NewRenderer(NewScreen(fullDisk{}, Look{}), NewScreen(&strings.Builder{}, Look{}))
	r.Show(loquat.Event{Type: loquat.Final, Messages: []loquat.Message{{Role: "assistant", Content: "x"}}})
	if err := r.Err(); err == nil || err.Error() != "disk full" {
		t.Errorf("Err() = %v", err)
	}
}

func TestDetect(t *testing.T) {
	if got := Detect(&strings.Builder{}, os.Getenv); got != (Look{}) {
		t.Errorf("for a writer that is not a file, got %+v", got)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if got := Detect(null, os.Getenv); got != (Look{}) {
		t.Errorf("for a file that is not a terminal, got %+v", got)
	}
}

func ExampleScreen_Line() {
	NewScreen(os.Stdout, Look{}).Line(loquat.Event{EventID: 12, Type: loquat.ErrorEvent, SessionID: "s1", RequestID: "r1", Detail: "no luck"})
	fmt.Println("done")
	// Output:
	// 0000000000000012  error              s1  r1            no luck
	// done
}
