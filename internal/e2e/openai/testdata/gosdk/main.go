// Command gosdk runs OpenAI's SDK for Go against a server. It prints how many cases ran and which failed.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

var (
	server, scripted = os.Args[1], os.Args[2]
	relayed, direct  = client(server, "full-token"), client(scripted, "x")
)

func client(url, key string) *openai.Client {
	c := openai.NewClient(option.WithBaseURL(url+"/v1"), option.WithAPIKey(key), option.WithMaxRetries(0))
	return &c
}

// ask returns a request whose answer the scripted backend takes from script.
func ask(model, script string) (openai.ChatCompletionNewParams, option.RequestOption) {
	return openai.ChatCompletionNewParams{Model: model, Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("hi")}},
		option.WithJSONSet("loquat_script", json.RawMessage(script))
}

// stream returns the accumulated message of a stream.
func stream(c *openai.Client, model, script string) (m openai.ChatCompletionMessage, chunks int, err error) {
	params, opt := ask(model, script)
	s := c.Chat.Completions.NewStreaming(context.Background(), params, opt)
	defer s.Close()
	var all openai.ChatCompletionAccumulator
	for s.Next() {
		chunks++
		if !all.AddChunk(s.Current()) {
			return m, chunks, errors.New("a chunk does not belong to the others")
		}
	}
	if len(all.Choices) > 0 {
		m = all.Choices[0].Message
	}
	return m, chunks, s.Err()
}

// asDirect compares an answer with that of the backend itself, streamed and not.
func asDirect(script string) func() error {
	return func() error {
		params, opt := ask("demo", script)
		got, err := relayed.Chat.Completions.New(context.Background(), params, opt)
		if err != nil {
			return err
		}
		want, err := direct.Chat.Completions.New(context.Background(), params, opt)
		if err != nil {
			return err
		}
		if a, b := got.Choices[0].RawJSON(), want.Choices[0].RawJSON(); a != b {
			return fmt.Errorf("got %s, want %s", a, b)
		}
		a, n, err := stream(relayed, "demo", script)
		if err != nil {
			return err
		}
		b, m, err := stream(direct, "demo", script)
		if err != nil {
			return err
		}
		if fmt.Sprint(a.Content, a.Refusal, len(a.ToolCalls), n) != fmt.Sprint(b.Content, b.Refusal, len(b.ToolCalls), m) {
			return fmt.Errorf("streamed: got %+v, want %+v", a, b)
		}
		return nil
	}
}

func failsWith(status int, err error) error {
	var e *openai.Error
	if !errors.As(err, &e) || e.StatusCode != status || e.Message == "" {
		return fmt.Errorf("the error is %v, want status %d", err, status)
	}
	return nil
}

