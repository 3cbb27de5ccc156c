package archive_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/jsonschema-go/jsonschema"
	"pgregory.net/rapid"

	"loquat"
	"loquat/internal/archive"
	"loquat/internal/archive/archivetest"
	"loquat/internal/strictjson"
)

// readAll reads an archive to its end. It calls each with every item while its images are there.
func readAll(in io.Reader, dir string, each func(archive.Item)) error {
	stream, err := strictjson.NewStream(in)
	if err != nil {
		return err
	}
	opts := archive.Options{MaxImage: 1 << 16, CreateTemp: func() (*os.File, error) { return os.CreateTemp(dir, "") }}
	for item, err := range archive.NewReader(stream, opts).Sessions() {
		if err != nil {
			return err
		}
		each(item)
	}
	return nil
}

// An archive that is read is written again as the same bytes, and it fits its schema.
func TestRoundTrip(t *testing.T) {
	text, err := os.ReadFile("../../docs/archive.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var schema jsonschema.Schema
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	resolved, err := schema.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		first := archivetest.Write(t, rapid.SliceOfN(archivetest.Sessions(), 0, 3).Draw(t, "sessions")...)
		var value any
		if err := json.Unmarshal(first, &value); err != nil {
			t.Fatal(err)
		}
		if err := resolved.Validate(value); err != nil {
			t.Fatalf("the archive does not fit its schema: %v\n%s", err, first)
		}
		var again bytes.Buffer
		w := archive.NewWriter(&again)
		err := readAll(iotest.HalfReader(bytes.NewReader(first)), dir, func(item archive.Item) {
			if item.Err != nil || len(item.Notes) > 0 {
				t.Fatalf("%s: %v, %q", item.Place, item.Err, item.Notes)
			}
			if err := w.Write(item.Session); err != nil {
				t.Fatal(err)
			}
		})
		if err = errors.Join(err, w.Close()); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(first, again.Bytes()) {
			t.Fatalf("first:\n%s\nagain:\n%s", first, again.Bytes())
		}
	})
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("%d files of images were left", len(left))
	}
}

// session returns a session of an archive as JSON. change replaces parts of it.
func session(id string, change ...string) string {
	a := archivetest.Image(1)
	a.AssetID = "a1"
	s := archive.Session{SessionID: id, AgentID: "default", Images: []archive.Image{a}, Messages: []loquat.Message{{ID: "m1", Role: "user", Content: "Hello"}}}
	var b bytes.Buffer
	w := archive.NewWriter(&b)
	if err := errors.Join(w.Write(s), w.Close()); err != nil {
		panic(err)
	}
	_, text, _ := strings.Cut(b.String(), "\n")
	return strings.NewReplacer(change...).Replace(strings.TrimSuffix(text, "\n]}\n"))
}

// alternative returns a session with these alternatives.
func alternative(list string) string {
	return session("x", `"images"`, `"alternatives":[`+list+`],"images"`)
}

// A session that cannot be read is reported with its place, and the others are read.
func TestFaultySessions(t *testing.T) {
	deep := strings.Repeat("[", 200) + strings.Repeat("]", 200)
	for name, c := range map[string]struct{ session, want string }{
		"no object":          {`7`, "is not an object"},
		"no messages":        {session("x", `"messages"`, `"mess"`), "messages is missing"},
		"messages no list":   {session("x", `"messages":[`, `"messages":{"a":[1]},"b":[`), "messages is not a list"},
		"two of one field":   {session("x", `"metadata":{}`, `"metadata":{},"agent_id":"a"`), "agent_id is given twice"},
		"role":               {session("x", `"user"`, `"boss"`), `messages[0].role is "boss"`},
		"message":            {session("x", `"content":"Hello"`, `"content":7`), "messages[0] cannot be read"},
		"message no object":  {session("x", `"messages":[`, `"messages":[null,`), "messages[0] is not an object"},
		"no content":         {session("x", `"content":"Hello",`, ``), "has no content"},
		"no id":              {session("x", `"m1"`, `""`), "messages[0].id"},
		"duplicate key":      {session("x", `"role"`, `"id":"2","role"`), "is given twice"},
		"deep message":       {session("x", `"Hello"`, `"Hello","metadata":{"a":`+deep+`}`), "messages[0] (line 2) metadata.a[0]"},
		"a little too deep":  {session("x", `"Hello"`, `"Hello","metadata":{"a":`+deep[70:len(deep)-70]+`}`), "nests deeper"},
		"deep metadata":      {session("x", `"metadata":{}`, `"metadata":{"a":`+deep+`}`), "metadata (line 2)"},
		"wrong encoding":     {session("x", "Hello", "Gr\xfc\xdfe"), "messages[0] (line 2) content is not in UTF-8"},
		"metadata no object": {session("x", `"metadata":{}`, `"metadata":[]`), "metadata is []"},
		"time":               {session("x", `"updated_at":"`, `"updated_at":"1`), "updated_at is"},
		"alternatives":       {alternative(`7`), "alternatives[0] is not an object"},
		"no created_at":      {alternative(`{"index":0,"in_place":true}`), "alternatives[0].created_at is missing"},
		"no index":           {alternative(`{"created_at":"2026-01-01T00:00:00Z","in_place":true}`), "alternatives[0].index is missing"},
		"index":              {alternative(`{"index":"0"}`), `alternatives[0].index is "0"`},
		"index twice":        {alternative(`{"index":0,"index":0}`), "alternatives[0].index is given twice"},
		"within":             {alternative(`{"index":0,"within":-1}`), "alternatives[0].within is -1"},
		"neither kept":       {alternative(`{"index":0,"created_at":"2026-01-01T00:00:00Z"}`), "alternatives[0] must have either messages or in_place"},
		"both":               {alternative(`{"index":0,"created_at":"2026-01-01T00:00:00Z","messages":[],"in_place":true}`), "alternatives[0] must have either"},
		"message in it":      {alternative(`{"index":0,"messages":[{"id":"","role":"user"}]}`), "alternatives[0].messages[0].id"},
		"too many":           {alternative(strings.TrimSuffix(strings.Repeat(`{"index":0,"created_at":"2026-01-01T00:00:00Z","in_place":true},`, 1001), ",")), "more than 1000 elements"},
		"source":             {session("x", `"metadata"`, `"source_session_id":7,"metadata"`), "source_session_id is 7"},
		"broken number":      {session("x", `"content":"Hello"`, `"content":1x`), "is not valid JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			text := `{"format":"loquat-archive","version":1,"sessions":[` + session("before") + ",\n" + c.session + ",\n" + session("after") + `]}`
			var read []string
			var fault error
			err := readAll(strings.NewReader(text), t.TempDir(), func(item archive.Item) {
				if item.Err != nil {
					fault = fmt.Errorf("%s: %w", item.Place, item.Err)
				} else {
					read = append(read, item.Session.SessionID)
				}
			})
			if err != nil || !slices.Equal(read, []string{"before", "after"}) {
				t.Errorf("read %q, then %v", read, err)
			}
			if fault == nil || !strings.HasPrefix(fault.Error(), "sessions[1], line 2: ") || !strings.Contains(fault.Error(), c.want) {
				t.Errorf("%v; want %q", fault, c.want)
			}
		})
	}
}

