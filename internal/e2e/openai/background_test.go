package openai_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"loquat/internal/backend"
	"loquat/internal/e2e/binary"
	"loquat/internal/e2e/openai"
)

// The sizes of TestBackgroundResponses. LOQUAT_RESPONSES is the number of responses,
// LOQUAT_RESPONSES_KILL_SECONDS the time between two kills.
const (
	backgroundResponses = 20
	backgroundPause     = 2
	responsesPerKill    = 20 // a kill for so many responses, and at least minKills
	minKills            = 2
	backgroundPatience  = time.Minute // for whatever has to happen after the last kill
)

// reply is what the scripted backend answers to an agent.
type reply struct {
	Reasoning string           `json:"reasoning,omitempty"`
	Text      string           `json:"text,omitempty"`
	ToolCalls []map[string]any `json:"tool_calls,omitempty"`
	Attempts  []map[string]any `json:"attempts,omitempty"`
	Rate      float64          `json:"rate"`
}

// arguments are those of the function that replies call.
const arguments = `{"city":"Tromsø 北"}`

// breaking is the agent whose backend breaks about every second stream. Its replies then begin again.
const breaking = "breaking"

// backgroundReplies are the replies by agent. The slow ones stream longer than the time between two
// kills, the others for a part of it.
func backgroundReplies(pause time.Duration) map[string]reply {
	const words = 40
	text := func(word string) string { return strings.TrimSpace(strings.Repeat(word+" ", words)) }
	lasting := func(part float64) float64 { return words / (part * pause.Seconds()) }
	call := func(name string) []map[string]any { return []map[string]any{{"name": name, "arguments": arguments}} }
	attempts := make([]map[string]any, 60) // the last one repeats
	for i := range attempts {
		attempts[i] = map[string]any{}
		if i%2 == 0 {
			attempts[i]["drop_after"] = words * 5 / 4
		}
	}
	return map[string]reply{
		breaking:   {Reasoning: text("again"), Text: text("and again"), Attempts: attempts, Rate: lasting(0.2)},
		"at-once":  {Text: strings.Repeat("A long text that comes at once, with é and 漢字.\n", 400)},
		"short":    {Text: text("naïve"), Rate: lasting(0.3)},
		"slow":     {Text: text("\"语言\\\n👩‍👩‍👧"), Rate: lasting(1.5)},
		"thinker":  {Reasoning: text("ponder…"), Text: text("שלום"), Rate: lasting(0.7)},
		"caller":   {Text: text("calling"), ToolCalls: call("weather"), Rate: lasting(0.4)},
		"composer": {Reasoning: text("hm"), Text: text("so"), ToolCalls: call("weather"), Rate: lasting(1)},
		"rounds":   {Text: strings.Repeat("seeking ", 10), ToolCalls: call("nowhere"), Rate: lasting(2)}, // two calls of the backend, half the time each
	}
}

// agentsConfig is the configuration of a server with an agent for each reply.
func agentsConfig[T any](t *testing.T, scripted string, replies map[string]T) string {
	t.Helper()
	agents := map[string]any{"default": map[string]any{"provider": "main"}}
	for name, r := range replies {
		agents[name] = map[string]any{"provider": "main", "request_options": map[string]any{"loquat_script": r}}
	}
	return string(binary.MustJSON(t, map[string]any{
		"server":    map[string]any{"auth_tokens": []any{map[string]any{"name": "f", "token": fullToken, "scope": "full"}}},
		"providers": map[string]any{"main": map[string]any{"provider": "reference_generic_compatible", "model": "demo", "base_url": scripted + "/v1", "stream_recovery": map[string]any{"mode": "aggressive", "max_retries": 20}}},
		"agents":    agents,
	}))
}

// mortalServer is a server that is killed and started again on the same data.
type mortalServer struct {
	t     *testing.T
	args  []string
	p     *binary.Process
	url   atomic.Pointer[string]
	kills atomic.Int64 // counted before each kill
}

func (s *mortalServer) start() {
	s.p = binary.Start(s.t, nil, s.args...)
	url := s.p.URL + "/v1/responses"
	s.url.Store(&url)
}

func (s *mortalServer) kill() {
	s.kills.Add(1)
	s.p.Kill(s.t)
	s.checkLog()
}