func cases() map[string]func() error {
	all := map[string]func() error{
		"text":           asDirect(`{"text": "One two"}`),
		"reasoning":      asDirect(`{"text": "One", "reasoning": "Hm."}`),
		"parallel tools": asDirect(`{"tool_calls": [{"id": "a", "name": "f", "arguments": {"a": 1}}, {"id": "b", "name": "g", "arguments": {}}]}`),
		"a refusal":      asDirect(`{"text": "", "refusal": "No."}`),
		"bytes":          asDirect(`{"text": "Grüße, 世界", "reframe": ["bytes"]}`),
		"CRLF":           asDirect(`{"text": "One two", "reframe": ["crlf"]}`),
		"accumulated tools": func() error {
			m, _, err := stream(relayed, "demo", `{"text": "One", "tool_calls": [{"name": "f", "arguments": {"a": 1}}, {"name": "g", "arguments": {}}]}`)
			if err == nil && (m.Content != "One" || len(m.ToolCalls) != 2 || m.ToolCalls[0].Function.Arguments != `{"a":1}` || m.ToolCalls[1].Function.Name != "g") {
				err = fmt.Errorf("accumulated %+v", m)
			}
			return err
		},
		"recovered": func() error { // the accumulator refuses chunks of another completion
			m, _, err := stream(relayed, "retrying/demo", `{"id": "go-recovered", "text": "One two", "attempts": [{"drop_after": 0}, {}]}`)
			if err == nil && m.Content != "One two" {
				err = fmt.Errorf("accumulated %+v", m)
			}
			return err
		},
		"retried": func() error {
			m, _, err := stream(relayed, "retrying/demo", `{"id": "go-retried", "text": "One two", "attempts": [{"status": 503}, {"status": 429}, {}]}`)
			if err == nil && m.Content != "One two" {
				err = fmt.Errorf("accumulated %+v", m)
			}
			return err
		},
		"broken": func() error {
			_, n, err := stream(relayed, "demo", `{"text": "One two three", "drop_after": 2}`)
			if n != 2 || err == nil || !strings.Contains(err.Error(), "middle of the stream") {
				return fmt.Errorf("%d chunks, error %v", n, err)
			}
			return nil
		},
		"cancelled": cancelled,
		"wrong token": func() error {
			_, err := client(server, "wrong").Models.List(context.Background())
			return failsWith(http.StatusUnauthorized, err)
		},
		"a token to read": func() error {
			params, opt := ask("demo", `{}`)
			_, err := client(server, "read-token").Chat.Completions.New(context.Background(), params, opt)
			return failsWith(http.StatusForbidden, err)
		},
		"unknown model": func() error {
			_, err := relayed.Models.Get(context.Background(), "none")
			return failsWith(http.StatusNotFound, err)
		},
		"a model": func() error {
			m, err := relayed.Models.Get(context.Background(), "main/echo")
			if err == nil && (m.ID != "main/echo" || m.OwnedBy != "main") {
				err = fmt.Errorf("it is %+v", m)
			}
			return err
		},
		"models": func() error {
			names := map[string]string{}
			pages := relayed.Models.ListAutoPaging(context.Background())
			for pages.Next() {
				names[pages.Current().ID] = pages.Current().OwnedBy
			}
			if names["poet"] != "loquat" || names["main/echo"] != "main" {
				return fmt.Errorf("%v, %v", names, pages.Err())
			}
			return pages.Err()
		},
	}
	for _, status := range []int{400, 401, 403, 404, 409, 422, 429, 500, 503} {
		all[fmt.Sprint("status ", status)] = func() error {
			params, opt := ask("demo", fmt.Sprintf(`{"status": %d, "body": {"error": {"message": "said so", "code": "c", "type": "t", "param": "p"}}}`, status))
			_, err := relayed.Chat.Completions.New(context.Background(), params, opt)
			var e *openai.Error
			if errors.As(err, &e) && (e.Code != "c" || e.Param != "p" || e.Type != "t") {
				return fmt.Errorf("the error is %+v", e)
			}
			return failsWith(status, err)
		}
	}
	for name, run := range responseCases() {
		all[name] = func() error {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			return run(ctx)
		}
	}
	return all
}

// cancelled waits until the backend has seen that its caller went away.
func cancelled() error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	params, opt := ask("demo", `{"id": "go-cancelled", "text": "One two", "stall_after": 1}`)
	s := relayed.Chat.Completions.NewStreaming(ctx, params, opt)
	s.Next()
	cancel()
	s.Close()
	for range 100 {
		resp, err := http.Get(scripted + "/_requests")
		if err != nil {
			return err
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			return err
		}
		if strings.Contains(string(text), `"end":"client_closed"`) {
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return errors.New("the backend did not see the cancel")
}

func main() {
	out := struct {
		Cases  int      `json:"cases"`
		Failed []string `json:"failed"`
	}{Failed: []string{}}
	for name, run := range cases() {
		out.Cases++
		if err := run(); err != nil {
			out.Failed = append(out.Failed, name+": "+err.Error())
		}
	}
	_ = json.NewEncoder(os.Stdout).Encode(out)
}
