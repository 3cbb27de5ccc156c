package transcript

import (
	"crypto/sha256"
	_ "embed" // the style
	"encoding/base64"
	"fmt"
	"html"
	"io"
	"strings"

	"loquat/internal/archive"
)

//go:embed page.css
var style string

// Policy is the Content-Security-Policy of a page: it runs no script, loads nothing, and sends no
// form. The style is allowed by its hash.
var Policy = policy()

func policy() string {
	hash := sha256.Sum256([]byte(style))
	return "default-src 'none'; img-src data:; style-src 'sha256-" + base64.StdEncoding.EncodeToString(hash[:]) + "'; base-uri 'none'; form-action 'none'"
}

// WriteHTML writes a session as one page. All text in it is escaped.
func WriteHTML(w io.Writer, s archive.Session) error {
	p := &page{w: w}
	title := html.EscapeString(titleOf(s))
	p.text("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n",
		`<meta http-equiv="Content-Security-Policy" content="`, html.EscapeString(Policy), "\">\n",
		"<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<meta name=\"referrer\" content=\"no-referrer\">\n",
		"<title>", title, "</title>\n<style>", style, "</style>\n</head>\n<body>\n<h1 dir=\"auto\">", title, "</h1>\n<p>",
		html.EscapeString(fmt.Sprintf("Session %s, agent %s, from %s to %s.", s.SessionID, s.AgentID, timeOf(s.CreatedAt), timeOf(s.UpdatedAt))), "</p>\n")
	for _, m := range s.Messages {
		p.text(`<article class="`, html.EscapeString(m.Role), "\">\n<h2>", html.EscapeString(speaker(m)), " <small>", timeOf(m.CreatedAt), "</small></h2>\n")
		if text := reasoning(m); text != "" {
			p.text("<details><summary>Reasoning</summary>\n")
			p.block("div", text)
			p.text("</details>\n")
		}
		p.content(m.Content)
		for _, call := range calls(m) {
			p.block("pre", "Tool call: "+call)
		}
		for _, image := range pictures(s, m) {
			p.image(image)
		}
		if text := note(m); text != "" {
			p.block("em", text)
		}
		p.text("</article>\n")
	}
	p.text("</body>\n</html>\n")
	return p.err
}

// block writes a text in an element. The newline that a browser would drop after <pre> is written
// twice.
func (p *page) block(element, text string) {
	if element == "pre" && strings.HasPrefix(text, "\n") {
		text = "\n" + text
	}
	p.text("<", element, ` dir="auto">`, html.EscapeString(text), "</", element, ">\n")
}

// content writes a message. Blocks of code between lines of backticks get the form of code.
func (p *page) content(text string) {
	for text != "" {
		before, rest, found := cutFence(text)
		if strings.TrimSpace(before) != "" {
			p.block("div", strings.Trim(before, "\n"))
		}
		if !found {
			return
		}
		code, after := endFence(rest)
		p.block("pre", code)
		text = after
	}
}

// cutFence returns the text before a line that begins with three backticks, and the text from that
// line on.
func cutFence(text string) (before, rest string, found bool) {
	if strings.HasPrefix(text, "```") {
		return "", text, true
	}
	before, rest, found = strings.Cut(text, "\n```")
	return before, "```" + rest, found
}

// endFence returns the code of a block that begins with a line of backticks, and the text after
// its end.
func endFence(text string) (code, after string) {
	mark := text[:len(text)-len(strings.TrimLeft(text, "`"))]
	_, text, _ = strings.Cut(text, "\n")
	if strings.HasPrefix(text, mark) {
		text = "\n" + text
	}
	code, after, _ = strings.Cut(text, "\n"+mark)
	_, after, _ = strings.Cut(after, "\n")
	return code, after
}

func (p *page) image(image picture) {
	if image.media == "" {
		p.block("em", image.name)
		return
	}
	p.text(`<img alt="`, html.EscapeString(image.name), `" src="data:`, image.media, ";base64,")
	if p.err == nil {
		p.err = image.write(p.w)
	}
	p.text("\">\n")
}
