package openai

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"loquat"
	"loquat/internal/chat"
	"loquat/internal/httpapi/route"
	"loquat/internal/strictjson"
)

// openAIResponseRequest is the body of a new response. A null is the same as a field that is left out.
type openAIResponseRequest struct {
	_                  struct{}          `additionalProperties:"true"`
	Model              string            `json:"model,omitempty" doc:"An agent_id, provider_id/model, or a model of the default provider. Without it, the agent named default."`
	Input              json.RawMessage   `json:"input,omitempty" doc:"A text, or a list of items: messages, function_call, function_call_output, reasoning, item_reference."`
	Instructions       string            `json:"instructions,omitempty"`
	PreviousResponseID string            `json:"previous_response_id,omitempty"`
	Conversation       json.RawMessage   `json:"conversation,omitempty" doc:"The id of a conversation, or {id}."`
	Stream             bool              `json:"stream,omitempty"`
	Background         bool              `json:"background,omitempty"`
	Store              *bool             `json:"store,omitempty" default:"true"`
	Tools              []json.RawMessage `json:"tools,omitempty" doc:"Of type function, or of type namespace with functions."`
	ToolChoice         json.RawMessage   `json:"tool_choice,omitempty"`
	ParallelToolCalls  *bool             `json:"parallel_tool_calls,omitempty"`
	Temperature        *float64          `json:"temperature,omitempty"`
	TopP               *float64          `json:"top_p,omitempty"`
	PresencePenalty    *float64          `json:"presence_penalty,omitempty"`
	FrequencyPenalty   *float64          `json:"frequency_penalty,omitempty"`
	MaxOutputTokens    *int              `json:"max_output_tokens,omitempty" minimum:"1"`
	MaxToolCalls       *int              `json:"max_tool_calls,omitempty"`
	TopLogprobs        int               `json:"top_logprobs,omitempty"`
	Text               json.RawMessage   `json:"text,omitempty"`
	Reasoning          json.RawMessage   `json:"reasoning,omitempty"`
	Metadata           map[string]string `json:"metadata,omitempty"`
	Truncation         string            `json:"truncation,omitempty"`
	Include            []string          `json:"include,omitempty"`
	ServiceTier        string            `json:"service_tier,omitempty"`
	SafetyIdentifier   string            `json:"safety_identifier,omitempty"`
	PromptCacheKey     string            `json:"prompt_cache_key,omitempty"`
	Prompt             json.RawMessage   `json:"prompt,omitempty"`
}

// stores reports whether the response is kept, which is the default.
func (b openAIResponseRequest) stores() bool { return b.Store == nil || *b.Store }

// decodeWithoutNulls is route.Decode for a body whose fields may be null. It ignores unknown fields.
func decodeWithoutNulls[T any](x *route.Exchange) (out T, err error) {
	if fault := strictjson.Check(x.Body); fault != nil {
		return out, route.Malformed(fault.PathIn("body"), "%s (%s)", fault.Message, fault.Position())
	}
	var members loquat.Object
	if json.Unmarshal(x.Body, &members) != nil || members == nil {
		return out, route.Malformed("body", "has to be a JSON object")
	}
	names := fieldNames(reflect.TypeFor[T]())
	for key, value := range members {
		if string(value) == "null" || !names[key] { // encoding/json also takes names in other cases, which no schema has checked
			delete(members, key)
		}
	}
	if x.Body, err = json.Marshal(members); err != nil {
		return out, err
	}
	return route.Decode[T](x)
}

// fieldNames returns the names that the fields of a struct have in JSON.
func fieldNames(t reflect.Type) map[string]bool {
	names := map[string]bool{}
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		names[name] = true
	}
	delete(names, "")
	return names
}

// plan is a response that was read and checked.
type plan struct {
	body      openAIResponseRequest
	call      chat.Call // of the caller: who it is, and its span
	messages  []loquat.NewMessage
	settings  chat.RunSettings
	functions functions
	echo      loquat.Object // what the response resource repeats of the body
}

// readPlan reads the body of a new response. lookup finds the items that the input refers to.
func readPlan(x *route.Exchange, lookup itemLookup) (plan, error) {
	body, err := decodeWithoutNulls[openAIResponseRequest](x)
	if err != nil {
		return plan{}, err
	}
	p := plan{body: body, call: callOf(x), settings: chat.RunSettings{Instructions: loquat.CleanText(body.Instructions), Discard: !body.stores()}}
	if p.body.Model == "" {
		p.body.Model = loquat.DefaultAgent
	}
	if err := p.refuse(); err != nil {
		return p, err
	}
	if p.messages, err = readInput("body.input", body.Input, lookup); err != nil {
		return p, err
	}
	params := loquat.Object{}
	for _, read := range []func(loquat.Object) error{p.readTools, p.readToolChoice, p.readText, p.readReasoning} {
		if err := read(params); err != nil {
			return p, err
		}
	}
	p.setNumbers(params)
	p.settings.Params = params
	return p, p.setEcho()
}

