package backend

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"loquat"
)

// builtinModel is a built-in model.
type builtinModel struct {
	id, name string
	plan     func(req *chatRequest) plannedReply
}

// builtinModels are the built-in models. The first also answers for unknown names.
var builtinModels = []builtinModel{
	{"demo", "Demo: a scripted reply", replyDemo},
	{"demo-reasoning", "Demo: thinks, then replies", replyReasoning},
	{"demo-tools", "Demo: calls a tool", replyTools},
	{"demo-error", "Demo: always fails with 503", replyError},
	{"echo", "Echo: repeats what you say", replyEcho},
	{"lorem", "Lorem: a long text", replyLorem},
}

// The paces of the built-in models, in words per second.
const (
	normalPace = 30
	fastPace   = 60
)

// maxQuote is the number of characters of the user's text that a reply quotes.
const maxQuote = 400

func planReply(req *chatRequest) plannedReply {
	for _, v := range builtinModels {
		if v.id == req.Model {
			return v.plan(req)
		}
	}
	return builtinModels[0].plan(req)
}

func replyDemo(req *chatRequest) plannedReply {
	return plannedReply{rate: normalPace, text: splitWords(quoteUser(req) +
		"I am Loquat's scripted backend: no model runs here, and I say the same to everybody. " +
		"Streaming, Stop, edits and forks all work with me as they do with a real model.\n\n" +
		setupHint)}
}

const setupHint = "To talk to a real model, set `OPENAI_API_KEY` (and `OPENAI_BASE_URL`, if it is not OpenAI's), " +
	"or start a local one such as Ollama, or write a `loquat.json`:\n\n" +
	"```json\n" +
	`{"providers": {"main": {"provider": "reference_generic_compatible",` + "\n" +
	`  "base_url": "http://127.0.0.1:11434/v1", "model": "your-model"}}}` + "\n" +
	"```\n\nThen start Loquat again. Leave out `--demo` if you used it."

// quoteUser quotes the user's message, so that the user sees that it has arrived.
func quoteUser(req *chatRequest) string {
	text, images := req.lastUser()
	text = strings.TrimSpace(text)
	var b strings.Builder
	if text == "" {
		b.WriteString("Hello! ")
	} else {
		fmt.Fprintf(&b, "Hello! You said:\n\n> %s\n\n", strings.ReplaceAll(loquat.Clip(text, maxQuote), "\n", "\n> "))
	}
	switch images {
	case 0:
	case 1:
		b.WriteString("An image came with it. ")
	default:
		fmt.Fprintf(&b, "%d images came with it. ", images)
	}
	return b.String()
}

func replyReasoning(req *chatRequest) plannedReply {
	text, _ := req.lastUser()
	return plannedReply{
		rate: normalPace,
		reasoning: fmt.Sprintf("The user wrote %d words. I have a script and no thoughts of my own, "+
			"so I show where a model's reasoning would stand, and then I answer.", len(strings.Fields(text))),
		text: splitWords(quoteUser(req) + "What came before this text was my reasoning: " +
			"a client shows it apart, or folds it away.\n\n" + setupHint),
	}
}

func replyTools(req *chatRequest) plannedReply {
	t := chooseTool(req)
	if t == nil {
		return plannedReply{rate: normalPace, text: splitWords(quoteUser(req) +
			"I would call a tool now, but this request offers none that I may call. " +
			"List a plugin with tools in the configuration's `plugins`, and ask again.")}
	}
	text, _ := req.lastUser()
	args := exampleArguments(t.Function.Parameters, text)
	return plannedReply{
		rate:  fastPace,
		text:  splitWords("I call the tool " + t.Function.Name + "."),
		calls: []call{{id: req.callID(0), name: t.Function.Name, arguments: string(args)}},
	}
}

// chooseTool returns the tool that tool_choice names, or else one that the user's text
// names, or else the first. It returns nil if there are no tools or tool_choice is "none".
func chooseTool(req *chatRequest) *tool {
	var choice string
	var named struct {
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	}
	if json.Unmarshal(req.ToolChoice, &choice) == nil && choice == "none" {
		return nil
	}
	text, _ := req.lastUser()
	wanted := func(t *tool) bool { return strings.Contains(text, t.Function.Name) }
	if json.Unmarshal(req.ToolChoice, &named) == nil && named.Function.Name != "" {
		wanted = func(t *tool) bool { return t.Function.Name == named.Function.Name }
	}
	var first *tool
	for i := range req.Tools {
		t := &req.Tools[i]
		if t.Function.Name == "" {
			continue
		}
		if wanted(t) {
			return t
		}
		if first == nil {
			first = t
		}
	}
	return first
}

func replyError(*chatRequest) plannedReply {
	return plannedReply{err: newAPIError(http.StatusServiceUnavailable, "", "overloaded",
		"The model demo-error always fails; choose another one.")}
}

func replyEcho(req *chatRequest) plannedReply {
	text, _ := req.lastUser()
	return plannedReply{rate: fastPace, text: splitWords(text)}
}

func replyLorem(*chatRequest) plannedReply {
	return plannedReply{rate: fastPace, filler: 20 * fillerCycle}
}
