package conformance_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"loquat"
	"loquat/internal/backend"
	"loquat/internal/client"
	"loquat/internal/e2e/binary"
)

// sharedDir returns a folder of the recordings and tables that are kept next to the project.
// It skips the test with a notice when there is none.
func sharedDir(t *testing.T, name string) string {
	t.Helper()
	dir := os.Getenv("LOQUAT_SHARED")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "..", "shared")
	}
	dir = filepath.Join(dir, name)
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("there is no %s (LOQUAT_SHARED names another place for %s)", dir, name)
	}
	return dir
}

// framings are the ways in which each recording is sent: as recorded, and re-framed.
var framings = []string{"", "crlf", "nospace", "bytes", "comments", "nonewline"}

// recorded is the result expected of a recording.
type recorded struct {
	Model     string
	Text      string
	Reasoning string
	ToolCalls []struct{ ID, Name, Arguments string } `json:"tool_calls"`
	Usage     json.RawMessage
	Error     json.RawMessage
}

// Every recording of a real backend gives the expected session and events through the
// whole server, however it is framed.
func TestConformance(t *testing.T) {
	root := sharedDir(t, "fixtures")
	names, faults, err := recordings(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, fault := range faults {
		t.Error(fault)
	}
	if len(names) == 0 {
		t.Fatalf("no recordings under %s", root)
	}
	c := replayServer(t, root)
	var passed, failed atomic.Int64
	t.Run("recordings", func(t *testing.T) {
		for _, name := range names {
			for _, framing := range framings {
				t.Run(strings.TrimSpace(name+" "+framing), func(t *testing.T) {
					t.Parallel()
					defer func() {
						if t.Failed() {
							failed.Add(1)
						} else {
							passed.Add(1)
						}
					}()
					replay(t, c, root, name, framing)
				})
			}
		}
	})
	fmt.Printf("conformance: %d recordings in %d framings: %d passed, %d failed\n", len(names), len(framings), passed.Load(), failed.Load())
}

// expectedSuffix follows the name of a recording in the name of its expected result.
const expectedSuffix = ".expected.json"

// recordings returns the recordings under root. A recording is a .sse or .json file with its
// expected result next to it. Other files are ignored, except those that belong to a
// recording which is not complete: faults names them.
func recordings(root string) (names, faults []string, err error) {
	if root, err = filepath.EvalSymlinks(root); err != nil {
		return nil, nil, err
	}
	files := map[string]bool{}
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case path != root && strings.HasPrefix(entry.Name(), "."):
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		case entry.IsDir():
			return nil
		}
		name, err := filepath.Rel(root, path)
		files[filepath.ToSlash(name)] = true
		return err
	})
	for _, name := range slices.Sorted(maps.Keys(files)) {
		recording, isResult := strings.CutSuffix(name, expectedSuffix)
		ext := filepath.Ext(recording)
		switch {
		case isResult && !files[recording] && (ext == ".sse" || ext == ".json"):
			faults = append(faults, name+" is the expected result of "+recording+", which is missing")
		case isResult || ext != ".sse" && ext != ".json":
		case files[name+expectedSuffix]:
			names = append(names, name)
		case ext == ".sse":
			faults = append(faults, name+" is a recording without "+name+expectedSuffix)
		}
	}
	return names, faults, err
}

