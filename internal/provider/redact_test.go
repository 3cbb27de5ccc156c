package provider_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"loquat"
	"loquat/internal/config"
	"loquat/internal/provider"
	"loquat/internal/provider/providertest"
)

// The secrets that a request was sent with: the key, what request_options holds, also
// in lists, the user part of the base_url, and what only the program knows to be secret.
const (
	keySecret    = "sk-key-\"quoted\"-0001"
	optionSecret = "sk-option-0002"
	listSecret   = "sk-list-0003"
	userSecret   = "user-part-0004"
	fileSecret   = "from-a-file-0005"
)

func secretSettings(url string) loquat.Object {
	return loquat.Object{}.Set("provider", provider.Selector).Set("model", "m").Set("base_url", strings.Replace(url, "://", "://me:"+userSecret+"@", 1)).
		Set("api_key", keySecret).
		Set("request_options", map[string]any{
			"api_key": optionSecret, "note": fileSecret, "sources": []any{map[string]any{"Authorization": "Bearer " + listSecret}},
			"response_format": map[string]any{"properties": map[string]any{"password": map[string]any{"type": "string"}}},
		})
}

// everySecret is a text that holds all of them; inJSON is the same within JSON, where
// some are written with escapes.
var (
	everySecret  = strings.Join([]string{keySecret, optionSecret, listSecret, userSecret, fileSecret}, " ")
	inJSON       = strings.NewReplacer("o", `\u006f`, "/", `\/`).Replace(string(loquat.Quote(everySecret)))
	secretHolder = fmt.Sprintf(`{"note":%s,"deep":[{"also":%[1]s},123456],%[1]s:true}`, inJSON)
)

// assertRedacted fails the test if v, encoded as JSON, holds a secret.
func assertRedacted(t *testing.T, what string, v any) {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatalf("%s is not valid JSON any more: %v", what, err)
	}
	var plain any
	if err := json.Unmarshal(raw, &plain); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprint(plain)
	for _, secret := range strings.Split(everySecret, " ") {
		if strings.Contains(text, secret) {
			t.Errorf("%s holds %s: %.300s", what, secret, text)
		}
	}
	if !strings.Contains(text, "***") {
		t.Errorf("%s does not show that something was removed: %.300s", what, text)
	}
}

// A backend repeats every secret in everything that is not the model's text. None of
// them reaches a reply or an increment. The model's text stays as it was.
func TestRepliesAreRedacted(t *testing.T) {
	spoken := fmt.Sprintf(`"content":%s,"reasoning_content":%[1]s,"refusal":%[1]s,"reasoning_details":[{"text":%[1]s}],
		"tool_calls":[{"index":0,"id":%[1]s,"type":"function","note":%[1]s,"function":{"name":"f","arguments":%[1]s,"more":%[1]s}},
			{"index":1,"id":"c","type":"custom","custom":{"name":"g","input":%[1]s}}],
		"function_call":{"name":"f","arguments":%[1]s},
		"annotations":[%s],"vendor":%[2]s,"flag":%[1]s`, inJSON, secretHolder)
	around := fmt.Sprintf(`"model":%s,"usage":{"total_tokens":123456,"detail":%s},"citations":[%[1]s],"search_results":[%[2]s]`, inJSON, secretHolder)
	for name, body := range map[string]string{
		"streamed": strings.ReplaceAll(fmt.Sprintf(`data: {%s,"choices":[{"index":0,"delta":{%s}}]}`, around, spoken), "\n", "") + "\n\n" +
			fmt.Sprintf(`data: {"choices":[{"index":0,"delta":{},"finish_reason":%s}]}`, inJSON) + "\n\ndata: [DONE]\n\n",
		"whole": fmt.Sprintf(`{%s,"choices":[{"index":0,"message":{%s},"finish_reason":%s}]}`, around, spoken, inJSON),
	} {
		t.Run(name, func(t *testing.T) {
			p := provider.New(provider.Options{Transport: &script{steps: []step{{body: body}}}, Secrets: config.NewRedactor([]string{fileSecret})})
			o := drain(t, p, t.Context(), loquat.LLMRequest{ProviderID: "main", Config: secretSettings("http://backend.test/v1"), Messages: providertest.UserSays("hi"), Stream: name == "streamed"})
			if o.err != nil || o.reply == nil {
				t.Fatalf("the reply is %v, the error %v", o.reply, o.err)
			}
			r := o.reply
			for _, key := range []string{"model", "usage", "citations", "search_results", "annotations", "vendor", "flag", "finish_reason"} {
				assertRedacted(t, key, r.Metadata[key])
			}
			if got := string(r.Metadata["usage_total_tokens"]); got != "123456" {
				t.Errorf("usage_total_tokens is %s", got)
			}
			assertRedacted(t, "finish_reason", r.FinishReason)
			call := r.ToolCalls[0]
			if !strings.HasPrefix(call.ID, "call_") {
				t.Errorf("the id of a call is %q", call.ID)
			}
			assertRedacted(t, "further fields of a call", call.Extra)
			assertRedacted(t, "further fields of a function", call.FunctionExtra)
			for what, text := range map[string]string{
				"content": r.Content, "reasoning": r.Metadata.String("reasoning_content"), "refusal": r.Metadata.String("refusal"), "arguments": call.Arguments,
				"function_call": r.Metadata.Object("function_call").String("arguments"), "custom": r.ToolCalls[1].Extra.Object("custom").String("input"),
			} {
				if text != everySecret {
					t.Errorf("the model's text was altered: %s is %q", what, text)
				}
			}
			if details := string(r.Metadata["reasoning_details"]); !strings.Contains(details, `\u006f`) {
				t.Errorf("the model's text was altered: reasoning_details is %s", details)
			}
			for _, c := range o.chunks {
				for key, v := range c.Extra {
					if key != "reasoning_details" {
						assertRedacted(t, "increment of "+key, v)
					}
				}
			}
		})
	}
}

