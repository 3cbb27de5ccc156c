package markdown

import (
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/charmbracelet/x/ansi"
	"pgregory.net/rapid"
)

var allowed = regexp.MustCompile("\x1b\\[[0-9;:]*m|\x1b\\]8;[^\x00-\x1f\x7f]*(\x07|\x1b\\\\)")

// Whatever a text contains, the lines have no sequence besides styles and links to the web, and
// none is wider than the terminal.
func TestHostileText(t *testing.T) {
	piece := rapid.SampledFrom([]string{
		"\x1b[2J", "\x1b]0;owned\x07", "\u009b31m", "&#27;[31m", "&#x1b;]52;c;aGk=&#7;", "&#x9b;2J", "&#155;", "\u202e", "&#8238;", "&#10;",
		"[a](javascript:alert)", "[b](http://x/%1b]0;y%07)", "<a href=\"\x1b\">", "![i](file:///etc/passwd)", "[c](<http://h/&#27;]8;;>)",
		"```\n", "`", "**", "| a | b |\n|---|---|\n", "漢字", "👩\u200d🚀", "e\u0301\u0301\u0301", "word ", "\n", "\n\n", "\t", "# ", "- ", strings.Repeat("w", 90), "<http://h/\u009c>",
	})
	for _, style := range []Style{Dark, Light, Plain} {
		for _, width := range []int{1, 2, 17, 60} {
			cells := ansi.Method(width % 2) // both ways to count
			r, err := NewRenderer(width, style, cells)
			if err != nil {
				t.Fatal(err)
			}
			rapid.Check(t, func(rt *rapid.T) {
				text := strings.Join(rapid.SliceOfN(piece, 0, 12).Draw(rt, "pieces"), "")
				for _, line := range r.Render(Block{Text: text}) {
					if w := cells.StringWidth(line); w > width {
						rt.Fatalf("%q is %d columns wide, of %d", line, w, width)
					}
					bare := allowed.ReplaceAllString(line, "")
					if i := strings.IndexFunc(bare, func(r rune) bool { return unicode.IsControl(r) || r >= '\u202a' && r <= '\u202e' }); i >= 0 {
						rt.Fatalf("%q has a control character: %q", text, bare[i:])
					}
					for _, link := range regexp.MustCompile("\x1b\\]8;[^;]*;([^\x07\x1b]*)").FindAllStringSubmatch(line, -1) {
						if link[1] != "" && !strings.HasPrefix(strings.ToLower(link[1]), "http") {
							rt.Fatalf("a link leads to %q", link[1])
						}
					}
				}
			})
		}
	}
}

func TestRender(t *testing.T) {
	r, err := NewRenderer(30, Plain, ansi.WcWidth)
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"# Title":                          "# Title",
		"a **bold** word":                  "a **bold** word",
		"words that fill a line and go on": "words that fill a line and go\non",
		"some `code`":                      "some `code`",
		"```\ncode  x\n```":                "  code  x",
		"3. three\n4. four":                "3. three\n4. four",
		"an &amp; and a &#65;":             "an & and a A",
		"&#27;[31mred":                     "\ufffd[31mred",
	} {
		if got := strings.Join(r.Render(Block{Text: text, Ended: true}), "\n"); got != want {
			t.Errorf("%q becomes\n%s\nwant\n%s", text, got, want)
		}
	}
}
