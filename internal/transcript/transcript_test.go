package transcript_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"loquat"
	"loquat/internal/archive"
	"loquat/internal/archive/archivetest"
	"loquat/internal/transcript"
)

// example returns a session with everything that a page shows.
func example() archive.Session {
	image := archivetest.Image(1)
	image.AssetID = "a1"
	attached := []loquat.Object{
		loquat.Object{}.Set("type", "image").Set("asset_id", "a1"),
		loquat.Object{}.Set("type", "image").Set("asset_id", "lost"),
		loquat.Object{}.Set("type", "image").Set("url", "https://example.org/x.png"),
		loquat.Object{}.Set("type", "image").Set("data_url", "data:image/gif;base64,R0lGODlh"),
		loquat.Object{}.Set("type", "image").Set("data_url", `data:image/svg+xml;base64,PHN2Zz4="><script>`),
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	call := loquat.ToolCall{ID: "c", Name: "add", Arguments: `{"a":1}`}
	return archive.Session{
		SessionID: "s1", AgentID: "default", CreatedAt: at, UpdatedAt: at, Metadata: loquat.Object{}.Set("title", "A *title* <b>"), Images: []archive.Image{image},
		Messages: []loquat.Message{
			{Role: "user", Content: "Look:\n\n```html\n<b>code</b>\n```\nafter", CreatedAt: at, Metadata: loquat.Object{}.Set("attachments", attached)},
			{Role: "assistant", CreatedAt: at, Metadata: loquat.Object{}.Set("reasoning", "Well,\nlet me see").Set("model", "m<1>").Set("tool_calls", []loquat.ToolCall{call})},
			{Role: "tool", Content: "2", CreatedAt: at, Metadata: loquat.Object{}.Set("tool_name", "add").Set("is_error", true)},
			{Role: "assistant", Content: "```\nopen", CreatedAt: at, Metadata: loquat.Object{}.Set("incomplete", "cancelled")},
		},
	}
}

func write(t testing.TB, to func(io.Writer, archive.Session) error, s archive.Session) string {
	t.Helper()
	var b bytes.Buffer
	if err := to(&b, s); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestHTML(t *testing.T) {
	page := write(t, transcript.WriteHTML, example())
	for _, want := range []string{
		"<title>A *title* &lt;b&gt;</title>", "default-src &#39;none&#39;; img-src data:;", "<h2>User <small>2026-01-02 03:04 UTC</small></h2>",
		`<pre dir="auto">&lt;b&gt;code&lt;/b&gt;</pre>`, `<div dir="auto">after</div>`, `<img alt="shade 1.png" src="data:image/png;base64,iVBO`,
		"This image is missing.", "Image: https://example.org/x.png", `src="data:image/gif;base64,R0lGODlh">`, "This image cannot be read.",
		"Assistant (m&lt;1&gt;)", "<details>", "Tool call: add\n{\n  &#34;a&#34;: 1\n}", "Tool add", "The tool reports an error.", `<pre dir="auto">open</pre>`, "The reply is incomplete: it was cancelled.",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
	if t.Failed() {
		t.Log(page)
	}
}

func TestMarkdown(t *testing.T) {
	text := write(t, transcript.WriteMarkdown, example())
	for _, want := range []string{
		"# A \\*title\\* \\<b\\>\n", "## User, 2026-01-02 03:04 UTC", "```html\n<b>code</b>\n```\nafter\n", "![shade 1.png](data:image/png;base64,iVBO",
		"> Well,\n> let me see", "```\nTool call: add\n{\n  \"a\": 1\n}\n```", "This image is missing.",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the text lacks %s", want)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
}

// Of a message with backticks in odd places, each line is on the page: in the text, in a block of code, or in front of one.
func TestHTMLKeepsEachLine(t *testing.T) {
	for content, want := range map[string]string{
		"see\n```ls -la```\nend":               `<div dir="auto">see` + "\n```ls -la```\nend</div>\n",
		"```md\na\n```python\nb\n```\nend":     `<em dir="auto">md</em>` + "\n" + `<pre dir="auto">a` + "\n```python\nb</pre>\n" + `<div dir="auto">end</div>`,
		"~~~\na\n~~~":                          `<pre dir="auto">a</pre>`,
		"````\n```\na\n```\n````\nend":         `<pre dir="auto">` + "```\na\n```</pre>\n" + `<div dir="auto">end</div>`,
		"- item\n  ```sh\n  ls\n  ```\n- more": `<pre dir="auto">  ls</pre>` + "\n" + `<div dir="auto">- more</div>`,
		"```\n\n  indented\n\n```":             `<pre dir="auto">` + "\n\n  indented\n</pre>",
		"```\n":                                `</h2>`,
	} {
		page := write(t, transcript.WriteHTML, archive.Session{Messages: []loquat.Message{{Role: "assistant", Content: content}}})
		if !strings.Contains(page, want) {
			_, body, _ := strings.Cut(page, "<article")
			t.Errorf("%q lacks %s:\n%s", content, want, body)
		}
	}
}

// Whatever is between them, no word of a message is missing on the page.
func TestHTMLKeepsEachWord(t *testing.T) {
	piece := rapid.SampledFrom([]string{"word", "```", "~~~ ", "````", "`", "\n", "\n", " ", "\n```go ", "\n```\n"})
	rapid.Check(t, func(t *rapid.T) {
		content, words := "", rapid.IntRange(0, 12).Draw(t, "words")
		for i := range words {
			content += piece.Draw(t, "before") + piece.Draw(t, "and") + fmt.Sprintf("<%d>", i)
		}
		var b bytes.Buffer
		if err := transcript.WriteHTML(&b, archive.Session{Messages: []loquat.Message{{Role: "user", Content: content}}}); err != nil {
			t.Fatal(err)
		}
		for i := range words {
			if !strings.Contains(b.String(), fmt.Sprintf("&lt;%d&gt;", i)) {
				t.Fatalf("%d of %q is not on the page", i, content)
			}
		}
	})
}

// A file says of a message what the terminal says: how it ended, all its reasoning, and of a tool what is meant for people.
func TestWhatReadersAreShown(t *testing.T) {
	display := loquat.Object{}.Set("type", "text").Set("content", "for people")
	s := archive.Session{Messages: []loquat.Message{
		{Role: "assistant", Content: "cut", Metadata: loquat.Object{}.Set("finish_reason", "length").Set("reasoning", "first").Set("reasoning_content", "second").Set("refusal", "I will not.")},
		{Role: "tool", Content: "for the model", Metadata: loquat.Object{}.Set("display", display)},
		{Role: "assistant", Content: "cut, too", Metadata: loquat.Object{}.Set("finish_reason", "content_filter")},
		{Role: "user", Metadata: loquat.Object{}.Set("display", display)},
	}}
	for name, to := range map[string]func(io.Writer, archive.Session) error{"Markdown": transcript.WriteMarkdown, "HTML": transcript.WriteHTML} {
		text := strings.ReplaceAll(write(t, to, s), `\_`, "_")
		for _, want := range []string{
			"The reply was cut at the token limit (finish_reason length).", "A content filter of the backend cut the reply (finish_reason content_filter).",
			"The model refused: I will not.", "second\n", "first", "for people",
		} {
			if !strings.Contains(text, want) {
				t.Errorf("the %s lacks %q:\n%s", name, want, text)
			}
		}
		if strings.Contains(text, "for the model") || strings.Count(text, "for people") != 1 || strings.Contains(text, "no text") || strings.Contains(text, "..") {
			t.Errorf("the %s is\n%s", name, text)
		}
	}
}

// A fence that a message leaves open ends with the message, so that what follows is not code.
func TestMarkdownEndsFences(t *testing.T) {
	for content, end := range map[string]string{
		"```go\nx := 1": "x := 1\n```\n\n## ", "~~~~\n```\nx\n": "x\n~~~~\n\n## ", "- item\n  ```sh\n  ls": "  ls\n  ```\n\n## ",
		"```\nx\n```": "x\n```\n\n## ", "a ``` b": "b\n\n## ", "```ls```": "```ls```\n\n## ", "```\nx\n\n\n": "x\n```\n\n## ",
	} {
		s := archive.Session{Messages: []loquat.Message{{Role: "assistant", Content: content}, {Role: "user", Content: "next"}}}
		if text := write(t, transcript.WriteMarkdown, s); !strings.Contains(text, end) {
			t.Errorf("of %q the text is\n%s", content, text)
		}
	}
}

// Whatever a session has, its page has only the tags and attributes of the program.
func TestHTMLHasOnlyItsOwnTags(t *testing.T) {
	known := regexp.MustCompile(`^<(/?(html|head|title|style|body|h1|h2|p|small|article|details|summary|div|pre|em)|!DOCTYPE html|html lang="en"|meta [^>]*|(div|pre|em|h1) dir="auto"|article class="(user|assistant|system|tool)"|img alt="[^"]*" src="data:image/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]*")>$`)
	tags := regexp.MustCompile(`<[^>]*>`)
	hostile := rapid.SampledFrom([]string{"<script>alert(1)</script>", `" onload="x`, "</style><img src=x onerror=x>", "</pre>", "```\n</pre><b>", "<!--", "javascript:x", "\x00", "&lt;", "'><svg/onload=x>"})
	rapid.Check(t, func(t *rapid.T) {
		s := archivetest.Sessions().Draw(t, "session")
		s.AgentID, s.Metadata = hostile.Draw(t, "agent"), loquat.Object{}.Set("title", hostile.Draw(t, "title"))
		for i := range s.Images {
			s.Images[i].Name = hostile.Draw(t, "name")
		}
		for i := range s.Messages {
			m := &s.Messages[i]
			m.Content += hostile.Draw(t, "content")
			text := hostile.Draw(t, "text")
			m.Metadata = m.Metadata.Set("model", text).Set("reasoning", text).Set("tool_name", text).Set("incomplete", text).
				Set("tool_calls", []loquat.ToolCall{{Name: text, Arguments: text}}).
				Set("attachments", []loquat.Object{loquat.Object{}.Set("url", text), loquat.Object{}.Set("data_url", "data:image/png;base64,"+text), loquat.Object{}.Set("data_url", "data:"+text+";base64,"+base64.StdEncoding.EncodeToString([]byte(text)))})
		}
		var b bytes.Buffer
		if err := transcript.WriteHTML(&b, s); err != nil {
			t.Fatal(err)
		}
		_, body, _ := strings.Cut(b.String(), "</style>")
		for _, tag := range tags.FindAllString(body, -1) {
			if !known.MatchString(tag) {
				t.Fatalf("the page has the tag %s", tag)
			}
		}
	})
}
