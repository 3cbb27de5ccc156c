//go:build unix

package together_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"time"

	"loquat"
	"loquat/internal/e2e/audit"
	"loquat/internal/e2e/openai"
)

// asked begins the inputs of responses. A client whose answer gets lost asks again.
const asked = "ask"

// relayed is the provider of chat completions that Loquat relays.
const relayed = "relay"

// responders are the agents of responses, by what the backend does for them.
var responders = map[string]map[string]any{
	"talker":  {"text": strings.TrimSpace(strings.Repeat("naïve 語 ", 30)), "rate": 60},
	"thinker": {"reasoning": "Hm. One ponders. " + strings.Repeat("and on ", 10), "text": strings.TrimSpace(strings.Repeat("thought ", 20)), "rate": 60},
	"hasty":   {"text": strings.Repeat("At once.\n", 50), "rate": 0},
	"broken": {"text": strings.TrimSpace(strings.Repeat("again ", 20)), "rate": 60, "attempts": []any{
		map[string]any{"drop_after": 9}, map[string]any{}, map[string]any{"drop_after": 3, "drop": "short"}, map[string]any{"status": 503}, map[string]any{}}},
}

// responses are the responses in the background of a person, while an act lasts.
type responses struct {
	mu   sync.Mutex
	made []*openai.Watcher
}

// respond asks for responses in the background one after the other, each in a session of its own, after an
// earlier response or in a conversation, and follows them by resuming.
func (c *crew) respond(random *rand.Rand) {
	previous, conversation := "", ""
	for c.during() {
		extra := ""
		switch random.IntN(3) {
		case 0:
			if previous != "" {
				extra = fmt.Sprintf(`, "previous_response_id": %q`, previous)
			}
		case 1:
			if conversation == "" || random.IntN(4) == 0 {
				conversation = c.converse()
			}
			if conversation != "" {
				extra = fmt.Sprintf(`, "conversation": %q`, conversation)
			}
		}
		agent := []string{"talker", "thinker", "hasty", "broken"}[random.IntN(4)]
		w := &openai.Watcher{
			URL: func() string { return "http://127.0.0.1/v1/responses" }, HTTP: c.http, Token: c.token, Most: random.IntN(3) * 10,
			Body: fmt.Sprintf(`{"model": %q, "input": %q, "background": true, "stream": true%s}`, agent, c.text(asked), extra),
		}
		ctx, cancel := context.WithTimeout(c.ctx, patience)
		err := w.Watch(ctx)
		cancel()
		switch {
		case c.ctx.Err() != nil:
			return
		case err != nil && strings.Contains(err.Error(), " 409 "): // another request runs on the conversation: one whose id got lost
			conversation = ""
		case err != nil && strings.Contains(err.Error(), " 429 "):
			sleep(c.ctx, time.Second)
		case err != nil:
			c.t.Errorf("a response of %s: %v", c.name, err)
			return
		default:
			previous = w.ID
			c.told.Store(sessionOf(w), true)
			c.responses.mu.Lock()
			c.responses.made = append(c.responses.made, w)
			c.responses.mu.Unlock()
			c.count("response")
		}
		sleep(c.ctx, time.Duration(random.IntN(300))*time.Millisecond)
	}
}

// sessionOf returns the session of a response that has ended.
func sessionOf(w *openai.Watcher) string {
	response, _ := w.Events[len(w.Events)-1]["response"].(map[string]any)
	conversation, _ := response["conversation"].(map[string]any)
	id, _ := conversation["id"].(string)
	return strings.TrimPrefix(id, "conv_")
}

// converse makes a conversation and returns its id, or "" if it did not succeed.
func (c *crew) converse() string {
	var made struct{ ID string }
	_ = c.do(func(ctx context.Context) error {
		status, answer, err := c.call(ctx, http.MethodPost, "/v1/conversations", fmt.Sprintf(`{"items": [{"type": "message", "role": "user", "content": %q}]}`, c.text("item")))
		if err == nil && status == http.StatusOK && json.Unmarshal([]byte(answer), &made) == nil {
			c.count("conversation")
		}
		return nil
	})
	return made.ID
}

// check compares the responses with what is stored, and with the messages of their sessions.
func (c *crew) checkResponses(ctx context.Context, t *audit.Truth) (faults []error) {
	c.responses.mu.Lock()
	defer c.responses.mu.Unlock()
	for _, w := range c.responses.made {
		if err := c.checkResponse(ctx, t, w); err != nil {
			faults = append(faults, fmt.Errorf("response %s of %q, asked with %s: %w", w.ID, c.name, w.Body, err))
		}
	}
	c.responses.made = nil
	return faults
}

