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
	"loquat/internal/readable"
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
		if text := readable.Reasoning(m.Metadata); text != "" {
			p.text("<details><summary>Reasoning</summary>\n")
			p.block("div", text)
			p.text("</details>\n")
		}
		p.content(contentOf(m))
		for _, call := range calls(m) {
			p.block("pre", "Tool call: "+call)
		}
		for _, image := range pictures(s, m) {
			p.image(image)
		}
		for _, note := range notes(m) {
			p.block("em", note)
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

// content writes a message. What is between fences gets the form of code, and the words behind an opening fence are in
// front of it.
func (p *page) content(text string) {
	var lines []string
	fence := "" // the marker of the open one
	for line := range strings.SplitSeq(text, "\n") {
		marker, info := readable.Fence(line)
		switch {
		case fence != "" && readable.EndsFence(line, fence):
			p.lines(lines, true)
			lines, fence = nil, ""
		case fence == "" && marker != "":
			p.lines(lines, false)
			lines, fence = nil, marker
			if info != "" {
				p.block("em", info)
			}
		default:
			lines = append(lines, line)
		}
	}
	p.lines(lines, fence != "")
}

// lines writes lines of code or of text. A text without words is left out.
func (p *page) lines(lines []string, code bool) {
	text := strings.Join(lines, "\n")
	switch {
	case code && len(lines) > 0:
		p.block("pre", text)
	case !code && strings.TrimSpace(text) != "":
		p.block("div", strings.Trim(text, "\n"))
	}
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