func (s *mortalServer) checkLog() {
	for _, sign := range []string{"panic:", "level=ERROR", "fatal error:"} {
		if strings.Contains(s.p.Log.String(), sign) {
			s.t.Errorf("the server says:\n%s", s.p.Log)
		}
	}
}

// watcher is a client of a response in the background, of an agent.
type watcher struct {
	*openai.Watcher
	agent string
	tools bool // it offers the function weather
}

// watcherOf returns a watcher of the i-th response.
func watcherOf(s *mortalServer, agent string, i int) *watcher {
	w := &watcher{agent: agent, tools: agent == "caller" || agent == "composer"}
	body := fmt.Sprintf(`{"model": %q, "input": "Go", "background": true, "stream": true`, agent)
	if w.tools {
		body += `, "tools": [` + weatherTool + `]`
	}
	w.Watcher = &openai.Watcher{URL: func() string { return *s.url.Load() }, HTTP: http.DefaultClient, Token: fullToken, Body: body + "}", Kills: s.kills.Load}
	if i%4 == 3 {
		w.Most = 3 + i%5
	}
	return w
}

// check compares the events of a watcher with the stored response. It returns the status.
func (w *watcher) check(t *testing.T, want reply) (status string) {
	t.Helper()
	stored := answer(t, http.StatusOK, http.MethodGet, w.URL()+"/"+w.ID, "")
	list, begunAgain := slices.Clone(w.Events), w.agent == breaking
	if begunAgain { // deltas, and items that were done, may be of a text that is void
		list = slices.DeleteFunc(list, func(e map[string]any) bool { return e["text"] != nil })
	}
	checkEvents(t, nil, list)
	output, counts := stored["output"].([]any), map[string]int{}
	for _, e := range w.Events {
		kind := e["type"].(string)
		if _, isDelta := e["delta"]; !isDelta {
			counts[kind+fmt.Sprint(e["output_index"])]++
		}
		if kind == "response.output_item.done" {
			if i := int(e["output_index"].(float64)); !begunAgain && (i >= len(output) || !binaryEqual(t, output[i], e["item"])) {
				t.Errorf("%s %s: item %d was %s, and %s is stored", w.agent, w.ID, i, binary.MustJSON(t, e["item"]), binary.MustJSON(t, output))
			}
			counts["done"]++
		}
	}
	for what, n := range counts {
		if n > 1 && what != "done" {
			t.Errorf("%s %s: %s came %d times", w.agent, w.ID, what, n)
		}
	}
	last := w.Events[len(w.Events)-1]
	status = stored["status"].(string)
	if last["type"] != "response."+status || !binaryEqual(t, last["response"], stored) || counts["done"] != len(output) && !begunAgain {
		t.Errorf("%s %s: %d items were done, the last event is %s, and %s is stored", w.agent, w.ID, counts["done"], binary.MustJSON(t, last), binary.MustJSON(t, stored))
	}
	if status != "completed" && w.Before == w.After {
		t.Errorf("%s %s: the status is %s, and no server was killed meanwhile", w.agent, w.ID, status)
	}
	w.checkOutput(t, status, output, want)
	return status
}

// checkOutput compares the output with the backend's reply: it is all of it, or a beginning of it.
func (w *watcher) checkOutput(t *testing.T, status string, output []any, want reply) {
	t.Helper()
	got := map[string]string{}
	for _, o := range output {
		item := o.(map[string]any)
		if item["type"] == "function_call" {
			got["function_call"] += item["arguments"].(string)
			continue
		}
		for _, part := range item["content"].([]any) {
			got[item["type"].(string)] += part.(map[string]any)["text"].(string)
		}
	}
	whole := map[string]string{"reasoning": want.Reasoning, "message": want.Text}
	switch {
	case w.tools:
		whole["function_call"] = arguments
	case want.ToolCalls != nil: // the server answers the call, and the backend closes
		whole["message"] += backend.ToolResultsText
	}
	for kind, text := range whole {
		if !strings.HasPrefix(text, got[kind]) || status == "completed" && got[kind] != text {
			t.Errorf("%s %s is %s: its %s is %q, the backend's %q", w.agent, w.ID, status, kind, got[kind], text)
		}
	}
}