// What is not known and what is damaged is left out, with a note.
func TestNotes(t *testing.T) {
	for name, c := range map[string]struct{ session, want string }{
		"later field":     {session("x", `"messages"`, `"stars":[{"a":[]}],"messages"`), "stars is not known"},
		"in alternatives": {session("x", `"images"`, `"alternatives":[{"index":1,"stars":3,"created_at":"2026-01-01T00:00:00Z","in_place":true}],"images"`), "alternatives[0].stars is not known"},
		"message field":   {session("x", `"content"`, `"stars":3,"content"`), "messages[0].stars is not known"},
		"damaged image":   {session("x", `"data":"iVBO`, `"data":"iVBA`), "images[0] (a1) is damaged"},
		"not base64":      {session("x", `"data":"`, `"data":"*`), "is not valid base64"},
		"too large image": {session("x", `"data":"`, `"data":"`+strings.Repeat("A", 1<<18)), "images[0] (line 1) is larger than"},
		"image no object": {session("x", `"images":[`, `"images":[1,`), "images[0] cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			var notes []string
			err := readAll(strings.NewReader(`{"format":"loquat-archive","version":1,"sessions":[`+c.session+`]}`), t.TempDir(), func(item archive.Item) {
				if notes = item.Notes; item.Err != nil || len(item.Session.Messages) != 1 {
					t.Errorf("%+v", item)
				}
			})
			if err != nil || len(notes) != 1 || !strings.Contains(notes[0], c.want) {
				t.Errorf("%q, %v; want %q", notes, err, c.want)
			}
		})
	}
}

// A file that is not an archive, or is cut off, gives an error that says so.
func TestUnreadableFiles(t *testing.T) {
	whole := `{"format":"loquat-archive","version":1,"sessions":[` + session("x") + `]}`
	for text, want := range map[string]string{
		"":                                  "ends too early",
		"\xff\xfe{":                         "UTF-16",
		"{}":                                `has no "format"`,
		"[]":                                `where '{' must be`,
		strings.Replace(whole, "1", "2", 1): "use a newer program",
		strings.Replace(whole, "loquat-archive", "other", 1):    "has the format",
		`{"sessions":[],"format":"loquat-archive","version":1}`: "before its format",
		whole + "x": "after the end",
	} {
		if err := readAll(strings.NewReader(text), t.TempDir(), func(archive.Item) {}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v; want %q", text, err, want)
		}
	}
	for n := range len(whole) {
		if err := readAll(strings.NewReader(whole[:n]), t.TempDir(), func(archive.Item) {}); err == nil {
			t.Errorf("the first %d bytes count as a whole archive", n)
		}
	}
	if err := readAll(strings.NewReader("\xef\xbb\xbf"+whole), t.TempDir(), func(archive.Item) {}); err != nil {
		t.Errorf("a byte order mark: %v", err)
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"format":"loquat-archive","version":1,"sessions":[` + session("x") + `]}`))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, b []byte) {
		_ = readAll(bytes.NewReader(b), dir, func(item archive.Item) {
			if item.Err == nil {
				if _, err := archive.Digest(item.Session); err != nil {
					t.Errorf("a session that was read cannot be written: %v", err)
				}
			}
		})
	})
}
