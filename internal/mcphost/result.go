package mcphost

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"loquat"
	"loquat/internal/plugin"
)

// answer is the answer of a tool.
type answer struct {
	Content       []content       `json:"content"`
	Structured    json.RawMessage `json:"structuredContent"`
	IsError       bool            `json:"isError"`
	Meta          loquat.Object   `json:"_meta"`
	InputRequests json.RawMessage `json:"inputRequests"`
}

// content is one part of an answer.
type content struct {
	Type     string `json:"type"`
	Text     string `json:"text"`
	Data     []byte `json:"data"`
	MIMEType string `json:"mimeType"`
	Name     string `json:"name"`
	URI      string `json:"uri"`
	Resource *struct {
		URI      string  `json:"uri"`
		MIMEType string  `json:"mimeType"`
		Text     *string `json:"text"`
		Blob     []byte  `json:"blob"`
	} `json:"resource"`
}

// result converts an answer to the result for the model. Images are kept; other parts that
// are not text become notes. Structured content is used only if there are no parts.
func (a *answer) result() plugin.ToolResult {
	out := plugin.ToolResult{IsError: a.IsError}
	var texts []string
	for _, c := range a.Content {
		if text, ok := c.text(); ok {
			texts = append(texts, text)
		} else if image, ok := c.image(); ok {
			out.Images = append(out.Images, image)
		} else {
			texts = append(texts, c.note())
		}
	}
	out.Content = strings.Join(texts, "\n")
	// If there are parts, the structured content repeats them.
	if len(a.Content) == 0 && a.structured() {
		out.Content = compact(a.Structured)
	}
	if display, ok := a.Meta["display"]; ok && isDisplay(display) {
		out.Metadata = loquat.Object{loquat.MetaDisplay: display}
	}
	return out
}

// structured reports whether there is a structured answer.
func (a *answer) structured() bool {
	return len(a.Structured) > 0 && string(a.Structured) != "null"
}

// text returns the text of a text part.
func (c content) text() (string, bool) {
	switch {
	case c.Type == "text":
		return c.Text, true
	case c.Type == "resource" && c.Resource != nil && c.Resource.Text != nil:
		return *c.Resource.Text, true
	}
	return "", false
}

// image returns the image of an image part.
func (c content) image() (plugin.Image, bool) {
	switch {
	case c.Type == "image":
		return plugin.Image{MediaType: c.MIMEType, Data: c.Data}, true
	case c.Type == "resource" && c.Resource != nil && strings.HasPrefix(c.Resource.MIMEType, "image/"):
		return plugin.Image{MediaType: c.Resource.MIMEType, Data: c.Resource.Blob}, true
	}
	return plugin.Image{}, false
}

// note describes a part that models cannot read.
func (c content) note() string {
	switch c.Type {
	case "audio":
		return fmt.Sprintf("[audio, %s, %d bytes: not shown]", orUnknown(c.MIMEType), len(c.Data))
	case "resource_link":
		return fmt.Sprintf("[resource %s: %s]", c.Name, c.URI)
	case "resource":
		if c.Resource != nil {
			return fmt.Sprintf("[resource %s, %s, %d bytes: not shown]", c.Resource.URI, orUnknown(c.Resource.MIMEType), len(c.Resource.Blob))
		}
	}
	return fmt.Sprintf("[%q content: not shown]", c.Type)
}

func orUnknown(mediaType string) string {
	if mediaType == "" {
		return "of unknown type"
	}
	return mediaType
}

// isDisplay checks the form of metadata.display: {type, content}, both texts.
func isDisplay(raw json.RawMessage) bool {
	var d struct {
		Type    *string `json:"type"`
		Content *string `json:"content"`
	}
	return json.Unmarshal(raw, &d) == nil && d.Type != nil && d.Content != nil
}

// data returns the answer of a tool that Loquat itself called: its structured content,
// else the first text part that is JSON, else its text.
func (a *answer) data() (json.RawMessage, error) {
	text := a.result().Content
	if a.IsError {
		return nil, fmt.Errorf("%s", text)
	}
	if a.structured() {
		return a.Structured, nil
	}
	for i, c := range a.Content {
		if c.Type != "text" || !json.Valid([]byte(c.Text)) {
			continue
		}
		if err := loquat.CheckDepth([]byte(c.Text)); err != nil {
			return nil, fmt.Errorf("content[%d].text of its answer cannot be used: %w", i, err)
		}
		return json.RawMessage(c.Text), nil
	}
	return loquat.Quote(text), nil
}

func compact(raw json.RawMessage) string {
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return string(raw)
	}
	return b.String()
}
