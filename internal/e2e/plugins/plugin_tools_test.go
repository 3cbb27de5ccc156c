//go:build unix

package plugins_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"image"
	"image/png"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"loquat"
	"loquat/internal/e2e/binary"
)

// toolCase is one call of a tool by a model. FILES stands for the folder of the plugin
// `filesystem`.
type toolCase struct {
	plugin, tool, arguments string

	want   string // a pattern of the whole tool message
	images int
}

// everyTool calls each tool that the three servers offer, in an order in which each
// finds what it needs.
var everyTool = []toolCase{
	{plugin: "everything", tool: "echo", arguments: `{"message": "hi"}`, want: `Echo: hi`},
	{plugin: "everything", tool: "get-annotated-message", arguments: `{"messageType": "error", "includeImage": true}`, want: `Error: Operation failed`, images: 1},
	{plugin: "everything", tool: "get-env", arguments: `{}`, want: `(?s)\{.*"LOQUAT_PLUGIN_CACHE": ".*\}`},
	{plugin: "everything", tool: "get-resource-links", arguments: `{"count": 2}`, want: `.*\n\[resource .*: demo://.*\]\n\[resource .*: demo://.*\]`},
	{plugin: "everything", tool: "get-resource-reference", arguments: `{"resourceType": "Text", "resourceId": 1}`, want: `(?s).*Resource 1.*`},
	{plugin: "everything", tool: "get-structured-content", arguments: `{"location": "Chicago"}`, want: `\{"temperature":\d+,"conditions":".*","humidity":\d+\}`},
	{plugin: "everything", tool: "get-sum", arguments: `{"a": 20, "b": 22}`, want: `The sum of 20 and 22 is 42\.`},
	{plugin: "everything", tool: "get-tiny-image", arguments: `{}`, want: `(?s)Here's the image.*The image above is the MCP logo\.`, images: 1},
	{plugin: "everything", tool: "gzip-file-as-resource", arguments: `{"name": "a.gz", "data": "data:text/plain;base64,aGVsbG8=", "outputType": "resource"}`, want: `\[resource demo://.*a\.gz, application/gzip, \d+ bytes: not shown\]`},
	{plugin: "everything", tool: "toggle-simulated-logging", arguments: `{}`, want: `(?s)Started simulated.*`},
	{plugin: "everything", tool: "toggle-subscriber-updates", arguments: `{}`, want: `(?s)Started simulated.*`},
	{plugin: "everything", tool: "trigger-long-running-operation", arguments: `{"duration": 0.1, "steps": 2}`, want: `Long running operation completed\. Duration: 0\.1 seconds, Steps: 2\.`},

	{plugin: "filesystem", tool: "list_allowed_directories", arguments: `{}`, want: `Allowed directories:\nFILES`},
	{plugin: "filesystem", tool: "create_directory", arguments: `{"path": "FILES/new"}`, want: `Successfully created directory FILES/new`},
	{plugin: "filesystem", tool: "write_file", arguments: `{"path": "FILES/new/a.txt", "content": "one\ntwo\n"}`, want: `Successfully wrote to FILES/new/a\.txt`},
	{plugin: "filesystem", tool: "edit_file", arguments: `{"path": "FILES/new/a.txt", "edits": [{"oldText": "two", "newText": "three"}]}`, want: `(?s).*-two\n\+three.*`},
	{plugin: "filesystem", tool: "read_text_file", arguments: `{"path": "FILES/new/a.txt", "head": 1}`, want: `one`},
	{plugin: "filesystem", tool: "read_file", arguments: `{"path": "FILES/new/a.txt"}`, want: `one\nthree\n`},
	{plugin: "filesystem", tool: "read_multiple_files", arguments: `{"paths": ["FILES/new/a.txt", "FILES/gone"]}`, want: `(?s)FILES/new/a\.txt:\none\nthree\n.*FILES/gone: Error.*`},
	{plugin: "filesystem", tool: "move_file", arguments: `{"source": "FILES/new/a.txt", "destination": "FILES/b.txt"}`, want: `Successfully moved FILES/new/a\.txt to FILES/b\.txt`},
	{plugin: "filesystem", tool: "get_file_info", arguments: `{"path": "FILES/b.txt"}`, want: `(?s)size: 10\n.*isFile: true.*`},
	{plugin: "filesystem", tool: "list_directory", arguments: `{"path": "FILES"}`, want: `(?s).*\[FILE\] b\.txt\n.*\[DIR\] new.*`},
	{plugin: "filesystem", tool: "list_directory_with_sizes", arguments: `{"path": "FILES"}`, want: `(?s).*\[FILE\] b\.txt +10 B.*Total: 2 files, 1 directories.*`},
	{plugin: "filesystem", tool: "directory_tree", arguments: `{"path": "FILES"}`, want: `(?s)\[.*"name": "b\.txt",\s+"type": "file".*\]`},
	{plugin: "filesystem", tool: "search_files", arguments: `{"path": "FILES", "pattern": "*.txt"}`, want: `FILES/b\.txt`},
	{plugin: "filesystem", tool: "read_media_file", arguments: `{"path": "FILES/noise.png"}`, want: ``, images: 1},

	{plugin: "memory", tool: "create_entities", arguments: `{"entities": [{"name": "Ada", "entityType": "person", "observations": ["writes"]}, {"name": "Engine", "entityType": "machine", "observations": []}]}`, want: `(?s)\[.*"Ada".*"Engine".*\]`},
	{plugin: "memory", tool: "create_relations", arguments: `{"relations": [{"from": "Ada", "to": "Engine", "relationType": "programs"}]}`, want: `(?s)\[.*"programs".*\]`},
	{plugin: "memory", tool: "add_observations", arguments: `{"observations": [{"entityName": "Ada", "contents": ["counts"]}]}`, want: `(?s)\[.*"counts".*\]`},
	{plugin: "memory", tool: "read_graph", arguments: `{}`, want: `(?s)\{.*"writes",\s+"counts".*"programs".*\}`},
	{plugin: "memory", tool: "search_nodes", arguments: `{"query": "machine"}`, want: `(?s)\{.*"Engine".*\}`},
	{plugin: "memory", tool: "open_nodes", arguments: `{"names": ["Ada"]}`, want: `(?s)\{.*"Ada".*\}`},
	{plugin: "memory", tool: "delete_observations", arguments: `{"deletions": [{"entityName": "Ada", "observations": ["counts"]}]}`, want: `Observations deleted successfully`},
	{plugin: "memory", tool: "delete_relations", arguments: `{"relations": [{"from": "Ada", "to": "Engine", "relationType": "programs"}]}`, want: `Relations deleted successfully`},
	{plugin: "memory", tool: "delete_entities", arguments: `{"entityNames": ["Ada", "Engine"]}`, want: `Entities deleted successfully`},
}

