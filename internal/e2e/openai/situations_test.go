//go:build unix

package openai_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"loquat/internal/backend"
	"loquat/internal/e2e/binary"
)

// chunksServer starts a server whose backend answers each model with these chunks and then closes the
// connection.
func chunksServer(t *testing.T, streams map[string][]string) (url string) {
	t.Helper()
	scripted := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in struct{ Model string }
		if json.NewDecoder(r.Body).Decode(&in) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		flush := http.NewResponseController(w).Flush
		for _, piece := range streams[in.Model] {
			if _, err := io.WriteString(w, piece); err != nil || flush() != nil {
				return
			}
			time.Sleep(30 * time.Millisecond) // so that each piece is an increment of its own
		}
	}))
	t.Cleanup(scripted.Close)
	url, _ = binary.ServerAt(t, fmt.Sprintf(`{
		"server": {"auth_tokens": [{"name": "f", "token": %q, "scope": "full"}]},
		"providers": {"main": {"provider": "reference_generic_compatible", "model": "m", "base_url": "%s/v1"}}}`, fullToken, scripted.URL))
	return url + "/v1"
}

// deltaChunk returns the event of a chunk with a delta.
func deltaChunk(field, text string) string {
	return fmt.Sprintf("data: {\"choices\":[{\"index\":0,\"delta\":{%q:%s}}]}\n\n", field, text)
}

const (
	finishChunk = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n"
	doneChunk   = "data: [DONE]\n\n"
)

// Whatever order and cuts the chunks of a backend have, the items of the stream are those of the stored
// output, and a client can resume after each event.
func TestOddStreams(t *testing.T) {
	cut := deltaChunk("content", `"Grüße 世界"`)
	middle := strings.Index(cut, "世") + 1 // within a character
	url := chunksServer(t, map[string][]string{
		"late-reasoning": {deltaChunk("content", `"Well, "`), deltaChunk("reasoning_content", `"is it? "`), deltaChunk("content", `"yes."`), deltaChunk("reasoning_content", `"It is."`), finishChunk, doneChunk},
		"mixed":          {deltaChunk("reasoning_content", `"Hm. "`), deltaChunk("content", `"A"`), deltaChunk("reasoning_content", `"B? "`), deltaChunk("content", `"B"`), finishChunk, doneChunk},
		"cut-character":  {cut[:middle], cut[middle:], finishChunk, doneChunk},
		"no-end":         {deltaChunk("content", `"Only "`), deltaChunk("content", `"this"`)},
		"half-a-chunk":   {deltaChunk("content", `"Only "`), deltaChunk("content", `"this"`)[:20]},
		"twice-done":     {deltaChunk("content", `"Once"`), finishChunk, doneChunk, doneChunk, deltaChunk("content", `" more"`)},
		"empty":          {finishChunk, doneChunk},
		"nothing":        {doneChunk},
	})
	for model, want := range map[string]struct{ status, items, text string }{
		"late-reasoning": {"completed", "message reasoning", "Well, yes."},
		"mixed":          {"completed", "reasoning message reasoning", "AB"},
		"cut-character":  {"completed", "message", "Grüße 世界"},
		"no-end":         {"failed", "message", "Only this"},
		"half-a-chunk":   {"failed", "message", "Only "},
		"twice-done":     {"completed", "message", "Once"},
		"empty":          {"completed", "message", ""},
		"nothing":        {"completed", "message", ""},
	} {
		t.Run(model, func(t *testing.T) {
			live, done := events(t, callAPI(t, "POST", url+"/responses", fmt.Sprintf(`{"model": %q, "input": "Go", "stream": true}`, model)), 1000)
			if !done {
				t.Fatal("the stream has no end")
			}
			checkEvents(t, nil, live)
			response := live[len(live)-1]["response"].(map[string]any)
			text, types := outputText(response)
			if response["status"] != want.status || strings.Join(types, " ") != want.items || text != want.text {
				t.Errorf("the response is %s", binary.MustJSON(t, response))
			}
			var items []any
			for _, e := range live {
				if e["type"] == "response.output_item.done" {
					items = append(items, e["item"])
				}
			}
			if !binaryEqual(t, items, response["output"]) {
				t.Errorf("the items of the stream are %s, those of the output %s", binary.MustJSON(t, items), binary.MustJSON(t, response["output"]))
			}
			checkReplay(t, url, live)
		})
	}
}

