package tui

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"

	"loquat"
)

// Look describes the capabilities of a writer.
type Look struct {
	Terminal bool // the writer is a terminal, so increments are shown as they arrive
	Color    bool
	Width    int // columns; 0 when unknown
}

// Detect detects the capabilities of w. A terminal has colours unless NO_COLOR is set or TERM
// is dumb.
func Detect(w io.Writer, getenv func(string) string) Look {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return Look{}
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		width = 0
	}
	return Look{Terminal: true, Color: getenv("NO_COLOR") == "" && getenv("TERM") != "dumb", Width: width}
}

// Screen is a writer that knows whether its last line is complete. After the first failed
// write it writes nothing more; Err returns the error.
type Screen struct {
	Look
	w       io.Writer
	midline bool // the last line is incomplete
	err     error
}

// NewScreen returns a Screen that writes to w.
func NewScreen(w io.Writer, look Look) *Screen { return &Screen{Look: look, w: w} }

// Err returns the first error of a write.
func (s *Screen) Err() error { return s.err }

// style is the parameter of an ANSI colour sequence. "" means the terminal's default.
type style string

const (
	plain  style = ""
	dim    style = "2"
	red    style = "31"
	yellow style = "33"
	cyan   style = "36"
)

// print writes text without a line break before or after it.
func (s *Screen) print(st style, text string) {
	if s.Terminal {
		text = Clean(text)
	}
	if text == "" || s.err != nil {
		return
	}
	s.midline = !strings.HasSuffix(text, "\n")
	if s.Color && st != plain {
		text = "\x1b[" + string(st) + "m" + text + "\x1b[0m"
	}
	_, s.err = io.WriteString(s.w, text)
}

// breakLine ends the last line if it is incomplete.
func (s *Screen) breakLine() {
	if s.midline {
		s.print(plain, "\n")
	}
}

// line writes text as a line of its own.
func (s *Screen) line(st style, text string) {
	s.breakLine()
	s.print(st, OneLine(text))
	s.breakLine()
}

// clipToWidth clips text to the width of the terminal.
func (s *Screen) clipToWidth(text string) string {
	if s.Width == 0 {
		return text
	}
	return loquat.Clip(OneLine(text), s.Width)
}

// maxBlockLines is the number of lines of a block that a terminal shows.
const maxBlockLines = 40

// block writes text as a block of indented lines. A terminal shows the beginning and the
// number of lines that are left out.
func (s *Screen) block(st style, text string) {
	s.breakLine()
	lines := strings.Split(strings.TrimRight(Clean(text), "\n"), "\n")
	more := 0
	if s.Terminal && len(lines) > maxBlockLines {
		more = len(lines) - maxBlockLines
		lines = lines[:maxBlockLines]
	}
	for _, l := range lines {
		s.print(st, "  "+l+"\n")
	}
	if more > 0 {
		s.print(st, "  … and "+count(more, "more line")+"\n")
	}
}

// Clean makes untrusted text safe to print. It replaces characters that could move the
// terminal's cursor, change colours, send other control sequences or reorder the text by
// visible characters. Line feeds and tabs stay. Carriage returns are removed.
func Clean(text string) string {
	if strings.IndexFunc(text, harmful) < 0 && utf8.ValidString(text) {
		return text
	}
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\r':
			return -1
		case !harmful(r):
			return r
		case r < ' ':
			return '\u2400' + r // the picture of the control character
		case r == '\u007f':
			return '\u2421'
		default:
			return utf8.RuneError
		}
	}, text)
}

// harmful reports whether r is a control character (C0, DEL or C1), a line or
// paragraph separator, or one of the characters that reorder the text after them:
// the bidirectional embeddings, overrides and isolates. The bidirectional marks are
// not harmful: they reorder nothing else, and texts in Hebrew and Arabic need them.
func harmful(r rune) bool {
	switch {
	case r < ' ':
		return r != '\n' && r != '\t'
	case r >= '\u007f' && r <= '\u009f', r >= '\u2028' && r <= '\u202e', r >= '\u2066' && r <= '\u2069':
		return true
	}
	return false
}

// OneLine is Clean for text that must stay on one line: line feeds and tabs become
// spaces.
func OneLine(text string) string {
	return strings.NewReplacer("\n", " ", "\t", " ").Replace(Clean(text))
}

// EscapeJSON escapes the characters in JSON that Clean would replace. Such characters occur
// only in strings.
func EscapeJSON(text []byte) []byte {
	if bytes.IndexFunc(text, harmful) < 0 {
		return text
	}
	out := make([]byte, 0, len(text)+64)
	for _, r := range string(text) {
		if harmful(r) {
			out = fmt.Appendf(out, `\u%04x`, r)
		} else {
			out = utf8.AppendRune(out, r)
		}
	}
	return out
}