// Responses in the background stream while the server is killed again and again. Each client resumes
// after its last event, gets no event twice, and ends with what is stored. A response fails only if a
// server was killed while the response ran.
func TestBackgroundResponses(t *testing.T) {
	number := binary.Number(t, "LOQUAT_RESPONSES", backgroundResponses)
	pause := time.Duration(binary.Number(t, "LOQUAT_RESPONSES_KILL_SECONDS", backgroundPause)) * time.Second
	kills := max(minKills, number/responsesPerKill)
	replies := backgroundReplies(pause)
	scripted := binary.ScriptedBackend(t, backend.Options{})
	config := binary.WriteConfig(t, agentsConfig(t, scripted, replies))
	s := &mortalServer{t: t, args: []string{"serve", "--config", config, "--listen", "127.0.0.1:0", "--data", t.TempDir()}}
	s.start()
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(kills+1)*pause+backgroundPatience)
	defer cancel()
	var all sync.WaitGroup
	watchers, faults := make([]*watcher, number), make([]error, number)
	for i := range watchers {
		agents := slices.Sorted(maps.Keys(replies))
		w := watcherOf(s, agents[i%len(agents)], i)
		watchers[i] = w
		start := time.Duration(i) * (time.Duration(kills)*pause + pause/2) / time.Duration(number) // some start after the last kill
		all.Go(func() {
			time.Sleep(start)
			faults[i] = w.Watch(ctx)
		})
	}
	for range kills {
		time.Sleep(pause)
		s.kill()
		s.start()
	}
	all.Wait()
	broken, lost, statuses := 0, 0, map[string]int{}
	for i, w := range watchers {
		broken, lost = broken+w.Broken, lost+w.Lost
		if faults[i] != nil {
			t.Error(faults[i])
			continue
		}
		statuses[w.check(t, replies[w.agent])]++
	}
	s.checkLog()
	fmt.Printf("responses: %d, %d kills, %d connections broke, %d of them before the first event; %v\n", number, kills, broken, lost, statuses)
	if broken == 0 || statuses["failed"]+statuses["incomplete"] == 0 || statuses["completed"] == 0 {
		t.Errorf("%d connections broke, the responses are %v: the kills missed them, or hit all", broken, statuses)
	}
}

// A cancel ends the backend's call at once. The bound is loose, because machines that run tests are
// often busy.
func TestCancelOfResponseEndsCall(t *testing.T) {
	const cancels, bound = 20, time.Second
	scripted := binary.ScriptedBackend(t, backend.Options{})
	url, _ := binary.ServerAt(t, agentsConfig(t, scripted, map[string]reply{"slow": {Text: strings.Repeat("word ", 1000), Rate: 5}}))
	url += "/v1/responses"
	last := func() (n int, e backend.Entry) {
		_, body := binary.GetOnce(t, scripted+"/_requests")
		var out struct{ Requests []backend.Entry }
		if err := json.Unmarshal([]byte(body), &out); err != nil {
			t.Fatal(err)
		}
		if n = len(out.Requests); n > 0 {
			e = out.Requests[n-1]
		}
		return n, e
	}
	var times []time.Duration
	for i := range cancels {
		started := answer(t, http.StatusOK, http.MethodPost, url, `{"model": "slow", "input": "Go", "background": true}`)
		binary.Eventually(t, "the backend's call", func() bool { n, _ := last(); return n == i+1 })
		time.Sleep(time.Duration(i) * 10 * time.Millisecond) // so that some have text
		begun := time.Now()
		cancelled := answer(t, http.StatusOK, http.MethodPost, url+"/"+started["id"].(string)+"/cancel", "")
		binary.Eventually(t, "the end of the backend's call", func() bool { _, e := last(); return e.Ended != nil })
		_, e := last()
		times = append(times, e.Ended.Sub(begun))
		if cancelled["status"] != "cancelled" || e.End != backend.EndClientClosed {
			t.Errorf("the response is %v, the backend's call ended as %s", cancelled["status"], e.End)
		}
	}
	slices.Sort(times)
	median := times[len(times)/2]
	fmt.Printf("responses: a cancel ends the backend's call after %s (median of %d), %s at most\n", median.Round(time.Millisecond/10), cancels, times[len(times)-1].Round(time.Millisecond/10))
	if median > bound {
		t.Errorf("a cancel ends the backend's call after %s, want at most %s", median, bound)
	}
}