// Two clients that resume at once get the same events, also after numbers that are beyond the end.
func TestResumesAtOnce(t *testing.T) {
	url, _ := responseServer(t)
	id := answer(t, http.StatusOK, "POST", url+"/responses", `{"model": "slow", "input": "Go", "background": true}`)["id"].(string)
	path := url + "/responses/" + id + "?stream=true"
	first, _ := events(t, callAPI(t, "GET", path, ""), 5)
	var all sync.WaitGroup
	rests := make([][]map[string]any, 8)
	for i := range rests {
		all.Go(func() {
			after := first[len(first)-1]["sequence_number"].(float64)
			if i >= 6 {
				after = 1<<53 - 1
			}
			rests[i], _ = events(t, callAPI(t, "GET", fmt.Sprintf("%s&starting_after=%.0f", path, after), ""), 1000)
		})
	}
	all.Wait()
	for i, rest := range rests {
		last := rest[len(rest)-1]
		if last["type"] != "response.completed" || i < 6 && joined(t, rest) != joined(t, rests[0]) || i >= 6 && len(rest) != 1 {
			t.Errorf("client %d gets\n%s\nclient 0\n%s", i, joined(t, rest), joined(t, rests[0]))
		}
	}
}

// Cancels and deletions of one response that come at once give one result, and no answer is a failure
// of the server.
func TestChangesAtOnce(t *testing.T) {
	url, _ := responseServer(t)
	for range 5 {
		id := answer(t, http.StatusOK, "POST", url+"/responses", `{"model": "slow", "input": "Go", "background": true}`)["id"].(string)
		path := url + "/responses/" + id
		answer(t, http.StatusConflict, "DELETE", path, "")
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				if r := answer(t, http.StatusOK, "POST", path+"/cancel", ""); r["status"] != "cancelled" {
					t.Errorf("a cancel gives the status %v", r["status"])
				}
			})
		}
		all.Wait()
		counts := map[string]int{}
		var mu sync.Mutex
		for i := range 12 {
			method, query := "GET", []string{"", "?stream=true", "/input_items"}[i%3]
			if i%4 == 0 {
				method, query = "DELETE", ""
			}
			all.Go(func() {
				resp := callAPI(t, method, path+query, "")
				_, err := io.Copy(io.Discard, resp.Body)
				mu.Lock()
				defer mu.Unlock()
				counts[fmt.Sprint(method, " ", resp.StatusCode)]++
				if allowed := []int{http.StatusOK, http.StatusNotFound, http.StatusPreconditionFailed}; err != nil || !slices.Contains(allowed, resp.StatusCode) {
					t.Errorf("%s %s: %s %v", method, query, resp.Status, err)
				}
			})
		}
		all.Wait()
		if counts["DELETE 200"] != 1 {
			t.Errorf("the answers are %v", counts)
		}
		answer(t, http.StatusNotFound, "POST", path+"/cancel", "")
	}
}