// The usage and the error of a broken stream are redacted, too.
func TestUsageOfAFailureIsRedacted(t *testing.T) {
	body := fmt.Sprintf(`data: {"usage":{"total_tokens":7,"detail":%s},"choices":[]}`, secretHolder) + "\n\n" + fmt.Sprintf(`data: {"error":{"message":%s}}`, inJSON) + "\n\n"
	p := provider.New(provider.Options{Transport: &script{steps: []step{{body: body}}}, Secrets: config.NewRedactor([]string{fileSecret})})
	o := drain(t, p, t.Context(), loquat.LLMRequest{Config: secretSettings("http://backend.test/v1"), Messages: providertest.UserSays("hi"), Stream: true})
	if o.err == nil || o.reply == nil {
		t.Fatalf("the reply is %v, the error %v", o.reply, o.err)
	}
	assertRedacted(t, "usage", o.reply.Metadata["usage"])
	assertRedacted(t, "the error", o.err.Error())
}

func TestModelsAreRedacted(t *testing.T) {
	body := fmt.Sprintf(`{"data":[{"id":%s,"name":%[1]s,"context_length":123456,"owner":%s}]}`, inJSON, secretHolder)
	p := provider.New(provider.Options{Transport: &script{steps: []step{{body: body}}}, Secrets: config.NewRedactor([]string{fileSecret})})
	models, err := p.Models(t.Context(), secretSettings("http://backend.test/v1"))
	if err != nil || len(models) != 1 {
		t.Fatalf("got %v, %v", models, err)
	}
	assertRedacted(t, "the id", models[0].ID)
	assertRedacted(t, "the name", models[0].Name)
	assertRedacted(t, "the owner", models[0].Extra["owner"])
	if got := string(models[0].Extra["context_length"]); got != "123456" {
		t.Errorf("context_length is %s", got)
	}
}

// Words of a JSON schema are not secrets, even if a property is called password.
func TestSchemasHoldNoSecrets(t *testing.T) {
	o := chat(t, &script{steps: []step{{status: 400, body: "a string is missing"}}}, secretSettings("http://backend.test/v1"), true)
	if o.err == nil || !strings.Contains(o.err.Error(), "a string is missing") {
		t.Errorf("got %v", o.err)
	}
}

// A backend that escapes what it repeats hides it from a comparison of texts: in an error
// without a message of its own, and in a line of debug_stream.
func TestEscapedSecretsAreRedacted(t *testing.T) {
	escaped := func(s string) string {
		var b strings.Builder
		for _, r := range s {
			fmt.Fprintf(&b, `\u%04x`, r)
		}
		return b.String()
	}
	const secret = "sk-secret-key"
	var log strings.Builder
	s := &script{steps: []step{
		{status: 400, body: `{"oops":{"` + escaped(secret) + `":["` + escaped("key "+secret) + `"]}}`},
		{body: `data: {"choices":[{"index":0,"delta":{"content":"` + escaped("key "+secret) + `"}}]}` + "\n\n" + done},
	}}
	p := provider.New(provider.Options{Transport: s, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	c := providertest.Config("http://backend.test/v1").Set("debug_stream", true)
	failed := drain(t, p, t.Context(), loquat.LLMRequest{Config: c, Messages: providertest.UserSays("hi"), Stream: true})
	if failed.err == nil || !strings.Contains(failed.err.Error(), `{"oops":{"***":["key ***"]}}`) {
		t.Errorf("the error is %v", failed.err)
	}
	if o := drain(t, p, t.Context(), loquat.LLMRequest{Config: c, Messages: providertest.UserSays("hi"), Stream: true}); o.text != "key "+secret {
		t.Errorf("the model's text became %q", o.text)
	}
	if !strings.Contains(log.String(), "key ***") || strings.Contains(log.String(), `u0073`) {
		t.Errorf("the log is %s", log.String())
	}
}
