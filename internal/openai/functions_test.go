package openai

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"loquat"
	"loquat/internal/chat"
	"loquat/internal/httpapi/route"
)

// The model sees the functions of a namespace by both names, and a client gets its own names back.
func TestFunctionsOfNamespaces(t *testing.T) {
	p, err := planOf(`{"input": "x", "tools": [
		{"type": "function", "name": "lookup"},
		{"type": "namespace", "name": "crm", "description": "Customers", "tools": [{"type": "function", "name": "lookup", "description": "d", "parameters": {"type": "object"}, "defer_loading": true}]}
	], "tool_choice": {"type": "allowed_tools", "tools": [{"type": "function", "namespace": "crm", "name": "lookup"}]}}`)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := sorted(t, p.settings.Tools), sorted(t, json.RawMessage(`[
		{"type": "function", "function": {"name": "lookup"}},
		{"type": "function", "function": {"name": "crm__lookup", "description": "d", "parameters": {"type": "object"}}}]`)); got != want {
		t.Errorf("the backend gets\n%s, want\n%s", got, want)
	}
	if got := string(p.settings.Params["tool_choice"]); !strings.Contains(got, `"crm__lookup"`) {
		t.Errorf("the choice is %s", got)
	}
	if got, want := sorted(t, p.echo["tools"]), sorted(t, json.RawMessage(`[
		{"type": "function", "name": "lookup", "description": null, "parameters": null, "strict": null},
		{"type": "namespace", "name": "crm", "description": "Customers", "tools": [{"type": "function", "name": "lookup", "description": "d", "parameters": {"type": "object"}, "strict": null}]}]`)); got != want {
		t.Errorf("the response repeats\n%s, want\n%s", got, want)
	}

	calls := []loquat.ToolCall{{ID: "1", Name: "crm__lookup", Arguments: "{}"}, {ID: "2", Name: "lookup", Arguments: "{}"}, {ID: "3", Name: "own", Arguments: "{}"}}
	m := loquat.Message{ID: chat.ReplyID("q", 0), Role: loquat.RoleAssistant, Metadata: loquat.Object{}.Set(loquat.MetaToolCalls, calls)}
	var names []string
	for _, item := range itemsOf(m, functionsOf(p.echo["tools"])) {
		body := item.body()
		namespace, _ := body["namespace"].(string)
		names = append(names, namespace+"/"+body["name"].(string))
	}
	if got := strings.Join(names, " "); got != "crm/lookup /lookup" {
		t.Errorf("the client gets %s", got)
	}

	messages, err := readInput("body.input", json.RawMessage(`[{"type": "function_call", "call_id": "1", "namespace": "crm", "name": "lookup", "arguments": "{}"}, {"type": "function_call_output", "call_id": "1", "output": "x"}]`), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := (loquat.Message{Metadata: messages[0].Metadata}).ToolCalls(); len(got) != 1 || got[0].Name != "crm__lookup" {
		t.Errorf("the history has the calls %v", got)
	}
}

func TestChoiceOfAFunction(t *testing.T) {
	f := functions{"a": {Name: "a"}, "n__a": {"n", "a"}, "n__b": {"n", "b"}, "m__b": {"m", "b"}}
	for _, c := range []struct{ namespace, name, want string }{
		{"", "a", "a"}, {"n", "a", "n__a"}, {"n", "b", "n__b"}, {"", "b", "b"}, {"", "unknown", "unknown"}, {"x", "a", "x__a"},
	} {
		if got := f.find(c.namespace, c.name).called(); got != c.want {
			t.Errorf("%s/%s is %s, want %s", c.namespace, c.name, got, c.want)
		}
	}
}

func TestToolsThatAreRefused(t *testing.T) {
	for tools, want := range map[string]string{
		`[{"type": "web_search"}]`: "body.tools[0].type",
		`[{"type": "function"}]`:   "body.tools[0].name",
		`[3]`:                      "body.tools[0]",
		`[{"type": "namespace", "tools": [{"type": "function", "name": "f"}]}]`:                                                             "body.tools[0].name",
		`[{"type": "namespace", "name": "n"}]`:                                                                                              "body.tools[0].tools",
		`[{"type": "namespace", "name": "n", "tools": []}]`:                                                                                 "body.tools[0].tools",
		`[{"type": "namespace", "name": "n", "tools": "f"}]`:                                                                                "body.tools[0].tools",
		`[{"type": "namespace", "name": "n", "tools": [{"type": "custom", "name": "f"}]}]`:                                                  "body.tools[0].tools[0].type",
		`[{"type": "namespace", "name": "n", "tools": [{"type": "function"}]}]`:                                                             "body.tools[0].tools[0].name",
		`[{"type": "namespace", "name": "n", "tools": [{"type": "namespace", "name": "m", "tools": [{"type": "function", "name": "f"}]}]}]`: "body.tools[0].tools[0].type",
		`[{"type": "function", "name": "n__f"}, {"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "f"}]}]`:          "body.tools[1].tools[0].name",
		`[{"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "f"}]}, {"type": "function", "name": "n__f"}]`:          "body.tools[1].name",
	} {
		_, err := planOf(`{"input": "x", "tools": ` + tools + `}`)
		if refused, ok := errors.AsType[*loquat.Error](err); !ok || len(refused.Fields) != 1 || refused.Fields[0].Location != want {
			t.Errorf("%s: %v, want a fault of %s", tools, err, want)
		}
	}
}

func planOf(body string) (plan, error) {
	return readPlan(&route.Exchange{Schemas: route.NewSchemas(), Body: []byte(body)}, nil)
}