func (c *crew) checkResponse(ctx context.Context, t *audit.Truth, w *openai.Watcher) error {
	last, deltas, restarted := -1.0, "", false
	for _, e := range w.Events {
		n := e["sequence_number"].(float64)
		if n <= last {
			return fmt.Errorf("event %v comes after %v", n, last)
		}
		last = n
		if e["type"] == "response.output_text.delta" {
			deltas += e["delta"].(string)
		}
		if text, ok := e["text"].(string); ok && e["type"] == "response.output_text.done" && text != deltas {
			restarted = true
		}
	}
	var stored map[string]any
	if err := c.get(ctx, "/v1/responses/"+w.ID, &stored); err != nil {
		return err
	}
	if final := w.Events[len(w.Events)-1]; !reflect.DeepEqual(final["response"], any(stored)) {
		return fmt.Errorf("its last event is\n  %v\nand stored is\n  %v", final, stored)
	}
	if sessionOf(w) == "" {
		return errors.New("it names no conversation")
	}
	text := outputText(stored)
	own := t.ByRequest[strings.TrimPrefix(w.ID, "resp_")]
	if len(own) == 0 {
		return errors.New("its request has no events")
	}
	said := ""
	for _, e := range own {
		for _, m := range e.Messages {
			if e.Type == loquat.Final {
				said += m.Content
			}
		}
	}
	if said != text || deltas != text && !restarted && !begunAgain(own) {
		return fmt.Errorf("its text is\n  %q\nthe session has\n  %q\nand the deltas were\n  %q", text, said, deltas)
	}
	return nil
}

// begunAgain reports whether the stream of a request broke, so that some deltas were of a text that is void.
func begunAgain(events []loquat.Event) bool {
	for _, e := range events {
		if e.Type == loquat.RetryScheduled && e.Cause == loquat.CauseStream {
			return true
		}
	}
	return false
}

// outputText returns the texts of a response's messages.
func outputText(response map[string]any) (text string) {
	output, _ := response["output"].([]any)
	for _, o := range output {
		item := o.(map[string]any)
		if item["type"] != "message" {
			continue
		}
		for _, part := range item["content"].([]any) {
			text += part.(map[string]any)["text"].(string)
		}
	}
	return text
}

// get gets an answer, again and again until the network lets it through.
func (c *crew) get(ctx context.Context, path string, out any) error {
	return audit.Retry(ctx, func() error {
		status, answer, err := c.call(ctx, http.MethodGet, path, "")
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("GET %s: %d %s", path, status, answer)
		}
		if err == nil {
			err = json.Unmarshal([]byte(answer), out)
		}
		return err
	})
}

// relay makes chat completions, which Loquat passes on. An answer is whole, or it says that it is not.
func (c *crew) relay(random *rand.Rand) {
	for c.during() {
		text, stream := strings.TrimSpace(strings.Repeat(c.text("say")+" ", 5)), random.IntN(2) == 0
		body := fmt.Sprintf(`{"model": "%s/demo", "stream": %t, "messages": [{"role": "user", "content": "x"}], "loquat_script": {"text": %q, "rate": 100}}`, relayed, stream, text)
		ctx, cancel := context.WithTimeout(c.ctx, callPatience)
		got, whole, err := c.complete(ctx, body, stream)
		cancel()
		switch {
		case whole && got != text || !strings.HasPrefix(text, got):
			c.t.Errorf("a relayed answer is %q, not %q (whole: %t)", got, text, whole)
		case whole:
			c.count("relayed answer")
		case err != nil && c.ctx.Err() == nil:
			c.count("relayed answer that broke")
		}
		sleep(c.ctx, time.Duration(random.IntN(500))*time.Millisecond)
	}
}

// complete asks for one chat completion. It returns the text, and whether it is whole.
func (c *crew) complete(ctx context.Context, body string, stream bool) (text string, whole bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://127.0.0.1/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return "", false, err
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.http.Do(req)
	if err != nil {
		return "", false, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return "", false, fmt.Errorf("%s", resp.Status)
	}
	type choices struct {
		Choices []struct {
			Message, Delta struct{ Content string }
			Finish         string `json:"finish_reason"`
		}
		Error any
	}
	if !stream {
		raw, err := io.ReadAll(resp.Body)
		var answer choices
		if err == nil {
			err = json.Unmarshal(raw, &answer)
		}
		if err != nil || len(answer.Choices) == 0 {
			return "", false, err
		}
		return answer.Choices[0].Message.Content, true, nil
	}
	finished := false
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		var chunk choices
		switch {
		case !ok:
		case data == "[DONE]":
			return text, finished, nil
		case json.Unmarshal([]byte(data), &chunk) != nil: // the connection broke in the middle
			return text, false, nil
		case chunk.Error != nil:
			return text, false, fmt.Errorf("%v", chunk.Error)
		case len(chunk.Choices) > 0:
			text += chunk.Choices[0].Delta.Content
			finished = finished || chunk.Choices[0].Finish != ""
		}
	}
	return text, false, nil
}
