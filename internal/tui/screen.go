package tui

import (
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
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
		text = clean(text)
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
	s.print(st, oneLine(text))
	s.breakLine()
}

// fit cuts text to the width of the terminal.
func (s *Screen) fit(text string) string {
	if s.Width == 0 {
		return text
	}
	return clip(oneLine(text), s.Width)
}

// maxBlockLines is how much of a tool's output a terminal shows.
const maxBlockLines = 40

// block writes text as indented lines of its own. A terminal shows the beginning
// and says how much is left out.
func (s *Screen) block(st style, text string) {
	s.breakLine()
	lines := strings.Split(strings.TrimRight(clean(text), "\n"), "\n")
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

// clean takes the power out of text that others wrote: what could move the cursor,
// change colours or talk to the terminal becomes a visible sign. Line feeds and
// tabs stay, carriage returns go.
func clean(text string) string {
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

// harmful reports whether r is a control character: C0, DEL or C1.
func harmful(r rune) bool {
	return r < ' ' && r != '\n' && r != '\t' || r >= '\u007f' && r <= '\u009f'
}

// oneLine is clean text without line ends.
func oneLine(text string) string {
	return strings.NewReplacer("\n", " ", "\t", " ").Replace(clean(text))
}

// clip cuts text to width columns, with a sign that it did.
func clip(text string, width int) string {
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	return string([]rune(text)[:max(width-1, 0)]) + "…"
}
