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

// body is a response made up, before it is played.
type body struct {
	status      int
	contentType string
	retryAfter  string
	whole       []byte  // a body that is no stream
	frames      frames  // else
	rate        float64 // frames per second; 0 is as fast as it goes
}

// frames are the events of a stream, formatted. However many a script asks for, the
// repeating ones are kept once.
type frames struct {
	first  [][]byte
	cycle  [][]byte // repeated
	cycled int      // until there were so many
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

// utterance is what is to be said, whatever the form.
type utterance struct {
	refusal        string
	reasoning      string
	reasoningField string
	text           []string // in the pieces in which it streams
	filler         int      // that many pieces of filler follow
	fillerBytes    int
	calls          []call
	rate           float64
	fault          *fault // instead of all this
}

type call struct {
	id, name, arguments string
}

// apply changes what a model would say into what the script says.
func (s Script) apply(req *chatRequest, said utterance) utterance {
	switch {
	case said.fault != nil && !s.speaks():
	case req.endsInToolResults() && !s.RepeatToolCalls:
		said = utterance{text: words(ToolResultsText), rate: said.rate}
	case s.speaks():
		said = s.utterance(req)
	case s.ChunkBytes > 0:
		said.text = pieces(strings.Join(said.text, ""), 0, s.ChunkBytes)
	}
	said.reasoningField = s.ReasoningField
	if said.reasoningField == "" {
		said.reasoningField = "reasoning_content"
	}
	return said
}

// speaks says that the script has words of its own. Chunks without a text are filler.
func (s Script) speaks() bool {
	return s.Text != nil || s.Refusal != "" || s.Reasoning != "" || len(s.ToolCalls) > 0 || s.Chunks > 0
}

func (s Script) utterance(req *chatRequest) utterance {
	said := utterance{refusal: s.Refusal, reasoning: s.Reasoning}
	switch {
	case s.Text != nil:
		said.text = pieces(*s.Text, s.Chunks, s.ChunkBytes)
	case s.Chunks > 0:
		said.filler, said.fillerBytes = s.Chunks, s.ChunkBytes
	}
	for i, c := range s.ToolCalls {
		id := c.ID
		if id == "" {
			id = req.callID(i)
		}
		said.calls = append(said.calls, call{id, c.Name, verbatim(c.Arguments)})
	}
	return said
}

// pieces cuts text into n pieces, or pieces of size bytes, or words. No piece ends
// within a character.
func pieces(text string, n, size int) []string {
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
		list = words(text)
	}
	return list
}

// words cuts text after its spaces; joined, they are the text.
func words(text string) []string {
	if text == "" {
		return nil
	}
	return strings.SplitAfter(text, " ")
}

const lorem = "Lorem ipsum dolor sit amet, consectetur adipiscing elit, sed do eiusmod tempor " +
	"incididunt ut labore et dolore magna aliqua. "

// filler is the i-th piece of text that means nothing: a word, or size bytes.
func filler(i, size int) string {
	list := words(strings.TrimSuffix(lorem, " "))
	if size == 0 {
		return strings.TrimSuffix(list[i%len(list)], " ") + " "
	}
	offset := (i % fillerCycle) * size % len(lorem)
	return strings.Repeat(lorem, (offset+size)/len(lorem)+1)[offset : offset+size]
}

// fillerCycle is after how many pieces filler repeats: the number of words in lorem.
const fillerCycle = 19

func (u utterance) fillerLen() int {
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

// usage counts as promptTokens does.
func (u utterance) usage(req *chatRequest, s Script) json.RawMessage {
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
	reasoning := tokens(u.reasoning)
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

func (u utterance) finishReason(s Script) string {
	switch {
	case s.FinishReason != "":
		return s.FinishReason
	case len(u.calls) > 0:
		return "tool_calls"
	}
	return "stop"
}

// stream makes the events of a streamed completion.
func (u utterance) stream(id string, req *chatRequest, s Script) *body {
	c := newChunks(id, req)
	for _, t := range words(u.reasoning) {
		c.add(loquat.AppendString([]byte(`"`+u.reasoningField+`":`), t))
	}
	for _, t := range u.text {
		c.add(loquat.AppendString([]byte(`"content":`), t))
	}
	for _, t := range words(u.refusal) {
		c.add(loquat.AppendString([]byte(`"refusal":`), t))
	}
	f := &c.frames
	if u.filler > 0 {
		f.cycled = u.filler
		if len(f.first) == 0 { // the first delta names the role, and is no part of the cycle
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
		c.call(i, call, s.ChunkBytes)
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
	head   []byte // of every event, up to its choices
	tail   []byte // of every event that is not the one with the usage
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

// event is one chunk; delta is an object.
func (c *chunks) event(delta, finish []byte) []byte {
	e := make([]byte, 0, len(c.head)+len(delta)+len(finish)+len(c.tail)+48)
	e = append(append(e, c.head...), `{"index":0,"delta":`...)
	e = append(append(e, delta...), `,"finish_reason":`...)
	e = append(append(e, finish...), `}]`...)
	return append(e, c.tail...)
}

// delta is one chunk with a delta of these members.
func (c *chunks) delta(members []byte) []byte {
	delta := append(append([]byte{'{'}, members...), '}')
	return c.event(delta, []byte("null"))
}

// add appends a chunk to those before the filler; the first of all names the role.
func (c *chunks) add(members []byte) {
	if len(c.frames.first) == 0 {
		members = append([]byte(`"role":"assistant",`), members...)
	}
	c.frames.first = append(c.frames.first, c.delta(members))
}

// call appends a tool call: its name, then its arguments in pieces.
func (c *chunks) call(index int, call call, size int) {
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
	for _, piece := range pieces(call.arguments, 0, size) {
		part := loquat.AppendString(append(bytes.Clone(head), `,"function":{"arguments":`...), piece)
		c.frames.last = append(c.frames.last, c.delta(append(part, `}}]`...)))
	}
}

func (c *chunks) usage(usage json.RawMessage) []byte {
	e := append(bytes.Clone(c.head), `],"usage":`...)
	return append(append(e, usage...), "}\n\n"...)
}

// whole makes a completion that does not stream.
func (u utterance) whole(id string, req *chatRequest, s Script) (*body, *fault) {
	if n := u.fillerLen(); n > maxWhole {
		return nil, refuse(http.StatusBadRequest, "loquat_script", "invalid_script",
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
		return nil, refuse(http.StatusInternalServerError, "", "internal", "encode the answer: %v", err)
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
