package provider

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"strings"

	"loquat"
)

// maxCalls limits the tool calls of one reply. maxFields limits the unknown fields that
// are kept for the reply, and for each call.
const (
	maxCalls  = 1024
	maxFields = 1024
)

// maxArguments limits the arguments of all tool calls of one reply, in bytes. Arguments
// are stored and sent more often than the reply's text.
const maxArguments = 16 << 20

// maxCallName and maxCallID limit the name and the id of a tool call, in bytes. Some gateways put a signature into ids.
const (
	maxCallName = 4 << 10
	maxCallID   = 64 << 10
)

var (
	errTooMuchArguments = fmt.Errorf("the arguments of the backend's tool calls have more than %d bytes in one reply", maxArguments)

	errTooManyCalls  = fmt.Errorf("the backend asks for more than %d tool calls in one reply", maxCalls)
	errLongName      = fmt.Errorf("the backend's tool call has a name of more than %d bytes, or an id of more than %d", maxCallName, maxCallID)
	errTooManyFields = fmt.Errorf("the backend's reply has more than %d fields that are not known", maxFields)
)

// metaRequestedModel is the metadata key of the requested model. It is set if the backend
// reported a different model for the reply.
const metaRequestedModel = "requested_model"

// collector combines the chunks of one answer into one reply.
type collector struct {
	text             loquat.TextBuilder
	reasoning        loquat.TextBuilder // metadata.reasoning
	reasoningContent loquat.TextBuilder // metadata.reasoning_content
	refusal          loquat.TextBuilder
	model            string
	finish           string
	usage            json.RawMessage // the last one; never a sum
	calls            []*call
	legacy           *call            // function_call of a stream
	argsSize         int              // of all calls
	kept             map[string]*kept // further metadata
	done             bool             // [DONE] came
}

// add adds a chunk to the reply and returns the increment to show, if there is one.
func (c *collector) add(ch *chunk) (inc loquat.Chunk, show bool, err error) {
	if c.model == "" && len(ch.model) > 0 {
		c.model = string(ch.model)
	}
	c.addFinish(ch)
	if ch.usage != nil {
		c.usage = append(c.usage[:0], ch.usage...)
	}
	if len(ch.text) > 0 {
		inc.Text, show = keepString(ch.text), true
		c.text.WriteString(inc.Text)
	}
	if len(ch.reasoning)+len(ch.reasoningContent) > 0 {
		inc.Reasoning, inc.ReasoningContent, show = keepString(ch.reasoning), keepString(ch.reasoningContent), true
		c.reasoning.WriteString(inc.Reasoning)
		c.reasoningContent.WriteString(inc.ReasoningContent)
	}
	c.refusal.WriteString(keepString(ch.refusal))
	if len(ch.fields) > maxFields || len(c.kept) > maxFields {
		return inc, false, errTooManyFields
	}
	for _, f := range ch.notes {
		if !saysNothing(f.value) {
			k := c.keptAt(f.key)
			k.value = append(k.value[:0], f.value...)
		}
	}
	for _, f := range ch.fields {
		show = c.keep(&inc, f) || show
	}
	if len(ch.parts) > 0 {
		show = c.keep(&inc, field{[]byte(contentParts), listOf(ch.parts)}) || show
	}
	return inc, show, c.addCalls(ch)
}

// addFinish keeps the finish_reason of a chunk.
func (c *collector) addFinish(ch *chunk) {
	if len(ch.finish) > 0 {
		c.finish = string(ch.finish)
	}
}

func listOf(parts []json.RawMessage) json.RawMessage {
	list := []byte{'['}
	for i, p := range parts {
		if i > 0 {
			list = append(list, ',')
		}
		list = append(list, p...)
	}
	return append(list, ']')
}

// kept holds metadata that may arrive repeatedly. Lists are concatenated; of other values the last one counts.
type kept struct {
	key   string
	value json.RawMessage // of a list: without its closing bracket
	list  bool
}

// keep adds a field to the reply. A list or an object is added to the increment, too.
// Scalars are not, because backends repeat them in each chunk.
func (c *collector) keep(inc *loquat.Chunk, f field) (shown bool) {
	if saysNothing(f.value) || string(f.value) == "[]" {
		return false
	}
	k := c.keptAt(f.key)
	if f.value[0] != '[' {
		k.value, k.list = append(k.value[:0], f.value...), false
		if f.value[0] != '{' {
			return false
		}
	} else if inner := bytes.TrimSpace(f.value[1 : len(f.value)-1]); len(inner) > 0 {
		if k.list {
			k.value = append(k.value, ',')
		} else {
			k.value, k.list = append(k.value[:0], '['), true
		}
		k.value = append(k.value, inner...)
	}
	if inc.Extra == nil {
		inc.Extra = loquat.Object{}
	}
	inc.Extra[k.key] = bytes.Clone(f.value)
	return true
}

func (c *collector) keptAt(key []byte) *kept {
	k := c.kept[string(key)]
	if k == nil {
		if c.kept == nil {
			c.kept = map[string]*kept{}
		}
		k = &kept{key: string(key)}
		c.kept[k.key] = k
	}
	return k
}

// json returns the value. The caller must not add to k afterwards.
func (k *kept) json() json.RawMessage {
	if k.list {
		return append(k.value, ']')
	}
	return k.value
}

// call holds a tool call while it arrives.
type call struct {
	index          int // the index of the newest delta that had one; -1 if none had
	id             string
	name           string
	args           []byte
	custom         bool      // args is a text, not JSON
	state          jsonState // of args
	renamed        bool      // the name was repeated after the arguments were complete
	extra, fnExtra loquat.Object
}

func (c *collector) addCalls(ch *chunk) error {
	if len(ch.calls) > maxCalls {
		return errTooManyCalls
	}
	if err := c.addLegacy(ch.legacy); err != nil {
		return err
	}
	for i := range ch.calls {
		d := &ch.calls[i]
		target := c.target(d, ch.whole, i)
		if target == nil {
			if len(c.calls) == maxCalls {
				return errTooManyCalls
			}
			target = &call{index: -1, args: make([]byte, 0, 128)}
			c.calls = append(c.calls, target)
		}
		if d.index >= 0 && !ch.whole {
			target.index = d.index
		}
		if c.argsSize += len(d.args); c.argsSize > maxArguments {
			return errTooMuchArguments
		}
		if target.namesTooLong(d) {
			return errLongName
		}
		target.add(d)
		if max(len(target.extra), len(target.fnExtra)) > maxFields {
			return errTooManyFields
		}
	}
	return nil
}

// addLegacy adds a delta of a function_call.
func (c *collector) addLegacy(d *callDelta) error {
	if d == nil {
		return nil
	}
	if c.legacy == nil {
		c.legacy = &call{index: -1}
	}
	if c.argsSize += len(d.args); c.argsSize > maxArguments {
		return errTooMuchArguments
	}
	if c.legacy.namesTooLong(d) {
		return errLongName
	}
	c.legacy.add(d)
	if len(c.legacy.fnExtra) > maxFields {
		return errTooManyFields
	}
	return nil
}

// target returns the call to which a delta belongs, or nil if the delta begins a new
// call. i is the delta's index in the chunk.
func (c *collector) target(d *callDelta, whole bool, i int) *call {
	if whole || len(c.calls) == 0 {
		return nil
	}
	last := c.calls[len(c.calls)-1]
	var t *call
	switch {
	case d.index >= 0:
		if t = c.newestAt(d.index); t == nil {
			return nil
		}
		if len(d.id) > 0 && t.id != "" && t.id != string(d.id) && len(d.name) > 0 {
			return nil // the index is used again
		}
	case len(d.id) > 0:
		for _, known := range c.calls {
			if known.id == string(d.id) {
				t = known // the newest call with that id
			}
		}
		if t == nil && last.id == "" && len(d.name) == 0 {
			t = last // the id arrived after the beginning of the call
		}
		if t == nil {
			return nil
		}
	default:
		t = last
		if len(d.name) > 0 && i > 0 {
			return nil // without index and id, each entry of a list is a call
		}
	}
	if !t.custom && t.state.complete() && t.startsAnother(d) {
		return nil
	}
	return t
}

// newestAt returns the newest call with an index. Replies hold few calls, so a search
// costs less than a map.
func (c *collector) newestAt(index int) *call {
	for i := len(c.calls) - 1; i >= 0; i-- {
		if c.calls[i].index == index {
			return c.calls[i]
		}
	}
	return nil
}

// startsAnother reports whether a delta for t, whose arguments are complete, begins
// another call with the same index and id. Backends that merely repeat the name in every
// delta do not begin one.
func (t *call) startsAnother(d *callDelta) bool {
	args := len(bytes.TrimSpace(d.args)) > 0
	switch {
	case len(d.name) == 0:
		return args && t.renamed
	case string(d.name) != t.name:
		return t.name != ""
	}
	t.renamed = true
	return args
}

// namesTooLong reports whether the name or the id of a call is over its bound with a delta.
func (t *call) namesTooLong(d *callDelta) bool {
	return len(t.name)+len(d.name) > maxCallName || len(d.id) > maxCallID
}

func (t *call) add(d *callDelta) {
	if t.id == "" {
		t.id = string(d.id)
	}
	switch {
	case len(d.name) == 0:
	case t.name == "":
		t.name = string(d.name)
	case len(t.args) == 0 && string(d.name) != t.name:
		t.name += string(d.name)
	}
	t.custom = t.custom || d.custom
	t.args = append(t.args, d.args...)
	t.state.feed(d.args)
	for _, f := range d.extra {
		if saysNothing(f.value) || string(f.key) == "type" && string(f.value) == `"function"` {
			continue
		}
		t.extra = keepRaw(t.extra, f)
	}
	for _, f := range d.fnExtra {
		if !saysNothing(f.value) {
			t.fnExtra = keepRaw(t.fnExtra, f)
		}
	}
}

func keepRaw(o loquat.Object, f field) loquat.Object {
	if o == nil {
		o = loquat.Object{}
	}
	o[string(f.key)] = bytes.Clone(f.value)
	return o
}

// jsonState scans arguments as they arrive and detects when the object is complete.
type jsonState struct {
	depth             int
	inString, escaped bool
	opened            bool
}

func (s *jsonState) feed(b []byte) {
	for _, c := range b {
		switch {
		case s.escaped:
			s.escaped = false
		case s.inString:
			s.escaped = c == '\\'
			s.inString = c != '"'
		case c == '"':
			s.inString = true
		case c == '{' || c == '[':
			s.depth++
			s.opened = true
		case c == '}' || c == ']':
			s.depth--
		}
	}
}

func (s *jsonState) complete() bool { return s.opened && s.depth <= 0 && !s.inString }

// ended reports whether the backend marked the end of the answer.
func (c *collector) ended() bool { return c.done || c.finish != "" }

// reply returns the whole answer.
func (c *collector) reply(providerID, requestedModel string) *loquat.Reply {
	r := &loquat.Reply{Content: c.text.String(), ToolCalls: c.toolCalls(), FinishReason: c.finish}
	if r.FinishReason == "" {
		r.FinishReason = "stop"
		if len(r.ToolCalls) > 0 {
			r.FinishReason = "tool_calls"
		}
	}
	const usual = 12 // keys of usage, model, provider and reasoning
	meta := make(loquat.Object, usual+len(c.kept))
	for key, k := range c.kept {
		meta[key] = k.json()
	}
	if c.reasoning.Len() > 0 {
		meta[reasoningPlain] = c.reasoning.Quote()
	}
	if c.reasoningContent.Len() > 0 {
		meta[reasoningContent] = c.reasoningContent.Quote()
	}
	if c.legacy != nil {
		meta[functionCall] = c.legacy.object("arguments")
	}
	if c.refusal.Len() > 0 {
		meta[loquat.MetaRefusal] = loquat.Quote(c.refusal.String())
	}
	if !strings.EqualFold(r.FinishReason, "stop") && r.FinishReason != "tool_calls" {
		meta[loquat.MetaFinishReason] = loquat.Quote(r.FinishReason)
	}
	addUsage(meta, c.usage)
	model := c.model
	if model == "" {
		model = requestedModel
	}
	if model != requestedModel && requestedModel != "" {
		meta[metaRequestedModel] = loquat.Quote(requestedModel)
	}
	meta[loquat.MetaModel] = loquat.Quote(model)
	meta[loquat.MetaProvider] = loquat.Quote(providerID)
	r.Metadata = meta
	return r
}

// remains returns a reply with only the usage of a broken answer, or nil without usage.
func (c *collector) remains() *loquat.Reply {
	if c.usage == nil {
		return nil
	}
	meta := loquat.Object{}
	addUsage(meta, c.usage)
	return &loquat.Reply{Metadata: meta}
}

// newCallID returns an id for a tool call to which the backend gave none.
func newCallID() string { return "call_" + rand.Text() }

// toolCalls returns the calls. Each has a unique id, by which results are matched to
// calls.
func (c *collector) toolCalls() []loquat.ToolCall {
	if len(c.calls) == 0 {
		return nil
	}
	out := make([]loquat.ToolCall, 0, len(c.calls))
	used := make(map[string]bool, len(c.calls))
	for _, t := range c.calls {
		if t.name == "" && len(t.args) == 0 {
			continue
		}
		id := t.id
		if id == "" || used[id] {
			id = newCallID()
		}
		used[id] = true
		out = append(out, t.toolCall(id))
	}
	return out
}

// toolCall returns the complete call. Tools take JSON, so the text of a custom call
// becomes the argument `input`. Extra holds the call as the backend sent it.
func (t *call) toolCall(id string) loquat.ToolCall {
	c := loquat.ToolCall{ID: id, Name: t.name, Arguments: string(t.args), Extra: t.extra, FunctionExtra: t.fnExtra}
	if t.custom {
		c.Arguments = `{"` + customInput + `":` + string(loquat.Quote(c.Arguments)) + `}`
		c.Extra = t.extra.Clone().Set("type", customTool)
		c.Extra[customTool] = t.object(customInput)
		c.FunctionExtra = nil
	}
	return c
}

// object returns a JSON object of the name, the argument and the unknown fields.
func (t *call) object(argument string) json.RawMessage {
	o := t.fnExtra.Clone().Set("name", t.name)
	o[argument] = loquat.Quote(string(t.args))
	return loquat.Object{}.Set("", o)[""]
}