// refuse reports the fields that the service or its backends do not have.
func (p plan) refuse() error {
	b := p.body
	switch {
	case b.Truncation == "auto":
		return loquat.Invalid("body.truncation", `is "auto", which is not supported; leave it out, and the backend decides`)
	case b.TopLogprobs != 0:
		return loquat.Invalid("body.top_logprobs", "is not supported; leave it out")
	case b.Prompt != nil:
		return loquat.Invalid("body.prompt", "is not supported, because templates of prompts are not kept here; send instructions and input")
	case b.Background && !b.stores():
		return loquat.Invalid("body.background", "needs store: a response that is not stored has nobody to give its answer to")
	case b.PreviousResponseID != "" && b.Conversation != nil:
		return loquat.Invalid("body.previous_response_id", "cannot be given together with conversation; use one of them")
	case b.Conversation != nil && !b.stores():
		return loquat.Invalid("body.store", "cannot be false together with conversation, which keeps its items")
	}
	for i, name := range b.Include {
		if name != "reasoning.encrypted_content" { // SDKs ask for it; no backend here has it, so items lack it
			return loquat.Invalid(fmt.Sprintf("body.include[%d]", i), "is %q, which is not supported; leave it out", loquat.Clip(name, loquat.Excerpt))
		}
	}
	return checkMetadata(b.Metadata)
}

// OpenAI's bounds on metadata.
const (
	maxPairs = 16
	maxKey   = 64
	maxValue = 512
)

func checkMetadata(metadata map[string]string) error {
	if len(metadata) > maxPairs {
		return loquat.Invalid("body.metadata", "has %d keys; at most %d are allowed", len(metadata), maxPairs)
	}
	for key, value := range metadata {
		if len([]rune(key)) > maxKey || len([]rune(value)) > maxValue {
			return loquat.Invalid("body.metadata."+loquat.Clip(key, loquat.Excerpt), "is too long; a key has at most %d characters and a value %d", maxKey, maxValue)
		}
	}
	return nil
}

// readTools reads the functions that the caller runs.
func (p *plan) readTools(loquat.Object) error {
	for i, raw := range p.body.Tools {
		place := fmt.Sprintf("body.tools[%d]", i)
		tool, err := readTool(place, raw)
		if err != nil {
			return err
		}
		if tool.String("type") != toolNamespace {
			if err := p.addFunction(place, "", tool); err != nil {
				return err
			}
			continue
		}
		var members []json.RawMessage
		if json.Unmarshal(tool["tools"], &members) != nil || len(members) == 0 {
			return loquat.Invalid(place+".tools", "has to be a list of functions")
		}
		for i, raw := range members {
			place := fmt.Sprintf("%s.tools[%d]", place, i)
			member, err := readTool(place, raw)
			if err != nil {
				return err
			}
			if err := p.addFunction(place, tool.String("name"), member); err != nil {
				return err
			}
		}
	}
	return nil
}

// readTool reads a tool, which has a name.
func readTool(place string, raw json.RawMessage) (loquat.Object, error) {
	var tool loquat.Object
	if json.Unmarshal(raw, &tool) != nil || tool == nil {
		return nil, loquat.Invalid(place, "has to be an object")
	}
	switch kind := tool.String("type"); {
	case kind != toolFunction && kind != toolNamespace:
		return nil, hostedTool(place+".type", kind)
	case tool.String("name") == "":
		return nil, loquat.Invalid(place+".name", "is missing; it has to be the name of the %s", kind)
	}
	return tool, nil
}

func hostedTool(place, kind string) error {
	return loquat.Invalid(place, "is %q: a chat-completions backend has no hosted tools; use tools of type function, or tools of Loquat's plugins", loquat.Clip(kind, loquat.Excerpt))
}

