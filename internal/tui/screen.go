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

// Look is what a writer can show.
type Look struct {
	Terminal bool // a person watches: increments are shown as they come
	Color    bool
	Width    int // columns; 0 when unknown
}

// Detect finds out about w. A terminal has colours unless NO_COLOR is set or TERM
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

// Screen is a writer that knows where its line stands. Its first failed write is
// kept in Err, and nothing is written after it.
type Screen struct {
	Look
	w       io.Writer
	midline bool
	err     error
}

// NewScreen makes a Screen that writes to w.
func NewScreen(w io.Writer, look Look) *Screen { return &Screen{Look: look, w: w} }

// Err returns the first error of a write.
func (s *Screen) Err() error { return s.err }

// style is the parameter of an ANSI colour sequence; empty is the terminal's own.
type style string

const (
	plain  style = ""
	dim    style = "2"
	red    style = "31"
	yellow style = "33"
	cyan   style = "36"
)

// print writes text where the line stands.
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

// breakLine ends the line, if one is begun.
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

// fit cuts text to the width of the terminal.
func (s *Screen) fit(text string) string {
	if s.Width == 0 {
		return text
	}
	return loquat.Clip(OneLine(text), s.Width)
}

// maxBlockLines is how much of a tool's output a terminal shows.
const maxBlockLines = 40

// block writes text as indented lines of its own. A terminal shows the beginning
// and says how much is left out.
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

// Clean makes text of others safe to print. What could move the cursor, change
// colours, talk to the terminal or reorder the text becomes a visible sign. Line
// feeds and tabs stay, carriage returns are removed.
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
			return '\u2400' + r // the control pictures
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

// EscapeJSON returns the same JSON with what Clean would replace written as escapes.
// Such characters stand only within strings.
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