// A conversation that is deleted while a response runs takes the response with it: the streams end,
// calls that wait get an error, and the backend's call ends.
func TestConversationIsDeletedMeanwhile(t *testing.T) {
	scripted := binary.ScriptedBackend(t, backend.Options{})
	server, _ := binary.ServerAt(t, agentsConfig(t, scripted, map[string]reply{"slow": {Text: strings.Repeat("word ", 1000), Rate: 5}}))
	url := server + "/v1"
	for _, stream := range []bool{true, false} {
		conversation := answer(t, http.StatusOK, "POST", url+"/conversations", `{}`)["id"].(string)
		ended := make(chan string, 1)
		go func() {
			resp := callAPI(t, "POST", url+"/responses", fmt.Sprintf(`{"model": "slow", "input": "Go", "conversation": %q, "stream": %t}`, conversation, stream))
			body, err := io.ReadAll(resp.Body)
			ended <- fmt.Sprint(resp.StatusCode, " ", string(body), " ", err)
		}()
		binary.Eventually(t, "the backend's call", func() bool { return running(t, scripted) == 1 })
		answer(t, http.StatusOK, "DELETE", url+"/conversations/"+conversation, "")
		binary.Eventually(t, "the end of the backend's call", func() bool { return running(t, scripted) == 0 })
		select {
		case got := <-ended:
			if want := map[bool]string{true: `event: error`, false: `404 {"error"`}[stream]; !strings.Contains(got, want) || strings.Contains(got, "response.completed") {
				t.Errorf("stream %t: the answer is %s", stream, got)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("stream %t: the answer has no end", stream)
		}
	}
}

// Responses that continue one response at once are one in its conversation, and forks. Of those that ask
// for a running conversation, one runs.
func TestContinuationsAtOnce(t *testing.T) {
	url, _ := responseServer(t)
	first := answer(t, http.StatusOK, "POST", url+"/responses", `{"input": "first"}`)
	const many = 12
	ask := func(body string) (list []*http.Response) {
		list = make([]*http.Response, many)
		var all sync.WaitGroup
		for i := range list {
			all.Go(func() { list[i] = callAPI(t, "POST", url+"/responses", body) })
		}
		all.Wait()
		return list
	}
	conversations := map[string]int{}
	for _, resp := range ask(fmt.Sprintf(`{"input": "next", "previous_response_id": %q}`, first["id"])) {
		var out map[string]any
		if err := json.NewDecoder(resp.Body).Decode(&out); err != nil || out["status"] != "completed" {
			t.Fatalf("a continuation gives %s %v %v", resp.Status, out, err)
		}
		conversations[fmt.Sprint(out["conversation"])]++
	}
	if len(conversations) != many || conversations[fmt.Sprint(first["conversation"])] != 1 {
		t.Errorf("the conversations of the continuations are %v, the first was %v", conversations, first["conversation"])
	}
	conversation := answer(t, http.StatusOK, "POST", url+"/conversations", `{}`)["id"]
	statuses := map[int]int{}
	for _, resp := range ask(fmt.Sprintf(`{"model": "slow", "input": "next", "conversation": %q, "background": true}`, conversation)) {
		statuses[resp.StatusCode]++
	}
	if statuses[http.StatusOK] != 1 || statuses[http.StatusConflict] != many-1 {
		t.Errorf("the statuses are %v", statuses)
	}
	item := answer(t, http.StatusOK, "GET", fmt.Sprintf("%s/conversations/%v/items", url, conversation), "")["data"].([]any)[0].(map[string]any)["id"]
	answer(t, http.StatusConflict, "DELETE", fmt.Sprintf("%s/conversations/%v/items/%v", url, conversation, item), "")
	answer(t, http.StatusConflict, "POST", fmt.Sprintf("%s/conversations/%v/items", url, conversation), `{"items": [{"role": "user", "content": "x"}]}`)
}

// A conversation on which a request runs is busy, although the last call of a function has no output yet, as while the
// server's own tools run.
func TestBusyConversationWithAnOpenCall(t *testing.T) {
	url, _ := responseServer(t)
	server := strings.TrimSuffix(url, "/v1")
	session := answer(t, http.StatusCreated, "POST", server+"/sessions", `{"agent_id": "slow", "messages": [{"role": "user", "content": "Weather?"},
		{"role": "assistant", "content": "", "metadata": {"tool_calls": [{"id": "c1", "name": "weather", "arguments": "{}"}]}}]}`)["session_id"].(string)
	answer(t, http.StatusAccepted, "POST", server+"/sessions/"+session+"/send", `{"content": "Go"}`)
	body := fmt.Sprintf(`{"input": "x", "conversation": "conv_%s"}`, session)
	answer(t, http.StatusConflict, "POST", url+"/responses", body)
}

// A WebSocket whose conversation is deleted while a response runs reports that, and goes on.
func TestSocketOfADeletedConversation(t *testing.T) {
	url, _ := responseServer(t)
	ws, _, err := dial(t, url, fullToken)
	if err != nil {
		t.Fatal(err)
	}
	conversation := answer(t, http.StatusOK, "POST", url+"/conversations", `{}`)["id"].(string)
	go func() {
		busy := func() bool {
			resp := callAPI(t, "POST", url+"/conversations/"+conversation+"/items", `{"items": [{"role": "user", "content": "x"}]}`)
			return resp.StatusCode == http.StatusConflict
		}
		for !busy() {
			time.Sleep(10 * time.Millisecond)
		}
		callAPI(t, "DELETE", url+"/conversations/"+conversation, "")
	}()
	got := turn(t, ws, fmt.Sprintf(`{"type": "response.create", "model": "slow", "input": "Go", "conversation": %q}`, conversation))
	if last := got[len(got)-1]; last["type"] != "error" {
		t.Errorf("the last event is %v", last)
	}
	if next := turn(t, ws, `{"type": "response.create", "input": "Go"}`); next[len(next)-1]["type"] != "response.completed" {
		t.Errorf("the next response has the events%s", kinds(next))
	}
}

// Numbers after which no stream can go on are refused.
func TestStartingAfterNothing(t *testing.T) {
	url, _ := responseServer(t)
	id := answer(t, http.StatusOK, "POST", url+"/responses", `{"input": "x"}`)["id"].(string)
	for _, after := range []string{"-1", "1.5", "x", "9007199254740992", "1e3", "%00"} {
		answer(t, http.StatusBadRequest, "GET", url+"/responses/"+id+"?stream=true&starting_after="+after, "")
	}
	answer(t, http.StatusBadRequest, "GET", url+"/responses/"+id+"?starting_after=1", "")
}

// running returns how many calls of a scripted backend have not ended.
func running(t *testing.T, scripted string) (n int) {
	t.Helper()
	_, body := binary.GetOnce(t, scripted+"/_requests")
	var out struct{ Requests []backend.Entry }
	if err := json.Unmarshal([]byte(body), &out); err != nil {
		t.Fatal(err)
	}
	for _, r := range out.Requests {
		if r.Ended == nil {
			n++
		}
	}
	return n
}

// A response that failed or was cancelled can be continued; one that runs cannot.
func TestContinueWhatDidNotComplete(t *testing.T) {
	url := chunksServer(t, map[string][]string{
		"broken": {deltaChunk("content", `"Only this"`)},
		"calls":  {"data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"c1\",\"function\":{\"name\":\"weather\",\"arguments\":\"{\\\"city\"}}]}}]}\n\n"},
		"silent": {},
		"good":   {deltaChunk("content", `"Good"`), finishChunk, doneChunk},
	})
	for _, model := range []string{"broken", "calls", "silent"} {
		failed := answer(t, http.StatusOK, "POST", url+"/responses", fmt.Sprintf(`{"model": %q, "input": "Go", "tools": [%s]}`, model, weatherTool))
		if failed["status"] != "failed" {
			t.Fatalf("%s: the response is %s", model, binary.MustJSON(t, failed))
		}
		next := answer(t, http.StatusOK, "POST", url+"/responses", fmt.Sprintf(`{"model": "good", "input": "Again", "previous_response_id": %q}`, failed["id"]))
		if text, _ := outputText(next); next["status"] != "completed" || text != "Good" || !binaryEqual(t, failed["conversation"], next["conversation"]) {
			t.Errorf("after %s: the response is %s", model, binary.MustJSON(t, next))
		}
	}
}

// A large output of a function reaches the backend and the list of the input whole, and a program that
// reads a large response late gets all of it.
func TestLargeTextsOfResponses(t *testing.T) {
	const size = 6 << 20
	scripted := binary.ScriptedBackend(t, backend.Options{Script: json.RawMessage(`{"rate": 0}`)})
	text := strings.Repeat("Lange Rede, 長い話. ", size/24)
	server, _ := binary.ServerAt(t, agentsConfig(t, scripted, map[string]any{
		"caller": map[string]any{"tool_calls": []any{map[string]any{"name": "weather", "arguments": map[string]any{}}}},
		"large":  map[string]any{"chunks": 96, "chunk_bytes": 64 << 10, "rate": 0},
	}))
	url := server + "/v1"
	called := answer(t, http.StatusOK, "POST", url+"/responses", `{"model": "caller", "input": "x", "tools": [`+weatherTool+`]}`)
	call := called["output"].([]any)[0].(map[string]any)["call_id"]
	body := binary.MustJSON(t, map[string]any{"model": "caller", "previous_response_id": called["id"], "input": []any{map[string]any{"type": "function_call_output", "call_id": call, "output": text}}})
	next := answer(t, http.StatusOK, "POST", url+"/responses", string(body))
	if got, _ := outputText(next); got != backend.ToolResultsText {
		t.Errorf("the answer is %q", got)
	}
	items := answer(t, http.StatusOK, "GET", url+"/responses/"+next["id"].(string)+"/input_items", "")["data"].([]any)
	if got := items[0].(map[string]any)["output"]; got != text {
		t.Errorf("the output has %d bytes, want %d", len(fmt.Sprint(got)), len(text))
	}
	late := callAPI(t, "POST", url+"/responses", `{"model": "large", "input": "x", "stream": true}`)
	id, stored := idOfStream(t, late), map[string]any(nil)
	binary.Eventually(t, "the end of the response", func() bool {
		stored = answer(t, http.StatusOK, "GET", url+"/responses/"+id, "")
		return stored["status"] == "completed"
	})
	want, _ := outputText(stored)
	raw, err := io.ReadAll(late.Body)
	if err != nil || !strings.HasSuffix(string(raw), "data: [DONE]\n\n") {
		t.Fatalf("the stream ends with %q %v", raw[max(0, len(raw)-200):], err)
	}
	var sum strings.Builder
	for line := range strings.Lines(string(raw)) {
		var e struct{ Type, Delta string }
		if data, ok := strings.CutPrefix(line, "data: {"); ok && json.Unmarshal([]byte("{"+data), &e) == nil && e.Type == "response.output_text.delta" {
			sum.WriteString(e.Delta)
		}
	}
	if sum.String() != want || len(want) < size {
		t.Errorf("the deltas have %d bytes, %d are stored", sum.Len(), len(want))
	}
}

// idOfStream reads the first event of a stream and returns the id of its response.
func idOfStream(t *testing.T, resp *http.Response) string {
	t.Helper()
	buffered := bufio.NewReader(resp.Body)
	for {
		line, err := buffered.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		var e struct{ Response struct{ ID string } }
		if data, ok := strings.CutPrefix(line, "data: "); ok && json.Unmarshal([]byte(data), &e) == nil {
			resp.Body = struct {
				io.Reader
				io.Closer
			}{buffered, resp.Body}
			return e.Response.ID
		}
	}
}

// A program that disconnects from a response that is not stored ends the backend's call, and nothing of
// the response is left.
func TestDisconnectWithoutStore(t *testing.T) {
	scripted := binary.ScriptedBackend(t, backend.Options{})
	server, _ := binary.ServerAt(t, agentsConfig(t, scripted, map[string]reply{"slow": {Text: strings.Repeat("word ", 1000), Rate: 5}}))
	for _, stream := range []bool{true, false} {
		client := &http.Client{Timeout: time.Second}
		req, err := http.NewRequestWithContext(t.Context(), "POST", server+"/v1/responses", strings.NewReader(fmt.Sprintf(`{"model": "slow", "input": "Go", "store": false, "stream": %t}`, stream)))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+fullToken)
		req.Header.Set("Content-Type", "application/json")
		if resp, err := client.Do(req); err == nil {
			_, err = io.ReadAll(resp.Body)
			resp.Body.Close()
			if err == nil {
				t.Fatal("the response has ended by itself")
			}
		}
		binary.Eventually(t, "the end of the backend's call", func() bool { return running(t, scripted) == 0 })
		binary.Eventually(t, "the deletion of the session", func() bool {
			return len(answer(t, http.StatusOK, "GET", server+"/sessions", "")["sessions"].([]any)) == 0
		})
	}
}

