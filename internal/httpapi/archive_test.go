package httpapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"loquat"
	"loquat/internal/archive"
	"loquat/internal/archive/archivetest"
	"loquat/internal/chat"
	"loquat/internal/store"
)

// call is like rig.do, within a test of rapid.
func (r *rig) call(t rapid.TB, method, path string, body []byte) (int, []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(context.Background(), method, r.server.URL+path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var out bytes.Buffer
	if _, err := out.ReadFrom(resp.Body); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, out.Bytes()
}

func (r *rig) importFile(t rapid.TB, query string, body []byte) (report loquat.ImportReport) {
	t.Helper()
	status, answer := r.call(t, "POST", "/sessions/import"+query, body)
	if status != 200 {
		t.Fatalf("import: %d %s", status, answer)
	}
	if err := json.Unmarshal(answer, &report); err != nil {
		t.Fatal(err)
	}
	return report
}

func (r *rig) export(t rapid.TB, id string) []byte {
	t.Helper()
	status, body := r.call(t, "GET", "/sessions/"+id+"/export", nil)
	if status != 200 {
		t.Fatalf("export: %d %s", status, body)
	}
	return body
}

// Export, import and export give the same bytes, and a second import changes nothing.
func TestExportImportExport(t *testing.T) {
	from, to := newRig(t), newRig(t)
	rapid.Check(t, func(t *rapid.T) {
		s := archivetest.Sessions().Draw(t, "session")
		first := from.importFile(t, "", archivetest.Write(t, s))
		if first.Imported != 1 {
			if first.Failed == 1 && strings.Contains(first.Sessions[0].Error, "is there already") {
				t.Skip("the id was drawn before")
			}
			t.Fatalf("%+v", first)
		}
		exported := from.export(t, s.SessionID)
		if report := to.importFile(t, "", exported); report.Imported != 1 || len(report.Sessions[0].Notes) > 0 {
			t.Fatalf("%+v", report)
		}
		if again := to.export(t, s.SessionID); !bytes.Equal(exported, again) {
			t.Fatalf("exported:\n%s\nagain:\n%s", exported, again)
		}
		if report := to.importFile(t, "", exported); report.Skipped != 1 {
			t.Fatalf("a repeat: %+v", report)
		}
	})
}

// A session that the API made, with images and a secret override, has the same content on another
// server, but not the secret.
func TestExportOfLiveSession(t *testing.T) {
	from, to := newRig(t), newRig(t)
	const id = "live"
	from.do("POST", "/sessions", `{"session_id": "live", "metadata": {"title": "<b>", "pinned": true}}`).want(t, 201)
	asset := from.do("POST", "/sessions/live/assets", imageText(t), "Content-Type: image/png").want(t, 201).field(t, "asset_id")
	from.do("POST", "/sessions/"+id+"/messages", `{"role": "user", "content": "Look </script>", "attachments": [{"type": "image", "asset_id": "`+asset+`"}]}`).want(t, 201)
	h := from.do("GET", "/sessions/"+id+"/export", "")
	h.want(t, 200)
	if media, name := h.Header.Get("Content-Type"), h.Header.Get("Content-Disposition"); !strings.HasPrefix(media, "application/json") || !strings.Contains(name, "loquat-"+id+".json") {
		t.Errorf("%s, %s", media, name)
	}
	if head := from.do("HEAD", "/sessions/"+id+"/export", ""); head.StatusCode != 200 || len(head.body) > 0 {
		t.Errorf("HEAD: %d, %d bytes", head.StatusCode, len(head.body))
	}
	before := eventTypes(to)
	to.importFile(t, "", h.body)
	if again := to.export(t, id); !bytes.Equal(h.body, again) {
		t.Errorf("exported:\n%s\nagain:\n%s", h.body, again)
	}
	if got := eventTypes(to)[len(before):]; !slices.Equal(got, []string{"session_created", "checkpoint"}) {
		t.Errorf("the import published %q", got)
	}
	if got := to.do("GET", "/sessions/"+id+"/assets/"+asset, "").want(t, 200).body; !bytes.Equal(got, from.do("GET", "/sessions/"+id+"/assets/"+asset, "").body) {
		t.Error("the image differs")
	}
	to.do("DELETE", "/sessions/"+id+"/assets/"+asset, "").wantProblem(t, 409, loquat.CodeConflict)
	var list loquat.SessionList
	if err := json.Unmarshal(to.do("GET", "/sessions?pinned=true", "").want(t, 200).body, &list); err != nil || len(list.Sessions) != 1 {
		t.Errorf("pinned: %+v, %v", list, err)
	}
}

// eventTypes returns the types of all events.
func eventTypes(r *rig) (types []string) {
	records, err := r.store.Events(r.t.Context(), 0, store.Filter{}, store.Bounds{Events: 1000})
	if err != nil {
		r.t.Fatal(err)
	}
	for _, rec := range records {
		types = append(types, string(rec.Type))
	}
	return types
}

// imageText returns the bytes of an image.
func imageText(t *testing.T) string {
	content, err := archivetest.Image(9).Open()
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(content)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// A faulty session stores nothing and the others are stored. An id that is taken is a fault, unless
// new ids are wanted.
func TestImportOfFaultySessions(t *testing.T) {
	r := newRig(t)
	one := archive.Session{SessionID: "one", AgentID: "default", Messages: []loquat.Message{{ID: "m", Role: "user", Content: "1"}}}
	other := one
	other.Messages = []loquat.Message{{ID: "m", Role: "user", Content: "other"}}
	twice := archive.Session{SessionID: "twice", AgentID: "default", Messages: []loquat.Message{{ID: "m", Role: "user"}, {ID: "m", Role: "user"}}}
	bad := archive.Session{SessionID: "a b", AgentID: "default"}
	last := archive.Session{SessionID: "last", AgentID: "nobody", Metadata: loquat.Object{}.Set("overrides", map[string]string{"model": "x"})}
	report := r.importFile(t, "", archivetest.Write(t, one, other, twice, bad, one, last))
	if report.Imported != 2 || report.Failed != 3 || report.Skipped != 1 || report.Format != "loquat" {
		t.Errorf("%+v", report)
	}
	for i, want := range []string{"there already, with another content", "messages[1].id is also the id of messages[0]", "letters, digits"} {
		if got := report.Sessions[i]; !strings.Contains(got.Error, want) || got.Place != fmt.Sprintf("sessions[%d], line %d", i+1, i+3) {
			t.Errorf("%+v; want %q", got, want)
		}
	}
	if notes := report.Sessions[3].Notes; len(notes) != 1 || !strings.Contains(notes[0], `agent "nobody" is not configured`) {
		t.Errorf("notes: %q", notes)
	}
	r.do("GET", "/sessions/twice", "").wantProblem(t, 404, loquat.CodeNotFound)
	if report := r.importFile(t, "?new_ids=true&agent_id=default", archivetest.Write(t, other)); report.Imported != 1 || report.Sessions[0].SessionID == "one" {
		t.Errorf("%+v", report)
	}
	r.do("DELETE", "/sessions/one", "").wantNothing(t, 204)
	if report := r.importFile(t, "", archivetest.Write(t, one)); report.Failed != 1 || !strings.Contains(report.Sessions[0].Error, "new_ids") {
		t.Errorf("the id of a deleted session: %+v", report)
	}
	r.do("POST", "/sessions/import?agent_id=nobody", string(archivetest.Write(t, one))).wantProblem(t, 422, loquat.CodeInvalid)
}

// A time whose offset moves it into the year 10000 cannot be written as JSON. One such message in the log would keep
// all clients from reading their events.
func TestImportOfTimesBeyondYear9999(t *testing.T) {
	const late, fine = "9999-12-31T23:59:59-01:00", "2026-01-01T00:00:00Z"
	session := func(id, created, message, alternative, within string) string {
		return fmt.Sprintf(`{"session_id":%q,"agent_id":"default","created_at":%q,"updated_at":%q,"metadata":{},"images":[],`+
			`"messages":[{"id":"m","role":"user","content":"Hello","created_at":%q}],"alternatives":[{"index":0,"created_at":%q,"in_place":true},`+
			`{"index":0,"created_at":%[5]q,"messages":[{"id":"n","role":"user","content":"Hello","created_at":%[6]q}]}]}`,
			id, created, fine, message, alternative, within)
	}
	r := newRig(t)
	report := r.importFile(t, "", []byte(`{"format":"loquat-archive","version":1,"sessions":[`+strings.Join([]string{
		session("a", late, fine, fine, fine), session("b", fine, late, fine, fine), session("c", fine, fine, late, fine),
		session("d", fine, fine, fine, late), session("good", fine, "9999-12-31T23:59:59+01:00", fine, fine)}, ",\n")+`]}`))
	if report.Imported != 1 || report.Failed != 4 {
		t.Fatalf("%+v", report)
	}
	for i, want := range []string{"created_at is", "messages[0].created_at is", "alternatives[0].created_at is", "alternatives[1].messages[0].created_at is"} {
		if got := report.Sessions[i].Error; !strings.HasPrefix(got, want) || !strings.Contains(got, "year 10000") {
			t.Errorf("%q; want %q", got, want)
		}
	}
	other := `[{"uuid":"late","created_at":"` + late + `","chat_messages":[{"uuid":"1","sender":"human","text":"Hi","created_at":"` + late + `"}]}]`
	if report := r.importFile(t, "?agent_id=default", []byte(other)); report.Imported != 1 {
		t.Errorf("a conversation of another application: %+v", report)
	}
	for _, path := range []string{"/events?since_id=0000000000000000", "/events?since_id=0000000000000000&session_id=good", "/sessions/claude-late", "/sessions"} {
		r.do("GET", path, "").want(t, 200)
	}
}

// Conversations of another application without ids are different sessions, and are skipped when they are there already.
func TestImportOfConversationsWithoutIDs(t *testing.T) {
	r := newRig(t)
	file := []byte(`[{"chat_messages":[{"sender":"human","text":"One"}]},{"chat_messages":[{"sender":"human","text":"Two"}]}]`)
	if report := r.importFile(t, "?agent_id=default", file); report.Imported != 2 {
		t.Errorf("%+v", report)
	}
	if report := r.importFile(t, "?agent_id=default", file); report.Skipped != 2 {
		t.Errorf("again: %+v", report)
	}
}

// Of a file that is cut off the sessions before the cut are imported. A file of another kind is refused.
func TestImportOfBrokenFiles(t *testing.T) {
	r := newRig(t)
	whole := archivetest.Write(t, archive.Session{SessionID: "one", AgentID: "default"}, archive.Session{SessionID: "two", AgentID: "default"})
	if report := r.importFile(t, "", whole[:len(whole)-20]); report.Imported != 1 || !strings.Contains(report.Error, "cut off") {
		t.Errorf("%+v", report)
	}
	if report := r.importFile(t, "", whole); report.Imported != 1 || report.Skipped != 1 || report.Error != "" {
		t.Errorf("the repeat: %+v", report)
	}
	for _, body := range []string{"", "{}", "hello", "[1]", `{"format":"loquat-archive","version":7}`, "\xff\xfe[\x00]\x00", "PK\x03\x04", "[{}]"} {
		if p := r.do("POST", "/sessions/import", body).wantProblem(t, 400, loquat.CodeInvalid); !strings.Contains(p.Detail, "body") {
			t.Errorf("%q: %s", body, p.Detail)
		}
	}
	r.do("POST", "/sessions/import", string(whole), "Content-Type: text/html").wantProblem(t, 415, loquat.CodeUnsupportedMedia)
	r.do("GET", "/sessions/import", "").wantProblem(t, 404, loquat.CodeNotFound)
	r.do("GET", "/sessions/x/export", "").wantProblem(t, 404, loquat.CodeNotFound)
	r.do("GET", "/sessions/two/export?format=pdf", "").wantProblem(t, 422, loquat.CodeInvalid)
	if status, _ := r.call(t, "GET", "/sessions/two/export?format=html", nil); status != http.StatusOK {
		t.Errorf("HTML: %d", status)
	}
}

// The examples of other applications are imported, a repeat changes nothing, and their archives are
// the same elsewhere.
func TestImportOfOtherApplications(t *testing.T) {
	from, to := newRig(t), newRig(t)
	for _, format := range []string{"chatgpt", "claude", "librechat", "open-webui"} {
		text, err := os.ReadFile("../importer/testdata/" + format + ".json")
		if err != nil {
			t.Fatal(err)
		}
		first := from.importFile(t, "", text)
		if first.Format != format || first.Imported == 0 {
			t.Fatalf("%+v", first)
		}
		if again := from.importFile(t, "", text); again.Skipped != first.Imported || again.Failed != first.Failed {
			t.Errorf("%s again: %+v", format, again)
		}
		kept := 0
		for _, s := range first.Sessions {
			if s.Status != loquat.ImportStored {
				continue
			}
			exported := from.export(t, s.SessionID)
			kept += bytes.Count(exported, []byte(`"in_place":true`))
			if to.importFile(t, "", exported); !bytes.Equal(exported, to.export(t, s.SessionID)) {
				t.Errorf("%s: the archive of %s differs elsewhere", format, s.SessionID)
			}
		}
		if kept == 0 {
			t.Errorf("%s: no session has alternatives", format)
		}
	}
}

// A session may have the id import.
func TestSessionNamedImport(t *testing.T) {
	r := newRig(t)
	r.do("POST", "/sessions", `{"session_id": "import"}`).want(t, 201)
	if got := r.do("GET", "/sessions/import", "").want(t, 200).field(t, "session_id"); got != "import" {
		t.Errorf("it is %s", got)
	}
	r.do("PATCH", "/sessions/import", `{"metadata": {"title": "x"}}`).want(t, 200)
	r.do("DELETE", "/sessions/import", "").wantNothing(t, 204)
}

// A long session is written in several transactions, and no reader sees a part of it.
func TestImportOfLongSession(t *testing.T) {
	r := newRig(t)
	long := archive.Session{SessionID: "long", AgentID: "default"}
	for i := range 1800 {
		long.Messages = append(long.Messages, loquat.Message{ID: fmt.Sprint("m", i), Role: "user", Content: fmt.Sprint("message ", i)})
	}
	if report := r.importFile(t, "", archivetest.Write(t, long)); report.Imported != 1 {
		t.Fatalf("%+v", report)
	}
	s, err := r.chat.Session(t.Context(), "long")
	if err != nil || len(s.Messages) != 1800 || s.Messages[1799].Content != "message 1799" {
		t.Errorf("%d messages, %v", len(s.Messages), err)
	}
	if report := r.importFile(t, "", r.export(t, "long")); report.Skipped != 1 {
		t.Errorf("%+v", report)
	}
	if _, err := r.chat.AppendMessage(t.Context(), chat.Call{}, "long", loquat.NewMessage{Role: "user", Content: "more"}); err != nil {
		t.Error(err)
	}
	page, err := r.chat.Messages(t.Context(), "long", chat.PageQuery{From: 1799})
	if err != nil || page.Total != 1801 || len(page.Messages) != 2 || page.Messages[1].Content != "more" {
		t.Errorf("%+v, %v", page, err)
	}
}