// addFunction adds a function in the form of chat completions.
func (p *plan) addFunction(place, namespace string, tool loquat.Object) error {
	if kind := tool.String("type"); kind != toolFunction {
		return loquat.Invalid(place+".type", "is %q; a namespace has to have functions", kind)
	}
	f := function{namespace, tool.String("name")}
	if other, ok := p.functions[f.called()]; ok && other != f {
		return loquat.Invalid(place+".name", "is called %q by the model, as another function; rename one of them", loquat.Clip(f.called(), loquat.Excerpt))
	}
	if p.functions == nil {
		p.functions = functions{}
	}
	p.functions[f.called()] = f
	out := loquat.Object{}.Set("name", f.called())
	for _, key := range []string{"description", "parameters", "strict"} {
		if value := tool[key]; len(value) > 0 && string(value) != "null" {
			out[key] = value
		}
	}
	encoded, err := json.Marshal(loquat.Object{}.Set("type", toolFunction).Set("function", out))
	if err != nil {
		return err
	}
	p.settings.Tools = append(p.settings.Tools, encoded)
	return nil
}

// readToolChoice translates tool_choice.
func (p *plan) readToolChoice(params loquat.Object) error {
	raw := p.body.ToolChoice
	if raw == nil {
		return nil
	}
	var mode string
	if json.Unmarshal(raw, &mode) == nil {
		if !slices.Contains([]string{"none", "auto", "required"}, mode) {
			return loquat.Invalid("body.tool_choice", "is %q; it has to be none, auto, required or an object", loquat.Clip(mode, loquat.Excerpt))
		}
		params["tool_choice"] = raw
		return nil
	}
	var choice struct {
		Type, Name, Namespace, Mode string
		Tools                       []struct{ Type, Name, Namespace string }
	}
	if err := json.Unmarshal(raw, &choice); err != nil {
		return loquat.Invalid("body.tool_choice", "has to be a text or an object")
	}
	switch choice.Type {
	case "function":
		params.Set("tool_choice", functionChoice(p.functions.find(choice.Namespace, choice.Name)))
	case "allowed_tools":
		tools := []any{}
		for _, t := range choice.Tools {
			tools = append(tools, functionChoice(p.functions.find(t.Namespace, t.Name)))
		}
		params.Set("tool_choice", map[string]any{"type": "allowed_tools", "allowed_tools": map[string]any{"mode": orDefault(choice.Mode, "auto"), "tools": tools}})
	default:
		return loquat.Invalid("body.tool_choice.type", "is %q: a chat-completions backend has no hosted tools; use function or allowed_tools", loquat.Clip(choice.Type, loquat.Excerpt))
	}
	return nil
}

func functionChoice(f function) map[string]any {
	return map[string]any{"type": toolFunction, "function": map[string]any{"name": f.called()}}
}