// A folder of recordings may hold other files. A recording that is not complete is reported,
// or checks would go missing without a word.
func TestRecordingsAmongOtherFiles(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{
		"INDEX.md", "manifest.json", "package.json", "reduce.py", "notes.txt", "LICENSE", ".DS_Store", "llm/.a.sse.swp", ".git/b.sse",
		"llm/a.sse", "llm/a.sse.expected.json", "llm/a.json", "llm/a.json.expected.json", "llm/a.sse.bak", "llm/a.sse~", "llm/a.yaml", "llm/README",
		"deep/er/c.sse", "deep/er/c.sse.expected.json", "deep/er/expected.json", "deep/notes.expected.json",
		"lost.sse", "left.json.expected.json", "left.sse.expected.json",
	} {
		path := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		binary.WriteFile(t, path, "{}")
	}
	link := filepath.Join(t.TempDir(), "fixtures")
	if err := os.Symlink(root, link); err != nil {
		t.Fatal(err)
	}
	for _, at := range []string{root, link} {
		names, faults, err := recordings(at)
		if err != nil {
			t.Fatal(err)
		}
		if want := []string{"deep/er/c.sse", "llm/a.json", "llm/a.sse"}; !slices.Equal(names, want) {
			t.Errorf("recordings %q, want %q", names, want)
		}
		if want := []string{
			"left.json.expected.json is the expected result of left.json, which is missing",
			"left.sse.expected.json is the expected result of left.sse, which is missing",
			"lost.sse is a recording without lost.sse.expected.json",
		}; !slices.Equal(faults, want) {
			t.Errorf("faults %q, want %q", faults, want)
		}
	}
	if _, _, err := recordings(filepath.Join(root, "none")); err == nil {
		t.Error("a missing folder is not an error")
	}
}

// replayServer starts a server whose backend replays the recordings under root: the
// model names the recording.
func replayServer(t *testing.T, root string) *client.Client {
	t.Helper()
	replay, err := backend.OpenReplay(root)
	if err != nil {
		t.Fatal(err)
	}
	return serverFor(t, backend.Options{Replay: replay})
}

// serverFor starts a scripted backend and a server on it.
func serverFor(t *testing.T, opts backend.Options) *client.Client {
	t.Helper()
	url := binary.ScriptedBackend(t, opts)
	return binary.ServerWith(t, fmt.Sprintf(`{"providers": {"main": {"provider": "reference_generic_compatible", "model": "demo", "base_url": "%s/v1"}}}`, url))
}

// replay sends one recording through the server and compares what comes of it.
func replay(t *testing.T, c *client.Client, root, name, framing string) {
	b, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)+expectedSuffix))
	if err != nil {
		t.Fatal(err)
	}
	var want recorded
	if err := json.Unmarshal(b, &want); err != nil {
		t.Fatal(err)
	}
	overrides := map[string]any{"model": name}
	if framing != "" {
		overrides["request_options"] = map[string]any{"loquat_script": map[string]any{"reframe": []string{framing}}}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	s, err := c.CreateSession(ctx, loquat.NewSession{Metadata: loquat.Object{}.Set("overrides", overrides)})
	if err != nil {
		t.Fatal(err)
	}
	stream, content := strings.HasSuffix(name, ".sse"), "go"
	sent, err := c.Send(ctx, s.SessionID, loquat.Send{Content: &content, Stream: &stream})
	if err != nil {
		t.Fatal(err)
	}
	events := binary.FollowRequest(ctx, t, c, sent.RequestID)
	checkPhase(t, events, want)
	checkEnd(ctx, t, c, s, events, want)
}

// checkPhase compares the first phase, which is what was recorded.
func checkPhase(t *testing.T, events []loquat.Event, want recorded) {
	t.Helper()
	var got loquat.Message
	var calls []loquat.ToolCall
	detail := ""
	for _, e := range events {
		switch {
		case e.Type == loquat.Final && got.ID == "":
			got = e.Messages[0]
		case e.Type == loquat.ToolCalls && calls == nil:
			calls = e.ToolCalls
		case e.Type == loquat.ErrorEvent:
			detail = e.Detail
		}
	}
	if got.Content != want.Text {
		t.Errorf("text\n%q\nwant\n%q", got.Content, want.Text)
	}
	reasoning := got.Metadata.String(loquat.MetaReasoningContent)
	if reasoning == "" {
		reasoning = got.Metadata.String(loquat.MetaReasoning)
	}
	if reasoning != want.Reasoning {
		t.Errorf("reasoning\n%q\nwant\n%q", reasoning, want.Reasoning)
	}
	checkCalls(t, calls, want)
	checkUsage(t, got, want)
	checkError(t, detail, want)
}

