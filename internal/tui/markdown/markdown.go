// Package markdown renders Markdown as lines of a terminal.
//
// The texts are those of models and plugins. Whatever they contain, the lines have no control
// sequences besides colours, attributes and links to web addresses, and none is wider than asked
// for.
package markdown

import (
	"html"
	"io"
	"regexp"
	"strconv"
	"strings"

	"charm.land/glamour/v2"
	"charm.land/glamour/v2/ansi"
	"charm.land/glamour/v2/styles"
	"charm.land/lipgloss/v2"
	xansi "github.com/charmbracelet/x/ansi"
	"github.com/hashicorp/golang-lru/v2"

	"loquat/internal/tui"
)

// Style is the set of colours of a Renderer.
type Style string

// The styles. Plain has no colours, and shows in characters what others show by colours.
const (
	Dark  Style = "dark"
	Light Style = "light"
	Plain Style = "plain"
)

// cachedBlocks is the number of blocks whose lines are kept.
const cachedBlocks = 256

// Renderer renders blocks for one width and style. It is not safe for concurrent use.
type Renderer struct {
	width int
	cells xansi.Method
	term  *glamour.TermRenderer
	lines *lru.Cache[Block, []string] // of blocks that have ended

	open      Block // the last one that has not ended
	openLines []string
}

// NewRenderer returns a Renderer of lines of at most width columns. cells is how the terminal counts
// them.
func NewRenderer(width int, style Style, cells xansi.Method) (*Renderer, error) {
	width = max(width, 1)
	term, err := glamour.NewTermRenderer(glamour.WithStyles(styleConfig(style)), glamour.WithWordWrap(width))
	if err != nil {
		return nil, err
	}
	lines, err := lru.New[Block, []string](cachedBlocks)
	return &Renderer{width: width, cells: cells, term: term, lines: lines}, err
}

// styleConfig returns the styles of glamour without margins, which the transcript has itself.
func styleConfig(style Style) ansi.StyleConfig {
	c, theme := styles.DarkStyleConfig, "github-dark"
	switch style {
	case Light:
		c, theme = styles.LightStyleConfig, "github"
	case Plain:
		c, theme = styles.ASCIIStyleConfig, ""
	}
	none := uint(0)
	c.Document.Margin, c.Document.BlockPrefix, c.Document.BlockSuffix = &none, "", ""
	c.Document.Color = nil
	c.CodeBlock.Chroma, c.CodeBlock.Theme = nil, theme // the styles of Chroma that glamour registers cannot change later
	two := uint(2)
	c.CodeBlock.Margin = &two
	if style == Plain {
		c.Code.Prefix, c.Code.Suffix = "`", "`"
	} else {
		c.Code.BackgroundColor, c.Code.Prefix, c.Code.Suffix = nil, "", ""
		c.H1.BackgroundColor, c.H1.Color, c.H1.Prefix, c.H1.Suffix = nil, c.Heading.Color, "# ", ""
	}
	return c
}

// Render returns the lines of a block. It keeps those of the blocks that have ended, and of the last
// one that has not.
func (r *Renderer) Render(b Block) []string {
	if lines, ok := r.lines.Get(b); ok {
		return lines
	} else if r.openLines != nil && b == r.open {
		return r.openLines
	}
	var lines []string
	if b.Spaced {
		lines = append(lines, "")
	}
	lines = append(lines, r.render(b.Text)...)
	if !b.Ended {
		r.open, r.openLines = b, lines
		return lines
	}
	b.Text = strings.Clone(b.Text) // otherwise it would keep the whole text as it is now
	r.lines.Add(b, lines)
	return lines
}

func (r *Renderer) render(block string) []string {
	text, err := r.term.Render(defuseEntities(tui.Clean(block)))
	if err != nil { // a fault of the library costs the form, not the text
		text = tui.Clean(block)
	}
	return Lines(strings.Trim(dropSequences(text), "\n"), r.width, r.cells)
}

// Lines wraps a text with styles into lines of at most width columns, each of which begins and ends
// without a style.
func Lines(text string, width int, cells xansi.Method) []string {
	text = strings.ReplaceAll(text, "\t", "    ")
	var wrapped strings.Builder
	w := lipgloss.NewWrapWriter(&wrapped) // it ends and repeats the styles at line breaks
	_, _ = io.WriteString(w, cells.Wrap(text, max(width, 1), ""))
	_ = w.Close()
	lines := strings.Split(wrapped.String(), "\n")
	for i, line := range lines {
		lines[i] = TrimRight(line)
		if cells.StringWidth(lines[i]) > width { // a character that is wider than the line
			lines[i] = ""
		}
	}
	for len(lines) > 1 && lines[0] == "" {
		lines = lines[1:]
	}
	for len(lines) > 1 && lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	return lines
}

var (
	sequence    = regexp.MustCompile("\x1b(?:\\[[0-9;:]*m|\\]8;[^\x00-\x1f\x7f]*(?:\x07|\x1b\\\\))")
	hyperlink   = regexp.MustCompile("^\x1b\\]8;[^;]*;(?:(?i:https?)://[^\x00-\x20\x7f-\u009f]*)?(?:\x07|\x1b\\\\)$")
	trailing    = regexp.MustCompile(`(?:[ ]|\x1b\[[0-9;:]*m)+$`)
	numericChar = regexp.MustCompile(`&#(?:[xX][0-9a-fA-F]{1,8}|[0-9]{1,8});?`)
)

// dropSequences removes what is neither text, nor a style, nor a link to a web address.
func dropSequences(text string) string {
	var out strings.Builder
	for text != "" {
		at := sequence.FindStringIndex(text)
		if at == nil {
			break
		}
		out.WriteString(tui.Clean(text[:at[0]]))
		if seq := text[at[0]:at[1]]; seq[1] == '[' || hyperlink.MatchString(seq) {
			out.WriteString(seq)
		}
		text = text[at[1]:]
	}
	out.WriteString(tui.Clean(text))
	return out.String()
}

// defuseEntities replaces numeric entities that stand for control characters. Markdown would decode
// them, and they could form a sequence that looks like a style.
func defuseEntities(text string) string {
	if !strings.Contains(text, "&#") {
		return text
	}
	return numericChar.ReplaceAllStringFunc(text, func(entity string) string {
		decoded := html.UnescapeString(strings.TrimSuffix(entity, ";") + ";")
		if tui.Clean(decoded) != decoded || strings.ContainsAny(decoded, "\n\r\t") || isC1(entity) {
			return "\ufffd"
		}
		return entity
	})
}

// isC1 reports whether a numeric entity names a C1 control character. HTML reads those as
// characters of Windows-1252, and Markdown does not.
func isC1(entity string) bool {
	digits, base := strings.Trim(entity, "&#;"), 10
	if digits[0] == 'x' || digits[0] == 'X' {
		digits, base = digits[1:], 16
	}
	n, err := strconv.ParseUint(digits, base, 32)
	return err == nil && n >= 0x7f && n <= 0x9f
}

// TrimRight removes the spaces at the end of a line with styles, and ends the styles.
func TrimRight(line string) string {
	at := trailing.FindStringIndex(line)
	if at == nil {
		return line
	}
	kept := line[:at[0]]
	if strings.Contains(kept, "\x1b[") {
		kept += "\x1b[m"
	}
	return kept
}