// The next start deletes the sessions of responses that are not stored, also if their request had ended
// when the server was killed. What a stored response has continued stays.
func TestKillAfterResponsesWithoutStore(t *testing.T) {
	scripted := binary.ScriptedBackend(t, backend.Options{Script: json.RawMessage(`{"rate": 0}`)})
	large := agentsConfig(t, scripted, map[string]any{"large": map[string]any{"chunks": 160, "chunk_bytes": 64 << 10, "rate": 0}})
	config := binary.WriteConfig(t, large)
	data := t.TempDir()
	serve := func() *binary.Process {
		return binary.Start(t, nil, "serve", "--config", config, "--listen", "127.0.0.1:0", "--data", data)
	}
	p := serve()
	url := p.URL + "/v1"
	first, _ := events(t, callAPI(t, "POST", url+"/responses", `{"model": "large", "input": "x", "store": false, "stream": true}`), 1) // and reads no more
	unread := first[0]["response"].(map[string]any)["id"].(string)
	binary.Eventually(t, "the end of the request", func() bool {
		return answer(t, http.StatusOK, "GET", url+"/responses/"+unread, "")["status"] == "completed"
	})
	open := func() (turns func(string) []map[string]any) {
		ws, _, err := dial(t, url, fullToken)
		if err != nil {
			t.Fatal(err)
		}
		return func(message string) []map[string]any { return turn(t, ws, message) }
	}
	dropped := idOf(open()(`{"type": "response.create", "store": false, "input": "one"}`))
	say := open()
	continued := idOf(say(`{"type": "response.create", "store": false, "input": "one"}`))
	kept := idOf(say(fmt.Sprintf(`{"type": "response.create", "previous_response_id": %q, "input": "two"}`, continued)))
	p.Kill(t)
	p = serve()
	for id, status := range map[string]int{unread: http.StatusNotFound, dropped: http.StatusNotFound, kept: http.StatusOK} {
		answer(t, status, "GET", p.URL+"/v1/responses/"+id, "")
	}
	if n := len(answer(t, http.StatusOK, "GET", p.URL+"/sessions", "")["sessions"].([]any)); n != 1 {
		t.Errorf("%d sessions are left, want 1", n)
	}
}

// Of several servers, the others delete the sessions of responses that are not stored when their server
// is gone, and no earlier.
func TestNodeThatIsGoneWithoutStore(t *testing.T) {
	scripted := binary.ScriptedBackend(t, backend.Options{Script: json.RawMessage(`{"rate": 0}`)})
	n := binary.StartNodes(t, binary.NodesOptions{Count: 2, Config: responseConfig(scripted)})
	var ids [2]string
	for i, node := range n.List {
		ws, _, err := dial(t, node.URL+"/v1", fullToken)
		if err != nil {
			t.Fatal(err)
		}
		ids[i] = idOf(turn(t, ws, `{"type": "response.create", "store": false, "input": "one"}`))
	}
	n.List[0].Kill(t)
	binary.Eventually(t, "the end of the lease", func() bool {
		return len(answer(t, http.StatusOK, "GET", n.List[1].URL+"/nodes", "")["nodes"].([]any)) == 1
	})
	url := n.List[1].URL + "/v1/responses/"
	binary.Eventually(t, "the deletion of the response of the server that is gone", func() bool {
		return callAPI(t, "GET", url+ids[0], "").StatusCode == http.StatusNotFound
	})
	answer(t, http.StatusOK, "GET", url+ids[1], "")
}