func orDefault(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// readText translates text.format, which asks for structured output, and text.verbosity.
func (p *plan) readText(params loquat.Object) error {
	if p.body.Text == nil {
		return nil
	}
	var text loquat.Object
	if json.Unmarshal(p.body.Text, &text) != nil {
		return loquat.Invalid("body.text", "has to be an object")
	}
	if verbosity := text.String("verbosity"); verbosity != "" {
		params.Set("verbosity", verbosity)
	}
	format := text.Object("format")
	switch kind := format.String("type"); kind {
	case "", "text":
	case "json_object":
		params.Set("response_format", map[string]string{"type": kind})
	case "json_schema":
		schema := loquat.Object{}
		for _, key := range []string{"name", "description", "schema", "strict"} {
			if value := format[key]; len(value) > 0 && string(value) != "null" {
				schema[key] = value
			}
		}
		params.Set("response_format", loquat.Object{}.Set("type", kind).Set("json_schema", schema))
	default:
		return loquat.Invalid("body.text.format.type", "is %q; it has to be text, json_object or json_schema", loquat.Clip(kind, loquat.Excerpt))
	}
	return nil
}

func (p *plan) readReasoning(params loquat.Object) error {
	if p.body.Reasoning == nil {
		return nil
	}
	var reasoning loquat.Object
	if json.Unmarshal(p.body.Reasoning, &reasoning) != nil {
		return loquat.Invalid("body.reasoning", "has to be an object")
	}
	if effort := reasoning.String("effort"); effort != "" {
		params.Set("reasoning_effort", effort)
	}
	return nil
}

// setNumbers passes on the fields that chat completions have, too.
func (p *plan) setNumbers(params loquat.Object) {
	b := p.body
	for key, value := range map[string]*float64{
		"temperature": b.Temperature, "top_p": b.TopP, "presence_penalty": b.PresencePenalty, "frequency_penalty": b.FrequencyPenalty,
	} {
		if value != nil {
			params.Set(key, *value)
		}
	}
	if b.MaxOutputTokens != nil {
		params.Set("max_completion_tokens", *b.MaxOutputTokens)
	}
	if b.ParallelToolCalls != nil {
		params.Set("parallel_tool_calls", *b.ParallelToolCalls)
	}
	for key, value := range map[string]string{"service_tier": b.ServiceTier, "safety_identifier": b.SafetyIdentifier, "prompt_cache_key": b.PromptCacheKey} {
		if value != "" {
			params.Set(key, value)
		}
	}
}

// setEcho sets what the response resource repeats.
func (p *plan) setEcho() error {
	b := p.body
	p.echo = loquat.Object{}.Set("model", b.Model).Set("store", b.stores()).Set("background", b.Background)
	set := func(key string, given bool, value any) {
		if given {
			p.echo.Set(key, value)
		}
	}
	set("previous_response_id", b.PreviousResponseID != "", b.PreviousResponseID)
	set("instructions", b.Instructions != "", p.settings.Instructions)
	set("tool_choice", b.ToolChoice != nil, b.ToolChoice)
	set("parallel_tool_calls", b.ParallelToolCalls != nil, b.ParallelToolCalls)
	set("temperature", b.Temperature != nil, b.Temperature)
	set("top_p", b.TopP != nil, b.TopP)
	set("presence_penalty", b.PresencePenalty != nil, b.PresencePenalty)
	set("frequency_penalty", b.FrequencyPenalty != nil, b.FrequencyPenalty)
	set("max_output_tokens", b.MaxOutputTokens != nil, b.MaxOutputTokens)
	set("max_tool_calls", b.MaxToolCalls != nil, b.MaxToolCalls)
	set("metadata", len(b.Metadata) > 0, b.Metadata)
	set("service_tier", b.ServiceTier != "", b.ServiceTier)
	set("safety_identifier", b.SafetyIdentifier != "", b.SafetyIdentifier)
	set("prompt_cache_key", b.PromptCacheKey != "", b.PromptCacheKey)
	if err := p.echoTools(); err != nil {
		return err
	}
	p.echoObjects()
	return p.echo.CheckDepth()
}

// echoTools repeats the tools with all fields that a tool has.
func (p *plan) echoTools() error {
	var tools []loquat.Object
	for _, raw := range p.body.Tools {
		var given loquat.Object
		if err := json.Unmarshal(raw, &given); err != nil {
			return err
		}
		if given.String("type") != toolNamespace {
			tools = append(tools, wholeFunction(given))
			continue
		}
		var members []loquat.Object
		if err := json.Unmarshal(given["tools"], &members); err != nil {
			return err
		}
		for i, member := range members {
			members[i] = wholeFunction(member)
		}
		tools = append(tools, loquat.Object{}.Set("type", toolNamespace).Set("name", given.String("name")).Set("description", given.String("description")).Set("tools", members))
	}
	if tools != nil {
		p.echo.Set("tools", tools)
	}
	return nil
}

// wholeFunction returns a function with all fields that one has.
func wholeFunction(given loquat.Object) loquat.Object {
	out := loquat.Object{}.Set("type", toolFunction)
	for _, key := range []string{"name", "description", "parameters", "strict"} {
		out[key] = json.RawMessage("null")
		if value, ok := given[key]; ok {
			out[key] = value
		}
	}
	return out
}

// echoObjects repeats text and reasoning with all fields that they have.
func (p *plan) echoObjects() {
	var text, reasoning loquat.Object
	if json.Unmarshal(p.body.Text, &text) == nil && text != nil {
		format := text.Object("format")
		if format == nil {
			format = loquat.Object{}.Set("type", "text")
		}
		if format.String("type") == "json_schema" {
			for key, otherwise := range map[string]string{"description": "null", "strict": "false", "schema": "null"} {
				if value := strings.TrimSpace(string(format[key])); value == "" || value == "null" {
					format[key] = json.RawMessage(otherwise)
				}
			}
		}
		p.echo.Set("text", text.Set("format", format))
	}
	if json.Unmarshal(p.body.Reasoning, &reasoning) == nil && reasoning != nil {
		for _, key := range []string{"effort", "summary"} {
			if _, ok := reasoning[key]; !ok {
				reasoning[key] = json.RawMessage("null")
			}
		}
		p.echo.Set("reasoning", reasoning)
	}
}

// mark gives each message of the input the marker of the response. The last one has what the resource
// repeats, and whether the session was made for the response.
func (p *plan) mark(requestID string, made bool) {
	for i := range p.messages {
		marker := loquat.Object{}.Set("id", requestID)
		if i == len(p.messages)-1 {
			marker.Set("echo", p.echo).Set("made", made)
		}
		p.messages[i].Metadata = p.messages[i].Metadata.Clone().Set(chat.MetaResponse, marker)
	}
}
