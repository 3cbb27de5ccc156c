package transcript

import (
	"fmt"
	"io"
	"strings"

	"loquat/internal/archive"
	"loquat/internal/readable"
)

// WriteMarkdown writes a session as Markdown. Messages stay as they are, because replies of models
// are Markdown already; but a fence of code that one leaves open is closed. Images are data URLs.
func WriteMarkdown(w io.Writer, s archive.Session) error {
	p := &page{w: w}
	p.text("# ", oneLine(titleOf(s)), "\n\n", oneLine(fmt.Sprintf("Session %s, agent %s, from %s to %s.", s.SessionID, s.AgentID, timeOf(s.CreatedAt), timeOf(s.UpdatedAt))), "\n")
	for _, m := range s.Messages {
		p.text("\n## ", oneLine(speaker(m)+", "+timeOf(m.CreatedAt)), "\n")
		if text := readable.Reasoning(m.Metadata); text != "" {
			p.text("\nReasoning:\n\n> ", strings.ReplaceAll(text, "\n", "\n> "), "\n")
		}
		if content := strings.TrimRight(contentOf(m), "\n"); content != "" {
			p.text("\n", content, "\n")
			if marker := readable.OpenFence(content); marker != "" {
				p.text(marker, "\n")
			}
		}
		for _, call := range calls(m) {
			mark := fence(call)
			p.text("\n", mark, "\nTool call: ", call, "\n", mark, "\n")
		}
		for _, image := range pictures(s, m) {
			if image.media == "" {
				p.text("\n", oneLine(image.name), "\n")
				continue
			}
			p.text("\n![", oneLine(image.name), "](data:", image.media, ";base64,")
			if p.err == nil {
				p.err = image.write(w)
			}
			p.text(")\n")
		}
		for _, note := range notes(m) {
			p.text("\n", oneLine(note), "\n")
		}
	}
	return p.err
}

// oneLine returns a text as one line that Markdown shows as it is.
func oneLine(text string) string {
	var b strings.Builder
	for _, c := range strings.Join(strings.Fields(text), " ") {
		if strings.ContainsRune("\\`*_[]<>#|~&", c) {
			b.WriteByte('\\')
		}
		b.WriteRune(c)
	}
	return b.String()
}

// fence returns the backticks that begin and end a block of code with this text.
func fence(code string) string {
	mark := "```"
	for strings.Contains(code, mark) {
		mark += "`"
	}
	return mark
}