func checkCalls(t *testing.T, calls []loquat.ToolCall, want recorded) {
	t.Helper()
	if isNull(want.Error) && len(calls) != len(want.ToolCalls) {
		t.Fatalf("%d tool calls, want %d", len(calls), len(want.ToolCalls))
	}
	ids := map[string]bool{}
	for i, call := range calls {
		w := want.ToolCalls[i]
		if call.Name != w.Name || call.Arguments != w.Arguments || w.ID != "" && call.ID != w.ID {
			t.Errorf("call %d is %s %s(%s), want %s %s(%s)", i, call.ID, call.Name, call.Arguments, w.ID, w.Name, w.Arguments)
		}
		if call.ID == "" || ids[call.ID] {
			t.Errorf("call %d has the id %q, which is empty or taken", i, call.ID)
		}
		ids[call.ID] = true
	}
}

func checkUsage(t *testing.T, got loquat.Message, want recorded) {
	t.Helper()
	if got.ID == "" { // an error that left no message behind
		return
	}
	if isNull(want.Usage) {
		if got.Metadata[loquat.MetaUsage] != nil {
			t.Errorf("usage %s out of nothing", got.Metadata[loquat.MetaUsage])
		}
		return
	}
	if !binary.SameJSON(got.Metadata[loquat.MetaUsage], want.Usage) {
		t.Errorf("usage %s, want %s", got.Metadata[loquat.MetaUsage], want.Usage)
	}
	var usage map[string]json.RawMessage
	if err := json.Unmarshal(want.Usage, &usage); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"prompt_tokens", "completion_tokens", "total_tokens"} {
		if n, ok := usage[kind]; ok && !isNull(n) && !binary.SameJSON(got.Metadata["usage_"+kind], n) {
			t.Errorf("usage_%s is %s, want %s", kind, got.Metadata["usage_"+kind], n)
		}
	}
}

func checkError(t *testing.T, detail string, want recorded) {
	t.Helper()
	if isNull(want.Error) {
		if detail != "" {
			t.Errorf("an error out of nothing: %s", detail)
		}
		return
	}
	said := errorMessage(want.Error)
	if said == "" || !strings.Contains(detail, said) {
		t.Errorf("error %q does not say %q", detail, said)
	}
}

// errorMessage finds the message in a recorded error: a string, {message} or
// {detail}.
func errorMessage(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	var e struct{ Message, Detail string }
	if json.Unmarshal(raw, &e) != nil {
		return ""
	}
	if e.Message != "" {
		return e.Message
	}
	return e.Detail
}

// checkEnd compares the session with what the events fold to, and the end with what
// the recording asks for: tools are answered and the closing reply follows.
func checkEnd(ctx context.Context, t *testing.T, c *client.Client, s loquat.Snapshot, events []loquat.Event, want recorded) {
	t.Helper()
	after, err := c.Session(ctx, s.SessionID)
	if err != nil {
		t.Fatal(err)
	}
	fold := loquat.NewFold(s)
	since := s.CursorEventID
	for range 100 {
		w, err := c.Events(ctx, client.Query{SessionID: s.SessionID, Since: &since, OmitSession: true})
		if err != nil {
			t.Fatal(err)
		}
		if len(w.Events) == 0 {
			break
		}
		for _, e := range w.Events {
			fold.Apply(e)
			since = e.EventID
		}
	}
	if got, stored := binary.MustJSON(t, fold.Messages()), binary.MustJSON(t, after.Messages); !binary.SameJSON(got, stored) {
		t.Errorf("events fold to\n%s\nstored is\n%s", got, stored)
	}
	if fold.Draft() != nil {
		t.Error("a draft is left")
	}
	last := after.Messages[len(after.Messages)-1]
	if isNull(want.Error) && len(want.ToolCalls) > 0 && last.Content != backend.ToolResultsText {
		t.Errorf("after the tools comes %q", last.Content)
	}
	if got := events[0].Type; got != loquat.RequestStarted {
		t.Errorf("the request begins with %s", got)
	}
}

func isNull(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }
