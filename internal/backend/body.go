package backend

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"loquat"
)

const (
	contentJSON = "application/json"
	contentSSE  = "text/event-stream"
)

// body is a complete response that has not been written yet.
type body struct {
	status      int
	contentType string
	retryAfter  string
	whole       []byte  // the body, unless it is a stream
	frames      frames  // the events of a stream
	rate        float64 // frames per second; 0: unlimited
}

// frames are the formatted events of a stream. Repeated events are stored once, so that a
// script may ask for any number of them.
type frames struct {
	first  [][]byte
	cycle  [][]byte // repeated
	cycled int      // total number of repeated frames
	last   [][]byte
}

func (f frames) len() int { return len(f.first) + f.cycled + len(f.last) }

func (f frames) at(i int) []byte {
	if i < len(f.first) {
		return f.first[i]
	}
	if i -= len(f.first); i < f.cycled {
		return f.cycle[i%len(f.cycle)]
	}
	return f.last[i-f.cycled]
}

// plannedReply is the content of a reply, independent of its format.
type plannedReply struct {
	refusal        string
	reasoning      string
	reasoningField string
	text           []string // one string for each chunk of a stream
	filler         int      // number of chunks of filler that follow
	fillerBytes    int
	calls          []call
	rate           float64
	err            *apiError // an error to answer instead
}

type call struct {
	id, name, arguments string
}

// apply returns the reply that the script asks for. model is the reply of the built-in model.
func (s Script) apply(req *chatRequest, model plannedReply) plannedReply {
	r := model
	switch {
	case r.err != nil && !s.hasContent():
	case req.endsInToolResults() && !s.RepeatToolCalls:
		r = plannedReply{text: splitWords(ToolResultsText), rate: r.rate}
	case s.hasContent():
		r = s.planReply(req)
	case s.ChunkBytes > 0:
		r.text = splitText(strings.Join(r.text, ""), 0, s.ChunkBytes)
	}
	r.reasoningField = s.ReasoningField
	if r.reasoningField == "" {
		r.reasoningField = "reasoning_content"
	}
	return r
}

// hasContent reports whether the script sets the content of the reply. Chunks without a
// text are filler.
func (s Script) hasContent() bool {
	return s.Text != nil || s.Refusal != "" || s.Reasoning != "" || len(s.ToolCalls) > 0 || s.Chunks > 0
}

func (s Script) planReply(req *chatRequest) plannedReply {
	r := plannedReply{refusal: s.Refusal, reasoning: s.Reasoning}
	switch {
	case s.Text != nil:
		r.text = splitText(*s.Text, s.Chunks, s.ChunkBytes)
	case s.Chunks > 0:
		r.filler, r.fillerBytes = s.Chunks, s.ChunkBytes
	}
	for i, c := range s.ToolCalls {
		id := c.ID
		if id == "" {
			id = req.callID(i)
		}
		r.calls = append(r.calls, call{id, c.Name, stringOrRaw(c.Arguments)})
	}
	return r
}

// splitText splits text into parts of size bytes, or into n parts, or into words. It does
// not split characters.
func splitText(text string, n, size int) []string {
	var list []string
	switch {
	case size > 0:
		for text != "" {
			end := min(size, len(text))
			for end < len(text) && !utf8.RuneStart(text[end]) {
				end++
			}
			list = append(list, text[:end])
			text = text[end:]
		}
	case n > 0:
		start := 0
		for i := range n {
			end := len(text) * (i + 1) / n
			for end < len(text) && !utf8.RuneStart(text[end]) {
				end++
			}
			end = max(end, start)
			list = append(list, text[start:end])
			start = end
		}
	default:
		list = splitWords(text)
	}
	return list
}

// splitWords splits text after each space.
func splitWords(text string) []string {
	if text == "" {
		return nil
	}
	return strings.SplitAfter(text, " ")
}

const lorem = "Lorem ipsum dolor sit amet, consectetur adipiscing elit, sed do eiusmod tempor " +
	"incididunt ut labore et dolore magna aliqua. "

// filler returns the i-th chunk of a meaningless text: a word, or size bytes if size is not 0.
func filler(i, size int) string {
	list := splitWords(strings.TrimSuffix(lorem, " "))
	if size == 0 {
		return strings.TrimSuffix(list[i%len(list)], " ") + " "
	}
	offset := (i % fillerCycle) * size % len(lorem)
	return strings.Repeat(lorem, (offset+size)/len(lorem)+1)[offset : offset+size]
}

// fillerCycle is the number of chunks after which filler repeats: the number of words in
// lorem.
const fillerCycle = 19

func (u plannedReply) fillerLen() int {
	n := 0
	for i := range fillerCycle {
		times := u.filler / fillerCycle
		if i < u.filler%fillerCycle {
			times++
		}
		if times == 0 {
			break
		}
		n += times * len(filler(i, u.fillerBytes))
	}
	return n
}

// usage returns the usage of the reply. It estimates tokens as promptTokens does.
func (u plannedReply) usage(req *chatRequest, s Script) json.RawMessage {
	if len(s.Usage) > 0 {
		return s.Usage
	}
	completion := u.fillerLen()
	for _, t := range u.text {
		completion += len(t)
	}
	for _, c := range u.calls {
		completion += len(c.name) + len(c.arguments)
	}
	reasoning := estimateTokens(u.reasoning)
	count := struct {
		Prompt     int  `json:"prompt_tokens"`
		Completion int  `json:"completion_tokens"`
		Total      int  `json:"total_tokens"`
		Details    *any `json:"completion_tokens_details,omitempty"`
	}{Prompt: req.promptTokens(), Completion: (completion+3)/4 + reasoning}
	count.Total = count.Prompt + count.Completion
	if reasoning > 0 {
		var details any = map[string]int{"reasoning_tokens": reasoning}
		count.Details = &details
	}
	data, err := json.Marshal(count)
	if err != nil {
		panic(err) // numbers always encode
	}
	return data
}

func (u plannedReply) finishReason(s Script) string {
	switch {
	case s.FinishReason != "":
		return s.FinishReason
	case len(u.calls) > 0:
		return "tool_calls"
	}
	return "stop"
}

// stream formats the reply as the events of a streamed completion.
func (u plannedReply) stream(id string, req *chatRequest, s Script) *body {
	c := newChunks(id, req)
	for _, t := range splitWords(u.reasoning) {
		c.add(loquat.AppendString([]byte(`"`+u.reasoningField+`":`), t))
	}
	for _, t := range u.text {
		c.add(loquat.AppendString([]byte(`"content":`), t))
	}
	for _, t := range splitWords(u.refusal) {
		c.add(loquat.AppendString([]byte(`"refusal":`), t))
	}
	f := &c.frames
	if u.filler > 0 {
		f.cycled = u.filler
		if len(f.first) == 0 { // the first delta contains the role, so it is not part of the cycle
			c.add(loquat.AppendString([]byte(`"content":`), filler(0, u.fillerBytes)))
			f.cycled--
		}
		skip := u.filler - f.cycled
		for i := range min(fillerCycle, f.cycled) {
			f.cycle = append(f.cycle, c.delta(loquat.AppendString([]byte(`"content":`), filler(i+skip, u.fillerBytes))))
		}
	}
	if s.TruncateUTF8 {
		cut := c.delta([]byte(`"content":"é"`))
		f.last = [][]byte{cut[:bytes.LastIndexByte(cut, 0xC3)+1]}
		return &body{status: http.StatusOK, contentType: contentSSE, frames: c.frames, rate: u.rate}
	}
	for i, call := range u.calls {
		c.addCall(i, call, s.ChunkBytes)
	}
	if f.len() == 0 {
		c.add([]byte(`"content":""`))
	}
	if !s.NoFinishReason {
		f.last = append(f.last, c.event([]byte(`{}`), loquat.Quote(u.finishReason(s))))
	}
	if !s.NoUsage && (req.wantsUsage() || len(s.Usage) > 0) {
		f.last = append(f.last, c.usage(u.usage(req, s)))
	}
	if !s.NoDone {
		f.last = append(f.last, []byte("data: [DONE]\n\n"))
	}
	return &body{status: http.StatusOK, contentType: contentSSE, frames: c.frames, rate: u.rate}
}

// chunks formats the events of one streamed completion.
type chunks struct {
	head   []byte // beginning of every event, up to its choices
	tail   []byte // end of every event except the one with the usage
	frames frames
}

func newChunks(id string, req *chatRequest) *chunks {
	head := loquat.AppendString([]byte(`data: {"id":`), id)
	head = append(head, `,"object":"chat.completion.chunk","created":`...)
	head = strconv.AppendInt(head, time.Now().Unix(), 10)
	head = loquat.AppendString(append(head, `,"model":`...), req.Model)
	c := &chunks{head: append(head, `,"choices":[`...), tail: []byte("}\n\n")}
	if req.wantsUsage() {
		c.tail = []byte(",\"usage\":null}\n\n")
	}
	return c
}

// event formats one chunk. delta is a JSON object, finish a JSON value.
func (c *chunks) event(delta, finish []byte) []byte {
	e := make([]byte, 0, len(c.head)+len(delta)+len(finish)+len(c.tail)+48)
	e = append(append(e, c.head...), `{"index":0,"delta":`...)
	e = append(append(e, delta...), `,"finish_reason":`...)
	e = append(append(e, finish...), `}]`...)
	return append(e, c.tail...)
}

// delta formats one chunk whose delta has the given members.
func (c *chunks) delta(members []byte) []byte {
	delta := append(append([]byte{'{'}, members...), '}')
	return c.event(delta, []byte("null"))
}

// add appends a chunk before the filler. The first chunk also contains the role.
func (c *chunks) add(members []byte) {
	if len(c.frames.first) == 0 {
		members = append([]byte(`"role":"assistant",`), members...)
	}
	c.frames.first = append(c.frames.first, c.delta(members))
}

// addCall appends the chunks of a tool call: first its name, then parts of its arguments.
func (c *chunks) addCall(index int, call call, size int) {
	head := append([]byte(`"tool_calls":[{"index":`), strconv.Itoa(index)...)
	opening := loquat.AppendString(append(bytes.Clone(head), `,"id":`...), call.id)
	opening = loquat.AppendString(append(opening, `,"type":"function","function":{"name":`...), call.name)
	opening = append(opening, `,"arguments":""}}]`...)
	if c.frames.len() == 0 {
		opening = append([]byte(`"role":"assistant","content":null,`), opening...)
	}
	c.frames.last = append(c.frames.last, c.delta(opening))
	if size == 0 {
		size = 16
	}
	for _, piece := range splitText(call.arguments, 0, size) {
		part := loquat.AppendString(append(bytes.Clone(head), `,"function":{"arguments":`...), piece)
		c.frames.last = append(c.frames.last, c.delta(append(part, `}}]`...)))
	}
}

func (c *chunks) usage(usage json.RawMessage) []byte {
	e := append(bytes.Clone(c.head), `],"usage":`...)
	return append(append(e, usage...), "}\n\n"...)
}

// whole formats the reply as a completion that is not streamed.
func (u plannedReply) whole(id string, req *chatRequest, s Script) (*body, *apiError) {
	if n := u.fillerLen(); n > maxWhole {
		return nil, newAPIError(http.StatusBadRequest, "loquat_script", "invalid_script",
			"chunks: without streaming an answer has at most %d bytes of filler, not %d.", maxWhole, n)
	}
	var text strings.Builder
	for _, t := range u.text {
		text.WriteString(t)
	}
	for i := range u.filler {
		text.WriteString(filler(i%fillerCycle, u.fillerBytes))
	}
	if s.TruncateUTF8 {
		text.WriteString("é")
	}
	message := loquat.Object{"role": loquat.Quote("assistant"), "content": loquat.Quote(text.String())}
	if u.refusal != "" {
		message["refusal"] = loquat.Quote(u.refusal)
	}
	if u.reasoning != "" {
		message[u.reasoningField] = loquat.Quote(u.reasoning)
	}
	if len(u.calls) > 0 {
		message["tool_calls"] = encodeCalls(u.calls)
		if text.Len() == 0 {
			message["content"] = json.RawMessage("null")
		}
	}
	choice := map[string]any{"index": 0, "message": message}
	if !s.NoFinishReason {
		choice["finish_reason"] = u.finishReason(s)
	}
	answer := map[string]any{
		"id": id, "object": "chat.completion", "created": time.Now().Unix(), "model": req.Model,
		"choices": []any{choice},
	}
	if !s.NoUsage {
		answer["usage"] = u.usage(req, s)
	}
	data, err := json.Marshal(answer)
	if err != nil {
		return nil, newAPIError(http.StatusInternalServerError, "", "internal", "encode the answer: %v", err)
	}
	if s.TruncateUTF8 {
		data = data[:bytes.LastIndexByte(data, 0xC3)+1]
	}
	return &body{status: http.StatusOK, contentType: contentJSON, whole: data}, nil
}

func encodeCalls(calls []call) json.RawMessage {
	type function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	}
	type encoded struct {
		ID       string   `json:"id"`
		Type     string   `json:"type"`
		Function function `json:"function"`
	}
	list := make([]encoded, 0, len(calls))
	for _, c := range calls {
		list = append(list, encoded{c.id, "function", function{c.name, c.arguments}})
	}
	data, err := json.Marshal(list)
	if err != nil {
		panic(err) // strings always encode
	}
	return data
}
