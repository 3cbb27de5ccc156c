package backend

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"loquat"
)

// voice is a built-in model.
type voice struct {
	id, name string
	speak    func(req *chatRequest) utterance
}

// voices are the built-in models; the first also answers for names unknown.
var voices = []voice{
	{"demo", "Demo: a scripted reply", speakDemo},
	{"demo-reasoning", "Demo: thinks, then replies", speakReasoning},
	{"demo-tools", "Demo: calls a tool", speakTools},
	{"demo-error", "Demo: always fails with 503", speakError},
	{"echo", "Echo: repeats what you say", speakEcho},
	{"lorem", "Lorem: a long text", speakLorem},
}

// The pace of the built-in models, in words per second.
const (
	talking = 30
	hurried = 60
)

// maxQuote is how many characters of the user's text a reply quotes.
const maxQuote = 400

func speak(req *chatRequest) utterance {
	for _, v := range voices {
		if v.id == req.Model {
			return v.speak(req)
		}
	}
	return voices[0].speak(req)
}

func speakDemo(req *chatRequest) utterance {
	return utterance{rate: talking, text: words(heard(req) +
		"I am Loquat's scripted backend: no model runs here, and I say the same to everybody. " +
		"Streaming, Stop, edits and forks all work with me as they do with a real model.\n\n" +
		howToSetOne)}
}

const howToSetOne = "To talk to a real model, set `OPENAI_API_KEY` (and `OPENAI_BASE_URL`, if it is not OpenAI's), " +
	"or start a local one such as Ollama, or write a `loquat.json`:\n\n" +
	"```json\n" +
	`{"providers": {"main": {"provider": "reference_generic_compatible",` + "\n" +
	`  "base_url": "http://127.0.0.1:11434/v1", "model": "your-model"}}}` + "\n" +
	"```\n\nThen start `loquat serve` without `--demo`."

// heard quotes the user, so that one sees that the message came through.
func heard(req *chatRequest) string {
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

func speakReasoning(req *chatRequest) utterance {
	text, _ := req.lastUser()
	return utterance{
		rate: talking,
		reasoning: fmt.Sprintf("The user wrote %d words. I have a script and no thoughts of my own, "+
			"so I show where a model's reasoning would stand, and then I answer.", len(strings.Fields(text))),
		text: words(heard(req) + "What came before this text was my reasoning: " +
			"a client shows it apart, or folds it away.\n\n" + howToSetOne),
	}
}

func speakTools(req *chatRequest) utterance {
	t := chooseTool(req)
	if t == nil {
		return utterance{rate: talking, text: words(heard(req) +
			"I would call a tool now, but this request offers none that I may call. " +
			"List a plugin with tools in the configuration's `plugins`, and ask again.")}
	}
	text, _ := req.lastUser()
	args := exampleArguments(t.Function.Parameters, text)
	return utterance{
		rate:  hurried,
		text:  words("I call the tool " + t.Function.Name + "."),
		calls: []call{{id: req.callID(0), name: t.Function.Name, arguments: string(args)}},
	}
}

// chooseTool takes the tool that tool_choice names, else one that the user names,
// else the first; nil when there is none or tool_choice is "none".
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

func speakError(*chatRequest) utterance {
	return utterance{fault: refuse(http.StatusServiceUnavailable, "", "overloaded",
		"The model demo-error always fails; choose another one.")}
}

func speakEcho(req *chatRequest) utterance {
	text, _ := req.lastUser()
	return utterance{rate: hurried, text: words(text)}
}

func speakLorem(*chatRequest) utterance {
	return utterance{rate: hurried, filler: 20 * fillerCycle}
}
