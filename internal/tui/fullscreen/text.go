package fullscreen

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"loquat"
	"loquat/internal/tui"
)

// ruler measures texts as the terminal does: by characters, or by what they form together. It is
// embedded in the model, and set when the terminal has answered which it does.
type ruler struct{ cells ansi.Method }

// oneLine makes a text of others safe for one line of at most width columns.
func (r ruler) oneLine(text string, width int) string {
	if len(text) > 8*max(width, 1)+64 { // most of a long text cannot be seen
		text = text[:8*width+64]
	}
	return r.cut(tui.OneLine(text), max(width, 0))
}

// cut shortens a line to at most width columns.
func (r ruler) cut(line string, width int) string {
	if r.cells.StringWidth(line) <= width {
		return line
	}
	// Truncate returns a line as it is that fits by the other way of counting. With spaces none fits.
	return r.cells.Truncate(line+strings.Repeat(" ", width+1), width, "…")
}

// fit makes a line exactly width columns wide.
func (r ruler) fit(line string, width int) string {
	line = r.cut(line, width)
	if n := width - r.cells.StringWidth(line); n > 0 {
		line += strings.Repeat(" ", n)
	}
	return line
}

// sides returns a line with a text at each end. The left one gives way.
func (r ruler) sides(left, right string, width int) string {
	right = r.cut(right, width)
	room := width - r.cells.StringWidth(right)
	if right != "" {
		room--
	}
	if right == "" {
		return r.fit(left, width)
	}
	return r.fit(left, max(room, 0)) + r.fit(" ", width-max(room, 0)-r.cells.StringWidth(right)) + right
}

// plural returns a number with its noun.
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// seconds formats a duration as whole seconds, or minutes and seconds.
func seconds(d time.Duration) string {
	s := int(max(d, 0).Round(time.Second) / time.Second)
	if s < 60 {
		return fmt.Sprintf("%d s", s)
	}
	return fmt.Sprintf("%d min %d s", s/60, s%60)
}

// secondsUntil returns the seconds until a time, rounded up.
func secondsUntil(at, now time.Time) int {
	return max(0, int((at.Sub(now)+time.Second-1)/time.Second))
}

// plainError returns what an error says to people: without its code, and without what it wraps.
func plainError(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return strings.Replace(err.Error(), context.DeadlineExceeded.Error(), "the server did not answer within "+seconds(callTimeout), 1)
	}
	if e, ok := errors.AsType[*loquat.Error](err); ok && e.Code == loquat.CodePreconditionFailed {
		return strings.Replace(err.Error(), e.Error(), "the chat has changed meanwhile; look at it, and try again", 1)
	} else if ok && e.Detail != "" {
		return strings.Replace(err.Error(), e.Error(), e.Detail, 1)
	}
	return err.Error()
}
