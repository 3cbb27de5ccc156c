//go:build unix

package terminal_test

import (
	"flag"
	"fmt"
	"html"
	"image/color"
	"os"
	"strings"
	"testing"

	"loquat"
)

var picture = flag.String("picture", "", "write the picture of docs/pictures.md to this file")

// The attributes of a cell that a picture shows, as the emulator numbers them.
const (
	bold    = 1 << 0
	faint   = 1 << 1
	italic  = 1 << 2
	reverse = 1 << 5
)

// The picture of the documentation shows a chat as the terminal does.
func TestPicture(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for i, title := range []string{"A recipe for bread", "Notes on a talk", "A plan for the garden"} {
		s.session(t, fmt.Sprint("other", i), title, nil, user(title), reply("Here it is."))
	}
	call := loquat.Object{}.Set("reasoning_content", "I need the weather.").Set("tool_calls", []any{
		map[string]any{"id": "c", "type": "function", "function": map[string]any{"name": "weather", "arguments": `{"city": "Ulm"}`}}})
	s.session(t, "weather", "The weather in Ulm", nil,
		user("How is the weather in Ulm, and how do I convert it to Fahrenheit?"),
		loquat.NewMessage{Role: loquat.RoleAssistant, Metadata: call},
		loquat.NewMessage{Role: loquat.RoleTool, Content: `{"sky": "clear", "celsius": 21}`, Metadata: loquat.Object{}.Set("tool_call_id", "c").Set("tool_name", "weather")},
		reply("The sky over **Ulm** is clear, at 21 °C.\n\n| day | sky | °C |\n|---|---|---:|\n| today | clear | 21 |\n| tomorrow | rain | 16 |\n\n"+
			"```ts\nconst fahrenheit = (celsius: number) => celsius * 9 / 5 + 32;\n```\n"))
	x := start(t, 104, 26, []string{"COLORTERM=truecolor"}, "--server", s.url, "--session", "weather", "--theme", "dark")
	x.wait("● connected", "tomorrow", "fahrenheit", "A recipe for bread")
	x.settle()
	svg := x.svg("loquat chat: a chat with the call of a tool, a table and code")
	for _, word := range []string{">The weather in Ulm", "tomorrow", "fahrenheit"} {
		if !strings.Contains(svg, word) {
			t.Errorf("the picture does not show %q", word)
		}
	}
	if strings.Count(svg, "fill=\"#") < 20 {
		t.Error("the picture has no colours")
	}
	if *picture != "" {
		if err := os.WriteFile(*picture, []byte(svg), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// svg draws the screen: each run of cells with the same style is a text of a fixed width.
func (x *terminal) svg(title string) string {
	const width, height, margin = 9, 18, 12
	var out strings.Builder
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace" font-size="15">`+"\n",
		x.emu.Width()*width+2*margin, x.emu.Height()*height+2*margin)
	fmt.Fprintf(&out, "<title>%s</title>\n<rect width=\"100%%\" height=\"100%%\" rx=\"8\" fill=\"#1c1c22\"/>\n", html.EscapeString(title))
	for y := range x.emu.Height() {
		for column := 0; column < x.emu.Width(); {
			run := x.run(column, y)
			left, top := margin+column*width, margin+y*height
			if run.background != "" {
				fmt.Fprintf(&out, `<rect x="%d" y="%d" width="%d" height="%d" fill="%s"/>`+"\n", left, top, run.cells*width, height, run.background)
			}
			if strings.TrimSpace(run.text) != "" {
				fmt.Fprintf(&out, `<text x="%d" y="%d" textLength="%d" xml:space="preserve"%s>%s</text>`+"\n", left, top+14, run.cells*width, run.style, html.EscapeString(run.text))
			}
			column += run.cells
		}
	}
	return out.String() + "</svg>\n"
}

// run is a part of a line that has one style.
type run struct {
	text, style, background string
	cells                   int
}

// run returns the run that begins at a cell.
func (x *terminal) run(column, y int) run {
	r := run{}
	for column+r.cells < x.emu.Width() {
		cell := x.emu.CellAt(column+r.cells, y)
		next := run{text: " ", cells: 1}
		if cell != nil {
			foreground, background := cell.Style.Fg, cell.Style.Bg
			if cell.Style.Attrs&reverse != 0 {
				foreground, background = background, foreground
				if background == nil {
					foreground, background = color.Gray{0x1c}, color.Gray{0xdd}
				}
			}
			next.background = hex(background, "")
			next.style = fmt.Sprintf(" fill=%q", hex(foreground, "#dddddd"))
			for _, a := range []struct {
				bit  uint8
				text string
			}{{bold, ` font-weight="bold"`}, {faint, ` opacity="0.6"`}, {italic, ` font-style="italic"`}} {
				if cell.Style.Attrs&a.bit != 0 {
					next.style += a.text
				}
			}
			if cell.Content != "" {
				next.text, next.cells = cell.Content, max(cell.Width, 1)
			}
		}
		if r.cells > 0 && (next.style != r.style || next.background != r.background) {
			break
		}
		r = run{r.text + next.text, next.style, next.background, r.cells + next.cells}
	}
	return r
}

// hex writes a color for SVG, or another text if there is none.
func hex(c color.Color, none string) string {
	if c == nil {
		return none
	}
	r, g, b, _ := c.RGBA()
	return fmt.Sprintf("#%02x%02x%02x", r>>8, g>>8, b>>8)
}