// leftOut are the tools that a model cannot call, and why.
var leftOut = map[string]string{
	"simulate-research-query": `tool "simulate-research-query" is left out: it runs only as a task`,
}

// Every tool of three servers from npm answers a model's call; a table of them is
// logged. A tool that is new in a server has to be added to the table.
func TestEveryToolOfPluginServers(t *testing.T) {
	t.Parallel()
	files, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	r := startPluginRig(t, map[string]object{
		"everything": {"args": []string{npmServer(t, "everything")}},
		"filesystem": {"args": []string{npmServer(t, "filesystem"), files}},
		"memory":     {"args": []string{npmServer(t, "memory")}, "env": map[string]string{"MEMORY_FILE_PATH": filepath.Join(t.TempDir(), "memory.jsonl")}},
	})
	picture := noise(t)
	if err := os.WriteFile(filepath.Join(files, "noise.png"), picture, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	var table strings.Builder
	for _, c := range everyTool {
		c.arguments, c.want = strings.ReplaceAll(c.arguments, "FILES", files), strings.ReplaceAll(c.want, "FILES", regexp.QuoteMeta(files))
		m := r.callTool(ctx, c.tool, c.arguments)
		var attachments []loquat.Object
		_ = json.Unmarshal(m.Metadata[loquat.MetaAttachments], &attachments)
		if m.Metadata.Bool(loquat.MetaIsError) || !regexp.MustCompile(`^(?:`+c.want+`)$`).MatchString(m.Content) || len(attachments) != c.images {
			t.Errorf("%s answers %d images and %q, want %d and %s", c.tool, len(attachments), m.Content, c.images, c.want)
		}
		fmt.Fprintf(&table, "%-10s  %-30s  %d images  %q\n", c.plugin, c.tool, len(attachments), loquat.Clip(m.Content, 60))
	}
	t.Logf("a picture of %d bytes, and:\n%s", len(picture), &table)
	checkOffered(t, r)
}

// callTool has a model call one tool and returns the tool message.
func (r *pluginRig) callTool(ctx context.Context, tool, arguments string) loquat.Message {
	r.t.Helper()
	session, request, err := r.send(ctx, fmt.Sprintf(`{"tool_calls": [{"name": %q, "arguments": %s}]}`, tool, arguments))
	if err != nil {
		r.t.Fatal(err)
	}
	r.end(ctx, request)
	s, err := r.Session(ctx, session)
	if err != nil {
		r.t.Fatal(err)
	}
	i := slices.IndexFunc(s.Messages, func(m loquat.Message) bool { return m.Role == loquat.RoleTool })
	if i < 0 {
		r.t.Fatalf("%s was not called: %s", tool, binary.MustJSON(r.t, s.Messages))
	}
	return s.Messages[i]
}

// end waits for the end of a request.
func (r *pluginRig) end(ctx context.Context, request string) {
	r.t.Helper()
	for {
		q, err := r.Request(ctx, request)
		if err != nil {
			r.t.Fatal(err)
		}
		if q.EndedAt != nil {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// checkOffered compares what the plugins offer with what was called.
func checkOffered(t *testing.T, r *pluginRig) {
	t.Helper()
	var answer struct {
		Plugins []struct {
			Name     string
			Tools    []string
			Problems []string
		}
	}
	if err := json.Unmarshal([]byte(binary.Call(t, http.MethodGet, r.server.URL+"/plugins", "")), &answer); err != nil {
		t.Fatal(err)
	}
	called := map[string]bool{}
	for _, c := range everyTool {
		called[c.plugin+" "+c.tool] = true
	}
	problems := ""
	for _, p := range answer.Plugins {
		problems += strings.Join(p.Problems, "\n")
		for _, tool := range p.Tools {
			if !called[p.Name+" "+tool] {
				t.Errorf("%s offers %s, which was not called", p.Name, tool)
			}
			delete(called, p.Name+" "+tool)
		}
	}
	for tool := range called {
		t.Errorf("%s is not offered any more", tool)
	}
	for tool, why := range leftOut {
		if !strings.Contains(problems, why) {
			t.Errorf("of %s the plugins say %s", tool, problems)
		}
	}
}

// noise is a picture of about 750 KB that does not compress.
func noise(t *testing.T) []byte {
	t.Helper()
	img := image.NewGray(image.Rect(0, 0, 866, 866))
	random := rand.New(rand.NewPCG(1, 2))
	for i := range img.Pix {
		img.Pix[i] = byte(random.Uint32())
	}
	var b bytes.Buffer
	if err := png.Encode(&b, img); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Queued sends that a server takes up after a crash have the tools of a plugin that
// takes its time to start.
func TestQueuedSendsHaveTheirToolsAfterACrash(t *testing.T) {
	t.Parallel()
	r := startPluginRig(t, map[string]object{
		"everything": {"command": "sh", "args": []string{"-c", `sleep 2; exec node "$0"`, npmServer(t, "everything")}},
	})
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	if got := r.callTool(ctx, "echo", `{"message": "at once"}`).Content; got != "Echo: at once" {
		t.Errorf("right after the start the tool answers %q", got)
	}
	content := "go"
	queued := map[string]string{} // request of a session
	for range 4 {
		session, _, err := r.send(ctx, `{"text": "this takes until the crash", "delay_ms": 600000}`)
		if err != nil {
			t.Fatal(err)
		}
		sent, err := r.Send(ctx, session, loquat.Send{Content: &content, Stream: new(true), OnBusy: loquat.BusyQueue})
		if err != nil {
			t.Fatal(err)
		}
		binary.Call(t, http.MethodPatch, r.server.URL+"/sessions/"+session,
			`{"metadata": {"overrides": {"request_options": {"loquat_script": {"tool_calls": [{"name": "echo", "arguments": {"message": "after"}}], "text": null, "delay_ms": null}}}}}`)
		queued[session] = sent.RequestID
	}
	if err := r.server.Cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	r.server.Stopped(t)
	r.start()
	for session, request := range queued {
		r.end(ctx, request)
		s, err := r.Session(ctx, session)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(s.Messages, func(m loquat.Message) bool { return m.Role == loquat.RoleTool && m.Content == "Echo: after" }) {
			t.Errorf("the tool was not called: %s", binary.MustJSON(t, s.Messages))
		}
	}
}
