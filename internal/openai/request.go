package openai

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"

	"loquat"
	"loquat/internal/httpapi/route"
	"loquat/internal/strictjson"
)

// openAIChatRequest describes the body of a chat completion. Only these fields are read here; the
// backend gets all of them.
type openAIChatRequest struct {
	_        struct{}          `additionalProperties:"true"`
	Model    string            `json:"model" doc:"An agent_id, provider_id/model, or a model of the default provider."`
	Messages []json.RawMessage `json:"messages" doc:"As the backend takes them."`
	Stream   bool              `json:"stream,omitempty"`
	N        int               `json:"n,omitempty" doc:"How many choices the backend makes."`
}

// openAIChatAnswer describes an answer. It is the backend's own.
type openAIChatAnswer struct {
	_ struct{} `additionalProperties:"true"`
}

// chatRequest is the body of a chat completion, as it came.
type chatRequest struct {
	body    []byte
	members []strictjson.Member
	model   strictjson.Member
	name    string // the decoded model
	stream  bool
	choices int
}

// readChat finds what has to be known of a body. It leaves all other faults to the backend.
func readChat(body []byte) (chatRequest, error) {
	c := chatRequest{body: body, choices: 1}
	if len(bytes.TrimSpace(body)) == 0 {
		return c, route.Malformed("body", "is missing; send a JSON object")
	}
	var fault *strictjson.SyntaxError
	if c.members, fault = strictjson.Members(body); fault != nil {
		return c, route.Malformed(fault.PathIn("body"), "%s (%s)", fault.Message, fault.Position())
	}
	var faults loquat.FieldErrors
	for _, m := range c.members {
		if expected := c.read(m); expected != "" && string(m.Value) != "null" {
			faults.Add("body."+m.Name, "has to be %s, not %s", expected, strictjson.Kind(m.Value))
		}
		if m.Name == "model" {
			c.model = m
		}
	}
	if err := faults.Err(); err != nil {
		return c, err
	}
	if c.name == "" {
		return c, loquat.Invalid("body.model", "is missing; name an agent, provider_id/model, or a model of the default provider")
	}
	return c, nil
}

// read reads a member that has to be known. If it has another type, read returns what was expected.
func (c *chatRequest) read(m strictjson.Member) (expected string) {
	ok := true
	switch m.Name {
	case "model":
		c.name, ok = loquat.StringOf(m.Value)
		expected = "a string"
	case "stream":
		c.stream = string(m.Value) == "true"
		ok, expected = c.stream || string(m.Value) == "false", "true or false"
	case "n":
		ok, expected = json.Unmarshal(m.Value, &c.choices) == nil, "an integer"
	}
	if ok {
		return ""
	}
	return expected
}

// forBackend returns the body in parts: with another model, and with the params that the body does
// not have. All other bytes are those that came.
func (c *chatRequest) forBackend(model string, params loquat.Object) [][]byte {
	var parts [][]byte
	rest := c.body
	if model != c.name {
		end := c.model.At + len(c.model.Value)
		parts = append(parts, c.body[:c.model.At], loquat.Quote(model))
		rest = c.body[end:]
	}
	var added []byte
	for _, key := range slices.Sorted(maps.Keys(params)) {
		if value := params[key]; len(value) > 0 && string(value) != "null" && !c.has(key) && !loquat.IsReservedParam(key) {
			added = append(append(append(append(added, ','), loquat.Quote(key)...), ':'), value...)
		}
	}
	if len(added) == 0 {
		return append(parts, rest)
	}
	end := bytes.LastIndexByte(rest, '}') // the body is an object, and nothing but space follows it
	return append(parts, rest[:end], added, rest[end:])
}

func (c *chatRequest) has(key string) bool {
	return slices.ContainsFunc(c.members, func(m strictjson.Member) bool { return m.Name == key })
}
